"""Validation: studies of published measurements compared with predictions, and the errors of the model.

A study is a folder under ``validation/``: ``study.yaml`` states the source of the numbers, the conversion of measured
rows to models, executions and systems, the choices that the source leaves open, and the accepted error; a CSV file
contains the measured values. Studies contain no code, and nothing is fitted to the rows that evaluate it.

:func:`~calculon.validate.published_study.studies` finds them, and
:func:`~calculon.validate.measured_and_predicted.compare` runs one.
"""
