"""A copy of the package in which some files are changed, for what somebody adds to it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def copied(folder, changes):
    """Copy the package to a folder, with changes: an old and a new text by source file."""
    shutil.copytree(ROOT / "calculon", folder / "calculon")  # with what is compiled
    for name in ("models", "systems", "examples"):
        (folder / name).symlink_to(ROOT / name)
    for name, (old, new) in changes.items():
        path = folder / "calculon" / name
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, name
        path.write_text(text.replace(old, new), encoding="utf-8")


def run(folder, *arguments):
    """Return what Python says that runs with the copy of a folder."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
