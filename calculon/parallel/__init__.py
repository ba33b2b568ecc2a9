"""One file per dimension of parallelism: its collectives, their link time and their exposed time."""
