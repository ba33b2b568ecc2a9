"""No view shows the name of a field, a statistic or a figure of a machine: they have labels."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest

from calculon.declarations import catalog
from calculon.explore.controls import controls
from calculon.explore.page_state import State
from calculon.explore.plain_words import known_names
from calculon.explore.view_part import html
from calculon.explore.views import PARTS
from calculon.explore.web.page_server import app
from calculon.validate.published_study import Library
from tests.explore.asking import answers, asked, at, made
from tests.explore.stated import CANNOT, MACHINE, SMALL, STATES

RAW = re.compile(r"[\w./\[\]-]*(?:[A-Za-z0-9]_[A-Za-z0-9]|\bext\.|\bagrad\b|\bwgrad\b)[\w./\[\]-]*")
"""A name as files have it."""

UNREAD = ("code", "pre", "script", "style")
"""Elements whose text is for a machine."""

ADDRESSES = {
    "the best plan": SMALL,
    "a machine that is changed": f"{SMALL}&{MACHINE}&view=machine&figures=efficiency&of=bubble_time",
    "a search": f"{SMALL}&view=search&objective=mfu:min&x=copy_time",
    "experts": "model=mixtral-8x7B&system=h100_80g_sxm&procs=16&view=pipeline",
    "latent attention": "model=deepseek-v2-lite&system=h100_80g_sxm&procs=8&view=pipeline",
    "uneven stages": STATES["uneven stages"],
    "a plan that breaks a rule": CANNOT["it breaks a rule"],
    "a plan that is none": CANNOT["it is none"],
    "no plan fits": "model=llama3-70B&system=h100_80g_sxm&procs=8",
    "serving": "model=llama3-8B&system=h100_80g_sxm&procs=4&view=serving&deployment.max_batch=4",
    "serving without a deployment": "model=llama3-70B&system=h100_80g_sxm&procs=1&view=serving",
}


class Shown(HTMLParser):
    """Collects what people see of HTML: texts, what controls show, and the texts of charts."""

    def __init__(self, text: str):
        super().__init__()
        self.texts: list[str] = []
        self._unread = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        self._unread += tag in UNREAD
        if tag == "input" and own.get("type") not in ("hidden", "checkbox"):
            self.texts += [own.get("value") or "", own.get("placeholder") or ""]
        if figure := own.get("data-figure"):
            self.texts += chart_texts(json.loads(figure))

    def handle_endtag(self, tag: str) -> None:
        self._unread -= tag in UNREAD

    def handle_data(self, data: str) -> None:
        if not self._unread:
            self.texts.append(data)


def chart_texts(figure: object, key: str = "") -> Iterator[str]:
    """Yield the texts of a figure of plotly, without addresses and names of axes."""
    if isinstance(figure, dict):
        for name, value in figure.items():
            if name not in ("customdata", "meta"):
                yield from chart_texts(value, name)
    elif isinstance(figure, list):
        for value in figure:
            yield from chart_texts(value, key)
    elif isinstance(figure, str) and key in ("text", "name", "title", "ticktext", "hovertext"):
        yield figure


def raw_names(text: str) -> set[str]:
    """Return the names in what people see of HTML, but for names of the catalog and of studies."""
    found = {name for shown in Shown(text).texts for name in RAW.findall(shown)}
    proper = {*catalog.names("system"), *catalog.names("model"), *Library.at().names()}
    folders = {part for name in proper for part in name.split("/")}
    return {name for name in found if not {*name.split("/")} & {*proper, *folders}}


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
def test_no_part_shows_a_raw_name(address):
    state = at(f"/?{address}")
    parts = {kind.name: made(kind.name, state) for kind in PARTS[state.view]}
    pages = {name: html("part.html", name=name, part=one) for name, one in parts.items() if one}
    pages["controls"] = controls(state, answers())
    found = {name: raw_names(str(page)) for name, page in pages.items()}
    assert not {name: names for name, names in found.items() if names}


def test_messages_have_no_raw_name():
    site = app(answers(), State(model="llama3-8B", system="h100_80g_sxm", procs=8), ["localhost"])
    for wrong in ("tensor_par=x", "system.mem1.GiB=-1", "objective=mfuu&view=search"):
        told = asked(site, f"/parts?{SMALL}&{wrong}").json()["main"]
        assert not raw_names(told), wrong


def test_every_name_has_words():
    assert not [name for name, words in known_names().items() if RAW.search(words)]
