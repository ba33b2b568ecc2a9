"""Which executions we ask about: a table of plans, what follows from them, and which of them are feasible."""
