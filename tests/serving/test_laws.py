"""Laws of serving, for models, machines, deployments and loads of any kind.

Bounds, what more of something does, Little's law, what mixed passes save, equal limits, units, columns, and sums.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import calculon
from calculon import inputs
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.hardware.curve import Curve
from calculon.serving.caches.cache import CachedBlocks, cached_width
from calculon.serving.passes.pass_rows import ROWS
from calculon.serving.records.number_types import WEIGHT_TYPES
from calculon.serving.records.read_records import read_deployment, read_workload
from calculon.serving.serve import solver_of
from tests.draws import draws
from tests.helpers import PLAIN as ONE_PROCESSOR
from tests.serving.drawn import (
    FLOORS,
    cases,
    deployments,
    machines,
    served,
    served_models,
    workloads,
)
from tests.serving.given import PLAIN, rising, timed
from tests.strategies import OF_EXPERTS, divisors

pytestmark = pytest.mark.usefixtures("machine_list")

BATCHES = np.array([1.0, 2, 7, 40, 41, 300, 2500])
RATES = {"output_rate", "request_rate", "capacity_rate", "run_output_rate"}
SPLITS = st.integers(0, 5)


def split_of(model, number):
    """Return a number of ranks that the heads of a model are split over."""
    ranks = [t for t in divisors(model.attn_heads) if t <= 64]
    return float(ranks[number % len(ranks)])


def decoding(model, system, number=0, **changes):
    sizes = {"decoded": BATCHES, "context": 700.0, "tensor_par": split_of(model, number)}
    return timed(model, system, **(sizes | changes))


def read(document):
    """Return a model or a machine of a document."""
    return inputs.system(document) if "mem1" in document else inputs.model(document)


MODELS, MACHINES = served_models().map(read), machines().map(read)


# Bounds: no pass is faster than its bytes at the bandwidth, nor a token than its pass.


@settings(max_examples=draws(6))
@given(model=MODELS, system=MACHINES, number=SPLITS, cache=st.sampled_from(("int8", "float16")))
def test_decoding_reads_weights_and_caches(model, system, number, cache):
    found = decoding(model, system, number, cache=cache)
    split = split_of(model, number)
    tokens = CachedBlocks.of(model).tokens(np.array([700.0]))
    width = cached_width(model, np.array([split]))
    own = BATCHES * tokens * width * {"int8": 1, "float16": 2}[cache]
    np.testing.assert_allclose(found.total("cache"), own, rtol=1e-12)
    bytes_read = found.total("weights") + found.total("cache")
    assert np.all(found.time >= bytes_read / system.mem1.bandwidth * (1 - 1e-12))


@settings(max_examples=draws(6))
@given(model=MODELS, system=MACHINES, number=SPLITS, chunk=st.integers(1, 5000))
def test_prefill_reads_weights_and_computes(model, system, number, chunk):
    found = timed(model, system, prompts=1, chunk=chunk, tensor_par=split_of(model, number))
    engines = (*system.matrix.values(), *(system.ext.matrix or {}).values())
    fastest = max(one.peak for one in (*engines, *system.vector.values()))
    assert np.all(found.time >= found.total("weights") / system.mem1.bandwidth * (1 - 1e-12))
    products = [row for name in ("qkv", "output", "mlp", "head") for row in found.of(name)]
    flops = sum(row.flops for row in products)
    assert np.all(found.time >= flops / fastest * (1 - 1e-12))


@settings(max_examples=draws(6))
@given(case=cases())
def test_one_deployment(case):
    """A token takes its pass at least, memory adds up, and Little's law holds."""
    found = served(*case)
    assume(found)
    assert found["tpot"] >= found["decode_time"] * (1 - 1e-12)
    assert found["itl_max"] >= found["tpot"]
    assert 0 <= found["prefill_share"] < 1
    assert found["ttft"] >= found["prefill_time"] * (1 - 1e-12) or found.deployment.mixes
    parts = [found[f"mem_{name}"] for name in ("weights", "reserve", "activation", "cache")]
    assert found["mem_used"] == pytest.approx(sum(parts), rel=1e-12)
    capacity = found.system.usable[0]
    assert found["mem_used"] + found["mem_free"] == pytest.approx(capacity, rel=1e-12)
    assert found["mem_free"] >= 0 or found.deployment.admission == "mean"
    if found.deployment.batching == "continuous":
        rate = found["request_rate"] / found.deployment.replicas
        steps = found.workload.output - 1
        assert rate * steps * found["tpot"] == pytest.approx(found.batch, rel=1e-12)
        assert found["concurrency"] == pytest.approx(found.batch, rel=1e-12)


# More: more sequences, longer contexts and wider numbers never take less, and never leave more room.


@settings(max_examples=draws(5))
@given(model=MODELS, system=MACHINES, number=SPLITS)
def test_passes_of_more_take_no_less(model, system, number):
    batches = np.unique(np.round(np.geomspace(1, 5000, 400)))
    found = decoding(model, system, number, decoded=batches)
    assert rising(found.time)
    contexts = np.unique(np.round(np.geomspace(1, 50_000, 200)))
    assert rising(decoding(model, system, number, decoded=30.0, context=contexts).time)


@settings(max_examples=draws(5))
@given(model=MODELS, system=MACHINES, number=SPLITS)
def test_wider_numbers_take_no_less(model, system, number):
    """Of weights those types whose products are of 16 bits: others convert their inputs, too."""
    for name, narrow, wide in (
        ("cache", "int8", "bfloat16"),
        ("weights", "int4_g128", "int8"),
        ("weights", "int8", "bfloat16"),
    ):
        less, more = (decoding(model, system, number, **{name: one}) for one in (narrow, wide))
        assert np.all(less.time <= more.time * (1 + 1e-12))


@settings(max_examples=draws(5))
@given(model=MODELS, system=machines(steps=False, tiles=False).map(read), number=SPLITS)
def test_a_sequence_more_costs_no_more_than_the_mean_before(model, system, number):
    """Without tiles, of which another row may open a wave, and with whole columns on each rank, not rounded down."""
    widths = model.hidden, model.inner_width, model.shared_feedforward
    assume(not any(width % split_of(model, number) for width in widths))
    batches = np.unique(np.round(np.geomspace(1, 5000, 400)))
    each = decoding(model, system, number, decoded=batches).time / batches
    assert rising(-each)


@settings(max_examples=draws(3))
@given(data=st.data())
def test_more_of_a_request_leaves_room_for_fewer(data):
    model = data.draw(served_models())
    system = data.draw(machines())
    system["mem1"]["GiB"] = data.draw(st.sampled_from((80, 1000)))
    given_ = data.draw(deployments(model, weights_dtype="int8", kv_dtype="int8", max_batch=0))
    load = data.draw(workloads())
    plain = room(model, given_, system, load)
    fewer = (
        ({}, {"prompt": load["prompt"] + 500}),
        ({}, {"output": load["output"] + 500}),
        ({"kv_dtype": "bfloat16"}, {}),
        ({"weights_dtype": "bfloat16"}, {}),
        ({"reserve_gib": 9}, {}),
    )
    for changes, longer in fewer:
        assert room(model, given_ | changes, system, load | longer) <= plain
    system["mem1"]["GiB"] *= 1.5
    assert room(model, given_, system, load) >= plain


def room(*case):
    """Return the most sequences that memory has room for."""
    model, deployment, system, load = case
    asked = read_deployment(deployment), read_workload(load)
    return solver_of(read(model), read(system), *asked).capacity[0]


def better_machines(system):
    """Yield machines, each better in one part."""
    yield replace(system, mem1=replace(system.mem1, bandwidth=1.5 * system.mem1.bandwidth))
    matrix = {name: replace(one, peak=1.5 * one.peak) for name, one in system.matrix.items()}
    vector = {name: replace(one, peak=1.5 * one.peak) for name, one in system.vector.items()}
    yield replace(system, matrix=matrix, vector=vector)
    networks = tuple(replace(one, bandwidth=1.5 * one.bandwidth) for one in system.networks)
    yield replace(system, networks=networks)
    serving = system.ext.serving
    lower = replace(serving, **{name: getattr(serving, name) / 2 for name in FLOORS})
    yield replace(system, ext=replace(system.ext, serving=lower))


# Better machines: on these nothing is slower, and nothing fits less.


@settings(max_examples=draws(5))
@given(model=MODELS, system=MACHINES, number=SPLITS)
def test_a_better_machine_is_never_slower(model, system, number):
    split = split_of(model, number)
    for sizes in (
        {"decoded": BATCHES, "context": 700.0},
        {"prompts": 1, "chunk": np.array([1.0, 50, 3000])},
    ):
        before = timed(model, system, tensor_par=split, **sizes).time
        for better in better_machines(system):
            after = timed(model, better, tensor_par=split, **sizes).time
            assert np.all(after <= before * (1 + 1e-12))


# The steady state: replicas, and what mixed passes save.


@settings(max_examples=draws(6))
@given(case=cases(), replicas=st.integers(2, 5))
def test_replicas_multiply_rates_and_nothing_else(case, replicas):
    model, deployment, system, load = case
    one = deployment["tensor_par"] * deployment["pipeline_par"]
    alone = served(model, deployment | {"num_procs": one, "price": 2.5}, system, load)
    many = served(model, deployment | {"num_procs": replicas * one, "price": 2.5}, system, load)
    assume(alone)
    for name in SERVING_FIGURES:
        factor = replicas if name in RATES else 1
        assert many[name] == pytest.approx(factor * alone[name], rel=1e-12, nan_ok=True), name


# Equal limits: what is the same in a limit is the same.


@settings(max_examples=draws(5))
@given(model=MODELS, system=MACHINES, number=SPLITS, tokens=st.integers(1, 3000))
def test_decoding_without_context_is_prefill_without_attention(model, system, number, tokens):
    split = split_of(model, number)
    first = timed(model, system, decoded=tokens, context=0, tensor_par=split)
    last = timed(model, system, prompts=1, chunk=tokens, logits=tokens, tensor_par=split)
    attention = sum(row.time for row in last.of("attention"))
    np.testing.assert_allclose(first.time, last.time - attention, rtol=1e-9)


@settings(max_examples=draws(5))
@given(model=served_models(), tokens=st.integers(1, 3000))
def test_prefill_is_the_inference_of_training(model, tokens):
    """One chunk of a prompt has the blocks of an inference of as many tokens, where no kernel has a floor.

    The head has one row instead of all. Dense models, as the router of training computes in 32 bits.
    """
    others = ("positions", "mtp_layers", *EXPERTS)
    plain = {key: model[key] for key in model if key not in others}
    asked = read(plain | {"dropout": False})
    inference = calculon.estimate(asked, INFERENCE | {"seq_length": tokens}, EVEN)
    found = timed(asked, EVEN, prompts=1, chunk=tokens)
    blocks = asked.num_blocks * inference.stats["block_fw_time"]
    assert found.blocks[0] == pytest.approx(blocks, rel=1e-9)
    assert found.first[0] == pytest.approx(inference.stats["embedding_time"], rel=1e-9)
    all_rows = timed(asked, EVEN, prompts=1, chunk=tokens, logits=tokens)
    (one,), (every_row,) = found.of("head")[-1:], all_rows.of("head")[-1:]
    assert one.flops[0] * tokens == every_row.flops[0] == 2 * tokens * asked.hidden * asked.vocab


@settings(max_examples=draws(5))
@given(model=served_models(), system=MACHINES, window=st.integers(1000, 10**6))
def test_wide_windows_are_full_attention(model, system, window):
    plain = {key: value for key, value in model.items() if key not in WINDOWS}
    wide = plain | {"sliding_window": window}
    for sizes in (
        {"decoded": BATCHES, "context": 900.0},
        {"prompts": 2, "chunk": 300.0, "cached": 600.0},
    ):
        full, windowed = (timed(read(one), system, **sizes).time for one in (plain, wide))
        np.testing.assert_allclose(windowed, full, rtol=1e-12)


@settings(max_examples=draws(5))
@given(model=served_models(), system=MACHINES)
def test_as_many_key_value_heads_as_heads_are_attention_of_old(model, system):
    plain = {key: value for key, value in model.items() if key != "kv_heads"}
    assume("kv_lora_rank" not in model)
    stated = plain | {"kv_heads": model["attn_heads"]}
    old, new = (decoding(read(one), system).time for one in (plain, stated))
    assert np.array_equal(old, new)
    fewer = decoding(read(plain | {"kv_heads": 1}), system).total("cache")
    assert np.all(fewer <= decoding(read(plain), system).total("cache"))


@settings(max_examples=draws(6))
@given(
    case=cases(
        weights_dtype="int8",
        attn_data_par=1,
        expert_par=1,
        redundant_experts=0,
        routing="balanced",
    )
)
def test_neutral_settings_change_nothing(case):
    """Ranks with the same requests exchange nothing, so that its type and what hides it do not count."""
    model, deployment, system, load = case
    stated = deployment | {"experts_dtype": "int8", "dispatch_dtype": "same", "overlap": "none"}
    plain = served(model, deployment, system, load | {"prefix_hit": 0.0})
    again = served(model, stated, system, load | {"prefix_hit": 0.0})
    assume(plain)
    for name in SERVING_FIGURES:
        np.testing.assert_equal(again[name], plain[name], err_msg=name)


@settings(max_examples=draws(5))
@given(case=cases(weights_dtype="bfloat16"))
def test_one_expert_is_a_dense_model_but_for_routing(case):
    model, _, system, _ = case
    dense = {key: value for key, value in model.items() if key not in EXPERTS}
    assume("moe_latent" not in model and not dense.get("parallel_attention"))
    one = dense | {"num_experts": 1, "experts_per_token": 1}
    machine = read(system)
    plain, mixture = (decoding(read(given_), machine) for given_ in (dense, one))
    names = ("qkv", "decode attention", "output", "head", "sampling", "embedding")
    for name in names:
        before, after = (sum(row.time for row in one.of(name)) for one in (plain, mixture))
        np.testing.assert_allclose(after, before, rtol=1e-12, err_msg=name)
    for quantity in ("flops", "weights"):
        np.testing.assert_allclose(
            sum(getattr(row, quantity) for row in mixture.of("mlp") + mixture.of("experts")),
            sum(getattr(row, quantity) for row in plain.of("mlp")),
            rtol=1e-12,
        )


INFERENCE = {name: value for name, value in ONE_PROCESSOR.items() if name != "preset"} | {
    "datatype": "bfloat16",
    "fused_activation": True,
    "training": False,
    "attn_impl": "flash",
    "fusion": "compile",
    "edition": "corrected",
}
"""An inference on one processor with the kernels of serving."""


def even(system):
    """Return the machine with the efficiency of large operations for all."""

    def of_large(part):
        curve = part.efficiency
        return replace(part, efficiency=Curve(curve.sizes[:1], curve.efficiencies[-1:]))

    matrix = {name: of_large(one) for name, one in system.matrix.items()}
    vector = {name: of_large(one) for name, one in system.vector.items()}
    return replace(system, matrix=matrix, vector=vector, mem1=of_large(system.mem1))


EVEN = even(PLAIN)
"""A machine as published without floors, and without steps, over which no time of serving falls."""

WINDOWS = ("sliding_window", "full_attention_every", "chunked_window")
EXPERTS = OF_EXPERTS | {"first_k_dense", "moe_layer_freq", "mlp_bias"}


# Sums: a pass is the sum of its rows, and of what they are due to.


@settings(max_examples=draws(5))
@given(model=MODELS, system=MACHINES, number=SPLITS, graphs=st.booleans())
def test_rows_and_causes_sum_up(model, system, number, graphs):
    sizes = {"decoded": BATCHES, "context": 300.0, "prompts": 1, "chunk": 100.0}
    sizes |= {"tensor_par": split_of(model, number)}
    found = timed(model, system, graphs=graphs, **sizes)
    np.testing.assert_allclose(found.total("time"), found.time, rtol=1e-12)
    np.testing.assert_allclose(found.blocks + found.first + found.last, found.time, rtol=1e-12)
    np.testing.assert_allclose(sum(found.causes().values()), found.time, rtol=1e-9)
    assert all(np.all(value >= -1e-12 * found.time) for value in found.causes().values())
    names = [row.name for row in found.rows]
    assert names == sorted(names, key=ROWS.index)


# Columns: one pass of a column is the pass alone, bit for bit.


@settings(max_examples=draws(6))
@given(model=MODELS, system=MACHINES, weights=st.sampled_from(sorted(WEIGHT_TYPES)))
def test_a_pass_is_the_same_alone_and_in_a_column(model, system, weights):
    splits = np.array([split_of(model, number) for number in range(4)])
    sizes = {
        "tensor_par": splits,
        "decoded": np.array([1.0, 8, 0, 300]),
        "context": np.array([5.0, 100, 0, 7000]),
        "prompts": np.array([0.0, 1, 2, 1]),
        "chunk": np.array([0.0, 30, 500, 8]),
        "cached": np.array([0.0, 0, 700, 90]),
    }
    column = timed(model, system, weights=weights, **sizes)
    for i in range(4):
        alone = timed(
            model, system, weights=weights, **{name: one[i] for name, one in sizes.items()}
        )
        assert alone.time[0] == column.time[i]
        for row in alone.rows:
            np.testing.assert_array_equal(row.time.shape, (1,))
