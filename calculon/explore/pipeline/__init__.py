"""The view of the schedule, down to single operators."""
