"""Tornado chart: the change of a statistic with lower and higher machine figures, longest bar first."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import wrap

from calculon.base.frozen import dataclass
from calculon.base.records import Plain
from calculon.base.units import significant
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.origin import stated_name
from calculon.documents.sensitivity_page import (
    KINDS,
    SHOWN,
    capped,
    change,
    reference_value,
    stated,
)
from calculon.render.chart import Axis, Bars, Chart, Mark, Notes, Panel, Rule, categories, dots
from calculon.render.chart_axes import Quantity
from calculon.render.fitted_grid import folded

Link = Callable[[str, float], str]
"""Function that returns the address of a page with another value of a figure, given by its path."""

MOST = 12
"""Maximum number of bars of a panel."""

ENDS = {"low": ("vermilion+60", "/"), "high": ("blue", "")}
"""Color and hatch of the bars of lower and of higher figures."""

_PREFIXES = (("G", 1e9), ("M", 1e6), ("k", 1e3))
_LONGEST = 34  # characters per line of a label
_ROOM, _BRIEF_ROOM = 0.26, 0.45
"""Space for the texts at both ends, as a share of the range: with and without the values of figures."""

_LINE, _BAR, _PANEL = 0.15, 0.13, 0.55
"""Inches: a line of a label; around a bar; around the bars of a panel."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Figures of one kind, largest change first."""

    title: str
    rows: Sequence[Plain]


def kinds_shown(document: Plain) -> list[Kind]:
    """Return the figures with an effect by kind (:meth:`calculon.advise.sensitivity_result.Sensitivity.to_dict`)."""
    now = document["value"]
    least = SHOWN * reference_value(now, document["unit"])
    rows = [row for row in document["figures"] if _swing(row, now) > least]
    rows.sort(key=lambda row: -_swing(row, now))
    found = [(KINDS[kind], [row for row in rows if row["kind"] == kind]) for kind in KINDS]
    return [Kind(title, some[:MOST]) for title, some in found if some]


def _swing(row: Plain, now: float) -> float:
    ends = [row.get(f"{kind}at_{end}") for kind in ("", "replanned_") for end in ENDS]
    known: list[float] = [now, *(one for one in ends if one is not None)]
    return max(known) - min(known)


def tornado(
    document: Plain, names: Mapping[str, str] | None = None, link: Link | None = None
) -> Chart:
    """Return the tornado of a sensitivity; diamonds are replanned executions, if there was a new search.

    Args:
        document: The sensitivity as plain data (:meth:`calculon.advise.sensitivity_result.Sensitivity.to_dict`).
        names: Names of figures and statistics, to replace their paths.
        link: Function that returns the address of a bar. Bars with links have short texts.
    """
    kinds = kinds_shown(document) or [Kind("No figure of the machine has an effect", ())]
    tornado = _Tornado(document, names or {}, link)
    asked = document["question"]
    machine = f"{asked['execution']['fields']['num_procs']:,} x {stated_name(asked['system'])}"
    return Chart(
        title=f"{stated_name(asked['model'])} on {machine}",
        subtitle=tornado.now_words(),
        terms=[asked["edition"]],
        rows=[(panel,) for panel in tornado.panels(kinds)],
        shared=True,
    )


class _Tornado:
    """Builder of a tornado; bars are changes in percent, or values if the statistic is 0."""

    def __init__(self, document: Plain, names: Mapping[str, str], link: Link | None):
        self.document, self.names, self.link = document, names, link
        self.now: float = document["value"]

    def panels(self, kinds: Sequence[Kind]) -> Iterator[Panel]:
        """Yield a panel for each kind of figures, with the same horizontal axis."""
        every = [row for kind in kinds for row in kind.rows]
        points = [0.0, *(x for row in every for x in (*self._ends(row), *self._best(row)))]
        room = (_BRIEF_ROOM if self.link else _ROOM) * (max(points) - min(points) or 1.0)
        name = self.document["statistic"]
        words = self.names.get(name, Quantity(name).words)
        axis = Axis(
            label=f"Change of {words}",
            unit="%" if self.now else "",
            limits=(min(points) - room, max(points) + room),
        )
        for kind in kinds:
            labels = [self._label(row) for row in kind.rows]
            lines = max((label.count("\n") + 1 for label in labels), default=1)
            yield Panel(
                title=kind.title,
                x=axis,
                y=categories(labels or [""]),
                marks=[*self._marks(kind.rows), Rule(at=0.0, width=0.8)],
                height=_PANEL + (_BAR + _LINE * lines) * max(1, len(labels)),
            )

    def now_words(self) -> str:
        """Write the present value of the statistic; large values in thousands or millions."""
        quantity = Quantity(self.document["statistic"])
        value = self.now * quantity.factor
        prefixes = ((name, one) for name, one in _PREFIXES if abs(value) >= 10 * one)
        prefix, times = next(prefixes, ("", 1.0))
        digits = 4 if self.document["question"]["edition"] == PUBLISHED else 3
        unit = f"{prefix} {quantity.unit}".strip()
        words = self.names.get(quantity.name, quantity.words)
        return f"{words[0].upper()}{words[1:]} now: {significant(value / times, digits)} {unit}".rstrip()

    def _place(self, value: float | None) -> float:
        """Return the end of a bar; a plan that does not fit has no bar."""
        if value is None:
            return 0.0
        return 100 * (value / self.now - 1) if self.now else value

    def _ends(self, row: Plain) -> list[float]:
        return [self._place(row[f"at_{end}"]) for end in ENDS]

    def _best(self, row: Plain) -> list[float]:
        """Return the positions of the best plans at the ends of a range."""
        found = (row.get(f"replanned_at_{end}") for end in ENDS)
        return [self._place(value) for value in found if value is not None]

    def _marks(self, rows: Sequence[Plain]) -> Iterator[Mark]:
        for end, (color, hatch) in ENDS.items():
            shown = [(at, row) for at, row in enumerate(rows) if row[end] is not None]
            places = [self._place(row[f"at_{end}"]) for _, row in shown]
            yield Bars(
                name=self._name(end),
                at=[at for at, _ in shown],
                lengths=places,
                color=color,
                hatch=hatch,
                words=[self._told(row, end) for _, row in shown],
                links=[self.link(row["path"], row[end]) if self.link else "" for _, row in shown],
            )
            yield self._texts(shown, end)
        if "replanned" in self.document:
            best = [(at, row, x) for at, row in enumerate(rows) for x in self._best(row)]
            yield dots(
                [(x, at) for at, _, x in best],
                "diamond",
                name="planned again",
                color="black",
                sizes=(3.2,),
                words=[f"{self._path(row)}: best plan {x:+.1f} %" for _, row, x in best],
            )

    def _texts(self, shown: Sequence[tuple[int, Plain]], end: str) -> Notes:
        """Return the texts at the ends of bars, outside the diamonds."""
        x, y, texts, sides = [], [], [], []
        for at, row in shown:
            text, value = self._text(row, end), row[f"at_{end}"]
            if not text:
                continue
            place = self._place(value)
            right = end == "low" if value is None else place > 0
            # Outside the diamond of the replanned value, if there is one.
            x.append((max if right else min)([place, *self._best(row)]))
            y.append(at)
            texts.append(text)
            sides.append("right" if right else "left")
        return Notes(x=x, y=y, texts=texts, side=sides, size=7.0)

    def _text(self, row: Plain, end: str) -> str:
        """Write a change; the shorter of two bars on one side has no text, because the longer one covers it."""
        other = next(one for one in ENDS if one != end)
        own, its = (self._place(row[f"at_{one}"]) for one in (end, other))
        if own * its > 0 and abs(own) <= abs(its):
            return ""
        said = change(row[f"at_{end}"], self.now)
        if said == "0" or self.link:
            return "" if said == "0" else said
        return f"{stated(row[end], 's' if row['unit'] == 's' else '')}: {said}"

    def _told(self, row: Plain, end: str) -> str:
        """Write a figure at an end of its range, and the change."""
        said = change(row[f"at_{end}"], self.now)
        return f"{self._path(row)} {stated(row[end], row['unit'])}: {said}"

    def _path(self, row: Plain) -> str:
        """Return the name of a figure, or its path if it has none."""
        return self.names.get(row["path"], str(row["path"]))

    def _label(self, row: Plain) -> str:
        """Write the name of a figure, or its path with its unit, wrapped at dots."""
        if row["path"] in self.names:
            return "\n".join(wrap(self.names[row["path"]], _LONGEST))
        said = row["unit"] in ("", "s") or row["path"].endswith(row["unit"])
        return "\n".join(folded(row["path"], _LONGEST)) + ("" if said else f" ({row['unit']})")

    def _name(self, end: str) -> str:
        """Return the legend entry of an end of the range."""
        spread = self.document["range"]
        if spread["calibrated"]:
            return {"low": "lower end of its range", "high": "higher end"}[end]
        if end == "low":
            return f"figure {100 * spread['share']:g} % lower"
        rows = (row for kind in kinds_shown(self.document) for row in kind.rows)
        limited = any(capped(row, spread["share"]) for row in rows)
        return f"{100 * spread['share']:g} % higher" + (
            ", efficiencies at most 1" if limited else ""
        )
