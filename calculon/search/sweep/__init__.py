"""Sweeps: evaluate every combination of models, systems, executions and values of their fields together."""
