"""Validation: studies of published measurements next to predictions, and the errors of the model.

A study is a folder under ``validation/``: ``study.yaml`` says where the numbers come from, how a measured row becomes
a model, an execution and a system, what the source leaves open and what was chosen, and which error is accepted; a CSV
file carries the measured values. Nothing about a study is code, and nothing is fitted to the rows it is judged on.

:func:`~calculon.validate.published_study.studies` finds them, and
:func:`~calculon.validate.measured_and_predicted.compare` runs one.
"""
