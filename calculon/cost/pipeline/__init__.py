"""Pipeline parallelism: transfers, the order of passes, and the time of a schedule."""
