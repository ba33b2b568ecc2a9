"""The program that computed a result: a journal is only continued, and a worker only answers, if it is the same."""

import hashlib
from functools import cache
from pathlib import Path

import calculon
from calculon.base.errors import CalculonError
from calculon.declarations import catalog
from calculon.version import __version__


@cache
def program() -> str:
    """Return the version of the package with a hash of its source and presets, such as ``1.12.0+3f2a9c0d1e5b``.

    The version alone says too little in a checkout, where formulas change between releases.
    """
    digest = hashlib.sha256()
    package = Path(calculon.__file__).parent
    for path in (*sorted(package.rglob("*.py")), *sorted(catalog.names("preset").values())):
        digest.update(path.name.encode() + path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:12]}"


def check_version(asking: str) -> None:
    """Raise CalculonError if a worker runs another program than the one that asks it."""
    if asking != program():
        raise CalculonError(f"a worker has calculon {program()}, but {asking} asks")
