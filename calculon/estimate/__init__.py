"""Estimates of executions: single ones with all parts, or many as columns, with prediction intervals.

The parts are layers and operators (rooflines), process groups and pipeline stages.
"""
