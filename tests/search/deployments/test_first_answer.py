"""The first answer: the best deployment of each kind, of which only a released one is chosen."""

import pytest

from calculon.search.deployments.first_answer import (
    AGGREGATED,
    DISAGGREGATED,
    RELEASED,
    alternatives_of,
    first_answer,
    precisions,
)
from calculon.search.deployments.serving_search import OBJECTIVE, make_space, searched
from tests.search.deployments.test_serving_search import LENGTHS
from tests.serving.given import H100, SMALL


@pytest.mark.parametrize(
    ("model", "system", "names"),
    [
        ("llama3-8B", "h100_80g_sxm", ["FP8"]),
        ("llama3-8B", "b200_sxm", ["FP8", "FP4"]),
        ("llama3-8B", "a100_80g_sxm", []),
        ("deepseek-v3", "h200_141g_sxm", ["BF16"]),
        ("deepseek-v3", "b200_sxm", ["FP4", "BF16"]),
        ("gpt-oss-120b", "b200_sxm", ["MXFP8 inputs", "BF16"]),
        ("gpt-oss-120b", "h100_80g_sxm", ["BF16"]),
    ],
)
def test_precisions_are_those_that_the_machine_multiplies(model, system, names):
    space = make_space(model, 8, system, None, LENGTHS)
    assert [name for name, _ in precisions(space)] == [RELEASED, *names]
    for stated in ({"fix": {"weights_dtype": "int8"}}, {"add": {"kv_dtype": "float8"}}):
        asked = make_space(model, 8, system, None, LENGTHS, **stated)
        assert [*precisions(asked)] == [(RELEASED, {})]


@pytest.mark.parametrize("limits", [{"tpot_limit": 0.004, "ttft_limit": 0.02}, {"rate": 60}])
def test_each_is_the_best_of_its_kind_and_the_released_one_is_first(limits):
    space = make_space(SMALL, 2, H100, LENGTHS | limits)
    chosen = searched(space).best
    found = first_answer(space, chosen)
    assert [one.to_dict() for one in found] == [one.to_dict() for one in alternatives_of(chosen)]
    kinds = [(one.kind, one.precision) for one in found]
    assert kinds[:2] == [(AGGREGATED, RELEASED), (DISAGGREGATED, RELEASED)]
    assert found[0].served is chosen
    for one in found:
        types = dict(precisions(space))[one.precision]
        apart = one.kind == DISAGGREGATED
        best = searched(make_space(SMALL, 2, H100, LENGTHS | limits, fix=types, apart=apart)).best
        assert one.served is not None
        assert (one.served.deployment.prefill is not None) == apart
        # The best of all is the better one of both kinds.
        peers = [
            other.served for other in found if other.precision == one.precision and other.served
        ]
        every = max(other[OBJECTIVE] for other in peers) if apart else one.served[OBJECTIVE]
        assert best[OBJECTIVE] == pytest.approx(every, rel=1e-9)


def test_a_kind_that_meets_no_limit_has_no_deployment():
    space = make_space(SMALL, 1, H100, LENGTHS)
    found = {one.kind: one for one in first_answer(space, searched(space).best)}
    assert found[DISAGGREGATED].served is None
    assert found[DISAGGREGATED].to_dict()["deployment"] is None
    assert found[AGGREGATED].to_dict()["figures"][OBJECTIVE] > 0
