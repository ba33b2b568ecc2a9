"""Data parallelism: what replicas exchange, and what hides it."""
