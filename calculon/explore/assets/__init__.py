"""Templates, style and script of the page."""
