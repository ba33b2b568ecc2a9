"""One file per dimension of parallelism: its traffic, its link time, its exposed time."""
