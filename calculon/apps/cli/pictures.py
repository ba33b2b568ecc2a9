"""Files of pictures: their suffixes, and the library that draws them."""

import sys

from calculon.errors import Problem, SpecError

PICTURES = (".png", ".svg", ".pdf")
LIBRARY = "matplotlib>=3.8"
"""Requirement of the extra ``plot``."""


def check_library() -> None:
    """Raise SpecError with the command that installs it when matplotlib is missing."""
    try:
        import matplotlib as mpl

        mpl.use("agg")
    except ImportError:
        hint = f"{sys.executable} -m pip install '{LIBRARY}'"
        raise SpecError(
            "plot", Problem("", "the library matplotlib, for pictures", "it is not installed", hint)
        ) from None
