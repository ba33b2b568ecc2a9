"""Pipeline parallelism: transfers, the order of passes (1F1B, interleaved schedule, ...), and the pipeline bubble."""
