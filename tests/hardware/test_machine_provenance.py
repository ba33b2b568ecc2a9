"""Where figures of systems come from: whose runs count as a system's own, what is borrowed, what nobody measured."""

import csv
import json

import numpy as np
import pytest

from calculon import inputs
from calculon.declarations import catalog
from calculon.declarations.machine_provenance import PARTS, Provenance
from calculon.estimate.nearest_runs import relatives, same_processor
from calculon.estimate.run_table import runs

SYSTEMS = list(catalog.names("system"))
KERNELS = ("attention", "gemm", "memory_bound", "moe")
"""Tables of measured kernels. Squares and collectives say too little about a training step."""


def _measured_processors():
    """Return the processors that a validated run or a measured kernel names."""
    named = set(runs().columns["accelerator"])
    for table in KERNELS:
        with (catalog.root() / "systems" / "measured" / f"{table}.csv").open() as file:
            named |= {row["gpu"] for row in csv.DictReader(file)}
    return named


def test_a_catalog_system_is_unmeasured_if_no_run_and_no_kernel_names_its_processor():
    measured = _measured_processors()
    wrong = [
        name
        for name in SYSTEMS
        if (one := inputs.system(name).provenance).unmeasured == (one.processor in measured)
    ]
    assert wrong == []


def test_a_catalog_system_that_copies_another_one_says_what_it_borrows():
    wrong = []
    for name, path in catalog.names("system").items():
        about = json.loads(path.read_text()).get("about", {})
        copies = any(text.startswith("everything else") for text in about.get("assumed", ()))
        borrowed = about.get("borrowed", {})
        if bool(borrowed) != copies or not borrowed.keys() <= PARTS.keys():
            wrong.append(name)
        if not set(borrowed.values()) <= {*SYSTEMS} - {name}:
            wrong.append(name)
    assert wrong == []


def test_an_overlay_with_another_power_or_peak_rate_names_its_processor():
    wrong = []
    for name, path in catalog.names("system").items():
        raw = json.loads(path.read_text())
        power = raw.get("ext", {}).get("power") or {}
        differs = "tdp" in power or "tflops" in str(raw.get("matrix"))
        if "base" in raw and differs and not raw.get("about", {}).get("processor"):
            wrong.append(name)
    assert wrong == []


OWN = {  # number of own runs, and the processors of the runs of a relative
    "mi355x": (1, set()),
    "mi350x": (1, {"MI355X"}),
    "b300_sxm": (6, {"B200-SXM-180GB"}),
    "gb300_nvl72": (14, {"B200-SXM-180GB"}),
    "gh200_96g": (0, {"H100-SXM5-80GB"}),
    "gh200_144g": (0, {"H200-SXM5-141GB"}),
    "tpu_v6e": (0, set()),
}


def test_runs_belong_to_the_processor_that_they_name():
    found = {
        name: (
            int(same_processor(runs(), inputs.system(name)).sum()),
            set(np.array(runs().columns["accelerator"])[relatives(runs(), inputs.system(name))]),
        )
        for name in OWN
    }
    assert found == OWN


def test_instances_of_a_cloud_have_the_runs_of_the_server_they_are_based_on():
    own, cloud = (
        same_processor(runs(), inputs.system(name)) for name in ("h100_80g_sxm", "aws_p5")
    )
    assert own.any()
    assert (own == cloud).all()


@pytest.mark.parametrize("change", ["mem1.GBps", "matrix.bfloat16.tflops"])
def test_a_machine_with_other_figures_has_no_runs_of_its_own(change):
    faster = inputs.system(inputs.Changed.of("h100_80g_sxm", {change: 9999}))
    assert not same_processor(runs(), faster).any()


def test_a_file_of_its_own_is_unmeasured_unless_it_was_calibrated():
    document = catalog.load("system", "h100_80g_sxm")[1]
    assert not inputs.system(document).provenance.unmeasured
    alone = {name: value for name, value in document.items() if name != "about"}
    assert inputs.system(alone).provenance == Provenance(unmeasured=True)
    assert not Provenance.of({"calibration": {"fits": [1]}}).unmeasured


def test_malformed_statements_count_as_not_made():
    for about in (None, 3, [], {"borrowed": ["a"], "processor": None, "family": 0}):
        assert Provenance.of({"about": about}) == Provenance(unmeasured=True)


def test_borrowed_parts_are_grouped_by_lender():
    one = Provenance(borrowed={"kernels": "a", "links": "a", "network": "b"})
    assert one.in_words == "kernels and links within a node of a; network between nodes of b"
    assert one.to_dict() == {"borrowed": one.borrowed}
