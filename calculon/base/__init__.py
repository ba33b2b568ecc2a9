"""Units, errors, arrays and records, which everything else is written with."""
