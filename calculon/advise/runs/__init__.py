"""Whole runs of plans: their parts, what they depend on, other sizes, and the cheapest fleet that is done in time."""
