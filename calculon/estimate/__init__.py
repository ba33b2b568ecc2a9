"""Estimates of executions: one with all its parts, or the columns of many; and how sure their times are.

The parts are layers and operators, groups of ranks and pipeline stages.
"""
