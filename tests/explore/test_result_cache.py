"""Results that are kept: once each, ended when nobody waits, never half done."""

import importlib
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from calculon.base.errors import Problem, SpecError
from calculon.explore.request_tracking import Canceled, PageRequest, Pending, under_way
from calculon.explore.result_cache import SEARCHES, ResultCache, object_size
from tests.explore.asking import SlowSearch

CACHE = importlib.import_module("calculon.explore.result_cache")

SOON = 10.0
"""Seconds within which what must happen happens on any machine."""


def until(condition) -> bool:
    """Wait for a condition."""
    end = time.monotonic() + SOON
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    return condition()


def asked(memo, key, compute, visit, kind="search"):
    """Ask for a result as a request does."""
    visit.begin()
    with under_way(visit):
        return getattr(memo, kind)(key, compute)


def plan_of(memo, search):
    """Return what needs a search of its own."""
    return lambda: memo.search("found", search) + " plan"


def test_equal_keys_are_computed_once_by_all_threads():
    memo, together, times = ResultCache(), Barrier(8), []

    def compute():
        times.append(1)
        time.sleep(0.05)
        return object()

    def ask(_):
        together.wait()
        return memo("key", compute)

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, range(8)))
    assert len(times) == 1
    assert len({id(one) for one in found}) == 1


def test_an_error_of_the_request_is_kept_and_raised_anew_each_time():
    memo, times = ResultCache(), []

    def compute():
        times.append(1)
        raise SpecError("file", Problem("field", "one", "another"))

    errors = []
    for _ in range(2):
        with pytest.raises(SpecError, match="expected one, found another") as caught:
            memo("key", compute)
        errors.append(caught.value)
    assert len(times) == 1
    assert errors[0] is not errors[1]  # traces of two threads do not mix


def test_a_defect_is_raised_and_not_kept():
    memo, found = ResultCache(), iter([ZeroDivisionError(), 3])

    def compute():
        if isinstance(one := next(found), Exception):
            raise one
        return one

    with pytest.raises(ZeroDivisionError):
        memo("key", compute)
    assert memo("key", compute) == 3


def test_a_request_waits_as_long_as_its_patience_and_finds_the_result_later():
    memo, search = ResultCache(), SlowSearch()
    begun = time.monotonic()
    with pytest.raises(Pending) as caught:
        asked(memo, "key", search, PageRequest(0.05))
    assert time.monotonic() - begun < SOON
    assert caught.value.looked_at > 0
    search.let.set()
    assert asked(memo, "key", search, PageRequest()) == "found"
    assert search.times == 1


def test_what_a_plan_needs_is_waited_for_no_longer_and_the_plan_is_not_kept():
    memo, search = ResultCache(), SlowSearch()
    with pytest.raises(Pending):
        asked(memo, "plan", plan_of(memo, search), PageRequest(0.05), "__call__")
    assert len(memo) == 1
    search.let.set()
    assert asked(memo, "plan", plan_of(memo, search), PageRequest(), "__call__") == "found plan"


def test_a_search_ends_when_its_only_client_leaves():
    memo, search, visit = ResultCache(), SlowSearch(), PageRequest()
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(asked, memo, "key", search, visit)
        assert search.begun.wait(SOON)
        visit.left = True
        with pytest.raises(Canceled):
            answer.result(SOON)
    assert search.ended.is_set()
    assert len(memo) == 0


def test_a_search_goes_on_while_another_client_waits_also_for_what_needs_it():
    memo, search = ResultCache(), SlowSearch()
    first, second = PageRequest(), PageRequest()
    with ThreadPoolExecutor(2) as threads:
        answers = [
            threads.submit(asked, memo, "plan", plan_of(memo, search), one, "__call__")
            for one in (first, second)
        ]
        assert search.begun.wait(SOON)
        waiting = memo._known["plan"].waiters
        assert until(lambda: len(waiting) == 2)
        first.left = True
        looked_at = memo._known["found"].looked_at
        assert until(lambda: memo._known["found"].looked_at > looked_at + 5)
        search.let.set()
        assert [one.result(SOON) for one in answers] == ["found plan"] * 2
    assert search.times == 1


def test_the_search_that_was_heard_of_last_goes_on_for_who_comes_back(monkeypatch):
    monkeypatch.setattr(CACHE, "GRACE", 0.0)
    memo, first, second = ResultCache(), SlowSearch(), SlowSearch()
    for key, search in (("first", first), ("second", second)):
        visit = PageRequest(0.05)
        with pytest.raises(Pending):
            asked(memo, key, search, visit)
        visit.left = True
    assert first.ended.wait(SOON)
    looked_at = memo._known["second"].looked_at
    assert until(lambda: memo._known["second"].looked_at > looked_at + 5)
    assert not second.ended.is_set()
    second.let.set()
    assert asked(memo, "second", second, PageRequest()) == "found"
    assert second.times == 1
    assert memo._lingering is None


def test_a_search_to_which_nobody_comes_back_ends(monkeypatch):
    monkeypatch.setattr(CACHE, "LINGER", 0.2)
    memo, search, visit = ResultCache(), SlowSearch(), PageRequest(0.05)
    with pytest.raises(Pending):
        asked(memo, "key", search, visit)
    visit.left = True
    assert search.ended.wait(SOON)
    assert until(lambda: len(memo) == 0)


def test_who_waits_longer_begins_again_where_another_gave_up():
    memo, search = ResultCache(), SlowSearch()
    with ThreadPoolExecutor(2) as threads:
        hasty = threads.submit(
            asked, memo, "plan", plan_of(memo, search), PageRequest(0.3), "__call__"
        )
        assert search.begun.wait(SOON)
        patient = threads.submit(
            asked, memo, "plan", plan_of(memo, search), PageRequest(), "__call__"
        )
        with pytest.raises(Pending):
            hasty.result(SOON)
        search.let.set()
        assert patient.result(SOON) == "found plan"


def test_a_search_that_waits_for_its_turn_is_never_begun_when_the_client_has_left():
    memo, busy, search = ResultCache(), [SlowSearch() for _ in range(SEARCHES)], SlowSearch()
    with ThreadPoolExecutor(SEARCHES + 1) as threads:
        for number, one in enumerate(busy):
            threads.submit(asked, memo, number, one, PageRequest())
            assert one.begun.wait(SOON)
        visit = PageRequest()
        answer = threads.submit(asked, memo, "key", search, visit)
        assert until(lambda: "key" in memo._known)
        visit.left = True
        for one in busy:
            one.let.set()
        with pytest.raises(Canceled):
            answer.result(SOON)
    assert not search.begun.is_set()


@pytest.mark.parametrize("limits", [{"max_results": 10}, {"max_bytes": 10 * 80_000}])
def test_the_oldest_results_go_first_by_number_and_by_size(limits):
    memo = ResultCache(**limits)
    for number in range(100):
        memo(number, lambda: np.zeros(9_000))
        memo(0, lambda: np.zeros(9_000))  # asked for again and again
    assert len(memo) <= 11
    assert memo.bytes <= 11 * 80_000
    assert {0, 99} <= set(memo._known)
    assert 1 not in memo._known


def test_a_result_weighs_as_much_as_its_arrays_and_texts():
    array = np.zeros(100_000)
    assert array.nbytes <= object_size({"one": [array, array]}) < array.nbytes + 2_000
    text = "x" * 50_000
    assert len(text) <= object_size([text] * 3) < len(text) + 2_000
    many = list(range(1_000_000, 1_100_000))
    assert 1 <= object_size(many) / (len(many) * (28 + 8)) < 3
