"""What a recipe of products in 8 or 4 bits changes of a step, as differences of statistics."""

import numpy as np
import pytest

import calculon
from calculon.declarations.recipes import RECIPES
from tests.cases import for_each
from tests.hardware.kernels.layers import layer, times
from tests.helpers import CORRECTED_FLASH, document

MODEL = calculon.inputs.model(
    document("models", "llama3-8B") | {"seq_size": 2048, "num_blocks": 4, "vocab": 32000}
)
B200 = calculon.inputs.system("b200_sxm")
WEIGHTS = 4 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)
"""Of products of blocks."""
INPUTS = 2048 * (4096 + 4096 + 4096 + 14336)
"""Elements that the products of a block read for one sequence: QKV, output, first and second of the MLP."""
ROW = CORRECTED_FLASH | {
    "num_procs": 4,
    "data_par": 4,
    "optimizer_sharding": True,
    "batch_size": 8,
    "ce_impl": "fused",
    "fusion": "compile",
    "zero_stage": "1",
    "coll_algo": "auto",
}


def _row(**fields):
    found = calculon.evaluate(MODEL, fields.pop("system", B200), [ROW | fields])
    assert found.reason[0] == ""
    return {name: float(found[name][0]) for name in found.names}


@pytest.fixture(scope="module")
def plain():
    return _row()


@for_each("name", RECIPES)
def test_stored_activations_fall_by_the_inputs_of_products(name, plain):
    """Less those of the copies of weights, which are counted with them; attention keeps its output in 16 bits."""
    found, recipe = _row(fp8_recipe=name), RECIPES[name].on(transposes=False)
    copies = recipe.copies * WEIGHTS / 4
    saved = plain["block_act_storage_space"] - found["block_act_storage_space"]
    expected = (2 - recipe.operand) * INPUTS - 2 * 2048 * 4096
    assert saved == pytest.approx(expected)
    assert found["act_space"] - plain["act_space"] == pytest.approx(
        4 * copies - 4 * expected, rel=1e-9
    )
    assert found["weight_space"] == plain["weight_space"]


@for_each(("name", "reads"), [("delayed", 1), ("tensorwise", 2), ("nvfp4_plain", 2)])
def test_attention_in_8_bits_keeps_and_converts_its_operands(name, reads):
    """Queries, keys and values in 1 byte instead of 2; with delayed scales its output and gradients, too."""
    wide, found = _row(fp8_recipe=name), _row(fp8_recipe=name, fp8_attention=True)
    read, written = 2048 * (4096 + 2 * 1024), 2048 * 4096
    narrow = name == "delayed"
    saved = wide["block_act_storage_space"] - found["block_act_storage_space"]
    assert saved == pytest.approx(read + narrow * written)
    for which, first, second in (("fw", read, written), ("agrad", written, read)):
        moved = found[f"block_{which}_mem_accessed"] - wide[f"block_{which}_mem_accessed"]
        less = (1 if which == "fw" else 2) * (read + written)
        assert moved == pytest.approx((2 * reads + 1) * first + narrow * 3 * second - less), which
    flops = 4 * 2048 * 1024.5 * 4096 * np.array([[1.0], [2.5], [0.0]])
    kernel = layer(
        "attention", flops, 0 * flops, keys=1024.5, head_width=128, value_width=128, causal=True
    )
    times_of = [times(B200, kernel, one)[0][0].item() for one in ("float8", "bfloat16")]
    faster = found["block_fw_flops_time"] - wide["block_fw_flops_time"]
    assert faster == pytest.approx(times_of[0] - times_of[1])
    assert faster < 0


@for_each("name", RECIPES)
def test_flops_are_those_of_16_bits_and_shares_are_of_the_peak_of_the_recipe(name, plain):
    found = _row(fp8_recipe=name)
    peak = B200.product_engine(RECIPES[name].product).peak
    assert found["block_fw_flops"] == plain["block_fw_flops"]
    useful = plain["mfu"] * plain["total_time"] * 2250e12
    assert found["mfu"] == pytest.approx(useful / (found["total_time"] * peak))


@for_each(("name", "sent"), [("delayed", 1), ("blockwise", 1.0002), ("mxfp8", 2)])
def test_weights_that_are_gathered_narrow_are_kept_so(name, sent):
    """Those in 2 bytes are no more, and masters of 4 bytes are the optimizer's."""
    stored, kept = _row(fp8_recipe=name), _row(fp8_recipe=name, fp8_param_gather=True)
    assert stored["weight_space"] - kept["weight_space"] == pytest.approx(2 * WEIGHTS)
    assert kept["act_space"] == stored["act_space"]
    assert kept["optimizer_space"] == stored["optimizer_space"]
    assert kept["weight_grad_space"] == stored["weight_grad_space"]
    gathered = calculon.evaluate(
        MODEL,
        B200,
        [
            ROW | {"fp8_recipe": name, "fp8_param_gather": gather, "zero_stage": "fsdp"}
            for gather in (False, True)
        ],
    )
    less = gathered["gathered_space"][0] - gathered["gathered_space"][1]
    # What is gathered is one of the copies: of a block beside the one at work.
    one = 0 if sent == 2 else sent
    assert less == pytest.approx((2 * (2 - sent) + one) * WEIGHTS / 4, rel=1e-3, abs=1)


def test_copies_of_gathered_weights_are_made_for_each_pass(plain):
    """FSDP with a prefetched unit holds the copies of one block more, and makes them forward and backward."""
    found = _row(fp8_recipe="mxfp8", zero_stage="fsdp")
    whole = _row(zero_stage="fsdp")
    copies = RECIPES["mxfp8"].copies * WEIGHTS / 4
    assert found["gathered_space"] - whole["gathered_space"] == pytest.approx(copies)
    moved = RECIPES["mxfp8"].conversion(2) * WEIGHTS / 4
    kept = _row(fp8_recipe="mxfp8", zero_stage="fsdp", reshard_after_forward=False)
    none = _row(zero_stage="fsdp", reshard_after_forward=False)
    again, copied = (
        one["block_agrad_mem_accessed"] - other["block_agrad_mem_accessed"]
        for one, other in ((found, kept), (whole, none))
    )
    assert again == pytest.approx(moved + copied)
