"""The version of this package."""

__version__ = "1.4.0"
