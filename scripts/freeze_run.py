"""Record all outputs of this checkout, and compare a later version with them, to check a refactoring.

scripts/freeze record /tmp/before.json.gz                       takes about five minutes
scripts/freeze compare /tmp/before.json.gz                      exit code 1 if anything differs
scripts/freeze compare /tmp/before.json.gz --agreed agreed.txt

Recorded are the commands of all pages at 80 and 160 columns with the files that they write, the help of each command,
the HTML of results in notebooks as text, all reference executions, and the rows of the validation in both editions.
Pages are compared word by word, so line breaks may differ; numbers are compared exactly. Each line of the agreed
differences is the name of an output (``*`` stands for anything), or ``OLD -> NEW`` for changed words.
"""

import argparse
import contextlib
import difflib
import gzip
import hashlib
import html
import io
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

import calculon
from calculon.cli.main import COMMANDS, main
from calculon.declarations.named_values import CORRECTED, PUBLISHED
from tests.helpers import reference_cases, reference_system
from tests.test_pages import LINKED, PAGES, commands

ROOT = Path(__file__).resolve().parent.parent
WIDTHS = (80, 160)
NOTEBOOK = {
    "estimate": ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm"),
    "serve": ("llama3-8B", 1, "h100_80g_sxm", "chat"),
    "search": ("llama3-8B", "h100_80g_sxm", 8, 64, "bfloat16"),
    "plan": ("llama3-8B", 8, "h100_80g_sxm"),
    "sensitivity": ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm"),
}
"""Functions of the package whose results are shown in notebooks, with their arguments."""
LONGEST = 12
"""Lines of difference that are shown of one output."""

Outputs = dict[str, str]


def recorded() -> Outputs:
    """Return all outputs of this checkout by name."""
    found: Outputs = {}
    for name, arguments in NOTEBOOK.items():
        result = getattr(calculon, name)(*arguments)
        found[f"notebook, {name}"] = words_of_html(result._repr_html_())
    jobs = [
        *page_jobs(),
        *((command.name, [(f"{command.name} --help", 80)]) for command in COMMANDS),
    ]
    for name, lines in track(jobs, "commands", console=Console(stderr=True)):
        found |= ran(name, lines)
    for number, case in enumerate(reference_cases("executions")):
        found[f"reference {number}"] = reference(case)
    for edition in (PUBLISHED, CORRECTED):
        found |= ran(f"validation {edition}", [(f"lv --edition {edition} --format csv", 160)])
    return found


def page_jobs() -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Yield each block of commands of the pages, at both widths: the commands of a block share a folder."""
    for page, text in PAGES.items():
        for number, block in enumerate(re.findall(r"^```console\n(.*?)^```", text, re.M | re.S)):
            lines = [line.replace("\\\n", " ") for line, _ in commands(block)]
            own = [
                line.removeprefix("./bin/calculon ") for line in lines if line.startswith("./bin/")
            ]
            for width in WIDTHS:
                yield f"{page}, block {number}", [(line, width) for line in own]


def ran(name: str, lines: list[tuple[str, int]]) -> Outputs:
    """Run commands in an empty folder; return what they print, and the files that they leave."""
    found: Outputs = {}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        for link in LINKED:
            (Path(folder) / link).symlink_to(ROOT / link)
        os.chdir(folder)
        try:
            for number, (line, width) in enumerate(lines, 1):
                found[f"{name}, {width} columns, command {number}: {line}"] = printed(line, width)
            for path in sorted(Path(folder).rglob("*")):
                if path.is_file() and not path.is_symlink():
                    found[f"{name}, {lines[0][1]} columns, {path.relative_to(folder)}"] = content(
                        path
                    )
        finally:
            os.chdir(before)
    return found


def printed(line: str, width: int) -> str:
    """Return what a command prints, and its exit code; commands that need a shell are left out."""
    words = shlex.split(line)
    if set(words) & {"|", ">", "<", "&&", "&"}:
        return "needs a shell"
    os.environ |= {"COLUMNS": str(width), "NO_COLOR": "1"}
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        code = main(words)
    return f"{text.getvalue()}\nexit code {code}"


def content(path: Path) -> str:
    """Return a file as text: pages without their tags, pictures as their digest."""
    data = path.read_bytes()
    if path.suffix == ".html":
        return words_of_html(data.decode())
    try:
        return data.decode()
    except UnicodeDecodeError:
        return hashlib.sha256(data).hexdigest()


def words_of_html(text: str) -> str:
    """Return the words of a page in HTML."""
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", " ", text))


def reference(case: dict[str, Any]) -> str:
    """Return the statistics of a reference execution, or why it cannot run."""
    system = reference_system(case["system"])
    try:
        result = calculon.estimate(case["application"], case["execution"], system)
    except calculon.CalculonError as error:
        return str(error)
    return json.dumps(result.stats)


def differences(old: Outputs, new: Outputs, agreed: list[str]) -> Iterator[str]:
    """Yield a paragraph for each output that differs."""
    names = [line for line in agreed if " -> " not in line]
    renamed = [line.split(" -> ", 1) for line in agreed if " -> " in line]
    for name in sorted(old.keys() | new.keys()):
        if any(fnmatchcase(name, pattern) for pattern in names):
            continue
        if name not in new or name not in old:
            yield f"{name}: only {'before' if name in old else 'now'}"
            continue
        before = old[name]
        for one, other in renamed:
            before = before.replace(one, other)
        if before.split() != new[name].split():
            yield f"{name}:\n{shown(before, new[name])}"


def shown(before: str, now: str) -> str:
    """Return the lines that differ, the first of them."""
    lines = difflib.unified_diff(before.splitlines(), now.splitlines(), lineterm="", n=0)
    changed = [line[:200] for line in lines if not line.startswith(("---", "+++", "@@"))]
    rest = [f"... and {len(changed) - LONGEST} more lines"] if len(changed) > LONGEST else []
    return "\n".join(f"    {line}" for line in changed[:LONGEST] + rest)


def run() -> int:
    """Record or compare."""
    parser = argparse.ArgumentParser(
        prog="scripts/freeze",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("file", type=Path, help="compressed JSON, outside the checkout")
    parser.add_argument("--agreed", type=Path, help="intended differences, one per line")
    arguments = parser.parse_args()
    old, lines = {}, []
    try:  # before the minutes that it takes
        if arguments.what == "record":
            with tempfile.TemporaryFile(dir=arguments.file.parent):
                pass
        else:
            with gzip.open(arguments.file, "rt") as file:
                old = json.load(file)
            lines = arguments.agreed.read_text().splitlines() if arguments.agreed else []
    except (OSError, EOFError, ValueError) as error:
        parser.error(f"{error}: expected a file that can be written, or that record has written")
    new = recorded()
    if arguments.what == "record":
        with gzip.open(arguments.file, "wt") as file:
            json.dump(new, file)
        print(f"{len(new)} outputs in {arguments.file}")
        return 0
    agreed = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    found = list(differences(old, new, agreed))
    print("\n".join([*found, f"{len(found)} of {len(new)} outputs differ"]))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(run())
