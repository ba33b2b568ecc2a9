"""The page of a launch file: what was read, and what became of each of its settings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from calculon.base.errors import printable
from calculon.render.grids import grid, indented
from calculon.render.texts import counted, heading

Document = Mapping[str, Any]

_LONGEST = 200  # characters of a text of the file
_MOST = 1_000  # settings of a kind


class LaunchPage:
    """The page of a launch file; it lays itself out for the width at hand.

    Parameters
    ----------
    launch : mapping
        The file as plain data (:meth:`calculon.launch.dialect.Launch.to_dict`).
    title : str
        What it is of.
    summary : mapping of str to str
        What it says in words, by label.
    """

    def __init__(self, launch: Document, title: str, summary: Mapping[str, str]):
        self.launch, self.title, self.summary = launch, title, summary

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield _text(self.title, "bold underline")
        table = grid("text", "text")
        for label, text in self.summary.items():
            table.add_row(Text(label, "dim"), _text(text))
        yield indented(table)
        for note in self.launch["notes"]:
            yield _text(f"Note: {note}")
        lost = [(_setting(one), one["effect"]) for one in self.launch["not_modelled"]]
        yield from _listed("Not modelled, though it changes the result", lost)
        unknown = [(_setting(one), one["place"]) for one in self.launch["unknown"]]
        yield from _listed("Unknown, and may change the result", unknown)
        unresolved = [(_setting(one), one["place"]) for one in self.launch["unresolved"]]
        yield from _listed("Open: the file alone does not say the value", unresolved)
        yield from _joined("Read", [_setting(one) for one in self.launch["used"]])
        ignored = [str(one["name"]) for one in self.launch["ignored"]]
        yield from _joined("Ignored, no effect on time or memory", ignored)


def _text(text: str, style: str = "") -> Text:
    """Return a text of a file of a stranger: cut, and with an escape for what a terminal would act on."""
    return Text(printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."), style)


def _setting(one: Document) -> str:
    value = one["value"]
    if value is True:
        return str(one["name"])
    text = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return f"{one['name']} {text}"


def _listed(title: str, rows: Sequence[tuple[str, str]]) -> Iterator[RenderableType]:
    """Yield settings, one in a line, each with a word."""
    if not rows:
        return
    yield Text()
    yield heading(title, counted(len(rows), "setting"))
    table = grid("text", "text")
    for setting, word in rows[:_MOST]:
        table.add_row(_text(setting), _text(word, "dim"))
    yield indented(table)
    yield from _others(len(rows))


def _joined(title: str, names: Sequence[str]) -> Iterator[RenderableType]:
    """Yield settings, as many in a line as it takes; none is broken."""
    if not names:
        return
    yield Text()
    yield heading(title, counted(len(names), "setting"))
    yield indented(_Names([_text(name).plain for name in names[:_MOST]]))
    yield from _others(len(names))


def _others(count: int) -> Iterator[RenderableType]:
    """Yield how many of so many settings are not shown."""
    if count > _MOST:
        yield Text(
            f"and {counted(count - _MOST, 'setting')} more, which --format json lists", "dim"
        )


class _Names:
    """Names beside each other, separated by commas, that break between them alone where they can."""

    def __init__(self, names: Sequence[str]):
        self.names = names

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = ""
        for number, name in enumerate(self.names):
            word = name if number == len(self.names) - 1 else f"{name},"
            if line and len(line) + 1 + len(word) > options.max_width:
                yield Text(line)
                line = ""
            line = f"{line} {word}" if line else word
        yield Text(line)
