"""The server of the page, from a terminal and from Python."""
