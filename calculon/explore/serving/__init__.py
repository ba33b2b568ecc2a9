"""The view of deployments that answer requests."""
