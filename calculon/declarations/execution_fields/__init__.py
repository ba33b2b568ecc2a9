"""The fields of an execution, by subject: each class adds its own to those of the one before it."""
