"""Measurements that a system makes give this system back; the document keeps everything else."""

import copy
import dataclasses
import json

import numpy as np
import pytest

from calculon.base.errors import SpecError
from calculon.calibrate.fit import calibrate
from calculon.calibrate.fit_result import Measurements
from calculon.calibrate.networks import write_network
from calculon.calibrate.parts import fit_part
from calculon.calibrate.readers import read_collectives, read_gemm, read_memory
from calculon.declarations.decode import decode
from calculon.hardware.extension import STEP_LATENCY
from calculon.hardware.system import System
from tests.calibrate.measured import row
from tests.cases import for_each
from tests.helpers import document, refusal

BASE = "h100_80g_sxm"
DATE = "2026-01-02"
NO_RAMP = "networks[0]: fitted by latency and efficiency; the data show no ramp"


def base():
    """Return the base without launches, which no operation would be faster than."""
    raw = document("systems", BASE)
    del raw["ext"]["launch"]
    return raw


def system(raw):
    return decode(System, raw, "test.json", name=BASE)


SYSTEM = system(base())
BANDWIDTH = SYSTEM.mem1.bandwidth


def written(path, header, rows):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return str(path)


@pytest.fixture
def collectives(tmp_path):
    """Return a function that reads collectives with the times of a system."""

    def read(raw, start=None, **options):
        made, rows = system(raw), []
        for operation in ("all_reduce", "all_gather", "reduce_scatter", "p2p"):
            for members in (2, 8) if operation != "p2p" else (2,):
                sizes = 2.0 ** np.arange(10, 34)
                times = made.fabric.time(np.array(0), operation, sizes, np.array(float(members)))
                rows += [
                    (operation, int(size), members, repr(time))
                    for size, time in zip(sizes, times.tolist(), strict=True)
                ]
        path = written(tmp_path / "c.csv", "operation,bytes,members,seconds", rows)
        return read_collectives(path, system(start or base()), **options)

    return read


def run(raw, *read, hold_out=0.3, **options):
    measured = [Measurements(f"{i}.csv", rows, told) for i, (rows, told) in enumerate(read)]
    return calibrate(raw, "test.json", measured, hold_out=hold_out, date=DATE, name=BASE, **options)


def with_ramp(ramp=2e-5):
    """Return the base with a ramp on its first network, and no other additions of networks."""
    raw = base()
    raw["networks"][0] |= {"latency": 4e-5, "efficiency": 0.7}
    raw["ext"]["networks"] = [{"ramp": ramp}]
    return raw


@pytest.mark.parametrize(("ramp", "hold_out"), [(1e-6, 0), (2e-5, 0.5), (3e-4, 0)])
def test_a_network_with_a_ramp_comes_back(collectives, ramp, hold_out):
    found = run(base(), collectives(with_ramp(ramp)), hold_out=hold_out)
    new = found.document
    assert new["networks"][0]["latency"] == pytest.approx(4e-5, rel=1e-4)
    assert new["networks"][0]["efficiency"] == pytest.approx(0.7, rel=1e-4)
    assert new["ext"]["networks"][0]["ramp"] == pytest.approx(ramp, rel=1e-3)
    link = new["ext"]["networks"][0]  # its own latency counts, not that of its kind
    assert (link["kind"], link["step_latency"]) == ("nvlink", STEP_LATENCY["nvlink"])
    assert new["ext"]["networks"][1] == base()["ext"]["networks"][1]
    assert new["calibration"]["fits"][0]["parameters"]["ramp"] == new["ext"]["networks"][0]["ramp"]
    assert all(record["mape"] < 1e-3 for record in found.residuals())
    (note,) = found.notes
    assert note.startswith("networks[0]: fitted by latency, efficiency and ramp; edition sc23 ")


def test_a_ramp_is_written_where_the_base_has_no_additions(collectives):
    plain = base()
    plain["networks"][1]["bandwidth"] = plain["networks"][0]["bandwidth"]
    plain["networks"][1]["ops"] = plain["networks"][0]["ops"]
    del plain["ext"]
    document = run(plain, collectives(with_ramp(), plain, network=1)).document
    assert document["ext"] == {"networks": [{}, {"ramp": pytest.approx(2e-5, rel=1e-3)}]}
    assert system(document).fabric.ramp[0] == 0
    assert "ext" not in plain


def test_an_earlier_ramp_goes_where_none_is_fitted(collectives):
    rows = collectives(with_ramp())
    once = run(base(), rows).document
    plain = run(once, rows, ramp=False)
    assert "ramp" not in plain.document["ext"]["networks"][0]
    assert plain.notes == []
    assert plain.document["networks"] == run(base(), rows, ramp=False).document["networks"]
    assert run(plain.document, rows).document["ext"] == once["ext"]


def test_a_network_without_additions_gets_none():
    links = [{"ramp": 1e-6, "operations": {}, "kind": "nvlink"}]
    raw = {"networks": [{"latency": 1e-6}, {"latency": 2e-6}], "ext": {"networks": links}}
    found = copy.deepcopy(raw)
    write_network(found, 1, {"latency": 3e-6})
    assert found == raw | {"networks": [{"latency": 1e-6}, {"latency": 3e-6}]}


def test_rows_that_no_rising_time_explains_do_not_count(collectives):
    rows, told = collectives(with_ramp())
    slow = [
        dataclasses.replace(row, seconds=5e-4) if row.message in (2**10, 2**12) else row
        for row in rows
    ]
    found, clean = run(base(), (slow, told), hold_out=0), run(base(), (rows, told), hold_out=0)
    for key, value in clean.document["calibration"]["fits"][0]["parameters"].items():
        assert found.document["calibration"]["fits"][0]["parameters"][key] == pytest.approx(
            value, rel=1e-4
        )
    assert found.notes[0].startswith(
        "networks[0]: 14 rows took longer than two larger messages and were left out (first: "
    )
    records = {record["rows"]: record for record in found.residuals()}
    assert records["fitted"]["mape"] < 1e-3
    assert (records["left out"]["n"], records["left out"]["worst"] < -80) == (14, True)


def test_members_tell_the_network_and_a_column_or_the_caller_overrides(tmp_path):
    made = system(base())
    rows = [("all_reduce", 2**20, m, 0.01) for m in (2, 8, 9, 64)]
    path = written(tmp_path / "c.csv", "operation,bytes,members,seconds", rows)
    parts = [row.part for row in read_collectives(path, made)[0]]
    assert parts == ["networks[0]", "networks[0]", "networks[1]", "networks[1]"]
    assert {row.part for row in read_collectives(path, made, network=1)[0]} == {"networks[1]"}
    rows = [(*row, 1) for row in rows[:2]]
    head = "operation,bytes,members,seconds,network"
    path = written(tmp_path / "d.csv", head, rows)
    assert {row.part for row in read_collectives(path, made, network=0)[0]} == {"networks[1]"}
    path = written(tmp_path / "e.csv", head, [("p2p", 1024, 2, 0.01, 0)])
    assert read_collectives(path, made, network=1)[0][0].part == "networks[0]"
    path = written(tmp_path / "f.csv", head, [("p2p", 1024, 2, 0.01, 2)])
    wanted = f"line 2, network: expected a network of {BASE}: 0 to 1, found 2"
    assert wanted in refusal(read_collectives, path, made)


def gemm(tmp_path, made, datatype):
    shapes = [
        (2**i, n, k) for i in range(3, 15) for n, k in ((1024, 1024), (4096, 8192), (256, 64))
    ]
    rows = [
        (m, n, k, datatype, repr(float(made.matrix[datatype].time(np.array(2.0 * m * n * k)))))
        for m, n, k in shapes
    ]
    return written(tmp_path / "g.csv", "m,n,k,datatype,seconds", rows)


@pytest.mark.parametrize("datatype", ["bfloat16", "float8"])
def test_a_curve_of_the_matrix_engine_comes_back(tmp_path, datatype):
    raw = base()
    raw["matrix"][datatype]["gflops_efficiency"] = [[300, 0.71], [20, 0.5], [1, 0.22], [0, 0.05]]
    made = system(raw)
    read = read_gemm(gemm(tmp_path, made, datatype), system(base()))
    found = run(base(), read, hold_out=0)
    new = system(found.document)
    sizes = np.array([row.size for row in read[0]])
    assert new.matrix[datatype].time(sizes) == pytest.approx(made.matrix[datatype].time(sizes))
    assert len(found.document["matrix"][datatype]["gflops_efficiency"]) == 4
    others = set(base()["matrix"]) - {datatype}
    assert all(found.document["matrix"][o] == base()["matrix"][o] for o in others)
    assert found.document["matrix"][datatype]["tflops"] == base()["matrix"][datatype]["tflops"]


@pytest.mark.parametrize("tier", [1, 2])
def test_a_curve_of_a_memory_comes_back(tmp_path, tier):
    raw = base()
    raw[f"mem{tier}"]["MB_efficiency"] = [[100, 0.93], [3, 0.6], [0, 0.02]]
    made = system(raw)
    memory = made.mem1 if tier == 1 else made.mem2
    sizes = 2.0 ** np.arange(12, 33)
    rows = [(int(s), repr(float(memory.time(s))), tier) for s in sizes]
    path = written(tmp_path / "m.csv", "bytes,seconds,tier", rows)
    found = run(base(), read_memory(path, system(base())), hold_out=0)
    new = system(found.document)
    again = (new.mem1 if tier == 1 else new.mem2).time(sizes)
    assert again == pytest.approx(memory.time(sizes))
    other = f"mem{3 - tier}"
    assert found.document[other] == base()[other]


def test_the_document_is_the_base_with_changed_numbers_and_where_they_come_from(collectives):
    raw = base()
    raw["networks"][0] |= {"latency": 4e-5, "efficiency": 0.4}
    untouched = base()
    read = collectives(raw)
    found = run(untouched, (read[0], {"device": "8 x test"}), hold_out=0.5)
    assert untouched == base()
    new = json.loads(json.dumps(found.document))
    (fit,) = new["calibration"]["fits"]
    assert new["calibration"]["base"] == BASE
    assert (fit["part"], fit["date"], fit["hold_out"]) == ("networks[0]", DATE, 0.5)
    assert (fit["files"], fit["device"]) == (["0.csv"], "8 x test")
    assert (fit["rows"], fit["held_out_rows"]) == (len(read[0]), 84)  # 12 of 24 octaves, 7 groups
    for key, value in fit["parameters"].items():
        assert new["networks"][0][key] == value
    del new["calibration"]
    for key in ("latency", "efficiency"):
        new["networks"][0][key] = base()["networks"][0][key]
    assert new["ext"]["networks"][0].pop("step_latency") == STEP_LATENCY["nvlink"]
    old = base()
    assert "operations" in old["ext"]["networks"][0]  # of single ones: those were other machines
    del old["ext"]["networks"][0]["operations"]
    assert new == old


@for_each(("sizes", "steps"), [(3, 2), (4, 2), (5, 3), (11, 6), (14, 6)])
def test_a_curve_has_half_as_many_steps_as_sizes_and_at_most_6(sizes, steps):
    rows = [row(2.0**i, 2.0**i / (BANDWIDTH * 0.9 * 0.8 ** (sizes - i))) for i in range(sizes)]
    values, left, _ = fit_part(SYSTEM, "mem1", rows)
    assert (len(values["MB_efficiency"]), left.any()) == (steps, False)


def test_calibrations_follow_each_other(tmp_path, collectives):
    made = system(base())
    first = run(base(), collectives(base())).document
    second = run(first, read_gemm(gemm(tmp_path, made, "bfloat16"), made)).document
    parts = [fit["part"] for fit in second["calibration"]["fits"]]
    assert parts == ["networks[0]", "matrix.bfloat16"]
    third = run(second, collectives(base())).document
    parts = [fit["part"] for fit in third["calibration"]["fits"]]
    assert parts == ["matrix.bfloat16", "networks[0]"]
    free = base() | {"calibration": "by hand"}
    noted = run(free, collectives(base())).document
    assert noted["calibration"]["earlier"] == "by hand"


def test_small_messages_are_left_out_where_asked(collectives):
    read = collectives(base())
    found = run(base(), read, above=2.0**20)
    large = [row for row in read[0] if row.message > 2**20]
    assert found.document["calibration"]["fits"][0]["rows"] == len(large) < len(read[0])
    assert found.document["calibration"]["fits"][0]["messages_above_bytes"] == 2**20
    with pytest.raises(SpecError, match="at least 3 rows above"):
        run(base(), read, above=2.0**40)


def test_repeated_rows_are_averaged_and_it_is_said(collectives):
    rows, told = collectives(base())
    once = run(base(), (rows, told))
    twice = run(base(), (rows, told), (copy.copy(rows), told))
    assert once.notes == [NO_RAMP]
    assert "336 rows repeat 168 measurements and are averaged" in twice.notes[0]
    assert twice.document["networks"] == once.document["networks"]


def test_one_product_of_another_shape_is_held_out_and_it_is_said(tmp_path):
    rows = [
        (m, n, 4096, "bfloat16", 2.0 * m * n * 4096 / share / 989e12)
        for n, m, share in ((4096, 512, 0.3), (4096, 2048, 0.5), (4096, 8192, 0.6), (2, 8192, 0.1))
    ]
    path = written(tmp_path / "g.csv", "m,n,k,datatype,seconds", rows)
    found = run(base(), read_gemm(path, system(base())))
    fit = found.document["calibration"]["fits"][0]
    assert (fit["rows"], fit["held_out_rows"], fit["spreads"]) == (4, 1, [])
    assert found.notes == [
        "matrix.bfloat16: only the group n=4096 k=4096 is fitted, so its spread comes from "
        "held-out rows alone"
    ]


def test_what_yaml_shares_is_changed_in_one_place(tmp_path):
    raw = base()
    raw["matrix"]["float16"] = raw["matrix"]["bfloat16"]  # an anchor and its alias
    found = run(raw, read_gemm(gemm(tmp_path, system(base()), "bfloat16"), system(base())))
    assert found.document["matrix"]["float16"] == base()["matrix"]["float16"]
    assert found.document["matrix"]["bfloat16"] != base()["matrix"]["bfloat16"]
