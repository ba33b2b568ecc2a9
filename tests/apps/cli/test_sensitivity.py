"""``calculon sensitivity``: pages, tables and pictures have what the function finds; what is wrong with a question."""

import csv
import io
import json
import math

import pytest

import calculon

EXAMPLE = ("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
TODAY = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")


@pytest.fixture(scope="module")
def found():
    return calculon.sensitivity(*EXAMPLE)


def test_the_page_has_elasticities_and_changes(run, found):
    code, out, err = run("sensitivity", *EXAMPLE)
    assert (code, err) == (0, "")
    peak = found["matrix.float16.tflops"]
    line = next(line for line in out.splitlines() if peak.figure.path in line)
    ends = (f"{100 * (one / found.value - 1):+.1f} %" for one in (peak.at_low, peak.at_high))
    assert all(text in line for text in (f"{peak.elasticity:.2f}", *ends))
    assert "no fit" in next(line for line in out.splitlines() if "mem1.GiB" in line)
    assert f"{len(found.idle)} figures without effect" in out
    assert "less those of all times: -1.0000." in out


def test_a_table_has_every_figure(run, found):
    out = run("sensitivity", *EXAMPLE, "-f", "csv").out
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["path"] for row in rows] == [one.figure.path for one in found.effects]
    for row, one in zip(rows, found.effects, strict=True):
        assert row["elasticity"] == ("" if one.elasticity is None else str(one.elasticity))
        assert row["at_high"] == ("" if one.at_high is None else str(one.at_high))
    assert run("sensitivity", *EXAMPLE, "-f", "markdown").out.startswith("| figure |")


def test_files_have_what_is_printed(run, found, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    outputs = ("all.json.gz", "figures.csv", "tornado.png")
    options = [text for name in outputs for text in ("-o", name)]
    code, out, err = run("sensitivity", *EXAMPLE, "-f", "json", *options)
    assert (code, err) == (0, "")
    text, _, named = out.partition("Output: ")
    assert json.loads(text)["value"] == found.value
    assert named.split("\nOutput: ")[-1].strip() == "tornado.png"
    csv_text = (tmp_path / "figures.csv").read_text()
    assert csv_text == run("sensitivity", *EXAMPLE, "-f", "csv").out
    assert (tmp_path / "tornado.png").read_bytes().startswith(b"\x89PNG")
    assert "matrix.float16.tflops" not in err


def test_searched_again_the_page_says_what_more_memory_is_worth(run):
    code, out, _ = run("sensitivity", "mlp-4x1024", "mlp-4x1024_x2_ddp", "a100_80g_sxm", "--replan")
    assert code == 0
    assert "Searched again" in out
    assert "Memory: 80 GiB, of which plans get" in out
    assert "81 GiB (+1)" in out


def test_break_even_with_another_machine(run):
    out = run("sensitivity", *EXAMPLE, "--against-system", "h100_80g_sxm", "-f", "json").out
    even = json.loads(out)["break_even"]
    peak = next(one for one in even["figures"] if one["path"] == "matrix.float16.tflops")
    page = run("sensitivity", *EXAMPLE, "--against-system", "h100_80g_sxm").out
    assert "As good as h100_80g_sxm" in page
    assert f"{peak['factor']:.3g} x" in page
    assert "Never within 1/16 to 16 times: " in page


def test_a_plan_that_is_not_the_best_here_is_compared_with_the_best_there(run):
    small = ("mlp-4x1024", "mlp-4x1024_x2_ddp", "a100_80g_sxm", "--replan")
    done = run("sensitivity", *small, "--against-system", "h100_80g_sxm", "-f", "json")
    found = json.loads(done.out)
    best, compared = found["replanned"]["now"], found["break_even"]["compared"]
    assert ("not the best here" in compared) is (best["value"] < found["value"])
    assert compared.startswith("this plan")
    assert compared.endswith("against the best plan of h100_80g_sxm")


@pytest.mark.parametrize(
    ("size", "code", "text"), [(3, 2, "expected a divisor"), (16, 1, "tier-1 memory")]
)
def test_errors_of_the_other_plan_have_its_name(run, tmp_path, size, code, text):
    other = calculon.estimate(*TODAY).execution.to_dict()
    (tmp_path / "other.json").write_text(json.dumps(other | {"microbatch_size": size}))
    done = run("sensitivity", *TODAY, "--against", "other.json")
    assert (done.code, done.out) == (code, "")
    assert "other.json: " in done.err
    assert text in done.err
    assert TODAY[1] not in done.err


def test_changes_hold_for_this_call(run, found):
    set_to = ("--set", "system.matrix.float16.tflops=624")
    changed = json.loads(run("sensitivity", *EXAMPLE, *set_to, "-f", "json").out)
    assert math.isclose(changed["figures"][0]["value"], 624)
    assert changed["value"] < found.value


def test_mistakes_are_told_in_one_message(run):
    rows = [
        ((*EXAMPLE, "--range", "x"), 2, "expected a share between 0 and 1"),
        ((*EXAMPLE, "--range", "calibrated"), 2, "no part of a100_80g was calibrated"),
        ((*EXAMPLE, "--of", "total"), 2, "expected a statistic"),
        ((*EXAMPLE, "-o", "-"), 2, "the name of a file"),
        ((*EXAMPLE, "-o", "tornado.gif"), 2, "expected an output name that ends in .json, .csv"),
        ((*EXAMPLE, "-o", "tornado.png.gz"), 2, "a picture: a name that ends in .png"),
        ((*EXAMPLE, "--against", "nothing"), 2, "a name of the catalog"),
        ((*EXAMPLE, "--set", "system.mem1.GiB=10"), 1, "tier-1 memory of a100_80g"),
        (("gpt3-13B", "1", "a100_40g_sxm"), 1, "no plan fits"),
    ]
    for arguments, code, text in rows:
        done = run("sensitivity", *arguments)
        assert (done.code, done.out) == (code, ""), arguments
        assert text in " ".join(done.err.split())


def test_a_count_is_planned_first(run):
    out = run("sensitivity", "gpt2-124M", "2", "h100").out
    assert out.startswith("Sensitivity of gpt2-124M on 2 x h100_80g_sxm")


RUN = ("sensitivity", *TODAY, "--tokens", "1T", "--price", "2.5")


def test_a_run_has_prices_failures_and_checkpoints_beside_the_machine(run):
    code, out, err = run(*RUN, "--of", "usd", "--mtbf", "1000h", "--set", "campaign.fleet.pue=1.2")
    assert (code, err) == (0, "")
    titles = [line.split(":")[0] for line in out.splitlines() if line and not line.startswith(" ")]
    kinds = ["The run", "Hardware", "How well it is used"]
    assert [title for title in titles if title in kinds] == kinds
    price = next(line for line in out.splitlines() if "fleet.price" in line)
    assert ("2.5 USD/h" in price, "+1.00" in price, "+25.0 %" in price) == (True, True, True)
    assert any(line.split()[:3] == ["run", "1T", "tokens"] for line in out.splitlines())
    assert "reliability.mtbf_processor    1,000 h" in out
    assert "PyTorch blog" in out  # a default that counts, with its source


def test_a_campaign_asks_for_days(run):
    document = json.loads(run(*RUN, "-f", "json").out)
    assert (document["statistic"], document["unit"]) == ("days", "d")
    stated = {"tokens": "1T", "fleet": {"price": 2.5}}
    assert document["question"]["campaign"] == stated
    assert document["value"] == calculon.campaign(*TODAY, stated).figures["days"]


def test_what_is_wrong_with_a_run_is_told(run):
    code, _, err = run("sensitivity", *TODAY, "--of", "days")
    assert (code, "add --tokens 15T" in err) == (2, True)
    code, _, err = run(*RUN, "--of", "t_co2")
    assert (code, "--carbon 400" in err) == (2, True)
    code, _, err = run("sensitivity", *TODAY, "--price", "2")
    assert (code, "the length of the run" in err) == (2, True)
