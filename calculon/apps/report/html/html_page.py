"""The report: one page with everything about some results, from the inputs to what the model leaves out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files

from calculon.apps.report.comparison import MOST, Comparison
from calculon.apps.report.comparison_tables import sections
from calculon.apps.report.html.assumptions import assumptions
from calculon.apps.report.html.result_section import result_section
from calculon.apps.report.html.tags import Html, element, joined, plain_table
from calculon.apps.report.plain_result import Result
from calculon.apps.report.text_tables import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a report says.

    Attributes
    ----------
    results : sequence of Result
        At least one, each with a section of its own.
    versions : mapping
        Names and versions of what made it.
    validation : dict of str to Table
        For each system (and edition) its measured studies; a table may have no rows.
    """

    results: Sequence[Result]
    versions: dict[str, str]
    validation: dict[str, Table]


def page(report: Report) -> str:
    """Return the page as HTML that needs nothing else."""
    own = files("calculon.apps.report.html")
    style, script = (own.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    title = _title(report.results)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Html(style)),
    )  # fmt: skip
    body = element(
        "body",
        element("h1", title),
        _contents(report),
        element("main", joined(_parts(report), "\n")),
        element("script", Html(script)),
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n{body}\n</html>\n'


def _title(results: Sequence[Result]) -> str:
    """Name the report after its result, or say how many it has."""
    first = results[0]
    if len(results) > 1:
        return f"{len(results)} results of calculon"
    if first.sheet is None:
        return f"{first.label}: a result of calculon"
    mode = "Training" if first.sheet.execution["training"] else "Inference"
    procs = first.sheet.execution["num_procs"]
    return f"{mode} of {first.sheet.name} on {procs:,} x {first.sheet.machine.name}"


def _contents(report: Report) -> Html:
    """Link to the sections."""
    places = [(f"result-{i}", one.label) for i, one in enumerate(report.results)]
    if len(places) == 1:
        places = []
    places += [("comparison", "Side by side")] if len(places) > 1 else []
    places += [("validation", "Validation")] if report.validation else []
    places += [("assumptions", "Assumptions"), ("inputs", "Inputs and versions")]
    links = (element("li", element("a", text, href=f"#{place}")) for place, text in places)
    return element("nav", element("ul", *links))


def _parts(report: Report) -> Iterator[Html]:
    """Yield the sections."""
    several = len(report.results) > 1
    for number, result in enumerate(report.results):
        yield result_section(result, f"result-{number}", headed=several)
    if several:
        yield element("section", *_side_by_side(report.results), id_="comparison")
    if report.validation:
        yield element("section", *_validation(report.validation), id_="validation")
    yield element("section", *_assumptions(report.results), id_="assumptions")
    yield element("section", *_inputs(report), id_="inputs")


def _side_by_side(results: Sequence[Result]) -> Iterator[Html]:
    """Yield what differs, but for single statistics."""
    yield element("h2", "Side by side")
    comparison = Comparison(results[:MOST])
    named = zip(comparison.letters, comparison.names, strict=True)
    yield element("ul", *(element("li", f"{letter}: {name}") for letter, name in named))
    for section in sections(comparison):
        if not section.title.startswith("Statistics"):
            yield element("h3", section.title.partition("\n")[0])
            yield plain_table(section.table)


def _validation(validation: dict[str, Table]) -> Iterator[Html]:
    """Yield how far the model is from what was measured on the systems."""
    yield element("h2", "Validation")
    for system, found in validation.items():
        if not found.rows:
            text = f"No measurements of {system} are among the published studies that come with calculon."
            yield element("p", text)
            continue
        yield element("h3", system, " ", element("span", "published measurements beside the model"))
        yield plain_table(found)
    text = "Errors are in percent of the measured value; a bias below 0 is a model that is too fast, or that needs "
    yield element("p", f"{text}too little memory.", class_="quiet")


def _assumptions(results: Sequence[Result]) -> Iterator[Html]:
    """Yield what is taken for granted."""
    yield element("h2", "Assumptions")
    editions = list(dict.fromkeys(one.edition for one in results))
    yield element("ul", *(element("li", text) for text in assumptions(editions)))


def _inputs(report: Report) -> Iterator[Html]:
    """Yield the documents with their hashes, and versions."""
    yield element("h2", "Inputs and versions")
    documents = dict.fromkeys(one for result in report.results for one in result.documents)
    rows = [
        element(
            "tr",
            element("td", one.role),
            element("td", one.name),
            element("td", element("code", one.digest)),
        )
        for one in documents
    ]
    titles = (element("th", text, scope="col") for text in ("input", "name", "SHA-256"))
    head = element("thead", element("tr", *titles))
    table = element("table", head, element("tbody", *rows))
    yield element("div", table, class_="scroll")
    made = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield element("p", f"Made by {made}.", class_="quiet")
