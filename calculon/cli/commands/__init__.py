"""One module per command of the program, named after it."""
