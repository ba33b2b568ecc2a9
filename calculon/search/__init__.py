"""Search: every execution of a space, counted exactly; the best of them, found without evaluating the rest."""
