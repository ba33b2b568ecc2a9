"""Answers to addresses: the page, what changes of it, and its parts."""

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from html import unescape
from threading import Event

import pytest

from calculon.declarations.decode import SpecWarning
from calculon.explore import answers
from calculon.explore.allowed_inputs import AllowedInputs
from calculon.explore.answers import Answers
from calculon.explore.page_state import State
from calculon.explore.web.page_server import MAX_MENDS, app
from tests.explore.asking import SlowSearch, asked, found
from tests.helpers import document

SOON = 60.0
"""Seconds within which what must happen happens on any machine."""

FIRST = State(model="mlp-2x1024", system="a100_80g_sxm", procs=1)


ASKED = f"model={FIRST.model}&system={FIRST.system}"


@pytest.fixture(scope="module")
def site():
    return app(Answers(AllowedInputs()), FIRST, ["localhost"])


def test_the_first_page_stands_alone_and_equals_what_a_change_to_it_shows(site):
    parts, page = found(site), asked(site, "/").text
    assert page.startswith("<!DOCTYPE html>")
    assert f"<title>{parts['title']}</title>" in page
    for piece in ("controls", "tabs", "main"):
        assert parts[piece].strip() in page
    assert parts["query"] == FIRST.query


def test_without_scripts_every_part_can_be_reached(site):
    page = asked(site, f"/?{found(site)['query']}").text
    links = re.findall(r'<noscript><a href="(/part/[^"]*)"', page)
    assert len(links) == page.count("data-later=") > 0
    (taken,) = (unescape(one) for one in links if "/part/take" in one)
    alone = asked(site, taken, accept="text/html").text
    assert 'href="/export/' in alone
    (back,) = re.findall(r'<a href="([^"]*)">Back to the page</a>', alone)
    assert asked(site, unescape(back)).text == page


def test_what_is_not_understood_is_said_and_the_rest_stays(site):
    answer = asked(site, "/parts?model=llama3-8C&procs=8")
    told = answer.json()
    assert answer.status_code == 400
    assert "llama3-8B" in told["main"]  # the nearest
    assert 'value="llama3-8C" aria-invalid="true"' in told["controls"]
    assert 'name="system" list="systems" value="a100_80g_sxm"' in told["controls"]
    assert told["query"] == "model=llama3-8C&procs=8"
    assert asked(site, "/?model=llama3-8C").status_code == 400


def test_names_that_begin_so_are_links_and_not_said_twice(site):
    told = asked(site, "/parts?model=lama&procs=8").json()["main"]
    assert "expected a model of the catalog" in told
    assert "Hint" not in told
    links = re.findall(r'href="/\?model=([^&"]+)&', told)
    assert links == [*AllowedInputs().meant("model", "lama")][:MAX_MENDS]
    assert "llama3-8B" in links


def test_a_word_of_several_machines_keeps_the_question_and_offers_them(site):
    told = asked(site, "/parts?model=gpt2-124M&system=tpu+v5&procs=4&changed=system").json()
    assert 'value="gpt2-124M"' in told["controls"]
    assert 'name="procs" value="4"' in told["controls"]
    assert 'value="tpu v5" aria-invalid="true"' in told["controls"]
    assert "model=gpt2-124M&amp;system=tpu_v5p" in told["main"]
    assert "address:" not in told["main"]
    assert told["query"] == "model=gpt2-124M&system=tpu+v5&procs=4"


def test_a_machine_without_the_usual_precision_offers_its_own(site):
    told = asked(site, "/parts?model=llama3-8B&system=a100_80g&procs=8").json()
    assert 'value="a100_80g"' in told["controls"]
    mended = "model=llama3-8B&system=a100_80g&procs=8&dtype=fp16"
    assert mended.replace("&", "&amp;") in told["main"]
    assert asked(site, f"/parts?{mended}").status_code == 200


def test_other_addresses_are_not_found(site):
    for address in (
        "/part/none",
        "/part/",
        "/parts/",
        "/assets/none",
        "/assets/../part.py",
        "/etc",
    ):
        assert asked(site, address).status_code == 404


@pytest.fixture
def slow(monkeypatch):
    search = SlowSearch(answers.plans_on)
    monkeypatch.setattr(answers, "plans_on", search)
    yield search
    search.let.set()


def test_a_slow_search_is_shown_under_way_then_its_plan(site, slow):
    address = f"{ASKED}&procs=16"
    told = asked(site, f"/parts?{address}").json()
    while "plans evaluated" not in told["main"]:  # they are counted beside
        assert "Counting the plans" in told["main"]
        told = asked(site, f"/parts?{address}").json()
    assert told["pending"]
    assert 'name="procs" value="16"' in told["controls"]
    page = asked(site, f"/?{address}").text
    assert told["title"] in page
    assert 'http-equiv="refresh"' in page  # for those without scripts
    slow.let.set()
    assert "plans evaluated" not in found(site, address)["main"]


def leaving(site, path: str, query: str, begun: Event) -> None:
    """Ask for an address, and leave when what it needs has begun."""
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode()}
    scope |= {"headers": [(b"host", b"localhost")], "http_version": "1.1", "scheme": "http"}

    async def receive():
        if (first := next(messages, None)) is not None:
            return first
        await asyncio.to_thread(begun.wait, SOON)
        return {"type": "http.disconnect"}

    async def send(message):
        pass

    messages = iter([{"type": "http.request", "body": b"", "more_body": False}])
    asyncio.run(site(scope, receive, send))


def test_a_search_ends_when_the_client_has_left(site, slow):
    leaving(site, "/part/whole", f"{ASKED}&procs=32", slow.begun)
    assert slow.ended.wait(SOON)


def test_a_search_goes_on_for_another_client(site, slow):
    query = f"{ASKED}&procs=64"
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(asked, site, f"/part/whole?{query}")
        assert slow.begun.wait(SOON)
        leaving(site, "/part/whole", query, slow.begun)
        assert not slow.ended.wait(0.1)
        slow.let.set()
        assert other.result(SOON).json()["html"]
    assert not slow.ended.is_set()


@pytest.mark.parametrize("error", [MemoryError(), ZeroDivisionError("1 / 0 of a file")])
def test_a_defect_is_told_in_the_terminal_alone(site, monkeypatch, capsys, error):
    def broken(*asked):
        raise error

    monkeypatch.setattr(answers, "plans_on", broken)
    told = asked(site, f"/part/whole?{ASKED}&procs=128")
    assert told.status_code == (503 if isinstance(error, MemoryError) else 500)
    assert "1 / 0" not in told.text
    assert ("1 / 0" in capsys.readouterr().err) is isinstance(error, ZeroDivisionError)


def test_what_files_are_warned_of_is_said_on_each_page_and_nothing_of_others(site, tmp_path):
    own = tmp_path / "own.json"
    own.write_text(json.dumps(document("models", "gpt2-124M") | {"hiden": 1}))
    with pytest.warns(SpecWarning, match="hiden"):
        offer = AllowedInputs(str(own))
    server = app(Answers(offer), replace(FIRST, model=offer.model, procs=1), ["localhost"])
    for _ in range(2):  # the second comes from what is kept
        told = found(server)["main"]
        assert "hiden: unknown field, ignored" in told
    assert "unknown field" not in found(server, "model=gpt2-124M&procs=1")["main"]
    assert "part-warned" not in found(site)["main"]
