"""The view of a search."""
