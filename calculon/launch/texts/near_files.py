"""Files that a launch file refers to, in its folder or below."""

import os
from pathlib import Path

from calculon.base.frozen import dataclass
from calculon.declarations.files import read_bytes
from calculon.launch.texts.reading_budget import reading


@dataclass(frozen=True, slots=True)
class NearFile:
    """A file that a launch file refers to: its path and its text."""

    path: str
    text: str


def file_near(named: str, file: str, suffix: str) -> NearFile | None:
    """Return a file that a launch file names, if it is in the folder of the launch file or below; else None.

    Its text counts toward the reading budget of the launch file.

    Args:
        named: Path as the launch file states it.
        file: Path of the launch file.
        suffix: Suffix that the file must have.

    Raises:
        SpecError: If it cannot be read, or exceeds the budget.
    """
    around = os.path.realpath(Path(file).parent)
    for path in (Path(named), Path(file).parent / named):
        # Launch files are untrusted: a path must not lead out of their folder, not even through links.
        try:
            place = Path(os.path.realpath(path))
            there = named.endswith(suffix) and place.is_relative_to(around) and place.is_file()
        except (OSError, ValueError):
            continue  # not a possible file name
        if there:
            text = read_bytes(str(path)).decode(errors="replace")
            with reading(file) as budget:
                budget.spend_text(text)
            return NearFile(str(path), text)
    return None
