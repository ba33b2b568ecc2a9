"""``calculon catalog``: what is shipped."""

import csv
import io
import json
import re

import pytest

from calculon import inputs
from calculon.architecture.parameters import parameter_count
from calculon.spec import catalog
from calculon.spec.fields import spec_fields
from calculon.spec.model import Model
from tests.helpers import document

ASIDE = "for tests, of parts of a model: "


def test_everything_shipped_is_listed(run):
    code, out, err = run("catalog")
    assert (code, err) == (0, "")
    shown = {line.split()[0] for line in out.splitlines() if line}
    listed = {
        name for line in out.splitlines() if line.startswith(ASIDE) for name in names_of(line)
    }
    assert {name for kind in catalog.KINDS for name in catalog.names(kind)} <= shown | listed
    assert {"mlp-2x1024", "mlp-4x1024_t2"} <= listed
    assert not shown & listed


def names_of(line: str) -> list[str]:
    return line.removeprefix(ASIDE).split(", ")


@pytest.mark.parametrize("kind", ["models", "systems", "executions", "studies"])
def test_one_kind_in_every_format(run, kind):
    names = list(catalog.names({"studies": "study"}.get(kind, kind.removesuffix("s"))))
    assert [row["name"] for row in json.loads(run("catalog", kind, "-f", "json").out)] == names
    found = csv.DictReader(io.StringIO(run("catalog", kind, "-f", "csv").out))
    assert [row["name"] for row in found] == names
    assert len(run("catalog", kind, "-f", "markdown").out.splitlines()) == len(names) + 2
    aside = [line for line in run("catalog", kind).out.splitlines() if line.startswith(ASIDE)]
    apart = sum(len(names_of(line)) for line in aside)
    assert len(run("catalog", kind).out.splitlines()) == len(names) + 1 + len(aside) - apart


def test_figures_are_raw_for_programs(run):
    models = {row["name"]: row for row in json.loads(run("catalog", "models", "-f", "json").out)}
    assert models["gpt3-175B"]["parameters"] == 174_615_822_336
    systems = {row["name"]: row for row in json.loads(run("catalog", "systems", "-f", "json").out)}
    assert systems["a100_80g"]["matrix_tflops"] == {"float16": 312}
    assert systems["a100_80g"]["mem1"] == {"GiB": 80, "GBps": 2048}


def test_models_show_their_shape_to_people_and_every_field_to_programs(run):
    lines = run("catalog", "models").out.splitlines()
    heading = "name parameters hidden blocks heads kv ffn vocab seq"
    assert lines[0].split() == heading.split()
    assert max(len(line) for line in lines if not line.startswith(ASIDE)) <= 80
    rows = {line.split()[0]: line.split() for line in lines}
    shape = ["8.030", "G", "4,096", "32", "32", "8", "14,336", "128,256", "8,192"]
    assert rows["llama3-8B"] == ["llama3-8B", *shape]
    assert rows["megatron-22B"][-2:] == ["24,576", "2,048"]  # no vocabulary is stated
    found = {row["name"]: row for row in json.loads(run("catalog", "models", "-f", "json").out)}
    for name in ("llama3-8B", "gemma3-4B", "phi-2"):
        shape = inputs.model(name)
        fields = {field.key: getattr(shape, field.name) for field in spec_fields(Model)}
        count = {"name": name, "parameters": parameter_count(shape)}
        assert found[name] == count | fields


def test_all_kinds_at_once(run):
    assert set(json.loads(run("catalog", "-f", "json").out)) == {
        "models",
        "systems",
        "executions",
        "presets",
        "studies",
    }
    assert run("catalog", "-f", "markdown").out.count("\n## ") == 4
    code, _, err = run("catalog", "-f", "csv")
    assert code == 2
    assert (
        "KIND: expected one of models, systems, executions, presets, studies for --format csv"
        in err
    )
    assert "calculon catalog models --format csv" in err


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["models", "LLAMA3.", "phi-2"], {"llama3.1-405B", "llama3.2-1B", "llama3.2-3B", "phi-2"}),
        (["nvl72"], {"gb200_nvl72", "gb300_nvl72"}),
        (["models", "mlp-"], {"mlp-2x1024", "mlp-4x1024"}),
    ],
)
def test_words_filter_names(run, words, found):
    listed = json.loads(run("catalog", *words, "-f", "json").out)
    rows = listed if isinstance(listed, list) else [row for rows in listed.values() for row in rows]
    assert {row["name"] for row in rows} == found
    assert all(f"{name} " in run("catalog", *words).out for name in found)


def test_one_system_is_shown_with_the_meaning_of_its_fields(run):
    code, out, err = run("catalog", "h100_80g_nvl8")
    assert (code, err) == (0, "")
    assert out.startswith("h100_80g_nvl8: a system (")
    lines = [line.split() for line in out.splitlines()]
    assert ["mem1.GBps", "3,072", "GB/s", "bandwidth"] in lines
    assert ["networks[1].size", "65,536"] in [line[:2] for line in lines]


def test_a_system_says_where_its_laws_come_from_and_how_far_they_are_off(run):
    out = run("catalog", "h100_80g_sxm").out
    about = document("systems", "h100_80g_sxm")["about"]
    for path, text in about["sources"].items():
        assert re.search(rf"^{re.escape(path)} +{re.escape(text)}$", out, re.M)
    for line in about["assumed"]:
        assert " ".join(line.split(": ", 1)[1].split()) in " ".join(out.split())
    for group, errors in about["kernels"].items():
        assert re.search(rf"^{re.escape(group)} +{errors['n']} +{errors['median']:.1f} ", out, re.M)
    assert re.search(r"^ext\.kernels\.product\.bfloat16 +as float16$", out, re.M)


@pytest.mark.parametrize("name", ["llama3-8B", "3072_t4_p64_d12_mbs4_full", "tutorial", "b200_sxm"])
def test_every_kind_can_be_shown(run, name):
    assert run("catalog", name).code == 0
    assert json.loads(run("catalog", name, "-f", "json").out)
    assert {
        row["field"] for row in csv.DictReader(io.StringIO(run("catalog", name, "-f", "csv").out))
    }


def test_a_name_that_is_not_there_gets_the_nearest(run):
    code, out, err = run("catalog", "h100_80g_sxmm")
    assert (code, out) == (2, "")
    assert "did you mean 'h100_80g_sxm'?" in err
