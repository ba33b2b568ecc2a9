"""An execution that states a sequence length is the model of that length, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.search.best_first import count_space
from calculon.search.driver import make_ranking, make_space, run
from tests.helpers import PLAIN

MODELS = (
    "gpt3-175B",  # six published fields, whose count of parameters has a position for every token
    "llama3-8B",
    "mistral-7B",  # a sliding window
    "gemma2-9B",  # one in some blocks
    "gpt3-125M",  # learned positions and a vocabulary
    "nanogpt-mlp",  # no attention
)
LENGTHS = (128, 1024, 2048)
LONGER = 16_384
SYSTEM = "a100_80g_sxm"  # whose rates depend on keys and on shapes
CHANGES = (
    {},
    {"attn_impl": "flash", "ce_impl": "fused"},
    {"training": False, "activation_recompute": "none", "optimizer_sharding": False},
    {"tensor_par_comm_type": "rs_ag", "activation_recompute": "attn_only"},
    {"tensor_par_comm_type": "p2p_rs_ag", "tensor_par_overlap": "ring"},
    {"attn_impl": "flash", "fusion": "compile", "zero_stage": "1", "coll_algo": "auto"},
)
BASE = PLAIN | {
    "num_procs": 8,
    "tensor_par": 2,
    "pipeline_par": 2,
    "data_par": 2,
    "batch_size": 16,
    "microbatch_size": 2,
    "datatype": "bfloat16",
    "activation_recompute": "full",
    "optimizer_sharding": True,
    "edition": "corrected",
    "preset": "published",
}


def _of_length(name, length):
    return replace(inputs.model(name), seq_size=length)


def _system():
    """A system whose memory is never too small."""
    system = inputs.system(SYSTEM)
    return replace(system, mem1=replace(system.mem1, capacity=1e18))


def _assert_equal(found, expected):
    assert found.keys() == expected.keys()
    assert {n: (v, expected[n]) for n, v in found.items() if v != expected[n]} == {}


@pytest.mark.parametrize("name", MODELS)
def test_rows_of_a_table_have_their_own_lengths(name):
    model, system = inputs.model(name), _system()
    number = MODELS.index(name)
    lengths, some = (0, LENGTHS[number % 3], LONGER), CHANGES[number % 2 :: 2]
    rows = [BASE | change | {"seq_length": length} for length in lengths for change in some]
    found = calculon.evaluate(model, system, calculon.Plan.from_records(rows))
    for i, length in enumerate(lengths):
        own = calculon.evaluate(
            _of_length(name, length or model.seq_size),
            system,
            calculon.Plan.from_records([BASE | change for change in some]),
        )
        here = slice(i * len(some), (i + 1) * len(some))
        if model.positions and length > max(model.positions, model.seq_size):
            assert set(found.reason[here]) == {"positions_cover_sequence"}
            continue
        assert set(found.reason[here]) == set(own.reason) == {""}
        for statistic in found.names:
            np.testing.assert_array_equal(found[statistic][here], own[statistic], statistic)
    if number % 3:  # one execution also has layers, groups and stages
        return
    length = LENGTHS[number % 3]
    own, stated = (
        calculon.estimate(one, BASE | some[0] | more, system, layers=True)
        for one, more in ((_of_length(name, length), {}), (name, {"seq_length": length}))
    )
    assert (stated.stats, stated.layers) == (own.stats, own.layers)
    assert (stated.groups, stated.stages) == (own.groups, own.stages)


def test_a_search_of_several_lengths_is_the_union_of_searches_of_each():
    """Which microbatch sizes divide over tensor parallelism differs by length."""
    model = replace(inputs.model("gpt3-125M"), seq_size=6, positions=0)
    lengths = (0, 4, 9, 384)

    def found(**changes):
        fix = {"seq_par_ag_redo": (False,), "data_par_overlap": (False,), **changes.pop("fix", {})}
        fix |= dict.fromkeys(("weight_offload", "activations_offload"), (False,))
        space = make_space(
            model, _system(), 12, 12, "bfloat16", edition="corrected", fix=fix, **changes
        )
        ranking = make_ranking(30, "tokens_per_second", edition="corrected")
        return space, run(space, ranking, mbs_break=True)

    space, together = found(add={"seq_length": lengths[1:]})
    spaces, each = zip(*(found(fix={"seq_length": (length,)}) for length in lengths), strict=True)
    assert len({tuple(u.microbatches for u in one.units) for one in spaces}) > 1
    assert count_space(space) == sum(map(count_space, spaces))
    for name in ("total", "good", "reasons"):
        of_each = [getattr(one.counts, name) for one in each]
        assert getattr(together.counts, name) == sum(of_each[1:], of_each[0])
    scores = np.sort(np.concatenate([one.scores[0] for one in each]))[::-1]
    np.testing.assert_array_equal(together.scores[0], scores[:30])


def test_learned_positions_bound_the_length():
    with pytest.raises(
        calculon.SpecError, match=r"at most 2048: gpt3-125M has 2048 learned positions"
    ):
        calculon.estimate("gpt3-125M", BASE | {"seq_length": 2049}, _system())
    beyond = replace(
        inputs.model("gpt3-125M"), seq_size=4096
    )  # the model's own length is its own matter
    own = calculon.estimate(beyond, BASE, _system())
    _assert_equal(
        calculon.estimate(beyond, BASE | {"seq_length": 4096}, _system()).stats, own.stats
    )
