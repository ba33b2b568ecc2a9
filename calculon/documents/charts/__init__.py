"""Charts: one function per kind, which returns a specification for all drawing backends."""
