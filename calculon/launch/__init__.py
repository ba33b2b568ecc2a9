"""Launch scripts and configurations of frameworks, read and written: nothing is executed or silently dropped."""
