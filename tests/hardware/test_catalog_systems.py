"""The systems of today's processors: figures of datasheets, published keys only, and every figure accounted for."""

import re
import warnings

import numpy as np
import pytest

from calculon import inputs
from calculon.apps.cli.main import main
from calculon.spec import catalog
from calculon.units import GIB, GIGA, TERA
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
PUBLISHED = {name: one for name, one in document("systems", "a100_80g").items() if name != "about"}
SOURCES = (ROOT / "systems" / "measured" / "sources.csv").read_text()
SECTIONS = ("matrix", "vector", "mem1", "mem2", "processing_mode", "networks", "ext")

DENSE, SPARSE, BOTH_DIRECTIONS = 1, 1 / 2, 1 / 2
"""How vendors print rates: of dense matrices or twice that, and of links in both directions together."""

FIGURES = {
    # NVIDIA V100 datasheet, 2018; DGX-1 whitepaper, 2017: 4 ports of 100 Gb/s for 8 GPUs.
    "v100_sxm2_32g": {
        "float16": 125 * DENSE,
        "float32": 15.7,
        "vector": {"float16": 2 * 15.7, "float32": 15.7},
        "GB": 32,
        "GBps": 900,
        "nvlink": 300 * BOTH_DIRECTIONS,
        "gigabits": 4 * 100 / 8,
        "pcie": 8,
    },
    # NVIDIA A100 datasheet, 2020, and whitepaper, 2020; DGX A100 datasheet, 2020: 8 ports of 200 Gb/s for 8 GPUs.
    "a100_40g_sxm": {
        "float16": 624 * SPARSE,
        "bfloat16": 624 * SPARSE,
        "float32": 19.5,
        "vector": {"float16": 4 * 19.5, "bfloat16": 2 * 19.5, "float32": 19.5},
        "GB": 40,
        "GBps": 1555,
        "nvlink": 600 * BOTH_DIRECTIONS,
        "gigabits": 200,
        "pcie": 16,
    },
    # NVIDIA A100 datasheet, 2021; the rest as above.
    "a100_80g_sxm": {
        "float16": 624 * SPARSE,
        "bfloat16": 624 * SPARSE,
        "float32": 19.5,
        "vector": {"float16": 4 * 19.5, "bfloat16": 2 * 19.5, "float32": 19.5},
        "GB": 80,
        "GBps": 2039,
        "nvlink": 600 * BOTH_DIRECTIONS,
        "gigabits": 200,
        "pcie": 16,
    },
    # NVIDIA H100 datasheet, 2023; DGX H100 datasheet, 2022: 8 ports of 400 Gb/s for 8 GPUs.
    "h100_80g_sxm": {
        "float8": 3958 * SPARSE,
        "float16": 1979 * SPARSE,
        "bfloat16": 1979 * SPARSE,
        "float32": 67,
        "vector": {"float8": 2 * 67, "float16": 2 * 67, "bfloat16": 2 * 67, "float32": 67},
        "GB": 80,
        "GBps": 3350,
        "nvlink": 900 * BOTH_DIRECTIONS,
        "gigabits": 400,
        "pcie": 32,
    },
    # NVIDIA H200 datasheet, 2024; DGX H200 datasheet, 2024.
    "h200_141g_sxm": {
        "float8": 3958 * SPARSE,
        "float16": 1979 * SPARSE,
        "bfloat16": 1979 * SPARSE,
        "float32": 67,
        "vector": {"float8": 2 * 67, "float16": 2 * 67, "bfloat16": 2 * 67, "float32": 67},
        "GB": 141,
        "GBps": 4800,
        "nvlink": 900 * BOTH_DIRECTIONS,
        "gigabits": 400,
        "pcie": 32,
    },
    # NVIDIA Blackwell technical brief (HGX B200), 2024; DGX B200 datasheet, 2024: of 8 GPUs.
    "b200_sxm": {
        "float8": 9000 * SPARSE,
        "float16": 4500 * SPARSE,
        "bfloat16": 4500 * SPARSE,
        "float32": 75,
        "vector": {"float8": 2 * 75, "float16": 2 * 75, "bfloat16": 2 * 75, "float32": 75},
        "GB": 1440 / 8,
        "GBps": 64000 / 8,
        "nvlink": 14400 / 8 * BOTH_DIRECTIONS,
        "gigabits": 400,
        "pcie": 32,
    },
}

BEST_MATMUL = {
    # TFLOP/s: ml-engineering (S. Bekman, 2025), tables of the best rate over many shapes, bfloat16 and float8.
    "a100_40g_sxm": (271.2, None),
    "a100_80g_sxm": (271.2, None),
    "b200_sxm": (1745.0, 3432.5),
    "h100_80g_sxm": (794.5, 1402.6),
    "h200_141g_sxm": (794.5, 1453.4),
}

BEST_ATTENTION = {
    # TFLOP/s, forward: FlashAttention-2 (arXiv:2307.08691), -3 (arXiv:2407.08608), -4 (2026).
    "a100_40g_sxm": 0.73 * 312,
    "a100_80g_sxm": 0.73 * 312,
    "h100_80g_sxm": 740,
    "h200_141g_sxm": 740,
    "b200_sxm": 1613,
}

IN_SWITCHES = ("b200_sxm", "h100_80g_sxm", "h200_141g_sxm")


@pytest.fixture(params=NAMES)
def name(request):
    """Name every system in turn."""
    return request.param


def test_a_file_is_read_without_a_warning(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        system = inputs.system(document("systems", name))
    assert system.datatypes == tuple(system.matrix) == tuple(system.vector)


def test_published_sections_have_published_keys_only(name):
    raw = document("systems", name)
    assert list(raw) == [*PUBLISHED, "ext", "about"]
    engine = list(PUBLISHED["matrix"]["float16"])
    for kind in ("matrix", "vector"):
        assert all(list(one) == engine for one in raw[kind].values())
    for kind in ("mem1", "mem2"):
        assert list(raw[kind]) == list(PUBLISHED[kind])
    for network, published in zip(raw["networks"], PUBLISHED["networks"], strict=True):
        assert list(network) == list(published)
        assert list(network["ops"]) == list(published["ops"])


def test_rates_are_those_of_the_datasheets(name):
    system, figures = inputs.system(name), FIGURES[name]
    for datatype, engine in system.matrix.items():
        assert engine.peak == pytest.approx(figures[datatype] * TERA, rel=1e-3)
    found = {datatype: engine.peak / TERA for datatype, engine in system.vector.items()}
    assert found == pytest.approx(figures["vector"])


def test_memories_and_links_are_those_of_the_datasheets(name):
    system, figures = inputs.system(name), FIGURES[name]
    assert system.mem1.capacity == figures["GB"] * GIB
    assert system.mem1.bandwidth == figures["GBps"] * GIGA
    pcie = 16 * figures["pcie"] * 128 / 130 / 8  # 16 lanes of so many GT/s, 130 bits for 16 bytes
    assert system.mem2.bandwidth == pytest.approx(pcie * GIGA, rel=5e-3)
    node, cluster = system.networks
    assert (node.bandwidth, node.size) == (figures["nvlink"] * GIGA, 8)
    assert cluster.bandwidth == figures["gigabits"] / 8 * GIGA


def test_a_matmul_is_at_best_as_fast_as_the_best_measured(name):
    system = inputs.system(name)
    half, quarter = BEST_MATMUL.get(name, (0.8 * 125, None))  # nothing measured: assumed
    for datatype, best in (("float16", half), ("bfloat16", half), ("float8", quarter)):
        if engine := system.matrix.get(datatype):
            reached = engine.peak * engine.efficiency.efficiencies.max()
            assert reached == pytest.approx(best * TERA, rel=1e-3)


@pytest.mark.parametrize("name", BEST_ATTENTION)
def test_fused_attention_stays_below_the_best_forward_pass_shown(name):
    system = inputs.system(name)
    for datatype in set(system.matrix) - {"float32"}:
        for keys in (1.0, 512.5, 2048.5, 8192.5):
            flops = np.array(4.0 * 16 * 16384 * 128 * keys)
            rate = flops / attention_time(system, flops, keys, datatype)
            assert rate < BEST_ATTENTION[name] * TERA


def test_eight_bit_attention_runs_in_sixteen():
    for name in IN_SWITCHES:
        system = inputs.system(name)
        eight, sixteen = (attention_time(system, [1e12], 4096.5, d) for d in ("float8", "float16"))
        assert eight == pytest.approx(sixteen, rel=0.02)


def test_curves_step_at_the_same_durations(name):
    raw = document("systems", name)
    for kind, (section, rate, curve) in {
        "matrix": (PUBLISHED["matrix"]["float16"], "tflops", "gflops_efficiency"),
        "vector": (PUBLISHED["vector"]["float16"], "tflops", "gflops_efficiency"),
    }.items():
        steps = {threshold / section[rate] for threshold, _ in section[curve]}
        for datatype, engine in raw[kind].items():
            if f"{kind}.{datatype}.{curve}" in raw["about"]["sources"]:
                continue  # a curve of measured products has steps of its own
            for threshold, _ in engine[curve]:
                assert any(threshold / engine[rate] == pytest.approx(s, rel=0.05) for s in steps)


@pytest.mark.parametrize("network", [0, 1])
def test_ring_collectives_move_what_a_ring_moves(name, network):
    fabric, size, peers = inputs.system(name).fabric, 1e9, 8
    rate, latency = fabric.bandwidth[network], fabric.latency[network]
    share = size * (peers - 1) / peers
    moved = {
        operation: (fabric.time(network, operation, size, peers) - latency) * rate
        for operation in ("reduce_scatter", "all_gather", "all_reduce")
    }
    switched = network == 0 and name in IN_SWITCHES
    reduced = size * (1 + 1 / peers) if switched else 2 * share
    assert moved == pytest.approx(
        {"reduce_scatter": share, "all_gather": share, "all_reduce": reduced}
    )


def test_a_pair_of_the_cube_mesh_has_two_of_six_links():
    fabric = inputs.system("v100_sxm2_32g").fabric
    time = fabric.time(0, "p2p", 1e9, 2) - fabric.latency[0]
    assert time * fabric.bandwidth[0] == pytest.approx(6 / 2 * 1e9)


def test_latency_of_a_step_is_that_of_nccl(name):
    system = inputs.system(name)
    assert [link.kind for link in system.ext.networks] == ["nvlink", "net"]
    np.testing.assert_array_equal(system.fabric.step_latency, [3.4e-6, 14e-6])


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


def test_every_figure_has_a_source_or_is_assumed(name):
    raw = document("systems", name)
    sources, assumed = raw["about"]["sources"], raw["about"]["assumed"]
    patterns = [*sources, *(p for line in assumed for p in line.partition(": ")[0].split(", "))]
    figures = list(leaves({section: raw[section] for section in SECTIONS}))
    told = {p: re.compile(re.escape(p).replace(r"\*", ".*")).fullmatch for p in patterns}
    assert [
        figure for figure in figures if not any(map(lambda f, x=figure: f(x), told.values()))
    ] == []
    assert [p for p, matches in told.items() if not any(map(matches, figures))] == []


@pytest.mark.parametrize("any_name", catalog.names("system"))
def test_every_path_of_about_is_one_of_the_file(any_name):
    raw, merged = document("systems", any_name), catalog.load("system", any_name)[1]
    about = raw.get("about") or {}
    lines = [line.partition(": ") for line in about.get("assumed", [])]
    paths = [*about.get("sources", {}), *(p for line in lines for p in line[0].split(", "))]
    sections = ({section: file.get(section, {}) for section in SECTIONS} for file in (merged, raw))
    figures = [
        path for file in sections for path in leaves(file)
    ]  # with what an overlay takes away
    wild = {p: re.compile(re.escape(p).replace(r"\*", ".*")).fullmatch for p in paths}
    known = ["base", "everything else"] if "base" in raw else []
    assert [p for p in paths if p not in known and not any(map(wild[p], figures))] == []
    assert len(set(about.get("assumed", []))) == len(about.get("assumed", []))


PUBLISHED_NAMES = ("a100_80e", "a100_80g", "h100_80g_nvl8")
"""Files of the published tool, which stay as they are."""


def spelled(name):
    """Return a name as everybody spells it: small letters and digits alone."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


@pytest.mark.parametrize("any_name", sorted({*catalog.names("system")} - {*PUBLISHED_NAMES}))
def test_a_file_has_its_family_and_other_names(any_name):
    about = document("systems", any_name)["about"]
    assert about["family"].split()[0] in ("NVIDIA", "AMD", "Google", "Intel", "AWS")
    assert about["aliases"]


def test_no_other_name_has_two_meanings():
    meanings = {}
    for name in catalog.names("system"):
        about = document("systems", name).get("about") or {}
        for one in {spelled(name), *map(spelled, about.get("aliases", []))}:
            meanings.setdefault(one, []).append(name)
    several = {one: names for one, names in meanings.items() if len(names) > 1}
    both = ["a100_40g_sxm", "a100_80g_sxm"]  # of which the second is the usual one
    assert several == dict.fromkeys(("a100", "dgxa100", "hgxa100"), both)


@pytest.mark.parametrize("any_name", catalog.names("system"))
def test_fitted_parts_name_their_table_and_their_error(any_name):
    about = document("systems", any_name).get("about") or {}
    kernels = document("systems", any_name).get("ext", {}).get("kernels", {})
    fitted = [kind for kind in kernels if kind != "batched_product"] if "kernels" in about else []
    assumed = [line for line in about.get("assumed", []) if "no kernel was measured" in line]
    for kind in fitted:
        if any(line.startswith(f"ext.kernels.{kind}.*.kernels.*: ") for line in assumed):
            continue
        told = [text for path, text in about["sources"].items() if f"ext.kernels.{kind}." in path]
        assert any(re.search(r"systems/measured/\w+\.csv", text) for text in told), kind
    for text in about.get("sources", {}).values():
        for table in re.findall(r"systems/measured/\w+\.csv", text):
            assert (ROOT / table).is_file()
        for source in re.findall(
            r"\b(?:aic|vidur|liger|neusight|cudnn|simumax|superbench|fa)-\S+?(?=[,;)]|$)", text
        ):
            assert source in SOURCES


def test_pods_of_the_24k_cluster_have_the_nodes_of_the_h100():
    pods, node = document("systems", "h100_80g_sxm_24k"), document("systems", "h100_80g_sxm")
    assert pods["networks"][0] == node["networks"][0]
    assert pods["ext"]["networks"][0] == node["ext"]["networks"][0]


def test_every_curve_is_called_assumed(name):
    raw = document("systems", name)
    assumed = [p for line in raw["about"]["assumed"] for p in line.partition(": ")[0].split(", ")]
    for curve in (
        "matrix.*.gflops_efficiency",
        "vector.*.gflops_efficiency",
        "mem1.MB_efficiency",
        "mem2.MB_efficiency",
        "processing_mode",
        "networks[0].efficiency",
        "networks[1].efficiency",
    ):
        assert curve in assumed
    former = "ext.attention.*.efficiency"
    assert "ext.kernels.attention.float32.*" in assumed or former in assumed


def test_additions_are_described(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)  # a line for each field
    assert main(["describe", "system"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "object; optional" in rows["ext"]
    assert "float32; optional" in rows["ext.attention"]
    assert {"ext.attention.*.efficiency", "ext.networks[].kind"} <= set(rows)


def test_defaults_are_described(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)  # a line for each field
    assert main(["describe", "execution"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "sc23, corrected; default sc23 " in rows["edition"]
    assert "true, false; default false " in rows["latency_per_step"]
    assert "default" not in rows["training"]
