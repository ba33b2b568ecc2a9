"""Collectives as libraries run them: placement of a process group, traffic of each algorithm, and times."""
