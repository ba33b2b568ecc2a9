"""Whole training runs: phases, failures, checkpointing, goodput, cost and energy, for columns of step times."""
