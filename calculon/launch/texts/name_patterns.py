"""Glob patterns of setting names, such as ``--lora-*``, listed in texts."""

import re
from collections.abc import Iterable
from fnmatch import translate


def names_in(text: str) -> list[str]:
    """Return the names in a text; lines that begin with ``#`` are comments."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return " ".join(lines).split()


def under(section: str, names: str) -> str:
    """Return the names of settings of a section: ``under("compile", "enable backend")``.

    >>> under("compile", "enable backend")
    'compile.enable compile.backend'
    """
    return " ".join(f"{section}.{name}" for name in names_in(names))


def any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return a regular expression that matches any of several glob patterns."""
    return re.compile("|".join(map(translate, patterns)) or r"(?!)")
