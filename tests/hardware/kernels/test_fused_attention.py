"""The law of fused attention: its formula, its kernels by name, and that more work never takes less time."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.base.errors import SpecError
from calculon.declarations.named_values import ATTENTION_KERNELS
from tests.draws import some
from tests.hardware.kernels.layers import layer, times
from tests.helpers import LLAMA_X64, document

TYPE, PEAK, COUNT = "bfloat16", 989e12, 132
FORWARD = {"shares": [[64, 0.4], [128, 0.6]], "lead": 50, "causal_lead": 30}
BACKWARD = {"shares": [[64, 0.3], [128, 0.5]], "lead": 70}
SLOW = {"shares": [[64, 0.1]], "lead": 0}
LAW = {
    "law": "fused",
    "default": "flash3",
    "multiprocessors": COUNT,
    "kernels": {
        "flash3": {
            "forward": FORWARD,
            "backward": BACKWARD,
            "tail": 0.7,
            "start": 4e-6,
            "sustained": 0.8,
        },
        "flash1": {"forward": SLOW, "backward": SLOW, "tail": 0, "start": 0},
    },
}
CATALOG = ("a100_40g_sxm", "a100_80g_sxm", "h100_80g_sxm", "h200_141g_sxm", "b200_sxm")


def system(law):
    raw = document("systems", "h100_80g_sxm")
    return raw | {"ext": {"kernels": {"attention": {TYPE: law}}}}


def attention(queries, keys, width, *, value=0, causal=True):
    """Return a layer of attention of so many queries of all heads."""
    flops = 2.0 * queries * keys * (width + (value or width))
    none = np.zeros_like(flops)
    return layer(
        "attention",
        (flops, 2.5 * flops, none),
        (none, none, none),
        keys=keys,
        head_width=width,
        value_width=value,
        causal=causal,
    )


@pytest.mark.parametrize("causal", [False, True])
def test_a_pass_takes_its_tiles_more_keys_its_tail_and_its_start_at_the_sustained_clock(causal):
    queries, keys, width = 32 * 4096, 2048.5, 96
    one = attention(np.array([float(queries)]), keys, width, causal=causal)
    found, memory = times(inputs.system(system(LAW)), one, TYPE)
    assert memory is None  # the traffic of the layer is at the rate of mem1, as any other
    waves = queries / 128 / COUNT
    for i, (which, shares, lead) in enumerate(
        ((4, (0.4, 0.6), 50 + 30 * causal), (10, (0.3, 0.5), 70))
    ):
        filled = (64 / shares[0] + 128 / shares[1]) / 2  # half-way between both widths
        work = which * queries * (keys + lead) * filled / PEAK
        time = work * (1 + 0.7 / waves) + 4e-6
        assert found[i] == pytest.approx(time / 0.8, rel=1e-12)
    assert found[2] == 0


def seconds(law, *sizes, **options):
    """Return the times of the passes of 131,072 queries."""
    one = attention(np.array([131072.0]), *sizes, **options)
    return times(inputs.system(system(law)), one, TYPE)[0]


def running(kernel, **changes):
    """Return the law of a machine that has one kernel."""
    return LAW | {"kernels": {kernel: LAW["kernels"]["flash3"] | changes}, "default": kernel}


def test_narrow_heads_are_filled_up_and_wide_ones_keep_the_share():
    law = LAW | {"default": "flash1"}
    narrow, first, wide = (seconds(law, 1024.0, width)[0] for width in (32, 64, 256))
    assert narrow == pytest.approx(first)
    assert wide == pytest.approx(4 * first)


def test_narrower_values_are_filled_up_unless_the_kernel_knows_them():
    for kernel, width, value, computed in [
        ("cudnn", 192, 128, (192, 128)),
        ("cudnn", 96, 64, (96, 64)),
        ("flash3", 192, 128, (192, 128)),
        ("flash3", 160, 64, (160, 128)),
        ("flash3", 96, 64, (96, 96)),
        ("flash3", 128, 192, (192, 192)),
        ("flash2", 192, 128, (192, 192)),
        ("triton", 64, 256, (256, 256)),
    ]:
        found = seconds(running(kernel), 1024.0, width, value=value)
        each = [seconds(running(kernel), 1024.0, size) for size in computed]
        case = str((kernel, width))
        np.testing.assert_allclose(found, (each[0] + each[1]) / 2, rtol=1e-12, err_msg=case)


def passes_of(name, kernel):
    """Return what tells the times of both passes of a kernel on a machine."""
    machine = inputs.system(name)
    law = machine.rate("attention", TYPE).running(kernel)
    changed = replace(machine, ext=machine.ext.with_rates({("attention", TYPE): law}))

    def passes(queries, keys, width, value=0):
        one = attention(np.array([float(queries)]), keys, width, value=value)
        return times(changed, one, TYPE)[0][:2]

    return passes


RUNNING = some(product(CATALOG, ATTENTION_KERNELS), 8)


def test_wider_values_or_keys_never_take_less_time():
    widths = (16, 64, 96, 127, 128, 129, 160, 192, 193, 256)
    for case in RUNNING:
        passes = passes_of(*case)
        table = [[passes(1e6, 2048.5, key, value) for value in widths] for key in widths]
        for axis in (0, 1):
            assert (np.diff(np.array(table), axis=axis) >= -1e-12).all(), case


def test_more_queries_keys_or_wider_heads_never_take_less_time():
    plain = (4096, 1024.5, 128)
    for case in RUNNING:
        passes = passes_of(*case)
        for i, sizes in enumerate(
            (
                (1, 100, 1e4, 1e5, 1e6),
                (1.0, 64.5, 512.5, 4096.5, 1e6),
                (16, 64, 65, 100, 128, 192, 256, 512),
            )
        ):
            found = [passes(*(*plain[:i], size, *plain[i + 1 :])) for size in sizes]
            slower = [(after >= before * (1 - 1e-12)).all() for before, after in pairwise(found)]
            assert all(slower), case


def test_an_execution_names_the_kernel_and_auto_is_the_default():
    execution = LLAMA_X64

    def time(kernel):
        found = calculon.estimate(
            "llama3-8B", execution | {"attn_kernel": kernel}, system(LAW), layers=True
        )
        return next(
            one["fw_processing_time"] for one in found.layers if one["name"] == "AttnBlock_Flash"
        )

    assert time("auto") == time("flash3") < time("flash1")


@pytest.mark.parametrize(
    ("law", "change", "text"),
    [
        (LAW, {"attn_kernel": "flash2"}, "a kernel that .* has: flash3, flash1, found 'flash2'"),
        (LAW, {"attn_kernel": "flash3", "attn_impl": "eager"}, "auto, unless attn_impl is flash"),
        (
            {"curve": [[0, 0.5]], "over": "keys"},
            {"attn_kernel": "flash2"},
            "has no kernels of attention by name",
        ),
    ],
)
def test_a_kernel_that_the_system_lacks_is_refused(law, change, text):
    execution = LLAMA_X64 | change
    with pytest.raises(SpecError, match=text):
        calculon.estimate("llama3-8B", execution, system(law))


def narrow(*shares):
    """Return the change that gives the forward pass these shares."""
    one = LAW["kernels"]["flash3"] | {"forward": {"shares": list(shares), "lead": 0}}
    return {"kernels": {"flash3": one}}


def test_constants_that_contradict_each_other_are_refused():
    for change, text in [
        (
            {"default": "cudnn"},
            "default: expected one of its kernels: flash3, flash1, found 'cudnn'",
        ),
        ({"kernels": {}}, "kernels"),
        (narrow([64, 0.3], [128, 0.9]), "at most 0.6, as wider heads take no less time, found 0.9"),
        (narrow([64, 0.3], [64, 0.3]), "expected more than 64, the width before, found 64"),
        ({"kernels": {"flash9": LAW["kernels"]["flash3"]}}, "flash9"),
    ]:
        with pytest.raises(SpecError, match=text):
            inputs.system(system(LAW | change))
