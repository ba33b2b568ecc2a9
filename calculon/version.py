"""The version of this package."""

__version__ = "1.12.0"
