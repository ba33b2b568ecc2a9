"""Errors of studies as titled tables: for one edition of the cost model, or for several side by side."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Any

from calculon.base.units import GIGA, KILO, MEGA, between
from calculon.declarations.named_values import CORRECTED, PUBLISHED
from calculon.estimate.run_table import Run
from calculon.estimate.served_errors import COLUMNS as PUBLISHED_ROW
from calculon.estimate.served_errors import FIGURES
from calculon.render.html_file import html_file
from calculon.render.text_tables import Column, Table, plain
from calculon.validate import error_summary as summary
from calculon.validate import published_runs
from calculon.validate.measured_and_predicted import Result
from calculon.validate.run_rows import csv_rows, run_rows
from calculon.validate.served_rows import class_scores, served_rows

Rows = list[dict[str, Any]]
Form = tuple[str, tuple[Column, ...], Callable[[Sequence[Result]], Rows]]
"""Title, columns and rows of a table."""

Part = tuple[str, Table, str]
"""Title, table and note."""


def _written(form: str, value: float | None, large: str = "", limit: float = float("inf")) -> str:
    """Write a number in a :func:`format` string, from a limit on in the `large` one; empty for None."""
    return "" if value is None else format(value, form if abs(value) < limit else large)


_one, _four, _shortest = (partial(_written, form) for form in (".1f", ".4g", "g"))
_two = partial(_written, ".2f", large=".1f", limit=100)
_three = partial(_written, ".3g", large=",.0f", limit=1000)


def _within(passes: bool | None) -> str:
    """Write if a bound is kept; empty if no row is compared."""
    return "" if passes is None else "yes" if passes else "NO"


def _number(key: str, title: str = "", text: Callable[[Any], str] = _two, drop: int = 0) -> Column:
    return Column(key, title or key, right=True, text=text, drop=drop)


N = Column("n", "n", right=True)
ERRORS = (
    N,
    _number("mean", "mean %"),
    _number("median", "median %", drop=1),
    _number("p90", "p90 %", drop=4),
    _number("largest", "max %"),
    _number("bias", "bias %"),
)
WHICH = (Column("study", "study"), Column("quantity", "quantity", fold=True))
EDITION = Column("edition", "edition")
KEYS = ("study", "quantity")
ORDER = (
    Column("sweeps", "sweeps", right=True),
    _number("tau"),
    _number("regret", "mean regret %"),
    _number("worst_regret", "worst regret %"),
)
VALUES = (
    *WHICH,
    *(Column(key) for key in ("unit", "row", "measured", "estimated", "error", "edition")),
    *(Column(key) for key in ("low", "high", "fits", "source", "class", "inside")),
)
"""Columns of the CSV format: errors in percent; for step times the ends of the prediction interval; for whole
steps class, source, and True if the measured time is inside the interval derived from all other sources."""

RUNS = tuple(Column(field.name) for field in fields(Run))
"""Columns of the file of runs behind the intervals; times in seconds, memory in bytes, rates as fractions."""

STUDIES: Form = (
    "Studies: absolute errors in percent of the measured value, and bias",
    (
        *WHICH,
        Column("evidence", "evidence", drop=3),
        Column("rows", "rows", right=True, drop=2),
        *ERRORS,
        _number("bound", "bound %", text=_shortest, drop=5),
        Column("passes", "passes", text=_within),
        Column("worst", "worst row", drop=6),
    ),
    summary.studies,
)
"""Errors of studies under one edition."""


def _class_or_source(row: dict[str, Any]) -> str:
    """Write the name of a class, or the indented name of one of its sources."""
    return f"  {row['name']}" if row["name"] else row["class"]


def class_rows(results: Sequence[Result]) -> Rows:
    """Return the rows of classes and sources, formatted."""
    return [
        {
            **row,
            "heading": _class_or_source(row),
            "of_class": None if row["name"] else row["sources"],
            "seen": "yes" if row["fitted"] else "",
            "models": _models(*row["parameters"]),
            "on": ", ".join(row["processors"]),
        }
        for row in summary.classes(results)
    ]


def _models(smallest: int, largest: int) -> str:
    """Write the sizes of the smallest and the largest model in billion parameters."""
    low, high = (_three(size / GIGA) for size in (smallest, largest))
    return low if low == high else between(low, high)


CLASS_ERRORS = (
    Column("heading", "class, source", fold=True),
    _number("rows", text=plain),
    _number("of_class", "sources", text=plain),
    _number("median", "median\nerror", _one),
    _number("absolute", "abs.\nerror", _one),
    _number("coverage", "inside", _one),
    _number("below", text=_one),
    _number("above", text=_one),
    Column("seen", "fit", drop=1),
    Column("models", "billion\nparameters", drop=2),
    Column("on", "processors", fold=True, drop=3),
)
"""Errors of whole steps by class and source in percent; `fit` marks rows used for fitting a preset."""

OF_PLANS = (
    Column("sweeps", "sweeps", right=True, drop=6),
    _number("tau", drop=4),
    _number("regret", "regret %", drop=5),
)
"""Quality of the predicted order of plans."""

CLASSES: Form = (
    "Whole steps by class and source, in percent",
    (*CLASS_ERRORS, *OF_PLANS),
    class_rows,
)
"""Errors of whole steps by class and source, for editions with intervals."""

CLASS_SENTENCES: Form = (
    "Classes of whole steps",
    (Column("class", "class"), Column("about", "steps", fold=True)),
    summary.class_sentences,
)

BOUND_NOTE = "Bound: the largest mean error with which the tests pass. It follows the present errors and is no target."

CLASS_NOTE = (
    "Errors are predicted over measured - 1: negative means too fast. Inside: the measured\n"
    "time is in the 90 % interval derived from all other sources; below: it is faster.\n"
    "Within a class, all sources have the same weight. Fit: a preset was fitted to rows of the\n"
    "source, or of a source of the class."
)


def _kinds(results: Sequence[Result]) -> Rows:
    """Return errors of served models by kind of model."""
    return [row for row in _classes(results) if not row["part"]]


def _parts(results: Sequence[Result]) -> Rows:
    """Return errors of served models by engine, hardware and load, for each kind of model."""
    return [row for row in _classes(results) if row["part"]]


def _classes(results: Sequence[Result]) -> Rows:
    return [{**asdict(one), "figure": FIGURES[one.figure]} for one in class_scores(results)]


_FIGURE = (Column("figure", "figure"), Column("kind", "model"))
_CLASS_ERRORS = (
    Column("rows", "rows", right=True),
    Column("campaigns", "campaigns", right=True, drop=2),
    Column("sources", "sources", right=True, drop=2),
    _number("median", "median %", _one),
    _number("absolute", "abs. %", _one, drop=1),
    _number("new_campaign", "new campaign %", _one),
    _number("new_source", "new source %", _one),
)
"""Errors of published rows of a class, and shares of rows within the ranges of all other campaigns and publishers."""

SERVED: Form = (
    "Served models: errors, and rows inside the range of all other campaigns and of all other sources",
    (*_FIGURE, *_CLASS_ERRORS),
    _kinds,
)
SERVED_PARTS: Form = (
    "Served models by engine, hardware and load",
    (*_FIGURE, Column("part", "of these"), *_CLASS_ERRORS),
    _parts,
)

JUDGED = (
    "ok: hours of a whole run (hours of: run) exceed the hours of its steps, by at most "
    f"{published_runs.WIDEST:g} times; published hours of steps are in the interval; blank if the configuration is "
    "unknown."
)
"""Rule of the column ``ok`` of processor-hours."""

NOT_COMPARED = "{} exist only in edition {}; here n is 0."


def _hours(value: float | None) -> str:
    """Write processor-hours in thousands or in millions."""
    if value is None:
        return ""
    return f"{value / MEGA:.3g} M" if value >= MEGA else f"{value / KILO:.3g} k"


def _checks(results: Sequence[Result]) -> Rows:
    """Return checks with published values and tolerances, formatted."""
    return [
        {**row, "printed": _printed(row), "allowed": _allowed(row)}
        for row in published_runs.checks(results)
    ]


def _printed(row: dict[str, Any]) -> str:
    return f"{'at least ' if row['at_least'] else ''}{_four(row['published'])}"


def _allowed(row: dict[str, Any]) -> str:
    if row["rounded"] > row["tolerance"] * row["published"]:
        return f"± {row['rounded']:g}"
    return "" if row["at_least"] else f"{100 * row['tolerance']:g} %"


TRAININGS: Form = (
    "Published runs: processor-hours, and predicted hours of the steps only (90 % interval)",
    (
        Column("run", "run"),
        Column("processors", "on", right=True, drop=3),
        _number("published", "published", _hours),
        _number("steps", "steps", _hours),
        _number("low", "from", _hours),
        _number("high", "to", _hours),
        _number("ratio", "ratio"),
        _number("by_rate", "by rate", drop=1),
        _number("by_law", "by law"),
        _number("rest", "rest"),
        Column("configuration", "configuration", drop=4),
        Column("hours_of", "hours of", drop=2),
        Column("passes", "ok", text=_within),
    ),
    published_runs.trainings,
)

RUNS_BESIDE: tuple[Form, ...] = (
    TRAININGS,
    (
        "Published runs: hours between failures, and by the default of campaigns",
        (
            Column("run", "run"),
            Column("processors", "on", right=True),
            _number("failures", "failures", _shortest),
            _number("published", "hours", _three),
            _number("ours", "default", _three),
            Column("goodput", "goodput"),
            Column("evidence", "evidence", drop=1),
            Column("note", "note", fold=True, drop=2),
        ),
        published_runs.failures,
    ),
    (
        "Published runs: checks of the laws of campaigns",
        (
            Column("name", "check", fold=True),
            Column("printed", "published", right=True),
            _number("ours", "ours", _four),
            Column("unit", "unit"),
            Column("allowed", "tolerance", right=True, drop=1),
            Column("passes", "ok", text=_within),
            Column("source", "source", fold=True, drop=2),
        ),
        _checks,
    ),
)
"""Whole runs compared with published figures; empty without studies of whole runs."""


def _studies_of_editions(editions: Sequence[str]) -> tuple[Form, ...]:
    """Return the tables of errors under several editions: first side by side, then one after the other."""
    figures = ("mean", "bias")
    titles = {"mean": "mean", "median": "median", "p90": "p90", "largest": "max", "bias": "bias"}
    dropped = {"mean": 0, "median": 2, "p90": 3, "largest": 0, "bias": 0}
    return (
        (
            "Editions side by side: mean absolute error and bias in percent",
            (*WHICH, N, *_by_edition(editions, figures)),
            _side_by_side(summary.studies, (*KEYS, "n"), figures),
        ),
        (
            STUDIES[0],
            (
                *WHICH,
                EDITION,
                Column("n", "n", right=True, drop=1),
                *(_number(key, titles[key], drop=drop) for key, drop in dropped.items()),
                _number("bound", text=_shortest, drop=4),
                Column("passes", "passes", text=_within),
            ),
            lambda results: summary.together(summary.studies(results), KEYS),
        ),
    )


TOTALS: Form = (
    "All measured rows",
    (Column("kind", "quantity"), EDITION, *ERRORS),
    summary.totals,
)
"""Errors of all times and of all memory; for one edition, without its name."""

CAUSES: Form = (
    "Likely causes of the largest errors",
    (*WHICH, Column("cause", "cause", fold=True)),
    summary.causes,
)
CHOICES: Form = (
    "Values missing from the sources: choices made",
    (*WHICH[:1], Column("what", "what"), Column("choice", "choice", fold=True)),
    summary.choices,
)

ABOUT: Form = (
    "Measured quantities, and their sources",
    (
        Column("study", "study"),
        Column("evidence", "evidence"),
        Column("rows", "rows", right=True),
        Column("title", "title", fold=True),
    ),
    summary.about,
)


def _by_edition(
    editions: Sequence[str],
    figures: Sequence[str],
    text: Callable[[Any], str] = _two,
    percent: str = " %",
) -> Iterator[Column]:
    """Yield the columns of figures that each edition has, by figure; for one edition without its name."""
    for figure in figures:
        for edition in editions:
            several = f"{edition}\n{figure}"
            title = figure + percent if len(editions) == 1 else several
            yield _number(f"{edition} {figure}", title, text)


def _side_by_side(
    rows: Callable[[Sequence[Result]], Rows], names: Sequence[str], figures: Sequence[str]
) -> Callable[[Sequence[Result]], Rows]:
    """Return rows with the figures of all editions."""
    return lambda results: summary.side_by_side(
        rows(results), summary.editions(results), names, figures
    )


def _largest(results: Sequence[Result]) -> Rows:
    """Return the rows that are among the worst of any edition, under each edition."""
    names = (*KEYS, "row")
    worst = summary.largest(results)
    chosen = {tuple(row[name] for name in names) for row in worst}
    rows = [row for row in summary.values(results) if tuple(row[name] for name in names) in chosen]
    editions = summary.editions(results)
    return summary.side_by_side([*worst, *rows], editions, names, ("estimated", "error"))


def _left_out(results: Sequence[Result]) -> Rows:
    """Return the excluded rows, listed once if all editions exclude them."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in summary.left_out(results):
        one = rows.setdefault((row["study"], row["reason"], row["rows"]), {**row, "edition": []})
        one["edition"].append(row["edition"])
    every = list(summary.editions(results))
    return [
        {**row, "edition": "all" if row["edition"] == every else ", ".join(row["edition"])}
        for row in rows.values()
    ]


def main_forms(editions: Sequence[str]) -> tuple[Form, ...]:
    """Return title, columns and rows of the error tables under some editions: by study, overall, by source."""
    several = len(editions) > 1
    title, (kind, _, *errors), rows = TOTALS
    totals = TOTALS if several else (title, (kind, *errors), rows)
    studies = _studies_of_editions(editions) if several else (STUDIES,)
    return (*studies, totals, CLASSES, SERVED, *RUNS_BESIDE)


def forms(editions: Sequence[str]) -> tuple[Form, ...]:
    """Return titles, columns and rows of all tables under some editions, most important first."""
    edition = () if len(editions) == 1 else (EDITION,)
    return (
        *main_forms(editions),
        CLASS_SENTENCES,
        SERVED_PARTS,
        *((ABOUT,) if edition else ()),
        (
            "Errors by group of rows, in percent",
            (*WHICH, *edition, Column("group", "group", fold=True), *ERRORS),
            summary.groups,
        ),
        (
            "Order within sweeps: Kendall's tau, and the regret of the plan with the lowest estimate",
            (*WHICH, *edition, *ORDER),
            summary.order,
        ),
        (
            "Rows not compared, and rows that should not fit",
            (
                *WHICH[:1],
                *edition,
                Column("rows", "rows", right=True),
                Column("reason", "reason"),
            ),
            _left_out,
        ),
        (
            "Largest errors",
            (
                *WHICH[:1],
                Column("quantity", "quantity", drop=1),
                Column("row", "row", fold=True),
                _number("measured", text=_four),
                *_by_edition(editions, ("estimated",), _four, percent=""),
                Column("unit", "unit", drop=2),
                *_by_edition(editions, ("error",)),
            ),
            _largest,
        ),
        CAUSES,
        (
            "Values missing from the sources: other choices",
            (
                *WHICH[:1],
                Column("quantity", "quantity", drop=1),
                Column("alternative", "choice", fold=True),
                Column("n", "n", right=True, drop=2),
                *_by_edition(editions, ("mean", "bias")),
                Column("why", "why", fold=True),
            ),
            _side_by_side(summary.alternatives, (*KEYS, "alternative", "n"), ("mean", "bias")),
        ),
        CHOICES,
    )


OWN_ROWS: tuple[Form, ...] = (
    (
        "Rows: 90 % interval of each prediction, and probability that the plan fits",
        (
            Column("row", "row", fold=True),
            Column("quantity", "quantity"),
            _number("measured", text=_four),
            _number("estimated", text=_four),
            Column("unit", "unit"),
            _number("error", "error %", _one),
            _number("low", "from", _four, drop=1),
            _number("high", "to", _four, drop=1),
            _number("fits", text=_two, drop=2),
        ),
        summary.values,
    ),
    (
        "Rows not compared",
        (Column("row", "row", fold=True), Column("reason", "reason", fold=True)),
        lambda results: [row for one in results for row in summary.skipped(one)],
    ),
)
"""Every row of a file of measurements."""


def sections(results: Sequence[Result], *, brief: bool = False) -> Iterator[Part]:
    """Yield the titles, tables and notes of studies that have rows; each table is made on demand.

    A brief list has errors by study, overall, and by source. Studies of other editions have separate tables.
    """
    alike = _by_editions(results)
    for editions, shown in alike.items():
        own = f" (edition {', '.join(editions)})" if len(alike) > 1 else ""
        for title, columns, rows in main_forms(editions) if brief else forms(editions):
            if found := rows(shown):
                note = _NOTES.get(title, "")
                yield title + own, Table(columns, found, "--format markdown"), note


_IN_SHORT = {TOTALS[0], CLASSES[0], SERVED[0]}
"""Titles of the tables of a summary."""


def in_short(results: Sequence[Result]) -> Iterator[Part]:
    """Yield the tables of a summary: errors of all rows, of classes of whole steps, and of served models."""
    for title, table, note in sections(results, brief=True):
        if title.partition(" (")[0] in _IN_SHORT:
            # Rows of classes have no name: those of their sources have the name of the source.
            rows = [row for row in table.rows if not row.get("name")]
            yield title, replace(table, rows=rows), note


_NOTES = {TRAININGS[0]: JUDGED, CLASSES[0]: CLASS_NOTE, STUDIES[0]: BOUND_NOTE}


def _by_editions(results: Sequence[Result]) -> dict[tuple[str, ...], list[Result]]:
    """Return the results of studies, grouped by the editions they are compared under."""
    of_study: dict[str, list[Result]] = {}
    for one in results:
        of_study.setdefault(one.study.name, []).append(one)
    result: dict[tuple[str, ...], list[Result]] = {}
    for own in of_study.values():
        result.setdefault(summary.editions(own), []).extend(own)
    return result


def own_rows(results: Sequence[Result]) -> Iterator[Part]:
    """Yield the tables of every row of a file of measurements."""
    for title, columns, rows in OWN_ROWS:
        if found := rows(results):
            yield title, Table(columns, found, "--format markdown"), ""


def not_compared(results: Sequence[Result]) -> str:
    """Return the studies that exist in edition corrected only, if results are of another one; else empty."""
    compared = {one.study.name for one in results if one.edition == CORRECTED}
    waiting = [
        one.study
        for one in results
        if one.study.usual_edition == CORRECTED and one.study.name not in compared
    ]
    kinds = {"Served models": True, "Whole runs": False}
    named = [kind for kind, serves in kinds.items() if any(s.serves is serves for s in waiting)]
    return NOT_COMPARED.format(" and ".join(named).capitalize(), CORRECTED) if named else ""


def runs_file(results: Sequence[Result]) -> str:
    """Return the measured whole steps of studies in the file format of the interval evidence."""
    return Table(RUNS, csv_rows(run_rows(results))).csv() + "\n"


def served_file(results: Sequence[Result]) -> str:
    """Return the published rows of served models in the file format of the range evidence."""
    rows = [one.to_dict() for one in served_rows(results)]
    return Table(tuple(map(Column, PUBLISHED_ROW)), rows).csv() + "\n"


def heading(results: Sequence[Result]) -> str:
    """Return the editions of the results in words."""
    first, *others = sorted(_by_editions(results), key=lambda one: PUBLISHED not in one)
    said = f"Edition{'s' * (len(first) > 1)} of the cost model: {', '.join(first)}"
    further = ", ".join(name for one in others for name in one)
    return f"{said}; {further} from studies that exist only there" if further else said


def markdown(results: Sequence[Result], first: Iterable[Part] = ()) -> str:
    """Return the tables of some studies as Markdown, after the tables in `first`."""
    parts = (
        f"**{title}**\n\n{table.markdown()}" + (f"\n\n{note}" if note else "")
        for title, table, note in (*first, *sections(results))
    )
    return "\n\n".join((heading(results), *parts))


def page(results: Sequence[Result], first: Iterable[Part] = ()) -> str:
    """Return the tables of some studies as an HTML file, after the tables in `first`."""
    parts = [
        (f"table-{number}", title, (table, note) if note else (table,))
        for number, (title, table, note) in enumerate((*first, *sections(results)))
    ]
    return html_file("Validation", parts, [heading(results)])
