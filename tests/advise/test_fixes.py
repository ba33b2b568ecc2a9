"""What would make one execution run: plans that run, with the fewest changes."""

from random import Random

import pytest

import calculon
from calculon import inputs
from calculon.advise.fixes import FixSearch, hint
from calculon.advise.neighborhood import Neighborhood
from calculon.advise.variations import Variations
from calculon.base.errors import Infeasible
from calculon.plan.rules.failures import failures
from tests.advise import by_hand
from tests.advise.by_hand import PLAIN, PLANS
from tests.draws import draws
from tests.helpers import PLAIN as PUBLISHED
from tests.helpers import document
from tests.store import cache

CASES = {
    "ZeRO on 64": (*PLANS["ZeRO on 64"], "h100_80g_sxm"),
    "more processors": (
        "gpt3-175B",
        PLAIN | {"num_procs": 8, "tensor_par": 8, "batch_size": 512, "microbatch_size": 4},
        "h100_80g_sxm",
    ),
    "stages and chunks": (*PLANS["chunks"], "h100_80g_sxm"),
    "offloading": (*PLANS["fully sharded"], "a100_40g_sxm"),
}


def _read(case):
    model, execution, system = case
    return inputs.model(model), inputs.execution(execution), inputs.system(system)


def _search(model, execution, system):
    near = Neighborhood(model, execution, system)
    return FixSearch(near, failures(model, execution, system))


@cache
def _fixes(name):
    return _search(*_read(CASES[name])).fixes()


@pytest.mark.parametrize(
    "name",
    [
        *("ZeRO on 64", "offloading"),
        *(pytest.param(name, marks=pytest.mark.large) for name in [*CASES][1:3]),
    ],
)
def test_fixes_run_and_change_what_they_say(name):
    model, execution, system = _read(CASES[name])
    with pytest.raises(Infeasible):
        calculon.estimate(model, execution, system)
    found = _fixes(name)
    assert 1 <= len(found) <= 5
    for one in found:
        again = calculon.estimate(model, one.execution, system)
        assert again.stats["total_time"] == one.total_time
        assert again.stats["proc_mem_tier1_cap_req"] == one.memory[0]
        fields = by_hand.fields_of(execution) | one.changes | one.follows
        assert by_hand.fields_of(one.execution) == fields
        assert by_hand.followed(model, execution, dict(one.changes)) == fields
        assert "batch_size" not in one.changes
    order = [(len(one.changes), not one.practised, one.distance, one.total_time) for one in found]
    assert order == sorted(order)
    assert len({frozenset(one.changes) for one in found}) == len(found)


SMALL = {"base": "a100_80g_sxm", "mem1": {"GiB": 6}}
SHAPE = document("models", "gpt2-1.5B") | {"num_blocks": 12, "hidden": 1536, "feedforward": 6144}
SHAPE |= {"attn_heads": 24}
TINY = PLAIN | {"num_procs": 4, "tensor_par": 1, "batch_size": 8, "microbatch_size": 4}
OPEN = PUBLISHED | {"num_procs": 16, "tensor_par": 4, "data_par": 4, "batch_size": 16}
PLAINEST = document("models", "megatron-126M") | {"num_blocks": 4}
EXPERTS = document("models", "mixtral-8x7B") | {"num_blocks": 8}
BRUTE = {
    "memory": (SHAPE, TINY, SMALL),
    "networks": (PLAINEST, OPEN, "a100_80g"),
    "two broken rules": (
        SHAPE,
        TINY | {"pipeline_par": 4, "microbatch_size": 5, "pp_layout": "both_as_blocks"},
        "a100_80g_sxm",
    ),
    "experts": (
        EXPERTS,
        TINY | {"num_procs": 8, "tensor_par": 2, "microbatch_size": 1},
        {"base": "h100_80g_sxm", "mem1": {"GiB": 48}},
    ),
}


@pytest.mark.parametrize(
    "name",
    ["memory", "networks", *(pytest.param(n, marks=pytest.mark.large) for n in [*BRUTE][2:])],
)
def test_no_fewer_changes_do(name):
    """All changes of one field and of two, with what follows from them, by hand."""
    model, execution, system = _read(BRUTE[name])
    _no_fewer(model, execution, system, _search(model, execution, system).fixes())


def _no_fewer(model, execution, system, found):
    size, known = by_hand.fewest(model, execution, system)
    first = [one for one in found if not one.asks_for_another]
    if not size:
        assert all(len(one.changes) > 2 for one in first)
        return
    assert len(first[0].changes) == size
    least = [frozenset(one.changes) for one in first if len(one.changes) == size]
    assert known.issuperset(least)
    assert len(found) == 5 or len(least) == len(known)


def test_practice_is_kept_where_something_keeps_to_it():
    """Tensor parallelism beyond a node is the only single change; what people would do is told, too."""
    found = _fixes("ZeRO on 64")
    assert dict(found[0].changes) == {"tensor_par": 32}
    assert found[0].unusual == ("tensor_par <= node",)
    practised = [one.practised for one in found[1:]]
    assert practised == sorted(practised, reverse=True)
    assert practised[0]
    assert not any(one.risky for one in found)


@pytest.mark.large
def test_a_hint_keeps_to_practice():
    assert "tensor_par=32" not in hint(*_read(CASES["ZeRO on 64"]))


@pytest.mark.large
def test_larger_groups_of_experts_are_proposed_alone():
    execution = {**document("examples", "mixtral-8x7B_h100x64"), "expert_par": 1}
    found = _search(*_read(("mixtral-8x7B", execution, "h100_80g_sxm"))).fixes()
    degrees = [one.changes["expert_par"] for one in found if {*one.changes} == {"expert_par"}]
    (degree,) = degrees
    for fewer in (d for d in (2, 4, 8) if d < degree):
        with pytest.raises(Infeasible):
            calculon.estimate("mixtral-8x7B", execution | {"expert_par": fewer}, "h100_80g_sxm")


@pytest.mark.large
def test_more_processors_where_nothing_else_does():
    model, execution, system = _read(CASES["more processors"])
    (*_, last) = _fixes("more processors")
    assert last.asks_for_another == "num_procs"
    assert last.execution.num_procs == last.changes["num_procs"] > execution.num_procs
    for name in set(last.changes) - {"num_procs"}:  # none of them can be spared
        fewer = {n: v for n, v in last.changes.items() if n != name}
        row = by_hand.followed(model, execution, fewer)
        assert row is None or not by_hand.runs(model, row, system)


@pytest.mark.large
def test_processors_are_a_change_like_others_where_there_are_too_few():
    """Llama 3 8B on one: another number alone does, and what one can do with more changes is told, too."""
    fields = document("examples", "llama3-8B_h100x64") | {"num_procs": 1}
    fields.pop("data_par", None)
    found = calculon.why("llama3-8B", fields, "h100_80g_sxm").proposals
    assert (found[0].asks_for_another, found[0].count) == ("num_procs", 1)
    for one in found:
        assert by_hand.runs("llama3-8B", one.execution, "h100_80g_sxm")
    assert [one.order for one in found] == sorted(one.order for one in found)
    assert {one.asks_for_another for one in found} == {"", "num_procs"}


@pytest.mark.large
def test_the_fastest_of_equally_many_changes_is_told():
    """Of all pairs on the same processors that keep to practice, one of each set of fields, in the last place."""
    search = _search(*_read(("llama3-70B", "llama3-8B_h100x64", "h100_80g_sxm")))
    found, pairs = search.fixes(), search.pairs
    rows = [row for row in pairs.in_order if pairs.practised[row]]
    first = {}
    for row in rows:
        first.setdefault(pairs.fields(row), pairs.time[row])
    single = {*found[0].changes}
    assert len(first) > len(found)
    least = min(
        time for fields, time in first.items() if not (found[0].practised and fields > single)
    )
    assert min(one.total_time for one in found if one.count == 2) == least


@pytest.mark.large
@pytest.mark.parametrize(
    "changes",
    [{}, {"pipeline_par": 2, "data_par": 16, "pipeline_interleaving": 2}],
    ids=["there is room", "five others do"],
)
def test_another_batch_with_fewer_changes_is_the_last_and_compared_by_samples(changes):
    """No split of 64 processors divides a batch of 511 as it is."""
    mine = document("examples", "llama3-8B_h100x64") | {"batch_size": 511} | changes
    found = calculon.why("llama3-8B", mine, "h100_80g_sxm").proposals
    assert [one.asks_for_another for one in found] == [""] * (len(found) - 1) + ["batch_size"]
    assert found[-1].count < min(one.count for one in found[:-1])
    assert len(found) <= 5
    rates = [one.found.stats["sample_rate"] for one in found]
    for one, rate in zip(found, rates, strict=True):
        assert one.longer == pytest.approx(max(rates) / rate - 1, abs=1e-12)


def test_nothing_is_said_where_nothing_would_do():
    stated = {"num_procs": 1, "tensor_par": 1, "batch_size": 1, "microbatch_size": 1}
    tiny = {"base": "v100_sxm2_32g", "mem1": {"GiB": 0.01}, "mem2": {"GiB": 0}}
    case = _read((SHAPE, PLAIN | stated | {"datatype": "float16"}, tiny))
    assert _search(*case).fixes() == ()
    assert hint(*case) == ""


@pytest.mark.large
@pytest.mark.parametrize("seed", range(draws(1)))
def test_no_fewer_changes_do_of_random_ones(seed):
    model, system = inputs.model(SHAPE), inputs.system(SMALL)
    random = Random(seed)
    while True:
        degrees = {n: random.choice((1, 2, 3, 4)) for n in ("tensor_par", "pipeline_par")}
        sizes = {"num_procs": random.choice((4, 8, 12)), "batch_size": random.choice((8, 12, 18))}
        options = {"preset": random.choice(("megatron-lm", "common")), "microbatch_size": 3}
        options |= {"pipeline_interleaving": random.choice((1, 2, 5))}
        try:
            execution = inputs.execution(PLAIN | degrees | sizes | options)
        except calculon.SpecError:
            continue
        broken = Variations(model, execution).broken  # which the oracle knows nothing of
        if not broken and not by_hand.runs(model, execution, system):
            break
    _no_fewer(model, execution, system, _search(model, execution, system).fixes())
