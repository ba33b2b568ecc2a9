"""Names of the views."""

SERVING = "serving"
"""View of deployments that answer requests; the other views are about training."""

VIEWS = ("plan", "search", "machine", "pipeline", SERVING)
"""The views, in page order."""
