"""Speculation: tokens of a verification, and what a deployment may state of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.base.errors import SpecError
from calculon.serving.records.read_records import read_deployment
from calculon.serving.records.speculation import (
    DRAFTS,
    MTP_ACCEPTANCE,
    Speculation,
    acceptance_of,
    tokens_per_pass,
)
from tests.cases import for_each

SHARES = st.floats(0, 1)
DRAFTED = st.integers(0, 16)


@given(st.floats(0, 0.99), DRAFTED)
def test_tokens_of_a_verification_are_the_published_formula(acceptance, drafted):
    formula = (1 - acceptance ** (drafted + 1)) / (1 - acceptance)  # arXiv 2211.17192, equation 1
    assert tokens_per_pass(acceptance, drafted) == pytest.approx(formula, rel=1e-12)


@given(DRAFTED)
def test_all_or_nothing_is_accepted(drafted):
    assert tokens_per_pass(1.0, drafted) == drafted + 1
    assert tokens_per_pass(0.0, drafted) == 1


@given(SHARES, st.integers(1, 16))
def test_acceptance_follows_from_accepted_tokens(acceptance, drafted):
    accepted = tokens_per_pass(acceptance, drafted) - 1
    found = acceptance_of(accepted, drafted)
    assert tokens_per_pass(found, drafted) - 1 == pytest.approx(accepted, rel=1e-12, abs=1e-12)


def asked(**fields):
    return read_deployment({"num_procs": 1, **fields})


@for_each(
    ("fields", "wrong"),
    [
        ({"draft": "model:"}, "draft"),
        ({"draft": "nrgam"}, "draft"),
        ({"acceptance": 0.5}, "acceptance"),
        ({"draft_tokens": 3}, "draft_tokens"),
        ({"draft": "ngram", "draft_tokens": 3}, "acceptance"),
        ({"draft": "ngram", "acceptance": 0.5}, "draft_tokens"),
        ({"draft": "ngram", "draft_tokens": 3, "accepted": 3.5}, "accepted"),
        ({"draft": "ngram", "draft_tokens": 3, "accepted": 1, "acceptance": 0.5}, "acceptance"),
        ({"draft": "mtp", "acceptance": 1.5}, "acceptance"),
        ({"draft": "mtp", "batching": "static"}, "batching"),
        (
            {"draft": "ngram", "draft_tokens": 3, "acceptance": 0.5, "max_batch": 2049},
            "token_budget",
        ),
    ],
)
def test_what_contradicts_itself_is_named(fields, wrong):
    with pytest.raises(SpecError) as caught:
        asked(**fields)
    assert [one.field for one in caught.value.problems] == [wrong]


@for_each(
    ("stated", "wrong"),
    [
        ((None, None, None, 0), "draft"),
        ((None, None, 1.5, 1), "accepted"),
        ((2, None, None, 1), "acceptance"),
    ],
)
def test_what_a_model_contradicts_is_named(stated, wrong):
    with pytest.raises(SpecError) as caught:
        Speculation.of("mtp", *stated)
    assert [one.field for one in caught.value.problems] == [wrong]


def test_modules_draft_a_token_each_by_default():
    assert Speculation.of("mtp", None, None, None, 1) == Speculation("mtp", 1, MTP_ACCEPTANCE)
    assert Speculation.of("mtp", None, 0.5, None, 3) == Speculation("mtp", 3, 0.5)
    assert Speculation.of("ngram", 3, None, 3.0, 0).per_pass == 4


@for_each("draft", [*DRAFTS, "model:llama3-8B"])
def test_nothing_drafted_is_no_speculation(draft):
    found = Speculation.of(draft, 0, 0.7, None, 1)
    assert found == Speculation()
    assert (found.rows, found.per_pass) == (1, 1.0)
