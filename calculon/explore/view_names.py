"""The names of the views."""

VIEWS = ("plan", "search", "machine", "pipeline")
"""The views, in the order of the page."""
