"""The systems of today's processors: figures of datasheets, published keys only, and every figure accounted for."""

import csv
import re
import warnings

import numpy as np
import pytest

from calculon import inputs
from calculon.base.units import GIGA, TERA
from calculon.declarations import catalog
from calculon.hardware.collectives.algorithm_times import AUTO, group_time
from calculon.hardware.collectives.placement import place
from tests.hardware.kernels.layers import attention_time
from tests.helpers import ROOT, document

NAMES = (
    "a100_40g_sxm",
    "a100_80g_sxm",
    "b200_sxm",
    "h100_80g_sxm",
    "h200_141g_sxm",
    "v100_sxm2_32g",
)
PUBLISHED_NAMES = ("a100_80e", "a100_80g", "h100_80g_nvl8")
"""Files of the published tool, which stay as they are."""
RINGS = (*NAMES, "a100_80g_pcie", "a100_80g_ethernet", "h100_94g_nvl")
OWN_NAMES = sorted({*catalog.names("system")} - {*PUBLISHED_NAMES})
PUBLISHED = {name: one for name, one in document("systems", "a100_80g").items() if name != "about"}
SOURCES = (ROOT / "systems" / "measured" / "sources.csv").read_text()
SECTIONS = ("matrix", "vector", "mem1", "mem2", "processing_mode", "networks", "ext")

VECTOR = {
    # TFLOP/s in 32 bits without matrix engines, and how many times as many in 16 and in 8 bits: NVIDIA, whitepapers of
    # the V100, 2017, and the A100, 2020; H100 and H200 datasheets, 2023 and 2024; Blackwell technical brief, 2024.
    "v100_sxm2_32g": (15.7, {"float16": 2}),
    "a100_40g_sxm": (19.5, {"float16": 4, "bfloat16": 2}),
    "a100_80g_sxm": (19.5, {"float16": 4, "bfloat16": 2}),
    "h100_80g_sxm": (67, dict.fromkeys(("float8", "float16", "bfloat16"), 2)),
    "h100_94g_nvl": (60, dict.fromkeys(("float8", "float16", "bfloat16"), 2)),
    "h200_141g_sxm": (67, dict.fromkeys(("float8", "float16", "bfloat16"), 2)),
    "b200_sxm": (75, dict.fromkeys(("float8", "float16", "bfloat16"), 2)),
}

HOST_GBPS = {
    # The way to the memory of the host: 16 lanes of PCIe, 130 bits for 16 bytes; or NVLink-C2C in one direction.
    **dict.fromkeys(("v100_sxm2_32g",), 16 * 8 * 128 / 130 / 8),
    **dict.fromkeys(("a100_40g_sxm", "a100_80g_sxm"), 16 * 16 * 128 / 130 / 8),
    **dict.fromkeys(("h100_80g_sxm", "h200_141g_sxm", "b200_sxm"), 16 * 32 * 128 / 130 / 8),
    "gb200_nvl72": 900 / 2 / 2,  # two processors share it
}

BEST_MATMUL = {
    # TFLOP/s: ml-engineering (S. Bekman, 2025), tables of the best rate over many shapes, bfloat16 and float8.
    "a100_40g_sxm": (271.2, None),
    "a100_80g_sxm": (271.2, None),
    "b200_sxm": (1745.0, 3432.5),
    "h100_80g_sxm": (794.5, 1402.6),
    "h200_141g_sxm": (794.5, 1453.4),
    "mi300x": (668.4, None),
    "mi325x": (784.9, None),
    "mi355x": (1565, None),
    "gaudi2": (418.7, None),
    "gaudi3": (1243, None),
    "v100_sxm2_32g": (0.8 * 125, None),  # nothing measured: assumed
}

BEST_ATTENTION = {
    # TFLOP/s, forward: FlashAttention-2 (arXiv:2307.08691), -3 (arXiv:2407.08608), -4 (2026).
    "a100_40g_sxm": 0.73 * 312,
    "a100_80g_sxm": 0.73 * 312,
    "h100_80g_sxm": 740,
    "h200_141g_sxm": 740,
    "b200_sxm": 1613,
}

BEST_8_BIT_ATTENTION = {
    # TFLOP/s, forward: FlashAttention-3 (arXiv:2407.08608); cuDNN on a GB200 (systems/measured/attention.csv).
    "h100_80g_sxm": 1200,
    "h200_141g_sxm": 1200,
    "b200_sxm": 2668,
}

IN_SWITCHES = ("b200_sxm", "h100_80g_sxm", "h200_141g_sxm")


def test_every_file_is_read_without_a_warning():
    for name in OWN_NAMES:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            system = inputs.system(name)
        assert system.datatypes == tuple(system.matrix) == tuple(system.vector), name
        assert len(system.ext.networks) == len(system.networks), name


def test_published_sections_have_published_keys_only():
    for name in OWN_NAMES:
        whole = catalog.load("system", name)[1]
        assert {*whole} - {"base"} == {*PUBLISHED, "ext", "about"}, name
        for kind in ("matrix", "vector"):
            engine = {*PUBLISHED["matrix"]["float16"]}
            assert all({*one} == engine for one in whole[kind].values()), name
        for kind in ("mem1", "mem2"):
            assert {*whole[kind]} == {*PUBLISHED[kind]}, name
        for network in whole["networks"]:
            assert {*network} == {*PUBLISHED["networks"][0]}, name
            assert {*network["ops"]} == {*PUBLISHED["networks"][0]["ops"]}, name


def test_rates_of_vector_engines_and_to_the_host_are_those_of_their_makers():
    """``systems/datasheets.csv`` has all others."""
    for name, (rate, times) in VECTOR.items():
        found = {kind: one.peak / TERA for kind, one in inputs.system(name).vector.items()}
        expected = {kind: rate * count for kind, count in (times | {"float32": 1}).items()}
        assert found == pytest.approx(expected), name
    found = {name: inputs.system(name).mem2.bandwidth / GIGA for name in HOST_GBPS}
    assert found == pytest.approx(HOST_GBPS, rel=5e-3)


def test_a_matmul_is_at_best_as_fast_as_the_best_measured():
    for name, (half, quarter) in BEST_MATMUL.items():
        matrix = inputs.system(name).matrix
        for datatype, best in (("float16", half), ("bfloat16", half), ("float8", quarter)):
            if best and datatype in matrix:
                reached = matrix[datatype].peak * matrix[datatype].efficiency.efficiencies.max()
                assert reached == pytest.approx(best * TERA, rel=2e-3), (name, datatype)


@pytest.mark.parametrize("name", BEST_ATTENTION)
def test_fused_attention_stays_below_the_best_forward_pass_shown(name):
    system = inputs.system(name)
    for datatype in set(system.matrix) - {"float32"}:
        for keys in (1.0, 512.5, 2048.5, 8192.5):
            flops = np.array(4.0 * 16 * 16384 * 128 * keys)
            rate = flops / attention_time(system, flops, keys, datatype)
            bests = BEST_8_BIT_ATTENTION if datatype == "float8" else BEST_ATTENTION
            assert rate < bests[name] * TERA


def test_eight_bit_attention_runs_in_sixteen_unless_measured():
    """cuDNN's kernels were measured: forward 1.3 to 1.6 times as fast with 4,096 keys."""
    for name in IN_SWITCHES:
        system = inputs.system(name)
        eight, sixteen = (attention_time(system, [1e12], 4096.5, d) for d in ("float8", "float16"))
        assert 1.25 * eight < sixteen < 1.7 * eight
        for one in ("flash2", "flash3"):
            laws = [system.rate("attention", d).kernels for d in ("float8", "bfloat16")]
            if one in laws[0]:
                found = [law[one].forward.shares.cost(np.array(128.0)) for law in laws]
                assert found[0] == pytest.approx(2 * found[1], rel=0.01)


@pytest.mark.parametrize("name", RINGS)
def test_ring_collectives_move_what_a_ring_moves(name):
    system, size, peers = inputs.system(name), 1e9, 8
    fabric, share = system.fabric, size * (peers - 1) / peers
    for network in range(len(system.networks)):
        rate, latency = fabric.bandwidth[network], fabric.latency[network]
        moved = {
            operation: (fabric.time(network, operation, size, peers) - latency) * rate
            for operation in ("reduce_scatter", "all_gather", "all_reduce")
        }
        switched = network == 0 and name in IN_SWITCHES
        reduced = size * (1 + 1 / peers) if switched else 2 * share
        expected = {"reduce_scatter": share, "all_gather": share, "all_reduce": reduced}
        assert moved == pytest.approx(expected), network


def leaves(value, path=""):
    """List the paths of the figures in a section; a curve and the operations of a network count as one.

    Prices and powers say themselves where they are from; a price that an overlay takes away is from nowhere.
    """
    if (isinstance(value, dict) and "source" in value) or (
        value is None and path.startswith("ext.price")
    ):
        return
    if isinstance(value, dict) and not path.endswith(".ops"):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and not path.endswith(("efficiency", "alignment", "tiles")):
        for i, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{i}]")
    else:
        yield path


def patterns(about):
    """Return the patterns of the figures of which a file says where they are from."""
    assumed = [line.partition(": ")[0] for line in about.get("assumed", [])]
    return [*about.get("sources", {}), *(one for line in assumed for one in line.split(", "))]


def matching(pattern):
    """Return what says whether a path matches a pattern, in which a star is anything."""
    return re.compile(re.escape(pattern).replace(r"\*", ".*")).fullmatch


def without_source(raw):
    """Return the figures of a file of which nobody says where they are from."""
    told = [matching(pattern) for pattern in patterns(raw["about"])]
    figures = leaves({section: raw[section] for section in SECTIONS if section in raw})
    return [figure for figure in figures if not any(known(figure) for known in told)]


def test_every_figure_has_a_source_or_is_assumed():
    found = {name: without_source(document("systems", name)) for name in OWN_NAMES}
    assert {name: figures for name, figures in found.items() if figures} == {}


def test_every_path_of_about_is_one_of_the_file():
    wrong = []
    for name in catalog.names("system"):
        raw, merged = document("systems", name), catalog.load("system", name)[1]
        about = raw.get("about") or {}
        figures = [  # with what an overlay takes away
            path
            for file in (merged, raw)
            for path in leaves({section: file.get(section, {}) for section in SECTIONS})
        ]
        known = ["base", "everything else"] if "base" in raw else []
        wrong += [
            f"{name}: {pattern}"
            for pattern in patterns(about)
            if pattern not in known and not any(map(matching(pattern), figures))
        ]
        assumed = about.get("assumed", [])
        assert len(set(assumed)) == len(assumed), name
    assert not wrong


def test_the_guide_lists_every_file():
    guide = (ROOT / "systems" / "README.md").read_text()
    assert [name for name in catalog.names("system") if f"`{name}`" not in guide] == []


def test_files_have_their_family_and_other_names():
    for name in OWN_NAMES:
        about = document("systems", name)["about"]
        assert about["family"].split()[0] in ("NVIDIA", "AMD", "Google", "Intel", "AWS"), name
        assert about["aliases"], name
        assert all(alias == alias.lower() for alias in about["aliases"]), name


TABLE = re.compile(r"systems/measured/\w+\.csv")
SOURCE = re.compile(r"\b(?:aic|vidur|liger|neusight|cudnn|simumax|superbench|fa)-\S+?(?=[,;)]|$)")


def test_fitted_parts_name_their_table():
    wrong = []
    for name in catalog.names("system"):
        raw = document("systems", name)
        about = raw.get("about") or {}
        kernels = {*raw.get("ext", {}).get("kernels", {})} if "kernels" in about else set()
        assumed = [line for line in about.get("assumed", []) if "no kernel was measured" in line]
        for kind in kernels - {"batched_product"}:
            if any(line.startswith(f"ext.kernels.{kind}.*.kernels.*: ") for line in assumed):
                continue
            told = [t for path, t in about["sources"].items() if f"ext.kernels.{kind}." in path]
            if not any(map(TABLE.search, told)):
                wrong.append(f"{name}: {kind} has no table")
    assert not wrong


def test_tables_and_sources_that_files_name_are_there():
    for name in catalog.names("system"):
        about = document("systems", name).get("about") or {}
        for text in about.get("sources", {}).values():
            for table in TABLE.findall(text):
                assert (ROOT / table).is_file(), name
            for source in SOURCE.findall(text):
                assert source in SOURCES, name


# -- accelerators of AMD, Google, Intel and AWS: what their links give a group

MESHES = ("mi300x", "mi325x", "mi350x", "mi355x", "gaudi2", "gaudi3")
LARGE = 64e9
"""Bytes of a message whose latency and ramp do not count."""
PCIE_PEAK = 14.0
"""TFLOP/s of a V100-PCIe in float32."""


def _rate(system, operation, ranks):
    """Return the bus bandwidth of a large message as a share of that of a port."""
    moved = LARGE if operation == "p2p" else LARGE * (ranks - 1) / ranks
    moved *= 2 if operation == "all_reduce" else 1
    seconds = group_time(system, operation, LARGE, place(system, ranks), AUTO)
    return moved / seconds / system.networks[0].bandwidth


def test_a_group_has_the_links_to_its_members():
    for mesh in MESHES:
        system = inputs.system(mesh)
        for operation in ("all_reduce", "all_gather", "all_to_all"):
            whole = _rate(system, operation, 8)
            for ranks in (2, 4):
                share = _rate(system, operation, ranks) / whole
                assert share == pytest.approx((ranks - 1) / 7, rel=0.03), mesh
        assert _rate(system, "p2p", 2) <= 1 / 7, mesh


def test_mi300x_reaches_what_its_maker_asks_for():
    bus = _rate(inputs.system("mi300x"), "all_reduce", 8) * 448
    assert bus == pytest.approx(304, rel=0.02)
    assert _rate(inputs.system("mi300x"), "p2p", 2) * 448 == pytest.approx(48, rel=0.01)


def test_float32_products_of_a_v100_are_those_measured():
    with (ROOT / "systems" / "measured" / "gemm.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["gpu"] == "V100-PCIe-32GB"]
    sizes = ("batch", "m", "n", "k")
    flop = np.array([2 * np.prod([float(row[size]) for size in sizes]) for row in rows])
    measured = np.array([float(row["tflops"]) for row in rows]) / PCIE_PEAK
    engine = inputs.system("v100_sxm2_32g").matrix["float32"]
    same_duration = flop * engine.peak / (PCIE_PEAK * 1e12)
    predicted = engine.efficiency.at(same_duration)
    assert len(rows) > 100
    assert np.median(measured / predicted) == pytest.approx(1, abs=0.02)
    assert np.median(abs(measured / predicted - 1)) < 0.08
