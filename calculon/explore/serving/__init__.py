"""The serving view: deployments that answer requests."""
