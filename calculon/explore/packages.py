"""Packages of the optional ``web`` extra, which the page and its charts need."""

import sys
from collections.abc import Sequence
from importlib import import_module

from calculon.base.errors import Problem, SpecError

CHARTS = ("jinja2", "plotly")
"""Packages needed for charts of results."""

PACKAGES = (*CHARTS, "starlette", "uvicorn")
"""Packages needed for the page."""


def require(where: str, packages: Sequence[str] = PACKAGES) -> None:
    """Raise SpecError listing all missing packages and the command that installs them.

    Args:
        where: The command or function that needs them.
        packages: The needed packages.
    """
    # Import instead of find_spec: a damaged package counts as missing, too.
    missing = [name for name in packages if not _is_there(name)]
    if missing:
        hint = f"in a checkout of calculon: {sys.executable} -m pip install '.[web]'; ./bin/calculon installs it"
        found = f"no {', '.join(missing)}"
        raise SpecError(where, Problem("", "the packages of the extra web", found, hint))


def _is_there(name: str) -> bool:
    try:
        import_module(name)
    except ImportError:
        return False
    return True
