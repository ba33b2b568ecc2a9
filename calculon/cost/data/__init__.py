"""Data parallelism (DDP, ZeRO, FSDP): strategies, collectives between replicas, and their exposed time."""
