"""``calculon describe``: every field, from its declaration."""

import json

from calculon.base.records import columns
from calculon.declarations.statistics import BOUNDS, FITS, CorrectedStats
from calculon.plan.plan import NAMES as FIELDS
from tests.helpers import NAMES

FIGURES = tuple(column.name for column in columns(CorrectedStats) if column.name not in NAMES)
"""The statistics of the corrected edition alone."""


def rows(out):
    return [line.split()[0] for line in out.splitlines()[1:]]


def test_statistics_stand_in_published_order(run):
    out = run("describe", "stats").out
    assert rows(out) == [*NAMES, *FIGURES, *BOUNDS]
    assert "\ntotal_time                           s          time of one iteration\n" in out


def test_every_statistic_has_unit_and_words(run):
    found = json.loads(run("describe", "stats", "--format", "json").out)
    editions = {row["name"]: row["edition"] for row in found}
    assert editions == dict.fromkeys(NAMES, "all") | dict.fromkeys([*FIGURES, *BOUNDS], "corrected")
    assert all(row["description"] for row in found)
    assert all(row["source"] for row in found if row["name"] in NAMES)
    units = {"s", "B", "B/s", "FLOP", "fraction", "samples/s", "tokens/s", "FLOP/s"}
    counts = {"parameters", "padded_parameters", "expert_rows", FITS}
    assert {row["unit"] for row in found if row["name"] not in counts} <= units


def test_execution_fields_stand_in_published_order(run):
    out = run("describe", "execution").out
    assert [name for name in rows(out) if name != "base"] == list(FIELDS)
    assert "float8, float16, bfloat16, float32" in out


def test_optional_fields_say_their_default(run):
    rows = [
        ("execution", "edition", "sc23, corrected; default sc23"),
        ("execution", "latency_per_step", "true, false; default false"),
        ("model", "kv_heads", "integer >= 0; default 0"),
    ]
    for subject, field, words in rows:
        found = json.loads(run("describe", subject, "--format", "json").out)
        assert [row["takes"] for row in found if row["field"] == field] == [words]


def test_specs_have_a_schema_and_results_have_none(run, refuses):
    for kind in ("model", "execution", "system"):
        schema = json.loads(run("describe", kind, "--format", "schema").out)
        assert schema["title"].lower() == kind
        whole = schema.get("else", schema)  # of a file without a base
        assert whole.get("else", whole)["required"]  # of one that no preset completes
    specs = "execution, model, system, campaign, deployment, workload"
    refuses(("describe",), [("stats --format schema", f"expected one of {specs}, found 'stats'")])


def test_one_field_is_found_by_its_name_or_the_last_part_of_it(run):
    rows = [
        ("mfu", "stats", "mfu"),
        ("zero_stage", "execution", "zero_stage"),
        ("hidden", "model", "hidden"),
        ("networks[].bandwidth", "system", "networks[].bandwidth"),
        ("in_network_reduction", "system", "ext.networks[].in_network_reduction"),
    ]
    for name, of, full in rows:
        (found,) = json.loads(run("describe", name, "--format", "json").out)
        assert (found["of"], found["name"]) == (of, full)
        assert found["description"]


def test_an_unknown_name_has_the_nearest_as_a_hint(refuses):
    hint = "found 'zero_stag'. Hint: did you mean 'zero_stage'?"
    refuses(("describe",), [("zero_stag", hint)])
