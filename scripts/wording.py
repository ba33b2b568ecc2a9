"""Warn about phrases in changed lines that read like a translation, with what to write instead.

Changed lines are those since a revision (``HEAD`` by default). Some uses are fine, so nothing fails.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXTS = ("*.py", "*.md", "*.html", "*.js", "scripts/test", "bin/calculon")

PHRASES = {
    r"\bbeside\b": 'say "next to", "in addition to", "compared with" or "overlapping"',
    r"\bth(?:at|ose) of\b": "repeat the noun",
    r"\bso many\b": "name the number",
    r"\bof (?:one's|its|their) own\b": "name it: the user's plan, its source",
    r"\bwhere there (?:is|are)\b": 'use "if"',
    r"\bthe same, as far as\b": "name the thing",
    r"\btold apart\b": 'say "distinguished"',
    r"\bfor want of\b": "name the cause",
    r"\b(?:at hand|in sight)\b": "name the thing",
    r'"""(?:What|Where|How|Whether)\b': "begin with a noun or an imperative verb",
    r'"""Return (?:what|how|where|whether|those|which)\b': "name what is returned",
}
"""Regular expressions of phrases, and advice."""

_HUNK = re.compile(r"^@@ -\S+ \+(\d+)")


def main() -> int:
    """Print a warning for each phrase in the lines that differ from a revision."""
    revision = sys.argv[1] if sys.argv[1:] else "HEAD"
    command = ("git", "diff", "-U0", "--no-color", "--no-ext-diff", revision, "--", *TEXTS)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = list(warnings(done.stdout))
    for one in found:
        print(one)
    return 0


def warnings(diff: str) -> Iterator[str]:
    r"""Yield a warning for each phrase in the added lines of a diff without context.

    >>> list(warnings("+++ b/a.py\n@@ -1 +7 @@\n+# beside it\n"))
    ['a.py:7: "beside": say "next to", "in addition to", "compared with" or "overlapping"']
    """
    file, number = "", 0
    for line in diff.splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ ").removeprefix("b/")
        elif hunk := _HUNK.match(line):
            number = int(hunk[1])
        elif line.startswith("+"):
            if file != "scripts/wording.py":  # which lists the phrases
                for phrase, advice in PHRASES.items():
                    for match in re.finditer(phrase, line, re.IGNORECASE):
                        words = match[0].strip('"')
                        yield f'{file}:{number}: "{words}": {advice}'
            number += 1


if __name__ == "__main__":
    sys.exit(main())
