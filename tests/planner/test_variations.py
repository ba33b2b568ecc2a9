"""Variations of an execution as columns: each row is the one that its changes make by hand."""

from random import Random

import numpy as np
import pytest

from calculon import inputs
from calculon.plan.plan import NAMES
from calculon.planner.variations import Variations, varied
from tests.cases import for_each
from tests.draws import draws
from tests.helpers import document
from tests.planner import by_hand

PLAIN = {"datatype": "bfloat16", "preset": "megatron-lm", "pipeline_par": 1}
CASES = {
    "ZeRO on 64": (
        "llama3-70B",
        PLAIN | {"num_procs": 64, "tensor_par": 2, "batch_size": 512, "microbatch_size": 4},
    ),
    "chunks": (
        "llama3.1-405B",
        PLAIN
        | {"num_procs": 512, "tensor_par": 8, "batch_size": 512, "microbatch_size": 1}
        | {"pipeline_par": 2, "pipeline_interleaving": 21},
    ),
    "experts": ("mixtral-8x7B", document("examples", "mixtral-8x7B_h100x64")),
    "fully sharded": ("gpt3-13B-hf", "gpt3-13B_a100x2_fsdp"),
    "published": ("megatron-1T", "3072_t4_p64_d12_mbs4_full"),
    "user buffers": (
        "llama3-8B",
        PLAIN | {"preset": "megatron-lm-ub", "num_procs": 8, "tensor_par": 4, "batch_size": 8},
    ),
    "torchtitan": (
        "llama3-8B",
        PLAIN | {"preset": "torchtitan", "num_procs": 16, "tensor_par": 4, "batch_size": 8},
    ),
}


def _read(name):
    model, execution = CASES[name]
    return inputs.model(model), inputs.execution(execution)


@for_each("name", CASES)
def test_what_changes_nothing_is_the_same(name):
    model, execution = _read(name)
    assert varied(model, execution, {}) == by_hand.fields_of(execution)
    assert Variations(model, execution).broken == frozenset()


@pytest.mark.parametrize("name", CASES)
def test_rows_of_a_table_are_what_each_change_makes_by_hand(name):
    model, execution = _read(name)
    system, random = inputs.system("h100_80g_sxm"), Random(name)
    singles = by_hand.single_changes(model, execution, system)
    several = [dict(random.sample(singles, random.choice((1, 2, 3)))) for _ in range(draws(40))]
    table = Variations(model, execution).of_rows(several)
    for row, changes in enumerate(several):
        expected = by_hand.followed(model, execution, changes)
        assert (expected is None) == (table.malformed[row] >= 0)
        if expected is not None:
            assert {name: table.values(name)[row].item() for name in NAMES} == expected


def test_what_is_broken_follows_only_where_it_is_asked_to():
    changes = {"num_procs": 48, "tensor_par": 2, "data_par": 30, "p2p_overlap": True}
    execution = inputs.execution(PLAIN | changes | {"batch_size": 480, "microbatch_size": 1})
    variations = Variations(inputs.model("llama3-8B"), execution)
    assert variations.broken == {"data_par", "p2p_overlap"}
    [held] = variations.of_rows([{"tensor_par": 4}]).data_par
    assert held == 30
    rows, empty = 1, {}
    free = variations.table(
        rows, empty, {"data_par": np.zeros(1, int), "p2p_overlap": np.zeros(1, int)}
    )
    assert (free.data_par[0], free.p2p_overlap[0]) == (24, False)


def test_what_nobody_stated_follows_though_it_is_broken():
    changes = {"num_procs": 48, "tensor_par": 5, "data_par": 9, "batch_size": 480}
    execution = inputs.execution(PLAIN | changes | {"microbatch_size": 1})
    variations = Variations(inputs.model("llama3-8B"), execution, ("data_par",))
    table = variations.of_rows([{"tensor_par": 4}, {"tensor_par": 7}])
    assert table.data_par[0] == 12
    assert table.malformed.tolist() == [-1, NAMES.index("data_par")]
