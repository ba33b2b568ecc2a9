"""Tables, bars and texts: drawn in a terminal, as HTML, or written to files."""
