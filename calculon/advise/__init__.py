"""Advice: plans, comparisons, fixes for infeasible executions, sensitivities and whole training runs."""
