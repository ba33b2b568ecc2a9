"""What an execution says of its optimizer, in the statistics: bytes per parameter, FLOP, and the time of a batch."""

import numpy as np
import pytest

import calculon
from calculon import inputs
from tests.cases import for_each
from tests.helpers import CORRECTED_PLAIN, document

MODEL = document("models", "megatron-22B")  # 48 blocks
SYSTEM = document("systems", "a100_80e")  # its tier-1 memory is never full
for engine in ("matrix", "vector"):
    half = SYSTEM[engine]["float16"]
    SYSTEM[engine] = {"float16": half, "bfloat16": half, "float32": half}
HARDWARE = inputs.system(SYSTEM)
BLOCKS, HIDDEN, FEEDFORWARD = MODEL["num_blocks"], MODEL["hidden"], MODEL["feedforward"]
BASE = CORRECTED_PLAIN | {"batch_size": 32, "fused_activation": True}
BF16, FP32 = {"datatype": "bfloat16"}, {"datatype": "float32"}
SMALL = BF16 | {"grad_dtype": "bfloat16"}
SHARDS = 8
REPLICATED = {"num_procs": SHARDS, "data_par": SHARDS}
SHARDED = REPLICATED | {"optimizer_sharding": True}
QUANTIZED = 1 + 4 / 256


def _stats(model=MODEL, **changes):
    return calculon.estimate(model, BASE | changes, HARDWARE).stats


def _parameters(**changes):
    size = 4 if changes.get("datatype") == "float32" else 2
    return _stats(**changes)["block_weight_space"] / size


def _resident(stats, kind="block_"):
    return sum(stats[f"{kind}{name}_space"] for name in ("weight", "weight_grad", "optimizer"))


TABLE = {  # bytes per parameter: weight, gradient, master copy, state; then those of a fused step, and FLOP
    "adam, float32": (FP32, 4 + 4 + 0 + 8, 2 * 8 + 4 + 2 * 4, 11),
    "adam, small gradients": (SMALL, 2 + 2 + 4 + 8, 2 * (4 + 8) + 2 + 2, 11),
    "adam": (BF16, 2 + 4 + 4 + 8, 2 * (4 + 8) + 4 + 2, 11),
    "adam, copied gradients": (
        SMALL | {"main_grad": True},
        2 + (2 + 4) + 4 + 8,
        (2 + 4) + 2 * (4 + 8) + 4 + 2,
        11,
    ),
    "adam, small moments": (
        BF16 | {"optimizer_state_dtype": "bfloat16"},
        2 + 4 + 4 + 2 * 2,
        2 * (4 + 2 * 2) + 4 + 2,
        11,
    ),
    "adam_8bit": (
        SMALL | {"optimizer": "adam_8bit"},
        2 + 2 + 4 + 2 * QUANTIZED,
        2 * (4 + 2 * QUANTIZED) + 2 + 2,
        20,
    ),
    "lion": (FP32 | {"optimizer": "lion"}, 4 + 4 + 4, 2 * 4 + 4 + 2 * 4, 5),
    "sgd_momentum": (FP32 | {"optimizer": "sgd_momentum"}, 4 + 4 + 4, 2 * 4 + 4 + 2 * 4, 4),
    "sgd": (FP32 | {"optimizer": "sgd"}, 4 + 4, 4 + 2 * 4, 2),
}


@for_each("name", TABLE)
def test_bytes_and_flops_per_parameter(name):
    changes, resident, step, flops = TABLE[name]
    stats, parameters = _stats(**changes), _parameters(**changes)
    assert _resident(stats) == pytest.approx(resident * parameters, rel=1e-14)
    assert _resident(stats, "") == pytest.approx(resident * BLOCKS * parameters, rel=1e-14)
    assert stats["block_optim_mem_accessed"] == pytest.approx(step * parameters, rel=1e-14)
    assert stats["block_optim_flops"] == pytest.approx(flops * parameters, rel=1e-14)


@for_each(
    ("changes", "whole", "shared"),
    [
        (BF16 | {"grad_dtype": "float32"}, 6, 12),
        ({"datatype": "float16", "grad_dtype": "float16", "main_grad": True}, 4, 16),
        (FP32, 8, 8),
    ],
)
def test_bytes_of_megatrons_distributed_optimizer(changes, whole, shared):
    """Source: Megatron-LM, docs/source/api-guide/dist_optimizer.md: 6 + 12/d, 4 + 16/d, 8 + 8/d."""
    buffer = changes | {"grad_buffer": "full"}
    for d, split in ((1, {}), (SHARDS, SHARDED)):
        stats, parameters = _stats(**buffer, **split), _parameters(**changes)
        expected = whole + shared / d
        assert _resident(stats) == pytest.approx(expected * parameters, rel=1e-14)
        assert _resident(stats, "") == pytest.approx(expected * BLOCKS * parameters, rel=1e-14)


MATRICES = 4 * HIDDEN * HIDDEN + 2 * HIDDEN * FEEDFORWARD  # query, key, value, output; MLP


def _newton_schulz(*matrices):
    return sum(5 * (4 * n * n * m + 2 * n**3) for n, m in matrices)


PRODUCTS = [(HIDDEN, HIDDEN)] * 4 + [(HIDDEN, FEEDFORWARD)] * 2


@pytest.mark.parametrize("overlap", ["none", "ring"])
def test_ranks_and_shards_share_the_products_of_whole_matrices(overlap):
    both = {"num_procs": 4 * SHARDS, "tensor_par": 4, "tensor_par_overlap": overlap}
    stats = _stats(**BF16, optimizer="muon", **(SHARDED | both))
    plain = _stats(**BF16, optimizer="sgd", **(SHARDED | both))
    whole = PRODUCTS if overlap == "none" else [(HIDDEN, 3 * HIDDEN), *PRODUCTS[3:]]
    parameters = plain["block_optim_flops"] * SHARDS / 2
    matrices = MATRICES / 4
    elementwise = (6 * matrices + 11 * (parameters - matrices)) / SHARDS
    products = _newton_schulz(*whole) / (4 * SHARDS)
    assert stats["block_optim_flops"] == pytest.approx(elementwise + products, rel=1e-13)


@pytest.mark.parametrize("tied", [False, True])
def test_ends_leave_muon_to_adam_and_adafactor_factors_their_tables(tied):
    """The vocabulary's table is a matrix of V x h, twice unless it is tied."""
    words = 51200
    model = MODEL | {"vocab": words, "tied": tied}

    def space(**changes):
        found, blocks = (_stats(m, **BF16, **changes) for m in (model, MODEL))
        return found["optimizer_space"] - blocks["optimizer_space"]

    assert space(optimizer="muon") == space(optimizer="adam")
    tables = 1 if tied else 2
    norm = 2 * HIDDEN
    assert space(optimizer="adam") == 12 * (tables * words * HIDDEN + norm)
    factored = tables * (4 * words * HIDDEN + 4 * (words + HIDDEN)) + 8 * norm
    assert space(optimizer="adafactor") == factored


# -- gradients of a stated type --------------------------------------------------------------------------------


@for_each(
    ("changes", "size", "parts"),
    [
        ({"grad_dtype": "float32"}, 4, 1),
        ({"grad_dtype": "bfloat16"} | REPLICATED, 2, 1),
        ({"grad_dtype": "float32"} | SHARDED, 4, SHARDS),
        ({"grad_dtype": "float32", "grad_buffer": "full"} | SHARDED, 4, 1),
    ],
)
def test_microbatches_after_the_first_read_the_sums_so_far(changes, size, parts):
    parameters = _parameters(**BF16)
    count = BASE["batch_size"] // (BASE | changes)["data_par"]
    auto = {name: value for name, value in changes.items() if name != "grad_dtype"}
    found, plain = _stats(**BF16, **changes), _stats(**BF16, **auto)
    buffer = np.array(size * parameters / parts)
    assert found["block_weight_grad_space"] == pytest.approx(buffer, rel=1e-14)
    more = (count - 1) * BLOCKS * HARDWARE.mem1.time(buffer)
    assert found["bw_time"] - plain["bw_time"] == pytest.approx(more, rel=1e-9)
    for name in ("fw_time", "dp_comm_link_time", "bubble_time", "recompute_time"):
        assert found[name] == plain[name]
