"""Web server of the page, for terminals and for Python."""
