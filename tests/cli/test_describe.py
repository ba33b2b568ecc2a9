"""``calculon describe``: every field, from its declaration."""

import csv
import io
import json

import pytest

from calculon.plan.plan import NAMES as FIELDS
from tests.helpers import NAMES, document


def rows(out):
    return [line.split()[0] for line in out.splitlines()[1:]]


def test_statistics_stand_in_published_order(run):
    out = run("describe", "stats").out
    assert rows(out) == list(NAMES)
    assert "total_time                           s          time of one iteration" in out


def test_every_statistic_has_unit_and_words(run):
    found = json.loads(run("describe", "stats", "--format", "json").out)
    assert [row["name"] for row in found] == list(NAMES)
    assert all(row["description"] and row["source"] for row in found)
    assert {row["unit"] for row in found} <= {"s", "B", "B/s", "FLOP", "fraction", "samples/s"}


def test_members_of_a_layer(run):
    assert len(rows(run("describe", "layers").out)) == 48


def test_execution_fields_stand_in_published_order(run):
    out = run("describe", "execution").out
    assert rows(out) == list(FIELDS)
    assert "float8, float16, bfloat16, float32" in out


def test_a_system_is_described_to_its_depths(run):
    found = rows(run("describe", "system").out)
    assert {"matrix.*.tflops", "mem2.MB_efficiency", "networks[].ops"} <= set(found)


def test_markdown_and_csv(run):
    lines = run("describe", "model", "--format", "markdown").out.splitlines()
    assert lines[0] == "| field | takes | unit | description |"
    assert lines[2] == "| hidden | integer >= 1 | elements | width of the residual stream |"
    found = list(csv.DictReader(io.StringIO(run("describe", "model", "-f", "csv").out)))
    assert [row["field"] for row in found] == list(document("models", "megatron-1T"))


@pytest.mark.parametrize("kind", ["model", "execution", "system"])
def test_the_schema_of_a_spec(run, kind):
    schema = json.loads(run("describe", kind, "--format", "schema").out)
    assert schema["title"].lower() == kind
    assert schema["required"]


def test_results_have_no_schema(run):
    code, _, err = run("describe", "stats", "--format", "schema")
    assert code == 2
    assert "expected one of execution, model, system, found 'stats'" in err
