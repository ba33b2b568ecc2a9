"""Data parallelism: strategies, collectives between replicas, and their exposed time."""
