"""Texts of launchers as settings: shell scripts, Python and YAML, read without running anything."""
