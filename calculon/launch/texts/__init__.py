"""Readers of launch files in shell, Python and YAML, which find settings without running anything."""
