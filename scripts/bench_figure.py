"""What one benchmark tells."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured figure: what, how much work, the median, and the promise it is held against."""

    what: str
    size: str
    median: str
    promise: str
    kept: bool
