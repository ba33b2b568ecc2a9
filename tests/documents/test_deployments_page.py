"""The page of a search for deployments: what tells its rows apart, and how wide they are."""

import pytest

import calculon
from calculon.documents.deployments_page import deployments_page, left_out_words
from calculon.search.deployments.first_answer import first_answer
from tests.documents.drawing import drawn
from tests.store import cache_by_repr

FIX = {"tensor_par": [1, 2], "pipeline_par": 1, "token_budget": [512, 2048]}
ASKED = {"prompt": 1000, "output": 200}
TYPES = {"weights_dtype": "float8", "kv_dtype": "float8"}


@cache_by_repr
def found(system="h100_80g_sxm", fix=None, counts="1,2", **options):
    asked = {"fix": FIX | (fix or {}), **options}
    return calculon.search_deployments("llama3-8B", counts, system, **ASKED, **asked)


def page(search, width=80):
    return drawn(deployments_page(search), width=width)


def titles(text):
    return next(line for line in text.splitlines() if line.split()[:1] == ["#"]).split()


def test_fields_that_differ_have_a_column_and_the_others_a_line():
    best = page(found(add=TYPES))
    assert "It has weights float8, cache float8" in best
    every = page(found(add=TYPES, top=99, fix={"token_budget": 2048}), width=160)
    assert {"weights", "cache"} <= set(titles(every))
    assert "All have" not in every
    assert "weights, cache: their data types" in " ".join(every.split())
    assert " have " not in page(found()).replace("It has", " have ")


def test_any_field_that_is_tried_tells_rows_apart():
    every = page(found(add={"graphs": False, "kv_block": 32}, top=99), width=160)
    assert {"graphs", "kv_block"} <= set(titles(every))
    rows = [line for line in every.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    assert len({tuple(line.split()[1:9]) for line in rows}) == len(rows)
    assert {"true", "false"} <= set(every.split())


@pytest.mark.parametrize("width", [80, 160])
def test_a_row_takes_a_line_and_the_settings_stay(width):
    search = found(counts=2, add=TYPES, top=99, apart=True)
    text = page(search, width)
    assert {"replicas", "prefill", "budget", "weights", "cache", "TPOT"} <= set(titles(text))
    assert "1 x TP 1" in text
    head = next(at for at, line in enumerate(text.splitlines()) if line.split()[:1] == ["#"])
    shown = text.splitlines()[head + 1 : head + 1 + min(len(search), 40)]
    assert [line.split()[0] for line in shown] == [str(rank) for rank in range(len(shown))]
    assert max(map(len, text.splitlines())) <= width
    assert ("user, USD/M; a wider screen shows all" in text) == (width == 80)


def test_the_best_of_each_kind_is_in_one_table_with_the_gain_over_the_chosen_one():
    search = found(counts=2, fix={})
    others = first_answer(search.space, search.best)
    text = drawn(deployments_page(search, others), width=140)
    head = text.index("Best of each kind: tokens/s per processor")
    rows = [line.split() for line in text[head:].splitlines()]
    kinds = [row for row in rows if {"aggregated", "disaggregated"} & {*row[:1]} and "TP" in row]
    assert len(kinds) == len([one for one in others if one.served])
    assert "chosen" in kinds[0]
    assert {"USD/M", "TTFT", "TPOT"} <= set(rows[1])
    assert "Best of each kind" not in page(search)
    alone = first_answer(found(counts=1).space, found(counts=1).best)
    assert "None meets the limits: disaggregated, as released" in drawn(
        deployments_page(found(counts=1), alone), width=140
    )


def test_what_the_ranking_is_by_is_never_left_out():
    asked = {"counts": 2, "add": TYPES, "top": 99, "apart": True}
    assert "USD/M" not in titles(page(found(**asked)))
    assert "USD/M" in titles(page(found(**asked, objective="usd_per_mtoken")))


def test_times_that_limits_hold_are_named_by_their_share():
    search = found(rate=5, ttft_limit=1, percentile=0.9, objective="ttft", top=3)
    text = page(search, width=120)
    assert "p90: time within which 90 % of requests stay, as in the limits" in " ".join(
        text.split()
    )
    head = titles(text)
    assert [(one, head[at + 1]) for at, one in enumerate(head) if one in ("TTFT", "TPOT")] == [
        ("TTFT", "p90"),
        ("TPOT", "p90"),
    ]
    assert head[-1] == "ttft"
    mean = page(found(objective="ttft"))
    assert "ttft" not in titles(mean)
    assert "p99" not in mean


def test_a_machine_without_a_price_says_so():
    assert "unknown for mi355x (--fix price=2.5" in page(found("mi355x"))
    stated = page(found("mi355x", {"price": 2.5}))
    assert "USD/M" in titles(stated)
    for text in (stated, page(found())):
        assert "price" not in text


def test_values_that_nothing_has_are_told():
    text = " ".join(page(found(add={"expert_par": 2, "redundant_experts": [2, 4]})).split())
    assert "left out expert_par 2; redundant_experts 2, 4: not possible" in text
    assert "left out" not in page(found())
    assert left_out_words({}) == ""
    assert left_out_words({"prefill": [True]}).startswith("prefill pools: ")
