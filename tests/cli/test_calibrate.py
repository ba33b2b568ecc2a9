"""``calculon calibrate``: measured times in, a system file and its residuals out."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from calculon import inputs
from calculon.declarations.catalog import load
from calculon.hardware.kernels.laws import Gemm, Processor
from tests.fuzzing import printed
from tests.helpers import ROOT, document

EXAMPLE = str(ROOT / "examples" / "measurements" / "h100_sxm_all_reduce.csv")
CALL = ("calibrate", "h100_80g_sxm", "--collectives", EXAMPLE)
JOB = ("llm", "llama3-8B", "llama3-8B_h100x64", "mine.json")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Calibrate once; return the file that is written, and what is printed."""
    path = tmp_path_factory.mktemp("fitted") / "mine.json"
    code, out, err = printed([*CALL, "-o", str(path)])
    assert (code, err) == (0, "")
    return path.read_text(), out.replace(str(path), path.name)


@pytest.fixture
def mine(run, fitted):
    """Write the calibrated file; return its path."""
    Path("mine.json").write_text(fitted[0])
    return Path("mine.json")


def test_a_file_is_written_and_residuals_are_printed(run, fitted, mine):
    out = fitted[1]
    (_, note), lines = out.splitlines()[:2], out.splitlines()[2:]
    assert note.startswith("calculon: note: networks[0]: fitted by latency, efficiency and ramp; ")
    assert lines[0].split()[:3] == ["part", "rows", "n"]
    assert [line.split()[0] for line in lines[1:6]] == ["networks[0]"] * 5
    assert lines[-1] == "Output: mine.json"
    new, old = inputs.system("mine.json"), inputs.system("h100_80g_sxm")
    assert new.networks[0].latency != old.networks[0].latency
    assert (new.networks[1], new.matrix.keys()) == (old.networks[1], old.matrix.keys())


def test_a_calibrated_file_gives_an_interval_of_the_iteration_time(run, output_of, mine):
    out = output_of(*JOB, "-")
    assert "from residuals of networks[0]" in " ".join(out.split())
    assert run(*JOB, "stats.json").code == 0
    interval = json.loads(Path("stats.json").read_text())["total_time_interval"]
    assert {one["part"] for one in interval["parts"]} == {"networks[0]"}
    assert "matrix.bfloat16" in interval["unknown"]


def test_damaged_residuals_are_a_warning(run, mine):
    mine.write_text(mine.read_text().replace('"high": ', '"high": "x", "was": '))
    code, out, err = run(*JOB, "-")
    assert code == 0
    assert "from residuals" not in out
    wanted = "mine.json: calibration.fits[0].spreads[0].high: expected a number above 0, found 'x'"
    assert err.startswith(f"calculon: warning: {wanted}")


def test_a_file_for_the_published_edition_has_no_ramp(run):
    call = (*CALL, "--no-ramp", "--above", 2**20, "--hold-out", 0.5, "-o", "mine.json")
    code, out, err = run(*call, "--format", "json")
    assert (code, "ramp" in err) == (0, False)
    records = {record["rows"]: record for record in json.loads(out)}
    assert records["held out"]["n"] == records["fitted"]["n"] == 7
    assert records["held out"]["mape"] < 10
    assert inputs.system("mine.json").fabric.ramp is None


def test_a_dash_prints_the_file(run, tmp_path):
    code, out, err = run(*CALL, "-o", "-", "--above", 2**20)
    assert code == 0
    first, _, header, *_ = err.splitlines()
    assert first == "calculon: note: 18 rows of at most 1,048,576 bytes are left out: --above"
    assert header.startswith("| part | rows |")
    found = json.loads(out)
    assert found["calibration"]["fits"][0]["part"] == "networks[0]"
    (tmp_path / "mine.json").write_text(out)
    assert inputs.system("mine.json").networks[0].latency == found["networks"][0]["latency"]


def test_all_kinds_at_once(output_of, tmp_path):
    lines = [f"{2**i},4096,4096,bfloat16,{2.0 ** (i + 25) / 5e14}" for i in range(5, 15)]
    (tmp_path / "g.csv").write_text("\n".join(["m,n,k,datatype,seconds", *lines]))
    lines = [f"{2**i},{2**i / 2e12 + 1e-6}" for i in range(12, 30)]
    (tmp_path / "m.csv").write_text("\n".join(["bytes,seconds", *lines]))
    files = ("--gemm", "g.csv", "--memory", "m.csv")
    out = output_of(*CALL, *files, "-o", "mine.json")
    assert out.startswith(
        "calculon: note: matrix.bfloat16: all rows are in one group, so none is held out\n"
    )
    assert out.endswith("Output: mine.json\n")
    new = inputs.system("mine.json")
    (efficiency,) = new.matrix["bfloat16"].efficiency.efficiencies
    assert efficiency == pytest.approx(5e14 / 989e12, rel=1e-3)
    fits = json.loads((tmp_path / "mine.json").read_text())["calibration"]["fits"]
    assert [fit["part"] for fit in fits] == ["matrix.bfloat16", "mem1", "networks[0]"]


@pytest.fixture
def steps(spec, tmp_path):
    """Write a log of three runs."""
    lines = []
    for size, seconds in ((1, 6.5), (2, 6.4), (4, 6.1)):
        spec("examples", "llama3-8B_h100x64", f"mbs{size}.json", microbatch_size=size)
        lines.append(f"llama3-8B,mbs{size}.json,{seconds},7e10,{size}")
    header = "model,execution,seconds,memory_bytes,group"
    (tmp_path / "steps.csv").write_text("\n".join([header, *lines]))
    return ("calibrate", "h100_80g_sxm", "--training", "steps.csv")


@pytest.mark.usefixtures("unrendered")
def test_training_steps_are_fitted_and_told_one_by_one(output_of, steps, tmp_path):
    out = output_of(*steps, "--fit", "matrix", "-o", "mine.json", "--plot", "fit.svg")
    lines = out.splitlines()
    assert "1 of 3 steps need more memory than h100_80g_sxm has by the model" in lines.pop(0)
    assert lines[0].startswith("calculon: note: training: matrix x ")
    assert [line.split()[1] for line in lines[2:5]] == ["fitted", "held", "peak"]
    told = [line.split()[1:3] for line in lines[7:10]]
    assert told == [["mbs1", "fitted"], ["mbs2", "fitted"], ["mbs4", "held"]]
    assert lines[-2:] == ["Output: fit.svg", "Output: mine.json"]
    assert (tmp_path / "fit.svg").read_text().startswith("<?xml")
    fit = json.loads((tmp_path / "mine.json").read_text())["calibration"]["fits"][0]
    assert (fit["part"], list(fit["parameters"])) == ("training", ["matrix"])
    assert "residuals of whole iterations" in output_of(*JOB, "-")


def test_steps_that_cannot_be_fitted_write_nothing(refuses, steps, tmp_path):
    before = sorted(tmp_path.iterdir())
    rows = [
        ("", "expected --training FILE and --fit NAMES together"),
        ("--fit mem3", "--fit: expected parameters of h100_80g_sxm: mem1, matrix, "),
        ("--fit mem1,matrix,vector", "expected at least 3 fitted steps"),
        ("--fit mem1 --training steps.csv", "expected each file once"),
    ]
    refuses((*steps, "-o", "x.json"), rows)
    assert sorted(tmp_path.iterdir()) == before


def test_an_overlay_says_only_what_was_fitted(run, tmp_path):
    for folder in ("own", "new"):
        (tmp_path / folder).mkdir()
    raw = document("systems", "h100_80g_sxm")
    (tmp_path / "own" / "base.json").write_text(json.dumps(raw))
    measured = (*CALL[2:], "--above", 2**20)
    call = ("calibrate", "own/base.json", *measured)
    assert run(*call, "-o", "whole.json").code == 0
    assert run(*call, "-o", "new/overlay.json", "--overlay").code == 0
    overlay = json.loads((tmp_path / "new" / "overlay.json").read_text())
    assert list(overlay) == ["base", "networks", "ext", "calibration"]
    assert (overlay["base"], list(overlay["ext"])) == ("../own/base.json", ["networks"])
    assert load("system", "new/overlay.json")[1] == json.loads(Path("whole.json").read_text())
    again = ("calibrate", "new/overlay.json", *measured, "-o", "again.json", "--overlay")
    assert run(*again).code == 0
    fitted_again = json.loads(Path("again.json").read_text())
    assert fitted_again["base"] == "new/overlay.json"
    assert set(fitted_again) <= {"base", "calibration"}


def test_rates_by_shape_are_fitted_or_it_is_said_what_is_missing(output_of, refuses, tmp_path):
    gemm = Gemm(max_efficiency=0.8, multiprocessors=132)
    shapes = [(m, 4096, k) for m in (2048, 8192) for k in (512, 1024, 4096)]
    sizes = np.array(shapes, dtype=float).T
    on = Processor(989e12, 3350e9, 2.0)
    share = gemm.efficiency(np.ones(6), *sizes, np.full(6, 1024.0), on)
    times = 2 * sizes.prod(axis=0) / 989e12 / share
    lines = [
        f"{m},{n},{k},bfloat16,{time}"
        for (m, n, k), time in zip(shapes, times.tolist(), strict=True)
    ]
    (tmp_path / "g.csv").write_text("\n".join(["m,n,k,datatype,seconds", *lines]))
    base = document("systems", "h100_80g_sxm")
    del base["ext"]["kernels"]
    (tmp_path / "base.json").write_text(json.dumps(base))
    call = ("calibrate", "base.json", "--gemm", "g.csv", "--hold-out", 0, "-o", "x.json")
    rows = [
        ("--shapes", "expected --multiprocessors N, or ext.gemm in the system"),
        ("--multiprocessors 132", "--multiprocessors: expected a number above 0, together"),
        ("--shapes --multiprocessors 0", "--multiprocessors: expected a number above 0"),
    ]
    refuses(call, rows)
    assert not (tmp_path / "x.json").exists()
    assert "predicted s" not in output_of(*call, "--shapes", "--multiprocessors", "132")
    found = json.loads((tmp_path / "x.json").read_text())["ext"]["gemm"]["bfloat16"]
    assert found["max_efficiency"] == pytest.approx(0.8, rel=1e-3)


def test_a_wrong_argument_is_one_message_and_nothing_is_written(refuses, tmp_path):
    rows = [
        ("-o x.txt", "expected an output name that ends in .json"),
        (f"--collectives {EXAMPLE} -o x.json", "expected each file once, found twice"),
        ("-o x.json --plot x.txt", "expected a picture: a name that ends in .png"),
        ("-o x.json --hold-out 1", "expected a number from 0 to below 1, found '1'"),
        ("-o x.json --network 7", "expected a network of h100_80g_sxm: 0 to 1, found 7"),
        ("-o x.json --network 1", "1.05 times the peak of networks[1], 50 GB/s"),
        ("-o x.json --above 10000000000", "expected at least 3 different sizes"),
    ]
    refuses(CALL, rows)
    rows = [
        ("h100_80g_sxm", "expected measurements: --kernels, --collectives"),
        (("h10", *CALL[2:]), "h10: expected a system file"),
        ("h100_80g_sxm --collectives none.csv", "none.csv: expected a readable file"),
        (("-", *CALL[2:], "--overlay"), "expected a system of the catalog or a file, for --over"),
    ]
    refuses(("calibrate", "-o", "x.json"), rows)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_library_is_named_with_the_way_to_install_it(refuses, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "scipy", None)
    library = "expected the library scipy, for fits, found it is not installed"
    refuses(CALL, [("-o mine.json", library), ("-o mine.json", "pip install '.[fit]'")])
    assert list(tmp_path.iterdir()) == []


def test_an_input_is_not_overwritten(refuses, tmp_path):
    before = (ROOT / "systems" / "h100_80g_sxm.json").read_text()
    (tmp_path / "base.json").write_text(before)
    message = "expected a separate file, found an input of that name"
    refuses(("calibrate", "base.json", *CALL[2:]), [("-o base.json", message)])
    assert (tmp_path / "base.json").read_text() == before
