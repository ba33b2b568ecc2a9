"""Answers to addresses: the page, what changes of it, and its parts."""

import pytest

from calculon.apps.explore.answers import Answers
from calculon.apps.explore.offer import Offer
from calculon.apps.explore.page_server import app
from calculon.apps.explore.page_state import State
from tests.apps.explore.asking import asked, found

FIRST = State(model="llama3-8B", system="h100_80g_sxm", procs=8)


@pytest.fixture(scope="module")
def site():
    return app(Answers(Offer()), FIRST, ["localhost"])


def test_the_first_page_stands_alone_and_equals_what_a_change_to_it_shows(site):
    parts, page = found(site), asked(site, "/").text
    assert page.startswith("<!DOCTYPE html>")
    assert f"<title>{parts['title']}</title>" in page
    for piece in ("controls", "tabs", "main"):
        assert parts[piece].strip() in page
    assert parts["query"] == FIRST.query


def test_what_is_not_understood_is_said_and_the_controls_stay(site):
    answer = asked(site, "/parts?model=llama3-8C&procs=8")
    told = answer.json()
    assert answer.status_code == 400
    assert "llama3-8B" in told["main"]  # the nearest
    assert told["controls"] is None
    assert told["query"] == "model=llama3-8C&procs=8"
    assert asked(site, "/?model=llama3-8C").status_code == 400


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


def test_a_slow_search_is_shown_under_way_then_its_plan(site, monkeypatch):
    from threading import Event

    from calculon.apps.explore import answers
    from calculon.apps.explore.visits import seen

    plans_on, go = answers.plans_on, Event()

    def slow(*asked):
        while not go.wait(0.001):
            seen(1)
        return plans_on(*asked)

    monkeypatch.setattr(answers, "plans_on", slow)
    address = "model=llama3-8B&system=h100_80g_sxm&procs=16"
    told = asked(site, f"/parts?{address}").json()
    while "executions looked at" not in told["main"]:  # they are counted beside
        assert "Counting the executions" in told["main"]
        told = asked(site, f"/parts?{address}").json()
    assert told["pending"]
    assert 'name="procs" value="16"' in told["controls"]
    page = asked(site, f"/?{address}").text
    assert told["title"] in page
    assert 'http-equiv="refresh"' in page  # for those without scripts
    go.set()
    assert "executions looked at" not in found(site, address)["main"]
