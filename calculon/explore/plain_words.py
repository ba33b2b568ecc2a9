"""Replacement of field, statistic and figure names by labels in texts of documents.

Documents are written for terminals, whose users type such names; pages show the labels of their controls. Command
options remain as they are typed.
"""

import re
from collections.abc import Mapping
from functools import cache
from html import escape
from types import MappingProxyType

from calculon.base.records import columns
from calculon.declarations.fields import spec_fields
from calculon.declarations.model import Model
from calculon.declarations.run_figures import RUN_FIGURES
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.declarations.statistics import CorrectedStats
from calculon.explore.labels import label
from calculon.explore.machine.machine_controls import figure_words
from calculon.hardware.collectives.algorithms import OPERATIONS
from calculon.plan.columns import FIELDS
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.load import Workload

PASSES = {"agrad": "input gradients", "wgrad": "weight gradients"}
"""Short names of passes, with their labels."""

_NO_NAMES: Mapping[str, str] = MappingProxyType({})

_OPTION = re.compile(r"(--?[a-z][\w-]*(?: [\w.\[\]]+=[^\s,;)]+)?)")
"""A command option, with a field and its value."""

_COMMON = re.compile(r"[A-Z][a-z]+([ ,:][ a-z(]|$)")
"""A label that is lower-case within a sentence: neither an abbreviation nor a proper name."""

_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[mnµu]?s|[KMGT]i?B|[KMGTP]FLOP)(?![A-Za-z]))")
"""Space between a number and its unit, which never end up on different lines."""

_NAME = re.compile(r"(?<![\w./])[A-Za-z]\w*(?:\[\d+\])*(?:\.\w+(?:\[\d+\])*)*(?:_\*)?")


@cache
def known_names() -> Mapping[str, str]:
    """Return the labels of fields, values, statistics and collectives whose names are not plain words."""
    values = {
        value: field.declaration.words.get(value) or value.replace("_", " ")
        for field in (*FIELDS, *spec_fields(Deployment))
        for value in field.declaration.choices
        if "_" in value
    }
    known = (*columns(CorrectedStats), *RUN_FIGURES.values(), *SERVING_FIGURES.values())
    statistics = {one.name: in_short(one.help) for one in known}
    fields = {one.name: one.name.replace("_", " ") for one in spec_fields(Model)}
    records = (*FIELDS, *spec_fields(Deployment), *spec_fields(Workload))
    fields |= {one.key: label(one.key) for one in records}
    sent = {name: name.replace("_", "-") for name in OPERATIONS}
    found = {**values, **statistics, **fields, **sent}
    # Names without an underscore are ordinary words, which texts may use in their ordinary meaning.
    return {name: words for name, words in found.items() if "_" in name} | PASSES


def in_short(help_text: str) -> str:
    """Return the first clause of a statistic's description.

    >>> in_short("forward computation of a batch on the slowest stage. It has copies")
    'forward computation of a batch on the slowest stage'
    """
    return re.split(r"[;:.] |, where|, a part of", help_text)[0]


def in_labels(text: str, names: Mapping[str, str] = _NO_NAMES, *, paths: bool = True) -> str:
    """Return a text with labels in place of names.

    Args:
        text: The text.
        names: Additional names, such as paths of figures, with their labels.
        paths: True to label other paths of figures, too; messages show them as typed.

    >>> in_labels("pipeline_interleaving: expected 1")
    'Chunks per stage: expected 1'
    >>> in_labels("more networks[0].size, or another zero_stage (--set zero_stage=1)")
    'more inner network: processors, or another sharding (ZeRO) (--set zero_stage=1)'
    """
    return "".join(
        piece if number % 2 else _labeled(piece, names, begins=not number, paths=paths)
        for number, piece in enumerate(_OPTION.split(text))
    )


def unbroken(text: str) -> str:
    """Return a text in which units stay next to their numbers."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)


def labeled_html(text: str, names: Mapping[str, str] = _NO_NAMES) -> str:
    r"""Return a text with labels as HTML, and command options as code.

    >>> labeled_html("Risk > 9 %"), labeled_html("another zero_stage (--set zero_stage=1)")
    ('Risk &gt; 9\xa0%', 'another sharding (ZeRO) (<code>--set zero_stage=1</code>)')
    """
    pieces = (
        f"<code>{escape(piece)}</code>"
        if number % 2 and "=" in piece
        else escape(piece if number % 2 else unbroken(_labeled(piece, names, begins=not number)))
        for number, piece in enumerate(_OPTION.split(text))
    )
    return "".join(pieces).replace("\n", "<br>")


def _labeled(text: str, names: Mapping[str, str], *, begins: bool, paths: bool = True) -> str:
    """Return a piece of text between options with labels; `begins`: it is the first piece."""
    known = known_names()

    def words(match: re.Match[str]) -> str:
        name = match[0]
        said = names.get(name) or known.get(name) or (figure_words(name) if paths else "")
        if not said:
            return name
        first = begins and not text[: match.start()].strip(" '")
        return said if first or not _COMMON.match(said) else said[0].lower() + said[1:]

    return _NAME.sub(words, text)
