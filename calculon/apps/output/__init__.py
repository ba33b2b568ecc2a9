"""Tables of executions to files."""
