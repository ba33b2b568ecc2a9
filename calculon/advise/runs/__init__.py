"""Whole training runs of plans: parts, goodput, sensitivities, other sizes, and the cheapest fleet in time."""
