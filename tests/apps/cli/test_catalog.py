"""``calculon catalog``: what is shipped."""

import csv
import io
import json

import pytest

from calculon import inputs
from calculon.architecture.parameters import parameter_count
from calculon.spec import catalog
from calculon.spec.fields import spec_fields
from calculon.spec.model import Model


def test_everything_shipped_is_listed(run):
    code, out, err = run("catalog")
    assert (code, err) == (0, "")
    for kind in ("model", "system", "execution"):
        for name in catalog.names(kind):
            assert f"\n{name} " in out


@pytest.mark.parametrize("kind", ["models", "systems", "executions", "studies"])
def test_one_kind_in_every_format(run, kind):
    names = list(catalog.names({"studies": "study"}.get(kind, kind.removesuffix("s"))))
    assert [row["name"] for row in json.loads(run("catalog", kind, "-f", "json").out)] == names
    found = csv.DictReader(io.StringIO(run("catalog", kind, "-f", "csv").out))
    assert [row["name"] for row in found] == names
    assert len(run("catalog", kind, "-f", "markdown").out.splitlines()) == len(names) + 2
    assert len(run("catalog", kind).out.splitlines()) == len(names) + 1


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
    assert max(map(len, lines)) <= 80
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
        "studies",
    }
    assert run("catalog", "-f", "markdown").out.count("\n## ") == 3
    code, _, err = run("catalog", "-f", "csv")
    assert code == 2
    assert "KIND: expected one of models, systems, executions, studies for --format csv" in err
    assert "calculon catalog models --format csv" in err
