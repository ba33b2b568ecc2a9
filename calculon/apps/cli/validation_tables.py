"""What studies say, as titled tables: of one edition of the cost model, or of several side by side."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from calculon.apps.report.text_tables import Column, Table
from calculon.apps.validate import error_summary as summary
from calculon.apps.validate.measured_and_predicted import Result

Rows = list[dict[str, Any]]
Form = tuple[str, tuple[Column, ...], Callable[[Sequence[Result]], Rows]]
"""Title, columns and rows of a table."""


@dataclass(frozen=True, slots=True)
class Section:
    """A titled table."""

    title: str
    table: Table


def _two(value: float | None) -> str:
    """Write a number with two decimals, or one where it has three digits before them."""
    return "" if value is None else f"{value:.2f}" if abs(value) < 100 else f"{value:.1f}"


def _four(value: float | None) -> str:
    """Write a number with four digits."""
    return "" if value is None else f"{value:.4g}"


def _shortest(value: float | None) -> str:
    """Write a number as it was given."""
    return "" if value is None else f"{value:g}"


def _within(passes: bool | None) -> str:
    """Write whether a bound is kept; nothing where no row is compared."""
    return "" if passes is None else "yes" if passes else "NO"


def _number(key: str, title: str = "", text: Callable[[Any], str] = _two) -> Column:
    return Column(key, title or key, right=True, text=text)


N = Column("n", "n", right=True)
ERRORS = (
    N,
    _number("mean", "mean %"),
    _number("median", "median %"),
    _number("p90", "p90 %"),
    _number("largest", "max %"),
    _number("bias", "bias %"),
)
WHICH = (Column("study", "study"), Column("quantity", "quantity"))
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
)
"""Columns of the CSV format; errors in percent."""

TITLES = (
    "Studies: absolute errors in percent of the measured value, and bias",
    "All measured rows together",
    "Order within sweeps: Kendall's tau, and what the plan with the lowest estimate costs over the best",
    "Rows not compared, and rows that should not fit",
    "Largest errors",
    "What the sources leave open: other choices",
)
LEFT_OUT = (Column("rows", "rows", right=True), Column("reason", "reason"))
SAME: tuple[Form, ...] = (
    (
        "Likely causes of the largest errors",
        (*WHICH, Column("cause", "cause", fold=True)),
        summary.causes,
    ),
    (
        "What the sources leave open: what was chosen",
        (
            Column("study", "study"),
            Column("what", "what"),
            Column("choice", "choice", fold=True),
        ),
        summary.choices,
    ),
)
"""Tables of what does not depend on the edition."""

TABLES: tuple[Form, ...] = (
    (
        TITLES[0],
        (
            *WHICH,
            Column("evidence", "evidence"),
            Column("rows", "rows", right=True),
            *ERRORS,
            _number("bound", "bound %", text=_shortest),
            Column("passes", "within", text=_within),
            Column("worst", "worst row"),
        ),
        summary.studies,
    ),
    (TITLES[1], (Column("kind", "quantity"), *ERRORS), summary.totals),
    (TITLES[2], (*WHICH, *ORDER), summary.order),
    (TITLES[3], (Column("study", "study"), *LEFT_OUT), summary.left_out),
    (
        TITLES[4],
        (
            *WHICH,
            Column("row", "row"),
            _number("measured", text=_four),
            _number("estimated", text=_four),
            Column("unit", "unit"),
            _number("error", "error %"),
        ),
        summary.largest,
    ),
    SAME[0],
    (
        TITLES[5],
        (
            *WHICH,
            Column("alternative", "choice"),
            N,
            _number("mean", "mean %"),
            _number("bias", "bias %"),
            Column("why", "why", fold=True),
        ),
        summary.alternatives,
    ),
    SAME[1],
)
"""Titles, columns and rows of what studies say under one edition, the most important first."""

ABOUT: Form = (
    "What was measured, and how the value is known",
    (
        Column("study", "study"),
        Column("evidence", "evidence"),
        Column("rows", "rows", right=True),
        Column("title", "title", fold=True),
    ),
    summary.about,
)


def _pairs(
    editions: Sequence[str], figures: Sequence[str], text: Callable[[Any], str] = _two
) -> Iterator[Column]:
    """Yield the columns of figures that each edition has, figure by figure."""
    for figure in figures:
        for edition in editions:
            yield _number(f"{edition} {figure}", text=text)


def _beside(
    rows: Callable[[Sequence[Result]], Rows], names: Sequence[str], figures: Sequence[str]
) -> Callable[[Sequence[Result]], Rows]:
    """Return rows that hold the figures of each edition."""
    return lambda results: summary.beside(rows(results), summary.editions(results), names, figures)


def _largest(results: Sequence[Result]) -> Rows:
    """Return the rows that are among the worst of any edition, under each of them."""
    names = ("study", "quantity", "row")
    worst = summary.largest(results)
    chosen = {tuple(row[name] for name in names) for row in worst}
    rows = [row for row in summary.values(results) if tuple(row[name] for name in names) in chosen]
    editions = summary.editions(results)
    return summary.beside([*worst, *rows], editions, names, ("estimated", "error"))


def side_by_side(editions: Sequence[str]) -> tuple[Form, ...]:
    """Return titles, columns and rows of what studies say under several editions, the most important first."""
    figures = ("mean", "bias")
    choice = (*KEYS, "alternative", "n")
    return (
        (
            "Editions side by side: mean absolute error and bias in percent",
            (*WHICH, N, *_pairs(editions, figures)),
            _beside(summary.studies, (*KEYS, "n"), figures),
        ),
        (
            TITLES[0],
            (
                *WHICH[:1],
                Column("quantity", "quantity", fold=True),
                EDITION,
                N,
                *(_number(key, title) for key, title in FIGURES),
                _number("bound", text=_shortest),
                Column("passes", "within", text=_within),
            ),
            lambda results: summary.together(summary.studies(results), KEYS),
        ),
        (TITLES[1], (Column("kind", "quantity"), EDITION, *ERRORS), summary.totals),
        ABOUT,
        (TITLES[2], (*WHICH, EDITION, *ORDER), summary.order),
        (TITLES[3], (Column("study", "study"), EDITION, *LEFT_OUT), _left_out),
        (
            TITLES[4],
            (
                *WHICH,
                Column("row", "row"),
                _number("measured", text=_four),
                *_pairs(editions, ("estimated",), _four),
                Column("unit", "unit"),
                *_pairs(editions, ("error",)),
            ),
            _largest,
        ),
        SAME[0],
        (
            TITLES[5],
            (
                *WHICH,
                Column("alternative", "choice"),
                N,
                *_pairs(editions, figures),
                Column("why", "why", fold=True),
            ),
            _beside(summary.alternatives, choice, figures),
        ),
        SAME[1],
    )


FIGURES = (
    ("mean", "mean"),
    ("median", "median"),
    ("p90", "p90"),
    ("largest", "max"),
    ("bias", "bias"),
)
"""Figures of a score, with short titles."""


def _left_out(results: Sequence[Result]) -> Rows:
    """Return what is left out, once where all editions leave it out."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    shown = summary.editions(results)
    for row in summary.left_out(results):
        one = rows.setdefault((row["study"], row["reason"], row["rows"]), {**row, "edition": []})
        one["edition"].append(row["edition"])
    every = list(shown)
    return [
        {**row, "edition": "all" if row["edition"] == every else ", ".join(row["edition"])}
        for row in rows.values()
    ]


def sections(results: Sequence[Result]) -> Iterator[Section]:
    """Yield what some studies say, without the tables that have nothing to say; each is made when it is asked for."""
    editions = summary.editions(results)
    forms = TABLES if len(editions) == 1 else side_by_side(editions)
    for title, columns, rows in forms:
        if found := rows(results):
            yield Section(title, Table(columns, found))


def heading(results: Sequence[Result]) -> str:
    """Say which editions the results are of."""
    editions = summary.editions(results)
    return f"Edition{'s' * (len(editions) > 1)} of the cost model: {', '.join(editions)}"


def markdown(results: Sequence[Result]) -> str:
    """Return the tables of some studies as Markdown."""
    parts = (f"**{one.title}**\n\n{one.table.markdown()}" for one in sections(results))
    return "\n\n".join((heading(results), *parts))
