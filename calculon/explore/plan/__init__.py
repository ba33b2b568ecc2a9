"""The view of one plan."""
