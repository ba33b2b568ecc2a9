"""The version of the package that a worker must have to answer."""

from calculon.errors import CalculonError
from calculon.version import __version__


def check_version(asking: str) -> None:
    """Raise CalculonError where a worker has another version than what asks it."""
    if asking != __version__:
        raise CalculonError(f"a worker has calculon {__version__}, but {asking} asks")
