"""The names of the views."""

SERVING = "serving"
"""The view of deployments that answer requests; the others are of training."""

VIEWS = ("plan", "search", "machine", "pipeline", SERVING)
"""The views, in the order of the page."""
