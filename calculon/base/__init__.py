"""Foundations of all other packages: units, errors, arrays, and records of arrays."""
