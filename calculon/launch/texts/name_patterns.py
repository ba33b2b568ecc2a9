"""Patterns of names of settings, such as ``--lora-*``."""

import re
from collections.abc import Iterable
from fnmatch import translate


def any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return an expression for names that match one of several patterns."""
    return re.compile("|".join(map(translate, patterns)) or r"(?!)")
