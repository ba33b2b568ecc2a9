"""Time and memory of layers, blocks, stages and batches, and the traffic of each dimension of parallelism."""
