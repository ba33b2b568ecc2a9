"""Fields of an execution by subject; each class extends the previous one, which fixes the order of the fields."""
