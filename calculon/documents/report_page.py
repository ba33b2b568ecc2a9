"""Results as one HTML file to send: the pages of a terminal, tables to sort, and nothing asked of a network."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template

from rich.console import RenderableType
from rich.terminal_theme import TerminalTheme

from calculon.base.frozen import dataclass
from calculon.base.records import columns
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.statistics import CorrectedStats
from calculon.documents.assumptions import assumptions
from calculon.documents.comparison import MOST, Comparison
from calculon.documents.comparison_page import comparison_page
from calculon.documents.how_sure import Order
from calculon.documents.page import estimate_page
from calculon.documents.plans_table import plans_table
from calculon.documents.result import Document as Source
from calculon.documents.result import Result
from calculon.documents.winners import LEGEND, winners_table
from calculon.render import document, terminal
from calculon.render.console import recording
from calculon.render.document import Block, Document, Grid, Section, words
from calculon.render.text_tables import Column, Table

MOST_WINNERS = 50
WIDTH = 120
"""Characters of a line: enough for all columns of the layers."""

_NO_ORDERS: Mapping[int, Order] = {}
_NAMED = 3  # results that the title names


@dataclass(frozen=True, slots=True)
class Drawn:
    """A section with a table, and a picture of the table as an element of a page; empty if there is none."""

    section: Section
    svg: str = ""


@dataclass(frozen=True, slots=True)
class RunShown:
    """A whole run: what a terminal shows of it, and pictures as elements of a page.

    Attributes
    ----------
    label : str
        The result that it is a run of.
    page : Document
        Its page.
    svgs : tuple of str
        Its pictures; none without the library that draws them.
    missed : tuple of str
        The limits that it misses, each in words with by how much.
    """

    label: str
    page: document.Document
    svgs: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()


_COLORS = {"#7f7f7f": "var(--quiet)", "#010101": "var(--rule)"}
"""Dim texts and empty parts of bars, which a style sheet makes light or dark; all other colours suit both."""

_GREYS = [(0, 0, 0)] * 8
_THEME = TerminalTheme((255, 255, 255), (0, 0, 0), _GREYS, [(1, 1, 1), *_GREYS[1:]])


def report_page(
    results: Sequence[Result],
    versions: Mapping[str, str],
    validation: Mapping[str, Table],
    orders: Mapping[int, Order] = _NO_ORDERS,
    waterfalls: Sequence[Drawn] = (),
    runs: Sequence[RunShown] = (),
) -> str:
    """Return the report of some results.

    Parameters
    ----------
    results : sequence of Result
        At least one, each with a section of its own.
    versions : mapping
        Names and versions of the programs that made it.
    validation : mapping of str to Table
        For each system (and edition) its measured studies; a table may have no rows.
    orders : mapping, optional
        As of a :class:`~calculon.documents.comparison.Comparison`.
    waterfalls : sequence of Drawn
        The changes from the first result to others.
    runs : sequence of RunShown
        Whole runs of results.
    """
    several = len(results) > 1
    parts = [
        (f"result-{i}", one.label if several else "Result", _result(one))
        for i, one in enumerate(results)
    ]
    if runs:
        parts.append(("run", "The whole run", "\n".join(_run(one, several) for one in runs)))
    if several:
        compared = comparison_page(Comparison(results[:MOST], orders), statistics=False)
        parts.append(("comparison", "Side by side", block_html(compared)))
    if waterfalls:
        parts.append(("waterfall", "One change at a time", "\n".join(map(_drawn, waterfalls))))
    if validation:
        parts.append(("validation", "Validation", validation_section(validation)))
    editions = list(dict.fromkeys(one.edition for one in results))
    parts.append(("assumptions", "Assumptions", text_list(assumptions(editions))))
    documents = dict.fromkeys(one for result in results for one in result.documents)
    parts.append(("inputs", "Inputs and versions", inputs_section(documents, versions)))
    return assembled(report_title(results), parts)


def assembled(title: str, parts: Sequence[tuple[str, str, str]]) -> str:
    """Return a page of parts: the name of the place of each, its title, and its HTML."""
    links = (f'<li><a href="#{place}">{escape(name)}</a></li>' for place, name, _ in parts)
    bodies = (
        f'<section id="{place}">\n<h2>{escape(name)}</h2>\n{body}\n</section>'
        for place, name, body in parts
    )
    text = files("calculon.documents").joinpath("report.html").read_text("utf-8")
    content = {"title": escape(title), "contents": "".join(links), "main": "\n".join(bodies)}
    return Template(text).substitute(content, policy=_policy(text))


def _policy(template: str) -> str:
    """Return what a report may load: nothing but its own script, by its hash, its styles and its pictures."""
    script = template.split("<script>")[1].split("</script>", maxsplit=1)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def report_title(results: Sequence[Result]) -> str:
    """Name the question of the results where it is one, else the results."""
    titles = list(dict.fromkeys(one.title for one in results))
    if results[0].names is not None and len(titles) == 1:
        terms = {one.terms for one in results}
        told = len(terms) == 1 and terms != {PUBLISHED}
        return f"{titles[0]}, edition {terms.pop()}" if told else titles[0]
    labels = [one.label for one in results]
    names = {one.names for one in results} - {None}
    about = f"{' on '.join(names.pop() or ())}: " if len(names) == 1 else ""
    more = f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
    return f"{about}{', '.join(labels[:_NAMED])}{more}" + ("" if about else ": results of calculon")


def drawn(renderable: RenderableType) -> str:
    """Return what a terminal shows, with its colours, as HTML."""
    console = recording(WIDTH)
    console.print(renderable)
    page = console.export_html(theme=_THEME, inline_styles=True, code_format="<pre>{code}</pre>")
    page = re.sub(r"; text-decoration-color: #\w+| +(?=\n)", "", page)
    return re.sub("|".join(_COLORS), lambda found: _COLORS[found[0]], page)


def _result(result: Result) -> str:
    """Return the page of a result, the best of its search, and folded away all statistics and layers."""
    parts = [drawn(terminal.Page(estimate_page(result)))]
    if len(result.winners) > 1:
        shown = result.winners[:MOST_WINNERS]
        count = (
            f"{len(shown)} of {len(result.winners)} " if len(shown) < len(result.winners) else ""
        )
        blocks = _winners(shown)
        parts.append(block_html(Section(f"The {count}best executions of the search", blocks)))
    parts.append(_folded("statistics", _statistics(result)))
    if result.layers:
        shared = [name for name in result.layers[0] if all(name in one for one in result.layers)]
        members = (Column(n, n, n not in ("name", "kind"), text=_digits) for n in shared)
        parts.append(_folded("layers", Table(tuple(members), result.layers)))
    return "\n".join(parts)


def _winners(shown: Sequence[Result]) -> tuple[Block, ...]:
    """Return the best executions of a search: in words, executions of edition ``sc23`` as published."""
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


def _run(one: RunShown, several: bool) -> str:
    """Return the page of a run with its pictures below."""
    title = [f"<h3>{escape(one.label)}</h3>"] if several else []
    pictures = (f'<div class="scroll">{svg}</div>' for svg in one.svgs)
    return "\n".join([*title, drawn(terminal.Page(one.page)), *pictures])


def _drawn(one: Drawn) -> str:
    """Return a picture with its table below."""
    picture = f'<div class="scroll">{one.svg}</div>\n' if one.svg else ""
    return picture + block_html(one.section)


def validation_section(validation: Mapping[str, Table]) -> str:
    """Return the errors of the model against the measurements of each system."""
    parts = [
        block_html(Section(f"{system}: published measurements and the model", (table,)))
        if table.rows
        else quiet(f"No measurements of {system} are among the published studies of calculon.")
        for system, table in validation.items()
    ]
    text = "Errors are in percent of the measured value; a bias below 0 is a model that is too fast, or that needs "
    return "\n".join([*parts, quiet(f"{text}too little memory.")])


def inputs_section(documents: Iterable[Source], versions: Mapping[str, str]) -> str:
    """Return the documents with their hashes, and the versions of the programs."""
    titles = {"role": "input", "name": "name", "digest": "SHA-256"}
    rows = [{key: getattr(one, key) for key in titles} for one in documents]
    table = Table(tuple(Column(*pair) for pair in titles.items()), rows)
    made = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"{table.html()}\n{quiet(f'Made by {made}.')}"


def block_html(block: Block) -> str:
    """Return a part of a document: below its heading, tables to sort, grids as lists, and sentences."""
    if isinstance(block, Document):
        return "\n".join(map(block_html, (*block.lead, *block.parts)))
    if isinstance(block, Section):
        return "\n".join([f"<h3>{escape(block.heading)}</h3>", *map(block_html, block.blocks)])
    if isinstance(block, Table):
        return block.html()
    if isinstance(block, Grid):
        return text_list([": ".join(map(words, row)) for row in block.rows])
    return quiet(words(block))


def _folded(noun: str, table: Table) -> str:
    return f"<details><summary>All {len(table.rows)} {noun}</summary>\n{table.html()}</details>"


def text_list(texts: Sequence[str]) -> str:
    """Return sentences as a list."""
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"


def quiet(text: str) -> str:
    """Return a sentence in the colour of what is said by the way."""
    return f'<p class="quiet">{escape(text)}</p>'
