"""Attention whose ranks have requests of their own, experts split over all of them, and the exchange between both."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from calculon import inputs
from calculon.base.errors import SpecError
from calculon.serving.passes.exchange import (
    COMBINE,
    DISPATCH,
    EXCHANGES,
    Exchange,
    exchange_times,
    imbalance,
)
from calculon.serving.passes.pass_rows import pass_rows
from calculon.serving.passes.pass_sizes import PassSizes, spread
from calculon.serving.passes.replica import Replica
from calculon.serving.passes.row_times import pass_times
from calculon.serving.records.deployments import Deployments
from calculon.serving.serve import serve
from tests.cases import for_each
from tests.helpers import ROOT
from tests.serving.given import H100, SMALL, rows_of, total, types

H800 = inputs.system("h800_80g_sxm")
DEEPSEEK = inputs.model("deepseek-v3")
EXPERTS = replace(SMALL, num_experts=16, experts_per_token=2, name="experts")
DECODE = {"decoded": 64, "context": 500}


def times_of(model=EXPERTS, system=H100, *, routing="balanced", overlap="none", **sizes):
    """Time passes with choices of experts."""
    columns = PassSizes.of(**{"tensor_par": 8, **sizes})
    rows = pass_rows(model, types(system), columns, routing=routing, overlap=overlap)
    return pass_times(model, system, rows, columns, overlap=overlap)


def exchange_of(tokens, ranks, *, model=DEEPSEEK, routing="balanced", **sizes):
    """Return the exchange of ranks with so many tokens each, every one with experts of its own."""
    columns = PassSizes.of(
        **{
            "tensor_par": ranks,
            "attn_data_par": ranks,
            "expert_par": ranks,
            "decoded": np.asarray(tokens) * ranks,
            **sizes,
        }
    )
    return Exchange.of(model, types(H800, "float8"), columns, routing)


# -- groups of ranks ------------------------------------------------------------------------------


def test_sequences_are_spread_evenly_and_stay_whole():
    found = spread(np.array([0.0, 0.5, 1, 3, 8, 12]), np.full(6, 8.0))
    assert found.tolist() == [0, 0.5, 1, 1, 1, 1.5]


@for_each("groups", [2, 4, 8])
def test_a_group_is_a_replica_with_its_share_of_the_sequences_but_for_experts(groups):
    """All products, attention and sampling are those of so many ranks and sequences."""
    apart = rows_of(EXPERTS, tensor_par=8, attn_data_par=groups, expert_par=8, **DECODE)
    alone = rows_of(
        EXPERTS, tensor_par=8 // groups, decoded=DECODE["decoded"] / groups, context=500
    )
    for name in ("qkv", "decode attention", "output", "head", "sampling", "router"):
        for quantity in ("flops", "moved", "weights", "cache"):
            assert total(apart, name, quantity) == total(alone, name, quantity)


@for_each("groups", [1, 2, 4, 8])
@for_each("experts", [1, 2, 8])
def test_experts_do_the_work_of_all_sequences(groups, experts):
    """However their tokens and weights are spread over the ranks, each has an equal part."""
    columns = PassSizes.of(tensor_par=8, attn_data_par=groups, expert_par=experts, **DECODE)
    rows = pass_rows(EXPERTS, types(H100), columns, routing="even")
    each = EXPERTS.num_blocks * 3 * EXPERTS.hidden * EXPERTS.feedforward
    assert total(rows, "experts", "flops") == 2 * each * 64 * 2 / 8
    assert total(rows, "experts", "weights") == 2 * each * 16 / 8


def test_a_prompt_alone_is_one_prompt_for_experts():
    """Its group has it whole, the others none."""
    prompt = {"prompts": 1, "chunk": 1024, "tensor_par": 8, "expert_par": 8}
    whole, apart = (rows_of(EXPERTS, attn_data_par=groups, **prompt) for groups in (1, 8))
    assert total(whole, "experts", "flops") == total(apart, "experts", "flops")
    assert total(apart, "output", "flops") == 8 * total(whole, "output", "flops")


@for_each("balanced", [False, True])
def test_all_groups_wait_for_the_prompts_of_any(balanced):
    """A prompt in a share q of the passes of each of 8 groups: 8 q prompts in 1 - (1 - q)^8 of all passes."""
    deployment = {"num_procs": 8, "tensor_par": 8, "attn_data_par": 8, "expert_par": 8}
    deployment |= {"token_budget": 8192, "balanced_prompts": balanced, "max_batch": 64}
    output = 201
    found = served(deployment, output=output)
    replica = Replica(
        found.model, found.system, Deployments.of_records([found.deployment]), found.workload
    )
    batch = np.array([8.0, 64, 400, 1600])
    together = replica.prompts_of(batch, np.ones(4), found.workload.lengths[0]).together
    share = np.minimum(batch / 8 / (output - 1), 1 - 1e-12)
    expected = 8 if balanced else 8 * share / (1 - (1 - share) ** 8)
    assert together == pytest.approx(expected * np.ones(4))


# -- the exchange ---------------------------------------------------------------------------------


def test_ranks_with_the_same_sequences_exchange_nothing():
    assert not [
        row for row in rows_of(EXPERTS, tensor_par=8, expert_par=8, **DECODE) if row.exchange
    ]
    mixed = times_of(attn_data_par=[1, 8], expert_par=8, **DECODE)
    for name in (DISPATCH, COMBINE):
        time = sum(row.time for row in mixed.of(name))
        assert time[0] == 0 < time[1]


def test_dispatch_is_as_wide_as_the_arithmetic_of_experts_or_as_stated():
    hidden = DEEPSEEK.hidden
    assert exchange_of(10, 8).sent == hidden * (1 + 4 / 128)
    assert exchange_of(10, 8).returned == hidden * 2
    columns = PassSizes.of(tensor_par=8, attn_data_par=8, expert_par=8, decoded=8)
    wide = types(H800, "float8")._replace(dispatch=2.0)
    assert Exchange.of(DEEPSEEK, wide, columns, "balanced").sent == hidden * 2


def test_a_message_has_a_row_for_each_expert():
    exchange = exchange_of(100, 32)
    assert exchange.message(exchange.sent)[0] == 100 * 8 * DEEPSEEK.hidden * (1 + 4 / 128)
    parted = exchange_of(100, 32, expert_par=16)
    assert parted.message(1.0)[0] == 2 * exchange.message(1.0)[0]


def test_the_fullest_rank_is_waited_for():
    even, uneven = (exchange_of(128, 32, routing=one) for one in ("balanced", "power_law:1.2"))
    fullest = imbalance("power_law:1.2", 256, np.full(1, 32.0), np.zeros(1))
    assert uneven.message(1.0) == pytest.approx(fullest * even.message(1.0))
    times = [sum(exchange_times(H800, one))[0] for one in (even, uneven)]
    assert times[1] > times[0]


def test_an_engine_has_its_own_exchange_if_the_machine_can_run_it():
    """The fastest is one of both; without NVLink kernels, collectives are left."""
    for ranks in (8, 64):
        own = exchange_of(np.array([1.0, 64, 4096]), ranks)
        sums = {
            one: sum(exchange_times(H800, own._replace(implementation=one))) for one in EXCHANGES
        }
        fastest = np.minimum(sums["low_latency"], sums["collectives"])
        assert sums["fastest"] == pytest.approx(fastest)
        assert np.any(sums["low_latency"] != sums["collectives"])
    plain = inputs.system("a100_80g_pcie")
    both = (own._replace(implementation=one) for one in ("low_latency", "collectives"))
    low, gathered = (sum(exchange_times(plain, one)) for one in both)
    assert low.tolist() == gathered.tolist()


def test_prompts_never_make_an_exchange_faster():
    """Libraries that decoding has not are no way around it."""
    prompts = np.array([0.0, 1, 8, 64, 512])
    for ranks in (8, 32, 64):
        exchange = exchange_of(64, ranks, prompts=ranks, chunk=prompts)
        assert np.all(np.diff(sum(exchange_times(H800, exchange))) >= 0)


def test_kernels_of_low_latency_are_those_that_were_measured():
    """128 tokens, 8 experts each, in 8 bits there and 16 back, on 8 to 256 H800: within 10 %, 4 % on average."""
    with (ROOT / "systems" / "measured" / "expert_parallel.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["mode"] == "low latency"]
    plain = replace(DEEPSEEK, router_groups=0, router_group_topk=0)
    errors = []
    for row in rows:
        exchange = exchange_of(128, int(row["ep"]), model=plain)
        found = exchange_times(H800, exchange)[row["direction"] == "combine"]
        errors.append(abs(found[0] / float(row["time_s"]) - 1))
    assert len(errors) == 10
    assert max(errors) < 0.10
    assert np.mean(errors) < 0.04


# -- what hides it --------------------------------------------------------------------------------

APART = {"attn_data_par": 8, "expert_par": 8, "context": 500}


@pytest.mark.parametrize("overlap", ["two_batches", "shared_expert"])
def test_rows_sum_up_to_the_pass_whatever_is_hidden(overlap):
    found = times_of(overlap=overlap, decoded=[8, 64, 4096], **APART)
    assert sum(row.time for row in found.rows) == pytest.approx(found.time)
    assert sum(found.causes().values()) == pytest.approx(found.time)


def test_two_batches_take_the_longer_of_work_and_exchange():
    parts = times_of(decoded=[32, 2048], **APART)
    found = times_of(decoded=[64, 4096], overlap="two_batches", **APART)
    sent = sum(row.time for row in parts.rows if row.name in (DISPATCH, COMBINE))
    work = parts.blocks - sent
    assert found.blocks == pytest.approx(2 * np.maximum(work, sent))


def test_two_batches_are_one_where_nothing_is_exchanged():
    sizes = {"expert_par": 8, **DECODE, "attn_data_par": [1, 8]}
    plain, halves = times_of(**sizes).time, times_of(overlap="two_batches", **sizes).time
    assert (plain == halves).tolist() == [True, False]


def test_shared_experts_hide_at_most_their_own_time():
    model = inputs.model("deepseek-v2-lite")
    plain, hidden = (
        times_of(model, overlap=one, decoded=[64, 4096], **APART)
        for one in ("none", "shared_expert")
    )
    assert np.all(hidden.time < plain.time)
    mlps = sum(row.time for name in ("mlp", "small kernels") for row in plain.of(name))
    assert np.all(plain.time - hidden.time < mlps)
    assert (
        times_of(overlap="shared_expert", decoded=64, **APART).time
        == times_of(decoded=64, **APART).time
    )


# -- whole deployments ----------------------------------------------------------------------------


def served(split, model="mixtral-8x7B", system="h100_80g_sxm", **load):
    stated = {"num_procs": 8, "tensor_par": 8, **split}
    return serve(model, stated, system, **{"prompt": 1000, "output": 200, **load})


def test_groups_hold_sequences_of_their_own():
    """As many as a replica has room for, times the groups; each cache is on the ranks of one group."""
    split = {"attn_data_par": 4, "expert_par": 8}
    found, whole = served(split), served({"expert_par": 8})
    assert found["max_concurrency"] % 4 == 0
    assert found["mem_weights"] > whole["mem_weights"]
    few = served({**split, "max_batch": 4})
    one = served({"expert_par": 8, "tensor_par": 8, "max_batch": 1})
    assert few["mem_cache"] == pytest.approx(4 * one["mem_cache"])


def test_copies_of_experts_take_their_memory():
    model = inputs.model("mixtral-8x7B")
    split = {"attn_data_par": 8, "expert_par": 8}
    plain, copied = (served({**split, "redundant_experts": one}) for one in (0, 8))
    each = model.num_blocks * 3 * model.hidden * model.feedforward * 2
    assert copied["mem_weights"] - plain["mem_weights"] == pytest.approx(each)


def test_splits_that_do_not_go_say_why():
    shared = "tensor_par / attn_data_par"
    for model, split, field, words in (
        ("mixtral-8x7B", {"attn_data_par": 3}, "attn_data_par", "a divisor of tensor_par=8"),
        ("mixtral-8x7B", {"expert_par": 3}, "expert_par", "a divisor of tensor_par=8"),
        ("mixtral-8x7B", {"redundant_experts": 8}, "redundant_experts", "0"),
        ("mixtral-8x7B", COPIES | {"redundant_experts": 4}, "expert_par", "_experts = 12"),
        ("mixtral-8x7B", COPIES, "redundant_experts", "at most num_experts=8"),
        ("qwen3-235B-a22B", UNEVEN, "tensor_par", "expert_feedforward=1536"),
        (
            "qwen3-235B-a22B",
            UNEVEN | {"tensor_par": 40, "num_procs": 40, "attn_data_par": 40, "expert_par": 8},
            "tensor_par / expert_par",
            "expert_feedforward=1536",
        ),
        ("llama3-8B", {"context_par": 2}, "context_par", "a divisor of 1"),
        ("llama3-8B", {"context_par": 3}, "context_par", f"a divisor of {shared} = 8"),
        ("deepseek-v3", {"context_par": 4, "attn_data_par": 4}, "context_par", f"{shared} = 2"),
    ):
        with pytest.raises(SpecError) as found:
            served(split, model)
        problems = [(one.field, words in one.expected) for one in found.value.problems]
        assert problems == [(field, True)], split


COPIES = {"expert_par": 8, "redundant_experts": 16}
UNEVEN = {"num_procs": 5, "tensor_par": 5, "attn_data_par": 5}


def test_models_without_experts_have_no_groups_of_attention():
    with pytest.raises(SpecError, match="use replicas instead"):
        served({"attn_data_par": 8}, model="llama3-8B")


def test_decoding_of_deepseek_on_144_processors_is_as_published():
    """47.6 ms for a token of 88 users on each of 144 H800, whose caches of 4,989 tokens have 30.9 GB: within 10 %.

    DeepSeek-AI, *Day 6: One More Thing, DeepSeek-V3/R1 Inference System Overview*, 2025: 14.8 k tokens/s for 8
    processors, 20 to 22 tokens/s for a user, 32 copies of experts, two batches that overlap.
    """
    ranks, users = 144, 88
    columns = PassSizes.of(
        tensor_par=ranks,
        attn_data_par=ranks,
        expert_par=ranks,
        copies=32,
        decoded=users * ranks,
        context=4989,
    )
    rows = pass_rows(DEEPSEEK, types(H800, "float8_block"), columns, overlap="two_batches")
    read = total(rows, "decode attention", "cache")
    assert read == pytest.approx(30.9e9, rel=0.002)
    assert read / H800.mem1.bandwidth == pytest.approx(9.2e-3, rel=0.01)
    time = pass_times(DEEPSEEK, H800, rows, columns, overlap="two_batches").time[0]
    assert time == pytest.approx(users / (14800 / 8), rel=0.1)
