"""The view of the machine, and what more of it would buy."""
