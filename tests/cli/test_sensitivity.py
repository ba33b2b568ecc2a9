"""``calculon sensitivity``: pages, tables and pictures have what the function finds; what is wrong with a question."""

import json
import math

import pytest

import calculon
from tests.helpers import csv_rows

EXAMPLE = ("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
SMALL = ("gpt2-124M", "gpt2-124M_a100x2_ddp", "a100_80g_sxm")


@pytest.fixture(scope="module")
def found():
    return calculon.sensitivity(*EXAMPLE)


@pytest.mark.usefixtures("unrendered")
def test_files_have_what_is_printed(run, output_of, found, tmp_path):
    outputs = ("all.json.gz", "figures.csv", "tornado.png")
    options = [text for name in outputs for text in ("-o", name)]
    out = output_of("sensitivity", *EXAMPLE, "-f", "json", *options)
    text, _, named = out.partition("Output: ")
    assert json.loads(text)["value"] == found.value
    assert named.split("\nOutput: ")[-1].strip() == "tornado.png"
    csv_text = (tmp_path / "figures.csv").read_text()
    assert csv_text == run("sensitivity", *EXAMPLE, "-f", "csv").out
    assert (tmp_path / "tornado.png").read_bytes().startswith(b"\x89PNG")
    rows = csv_rows(csv_text)
    assert [row["path"] for row in rows] == [one.figure.path for one in found.effects]
    for row, one in zip(rows, found.effects, strict=True):
        assert row["elasticity"] == ("" if one.elasticity is None else str(one.elasticity))
        assert row["at_high"] == ("" if one.at_high is None else str(one.at_high))


def test_errors_of_the_other_plan_have_its_name(run, tmp_path):
    other = calculon.estimate(*SMALL).execution.to_dict() | {"microbatch_size": 3}
    (tmp_path / "other.json").write_text(json.dumps(other))
    done = run("sensitivity", *SMALL, "--against", "other.json")
    assert (done.code, done.out) == (2, "")
    assert "other.json: " in done.err
    assert "expected a divisor" in done.err
    assert SMALL[1] not in done.err


def test_changes_hold_for_this_call(run, found):
    set_to = ("--set", "system.matrix.float16.tflops=624")
    changed = json.loads(run("sensitivity", *EXAMPLE, *set_to, "-f", "json").out)
    assert math.isclose(changed["figures"][0]["value"], 624)
    assert changed["value"] < found.value


def test_mistakes_are_told_in_one_message(refuses):
    rows = [
        ("--range x", "expected a share between 0 and 1"),
        ("--range calibrated", "no part of a100_80g was calibrated"),
        ("--of total", "expected a statistic"),
        ("-o -", "the name of a file"),
        ("-o tornado.gif", "expected an output name that ends in .json, .csv"),
        ("-o tornado.png.gz", "a picture: a name that ends in .png"),
        ("--against nothing", "a name of the catalog"),
        ("--of days", "add --tokens 15T"),
        ("--price 2", "the length of the run"),
        ("--tokens 1T --of t_co2", "--carbon 400"),
    ]
    refuses(("sensitivity", *EXAMPLE), rows)
    small = "--set system.mem1.GiB=10"
    refuses(("sensitivity", *EXAMPLE), [(small, "memory of a100_80g")], code=1)


RUN = ("sensitivity", *SMALL, "--tokens", "1T", "--price", "2.5")


def test_a_campaign_asks_for_days(run):
    document = json.loads(run(*RUN, "-f", "json").out)
    assert (document["statistic"], document["unit"]) == ("days", "d")
    stated = {"tokens": "1T", "fleet": {"price": 2.5}}
    assert document["question"]["campaign"] == stated
    assert document["value"] == calculon.campaign(*SMALL, stated).figures["days"]
