"""The dialects, by name."""

from calculon.launch.dialect import Dialect

DIALECTS: dict[str, Dialect] = {}
"""The dialects by name, in the order in which a file is tried."""
