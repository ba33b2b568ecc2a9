"""The packages of the extra ``web``, without which there is neither the page nor a chart of it."""

import sys
from collections.abc import Sequence
from importlib import import_module

from calculon.base.errors import Problem, SpecError

CHARTS = ("jinja2", "plotly")
"""What the charts of results need."""

PACKAGES = (*CHARTS, "starlette", "uvicorn")
"""What the page needs."""


def require(where: str, packages: Sequence[str] = PACKAGES) -> None:
    """Raise SpecError where packages are missing: all of them, and the command that installs the extra.

    Args:
        where: What is asked for: a command or a function.
        packages: What it needs.
    """
    missing = [name for name in packages if not _is_there(name)]
    if missing:
        hint = f"in a checkout of calculon: {sys.executable} -m pip install '.[web]'; ./bin/calculon does it by itself"
        found = f"no {', '.join(missing)}"
        raise SpecError(where, Problem("", "the packages of the extra web", found, hint))


def _is_there(name: str) -> bool:
    try:
        import_module(name)
    except ImportError:
        return False
    return True
