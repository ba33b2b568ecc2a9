"""The pipeline view: the schedule, its stages, and single operators."""
