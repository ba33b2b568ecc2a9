"""Scaling laws: tokens and loss are inverse, the optimum is one, and what cannot be reached says so."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.base.errors import Infeasible
from calculon.campaign.scaling_laws import (
    BESIROGLU,
    COUNTS,
    HOFFMANN,
    LAWS,
    losses,
    tokens_of_loss,
)

EACH_LAW = pytest.mark.parametrize("law", LAWS.values(), ids=list(LAWS))
PARAMETERS, TOKENS = st.floats(1e7, 1e13), st.floats(1e9, 1e15)


@EACH_LAW
@given(PARAMETERS, TOKENS)
def test_tokens_undo_loss(law, parameters, tokens):
    loss = law.loss(parameters, tokens)
    left = float(loss - law.least_loss(parameters))
    assert float(law.tokens(parameters, loss)) == pytest.approx(
        tokens, rel=1e-14 / left / law.token_power * float(loss) + 1e-12
    )


@EACH_LAW
@given(PARAMETERS, TOKENS, st.floats(1.01, 10))
def test_more_of_either_is_less_loss(law, parameters, tokens, factor):
    loss = law.loss(parameters, tokens)
    assert law.loss(parameters * factor, tokens) < loss
    assert law.loss(parameters, tokens * factor) < loss
    assert loss > law.least_loss(parameters) > law.irreducible


@EACH_LAW
@given(st.floats(1e18, 1e28), st.floats(0.1, 10))
def test_nothing_with_the_same_compute_is_better_than_the_optimum(law, compute, factor):
    parameters, tokens = law.optimum(compute)
    assert 6 * parameters * tokens == pytest.approx(compute)
    assert law.loss(parameters * factor, tokens / factor) >= law.loss(parameters, tokens) - 1e-12


def test_the_refit_has_about_20_tokens_for_each_parameter_and_the_first_law_more():
    """Chinchilla: 5.76e23 FLOP; of which the model had 70 B parameters and 1.4 T tokens."""
    chinchilla = 5.76e23
    parameters, tokens = BESIROGLU.optimum(chinchilla)
    assert 15 < tokens / parameters < 26
    parameters, tokens = HOFFMANN.optimum(chinchilla)
    assert tokens / parameters > 60


def test_a_loss_is_told_by_both_laws():
    found = tokens_of_loss(2.0, 8e9)
    assert list(found) == list(LAWS)
    for name, tokens in found.items():
        assert losses(8e9, tokens)[name] == pytest.approx(2.0)
    assert found["hoffmann"] != pytest.approx(found["besiroglu"], rel=0.1)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (1.5, f"{COUNTS.irreducible:.3f} is irreducible"),
        (1.9, f"{float(COUNTS.least_loss(8e9)):.3f} is the limit for infinite tokens"),
    ],
)
def test_a_loss_out_of_reach_says_so(loss, words):
    with pytest.raises(Infeasible) as error:
        tokens_of_loss(loss, 8e9)
    assert error.value.reason == "irreducible_loss"
    assert words in str(error.value)
    beyond = np.isfinite(HOFFMANN.tokens(8e9, loss))
    assert ("tokens would reach it according to Hoffmann" in str(error.value)) == beyond
