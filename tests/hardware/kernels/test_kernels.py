"""Every kind of kernel: its rate where the system file states one, and its engine's own where it does not."""

import re
from typing import get_args

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.base.errors import SpecError
from calculon.declarations.schema import schema
from calculon.hardware.figures import slowed
from calculon.hardware.kernels.kernel import ENGINES, LONGEST_START, KernelKind, Launch, VectorKind
from calculon.hardware.kernels.stated_kernels import FAMILY
from calculon.hardware.residuals import Spread
from calculon.hardware.system import KERNELS, System
from tests.cases import for_each
from tests.hardware.kernels.layers import layer, product, times
from tests.helpers import LLAMA_X64, ROOT, document

TYPE, KEYS, WIDTH = "bfloat16", 1024.5, 128
GEMM = {"max_efficiency": 0.8, "multiprocessors": 64, "half_depth": 100}
PRODUCT = product(4096, 8192, 1024)
SCORES = product(512, 128, 256, batch=32, kernel="batched_product")
ATTENTION = layer("attention", (4e9, 1e10, 0.0), (1e7, 3e7, 0.0), keys=KEYS, head_width=WIDTH)
NORM = layer("norm", (1e7, 2e7, 1e6), (4e7, 6e7, 4e7))
SOFTMAX = layer("softmax", (5e7, 8e7, 0.0), (4e7, 4e7, 0.0))
LAYERS = (PRODUCT, SCORES, ATTENTION, NORM, SOFTMAX)
KINDS = sorted(ENGINES)


def raw_system(**ext):
    """Return a system document without additions but these."""
    raw = document("systems", "h100_80g_sxm")
    return raw | {"ext": ext}


def stated(kind, rate, datatype=TYPE):
    """Return a system that states one rate."""
    return inputs.system(raw_system(kernels={kind: {datatype: rate}}))


@pytest.fixture(scope="module")
def plain():
    return inputs.system(raw_system(networks=[]))


def shares(one, curve, sizes):
    """Return the share of each size on the steps of a curve."""
    return np.array([next(share for start, share in curve if size >= start) for size in sizes])


# -- the list ---------------------------------------------------------------------------------------------------------


def test_every_kind_has_a_kernel_an_engine_and_a_family():
    kinds = {kind for part in get_args(KernelKind) for kind in get_args(part)}
    assert set(KERNELS) == set(ENGINES) == set(FAMILY) == kinds


OF_EXPERTS = ("grouped_product", "router")  # tests/architecture/test_experts.py has theirs


OTHERS = (*OF_EXPERTS, "linear_attention")  # a share of the peak


def test_without_a_statement_the_curve_of_the_engine_counts(plain):
    flops = np.array([1e6, 1e9, 1e12])
    for kind in sorted({*KINDS} - {*OTHERS}):
        engine = plain.vector[TYPE] if ENGINES[kind] == "vector" else plain.matrix[TYPE]
        arithmetic, memory = times(plain, layer(kind, tuple(flops)), TYPE)
        np.testing.assert_array_equal(arithmetic, engine.time(flops), err_msg=f"{kind}")
        assert memory is None, kind


@pytest.mark.parametrize("share", [None, 0.3])
def test_states_of_linear_attention_run_at_a_share_of_the_peak(share):
    flops = np.array([1e6, 1e9, 1e12])
    ext = {} if share is None else {"linear_efficiency": share}
    system = inputs.system(raw_system(**ext))
    arithmetic, _ = times(system, layer("linear_attention", tuple(flops)), TYPE)
    np.testing.assert_allclose(arithmetic, flops / (system.matrix[TYPE].peak * (share or 0.05)))


# -- laws -------------------------------------------------------------------------------------------------------------


def test_the_law_of_tiles_is_the_former_gemm_bit_for_bit():
    former = inputs.system(raw_system(gemm={TYPE: GEMM}))
    new = stated("product", {"law": "tiles", **GEMM})
    assert former.gemm(TYPE) == new.gemm(TYPE)
    for one in LAYERS:
        np.testing.assert_array_equal(times(former, one, TYPE)[0], times(new, one, TYPE)[0])
    m, n, k = 4096.0, 8192.0, 1024.0  # all tiles of 256 x 128 are whole: waves and depths are left
    found, _ = times(new, PRODUCT, TYPE)
    passes = ((m, k, n), (m, n, k), (n, k, m))
    for time, (rows, columns, depth) in zip(found, passes, strict=True):
        waves = rows * columns / (256 * 128) / 64
        share = 0.8 * waves / np.ceil(waves) * depth / (depth + 100)
        assert time == pytest.approx(2 * m * n * k / (989e12 * share))


def test_a_batch_has_the_rate_of_products_unless_it_has_its_own(plain):
    law = {"law": "tiles", **GEMM}
    with_law = times(stated("product", law), SCORES, TYPE)[0]
    assert (with_law != times(plain, SCORES, TYPE)[0])[:2].all()
    both = raw_system(
        kernels={
            "product": {TYPE: law},
            "batched_product": {TYPE: {"curve": [[0, 0.25]], "over": "flops"}},
        }
    )
    found, _ = times(inputs.system(both), SCORES, TYPE)
    np.testing.assert_allclose(found, np.array(SCORES.flops) / (989e12 * 0.25))
    np.testing.assert_array_equal(
        times(inputs.system(both), PRODUCT, TYPE)[0],
        times(stated("product", law), PRODUCT, TYPE)[0],
    )


# -- curves -----------------------------------------------------------------------------------------------------------


def test_a_curve_over_keys_is_the_former_attention_bit_for_bit():
    curve = [[2048, 0.6], [1000, 0.45], [0, 0.3]]
    former = inputs.system(raw_system(attention={TYPE: {"efficiency": curve}}))
    new = stated("attention", {"curve": curve, "over": "keys"})
    for one in LAYERS:
        np.testing.assert_array_equal(times(former, one, TYPE)[0], times(new, one, TYPE)[0])
    np.testing.assert_array_equal(
        times(new, ATTENTION, TYPE)[0], np.array(ATTENTION.flops) / (989e12 * 0.45)
    )


@pytest.mark.parametrize("one", [PRODUCT, ATTENTION, NORM], ids=lambda one: one.kernel)
def test_a_curve_over_flops_is_a_share_of_the_peak_of_the_engine(one):
    curve = [[8e9, 0.7], [1.5e7, 0.4], [0, 0.1]]
    system = stated(one.kernel, {"curve": curve, "over": "flops"})
    engine = (system.vector if one.engine == "vector" else system.matrix)[TYPE]
    arithmetic, memory = times(system, one, TYPE)
    expected = np.array(one.flops) / (engine.peak * shares(one, curve, one.flops))
    np.testing.assert_allclose(arithmetic, expected, rtol=1e-15)
    assert memory is None


@pytest.mark.parametrize("one", [PRODUCT, ATTENTION, NORM], ids=lambda one: one.kernel)
def test_a_curve_over_bytes_is_a_share_of_the_bandwidth_of_memory(plain, one):
    curve = [[3e7, 0.9], [2e6, 0.5], [0, 0.2]]
    system = stated(one.kernel, {"curve": curve, "over": "bytes"})
    arithmetic, memory = times(system, one, TYPE)
    expected = np.array(one.accessed) / (3350e9 * shares(one, curve, one.accessed))
    np.testing.assert_allclose(memory, expected, rtol=1e-15)
    np.testing.assert_array_equal(arithmetic, times(plain, one, TYPE)[0])


# -- what a statement changes -----------------------------------------------------------------------------------------

RATES = {
    "law": {"law": "tiles", **GEMM},
    "curve": {"curve": [[1e8, 0.6], [0, 0.3]], "over": "flops"},
    "table": {"table": [[64, 64, 64, 0.1], [4096, 4096, 4096, 0.7]], "values": "share"},
}


def _layers(ext, **changes):
    execution = LLAMA_X64 | changes
    raw = document("systems", "h100_80g_sxm")
    raw["ext"] = {name: one for name, one in raw["ext"].items() if name != "kernels"} | ext
    return calculon.estimate("llama3-8B", execution, raw, layers=True).layers


@pytest.mark.parametrize("form", RATES)
def test_a_statement_of_products_changes_products_and_nothing_else(form):
    before, after = _layers({}), _layers({"kernels": {"product": {TYPE: RATES[form]}}})
    changed = {a["name"] for a, b in zip(before, after, strict=True) if a != b}
    assert changed == {
        "AttnBlock_QKV_AG",
        "AttnBlock_MLP_RS",
        "MlpBlock_Mlp1_AG",
        "MlpBlock_Mlp2_RS",
    }


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("norm", "Norm"),
        ("activation", "GLU|GeLU|Act"),
        ("rotary", "Rotary|RoPE"),
        ("sum", "Residual"),
    ],
)
def test_a_statement_of_a_kind_changes_only_that_kind(kind, name):
    rate = {"curve": [[0, 0.05]], "over": "bytes"}
    before, after = _layers({}), _layers({"kernels": {kind: {TYPE: rate}}})
    changed = {a["name"] for a, b in zip(before, after, strict=True) if a != b}
    assert changed
    assert all(re.search(name, one) for one in changed)
    other = _layers({"kernels": {kind: {"float16": rate}}})
    assert other == before


def test_the_published_edition_sees_no_kernels():
    system = document("systems", "a100_80g")
    slow = {"curve": [[0, 0.01]], "over": "bytes"}
    changed = system | {"ext": {"kernels": {kind: {"float16": slow} for kind in KINDS}}}
    changed["ext"]["traffic"] = {"efficiency": 0.01, "start": 2e-6}
    changed["ext"]["networks"] = [{"ramp": 1e-4}, {"ramp": 1e-4}]
    names = ("megatron-1T", "3072_t4_p64_d12_mbs4_full")
    assert calculon.estimate(*names, changed).stats == calculon.estimate(*names, system).stats


# -- malformed statements ---------------------------------------------------------------------------------------------


def refused(kernels, field, text):
    """Check that a statement is one problem of a field."""
    with pytest.raises(SpecError) as caught:
        inputs.system(raw_system(kernels=kernels))
    assert [problem.field for problem in caught.value.problems] == [field]
    assert text in str(caught.value)


def test_a_malformed_statement_is_told_in_one_message():
    product, attention = f"ext.kernels.product.{TYPE}", f"ext.kernels.attention.{TYPE}"
    norm = f"ext.kernels.norm.{TYPE}"
    seconds = {"table": [[512, 64, 1e-3]], "values": "seconds"}
    every = "at least one of product, router, batched_product, grouped_product, attention"
    for rate, field, text in [
        (0.5, "", "an object with one of law, curve, table, found 0.5"),
        ({}, "", "found an empty object"),
        ({"curve": [[0, 1]], "table": []}, "", "one of law, curve, table, found curve and table"),
        ({"law": "tile"}, ".law", "one of tiles, found 'tile'"),
        ({"law": "tiles", "multiprocessors": 8}, ".max_efficiency", "at most 1, found nothing"),
        ({"law": "tiles", **GEMM, "over": "flops"}, ".over", "the unknown field 'over'"),
        ({"curve": [[0, 1]]}, ".over", "one of flops, keys, bytes"),
        ({"curve": [[0, 1]], "over": "keys"}, ".over", "one of flops, bytes, found 'keys'"),
        ({"curve": [[1, 1]], "over": "flops"}, ".curve[0][0]", "0 as the last threshold"),
        ({"table": [[1, 1, 1, 0.7]]}, ".values", "share, seconds"),
        (shares_of([]), ".table", "a list of rows"),
        (shares_of([[1, 1, 1, 0.5], [2, 2, 0.5]]), ".table[1]", "a row of 4 numbers"),
        (shares_of([[64, 0.5]]), ".table[0]", "[m, n, k, share], found a row of 2 numbers"),
        (shares_of([[0, 1, 1, 0.5]]), ".table[0][0]", "above 0"),
        (shares_of([[1, 1, 1, 70]]), ".table[0][3]", "write 0.7 for 70 %"),
        (shares_of([[1, 1, 1, 0.7]] * 2), ".table[1]", "[m, n, k] once, found the same as row 0"),
    ]:
        refused({"product": {TYPE: rate}}, f"{product}{field}", text)
    for kernels, field, text in [
        ({}, "ext.kernels", every),
        ({"prodcut": {}}, "ext.kernels.prodcut", "did you mean 'product'"),
        ({"product": {"bf16": {}}}, "ext.kernels.product.bf16", "at least one of float8"),
        ({"norm": {"tfloat32": {}}}, "ext.kernels.norm.tfloat32", "the key 'tfloat32'"),
        ({"norm": {TYPE: {"over": "bytes"}}}, norm, "one of law, curve, table"),
        ({"norm": {TYPE: {"law": "tiles"}}}, f"{norm}.law", "one of stream"),
        ({"attention": {TYPE: seconds}}, f"{attention}.values", "share for attention"),
    ]:
        refused(kernels, field, text)


def shares_of(table):
    """Return the statement of a table of shares."""
    return {"table": table, "values": "share"}


def test_one_rate_in_both_spellings_is_refused():
    rate = {"curve": [[0, 0.5]], "over": "flops"}
    for kind, key, former in (
        ("product", "gemm", GEMM),
        ("attention", "attention", {"efficiency": [[0, 0.5]]}),
    ):
        old = {key: {TYPE: former}}
        both = f"expected one rate, found {key}.{TYPE} too. Hint: keep one"
        with pytest.raises(SpecError, match=re.escape(f"ext.kernels.{kind}.{TYPE}: {both}")):
            inputs.system(raw_system(kernels={kind: {TYPE: rate}}, **old))
        other = {kind: {"float16": rate}}
        assert len(inputs.system(raw_system(kernels=other, **old)).ext.rates) == 2


# -- schema and overlays ----------------------------------------------------------------------------------------------


def test_the_schema_knows_kernels():
    import jsonschema

    validator = jsonschema.Draft202012Validator(schema(System))
    for rate in RATES.values():
        assert validator.is_valid(raw_system(kernels={"product": {TYPE: rate}}))
    for kernels in (
        {},
        {"prodcut": {TYPE: RATES["law"]}},
        {"product": {"bf16": RATES["law"]}},
        {"norm": {TYPE: RATES["law"]}},
        {"product": {TYPE: RATES["law"] | RATES["curve"]}},
        {"product": {TYPE: {"curve": [[0, 1]], "over": "keys"}}},
        {"product": {TYPE: {"table": [[1, 1, 1, 0.7]]}}},
    ):
        assert not validator.is_valid(raw_system(kernels=kernels))


def test_every_kind_of_kernel_is_listed_for_those_who_measure():
    page = (ROOT / "systems" / "README.md").read_text(encoding="utf-8")
    assert [kind for kind in get_args(VectorKind) if f"`{kind}`" not in page] == []


# -- the law of memory-bound kernels, and the rate of all traffic ------------------------------------------------------

LAW = {"law": "stream", "efficiency": 0.8, "start": 3e-6}
TRAFFIC = {"efficiency": 0.9, "start": 2e-6}
BANDWIDTH = 3350e9


@for_each(
    ("law", "launches", "shares"),
    [
        (LAW, None, (0.8, 0.8, 0.8)),
        (LAW | {"backward": 0.5}, None, (0.8, 0.5, 0.5)),
        (LAW, (6, 12, 0), (0.8, 0.8, 0.8)),  # a chain of kernels
    ],
)
def test_each_kernel_has_its_start_and_its_bytes_a_share_of_the_bandwidth(law, launches, shares):
    _, memory = times(stated("norm", law), NORM._replace(launches=launches), TYPE)
    moved = np.array(NORM.accessed) / (np.array(shares) * BANDWIDTH)
    np.testing.assert_allclose(memory, 3e-6 * np.array(launches or (1, 1, 1)) + moved)


def test_arithmetic_beside_traffic_is_at_the_rate_of_long_operations():
    system = stated("norm", LAW)
    arithmetic, _ = times(system, NORM, TYPE)
    engine = system.vector[TYPE]
    np.testing.assert_allclose(arithmetic, np.array(NORM.flops) / (engine.peak * 0.95))


def test_more_work_never_takes_less_time():
    """Which it does on the steps of a curve."""
    moved = np.geomspace(1.0, 1e12, 2000)
    system = inputs.system(raw_system(traffic=TRAFFIC))
    assert (np.diff(system.move_time(moved)) > 0).all()
    assert (np.diff(system.vector_time(TYPE, moved)) > 0).all()
    assert (np.diff(system.published.move_time(moved)) < 0).any()


def test_any_stands_for_the_types_that_are_not_stated():
    own = LAW | {"efficiency": 0.5}
    system = inputs.system(raw_system(kernels={"norm": {"any": LAW, TYPE: own}}))
    assert system.rate("norm", TYPE).efficiency == 0.5
    assert system.rate("norm", "float16").efficiency == 0.8
    assert system.rate("softmax", TYPE) is None


def test_kinds_that_are_not_stated_have_the_rate_of_all_traffic():
    system = inputs.system(raw_system(traffic=TRAFFIC, kernels={"norm": {"any": LAW}}))
    for one, start, share in ((NORM, 3e-6, 0.8), (SOFTMAX, 2e-6, 0.9)):
        _, memory = times(system, one, TYPE)
        assert memory[0] == pytest.approx(start + one.accessed[0] / (share * BANDWIDTH))
    assert system.move_time(np.array([1e9]))[0] == pytest.approx(2e-6 + 1e9 / (0.9 * BANDWIDTH))


def test_a_slower_memory_slows_all_that_is_a_share_of_it():
    ext = {"traffic": TRAFFIC, "kernels": {"norm": {"any": LAW | {"backward": 0.6}}}}
    system = inputs.system(raw_system(**ext))
    slower = slowed(system, Spread(part="mem1", low=1.0, high=2.0, level=0.9), 2.0)
    size = np.array([1e8])
    np.testing.assert_allclose(slower.move_time(size), 2 * system.move_time(size))
    for one in (NORM, SOFTMAX):
        before, after = (times(machine, one, TYPE)[1] for machine in (system, slower))
        np.testing.assert_allclose(after, 2 * before)
    small = slowed(system, Spread(part="mem1", low=1.0, high=2.0, level=0.9, end=1e6), 2.0)
    assert small.move_time(size)[0] == pytest.approx(system.move_time(size)[0] + 2e-6)


def test_a_share_above_one_is_refused():
    with pytest.raises(calculon.SpecError, match=r"ext\.kernels\.norm\.any\.efficiency"):
        inputs.system(raw_system(kernels={"norm": {"any": LAW | {"efficiency": 1.2}}}))
    for start in (-1, 1e30):
        with pytest.raises(calculon.SpecError, match=r"ext\.traffic\.start: expected a number"):
            inputs.system(raw_system(traffic=TRAFFIC | {"start": start}))
    inputs.system(raw_system(traffic=TRAFFIC | {"start": LONGEST_START}))


def test_layers_of_a_rate_have_their_own_kernels():
    found = times(stated("add", LAW), layer("add", (0.0, 0.0, 0.0), (1e6, 0.0, 0.0)), TYPE)[1]
    np.testing.assert_allclose(found, [3e-6 + 1e6 / (0.8 * BANDWIDTH), 0, 0])


@pytest.mark.parametrize(("each", "loop"), [(45e-6, 28e-6), (45e-6, 0.0), (1e-6, 28e-6)])
def test_further_kernels_of_a_loop_take_at_most_a_launch_and_products_their_own_time(each, loop):
    launch = Launch(kernel=2e-6, eager=45e-6, compile=5e-6, product_loop=loop)
    found = launch.looped(np.full((2, 1), each), [PRODUCT, NORM])
    np.testing.assert_array_equal(found, [[min(each, loop or 5e-6)], [min(each, 5e-6)]])
