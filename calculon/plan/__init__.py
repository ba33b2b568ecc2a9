"""Tables of executions, the counts that follow from them, and the rules that feasible ones meet."""
