"""Charts: a function for each kind, which returns its specification for every backend."""
