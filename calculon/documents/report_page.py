"""HTML report of results: the terminal pages and sortable tables, in one file without network access."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from calculon.base.frozen import dataclass
from calculon.base.records import columns
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.statistics import CorrectedStats
from calculon.documents.assumptions import assumptions
from calculon.documents.comparison import MOST, Comparison
from calculon.documents.comparison_page import comparison_page
from calculon.documents.confidence import Order
from calculon.documents.page import estimate_page
from calculon.documents.plans_table import plans_table
from calculon.documents.result import Document as Source
from calculon.documents.result import Result
from calculon.documents.winners import LEGEND, winners_table
from calculon.render.document import Block, Items, Section, dim
from calculon.render.html_file import Part, html_file
from calculon.render.text_tables import Column, Table

MAX_WINNERS = 50

_NO_ORDERS: Mapping[int, Order] = {}
_NAMED = 3  # results named in the title


@dataclass(frozen=True, slots=True)
class RunShown:
    """Whole run on a page.

    Attributes:
        label: Label of its result.
        blocks: Its page, with charts if the drawing library is installed.
        missed: The limits that it misses, and by how much, in words.
    """

    label: str
    blocks: tuple[Block, ...]
    missed: tuple[str, ...] = ()


def report_page(
    results: Sequence[Result],
    versions: Mapping[str, str],
    validation: Mapping[str, Table],
    orders: Mapping[int, Order] = _NO_ORDERS,
    waterfalls: Sequence[Section] = (),
    runs: Sequence[RunShown] = (),
) -> str:
    """Return the report of some results.

    Args:
        results: One or more results; each has a section.
        versions: Names and versions of the programs used.
        validation: Measured studies by system (and edition); a table may be empty.
        orders: As in :class:`~calculon.documents.comparison.Comparison`.
        waterfalls: The changes from the first result to others.
        runs: Whole runs of results.
    """
    several = len(results) > 1
    parts: list[Part] = [
        (f"result-{i}", one.label if several else "Result", tuple(_result(one)))
        for i, one in enumerate(results)
    ]
    if runs:
        sections = (Section(one.label if several else "", one.blocks) for one in runs)
        parts.append(("run", "The whole run", tuple(sections)))
    if several:
        compared = comparison_page(Comparison(results[:MOST], orders), statistics=False)
        parts.append(("comparison", "Side by side", (compared,)))
    if waterfalls:
        parts.append(("waterfall", "One change at a time", tuple(waterfalls)))
    editions = list(dict.fromkeys(one.edition for one in results))
    sources = dict.fromkeys(one for result in results for one in result.documents)
    last = last_parts(validation, assumptions(editions), sources, versions)
    return html_file(report_title(results), [*parts, *last])


def last_parts(
    validation: Mapping[str, Table],
    assumed: Sequence[str],
    sources: Iterable[Source],
    versions: Mapping[str, str],
) -> Iterator[Part]:
    """Yield the last parts of every report: validation, assumptions, inputs and versions."""
    if validation:
        yield "validation", "Validation", tuple(_validation(validation))
    yield "assumptions", "Assumptions", (Items(tuple(assumed)),)
    titles = {"role": "input", "name": "name", "digest": "SHA-256"}
    rows = [{key: getattr(one, key) for key in titles} for one in sources]
    table = Table(tuple(Column(*pair) for pair in titles.items()), rows)
    made = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield "inputs", "Inputs and versions", (table, dim(f"Made by {made}."))


def report_title(results: Sequence[Result]) -> str:
    """Return the question if all results share it, or else the results."""
    titles = list(dict.fromkeys(one.title for one in results))
    if results[0].names is not None and len(titles) == 1:
        terms = {one.terms for one in results}
        has_terms = len(terms) == 1 and terms != {PUBLISHED}
        return f"{titles[0]}, edition {terms.pop()}" if has_terms else titles[0]
    labels = [one.label for one in results]
    names = {one.names for one in results} - {None}
    about = f"{' on '.join(names.pop() or ())}: " if len(names) == 1 else ""
    more = f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
    return f"{about}{', '.join(labels[:_NAMED])}{more}" + ("" if about else ": results of calculon")


def _result(result: Result) -> Iterator[Block]:
    """Yield the page of a result, the best of its search, and (folded) all statistics and layers."""
    yield estimate_page(result)
    if len(result.winners) > 1:
        shown = result.winners[:MAX_WINNERS]
        count = (
            f"{len(shown)} of {len(result.winners)} " if len(shown) < len(result.winners) else ""
        )
        yield Section(f"The {count}best executions of the search", _winners(shown))
    yield _folded("statistics", _statistics(result))
    if result.layers:
        shared = [name for name in result.layers[0] if all(name in one for one in result.layers)]
        members = (Column(n, n, n not in ("name", "kind"), text=_digits) for n in shared)
        yield _folded("layers", Table(tuple(members), result.layers))


def _winners(shown: Sequence[Result]) -> tuple[Block, ...]:
    """Return the best executions of a search: in words, or in the published format for edition ``sc23``."""
    executions = [one.execution or {} for one in shown]
    stats = [one.bounded_stats for one in shown]
    if all(one.edition == PUBLISHED for one in shown):
        return winners_table(executions, stats), LEGEND
    plans = plans_table(executions, stats, usual=[one.usual for one in shown])
    return plans.shared, plans.table, plans.meaning


def _statistics(result: Result) -> Table:
    rows = [
        {"name": c.name, "value": result.stats[c.name], "unit": c.unit.symbol, "help": c.help}
        for c in columns(CorrectedStats)
        if c.name in result.stats
    ]
    titles = Column("name", "statistic"), Column("value", "value", right=True, text=_digits)
    return Table((*titles, Column("unit", "unit"), Column("help", "meaning")), rows)


def _digits(value: float | str | None) -> str:
    return value if isinstance(value, str) else "-" if value is None else f"{value:,.6g}"


def _validation(validation: Mapping[str, Table]) -> Iterator[Block]:
    """Yield the model's errors compared with the measurements of each system."""
    for system, table in validation.items():
        if table.rows:
            yield Section(f"{system}: published measurements and the model", (table,))
        else:
            yield dim(f"No measurements of {system} are among the published studies of calculon.")
    text = "Errors are in percent of the measured value; a negative bias means that the model is too fast or needs "
    yield dim(f"{text}too little memory.")


def _folded(noun: str, table: Table) -> Section:
    return Section(f"All {len(table.rows)} {noun}", (table,), folded=True)
