"""``calculon catalog``: what is shipped."""

import json
import re
from functools import partial

import pytest

from calculon import inputs
from calculon.architecture.parameters import parameter_count
from calculon.declarations import catalog
from calculon.declarations.fields import spec_fields
from calculon.declarations.model import Model
from calculon.declarations.spellings.catalog_words import aliases
from tests.cases import for_each
from tests.cli.conftest import page as printed_once
from tests.draws import some
from tests.helpers import csv_rows, document

pytestmark = pytest.mark.usefixtures("catalog_once")

page = partial(printed_once, "catalog")


ASIDE = re.compile(r"^and (\d+) for tests, with a part of a model", re.MULTILINE)


def test_everything_shipped_is_counted_and_listed():
    out = page()
    shown = {line.split()[0] for line in out.splitlines() if line}
    shipped = {name for kind in catalog.KINDS for name in catalog.names(kind)}
    aside = shipped - shown
    assert {"mlp-2x1024", "mlp-4x1024_t2"} <= aside
    assert len(aside) == sum(map(int, ASIDE.findall(out)))
    counts = " ".join(out.split("\n\n")[0].split())
    kinds = ("model", "system", "execution", "preset")
    assert counts.startswith(", ".join(f"{len(catalog.names(one))} {one}s" for one in kinds))
    assert page("mixtral-8x7b").startswith("1 model, 1 execution; ")


def test_one_kind_in_every_format():
    for kind in ("models", "executions", "studies", "campaigns"):
        names = list(catalog.names({"studies": "study"}.get(kind, kind.removesuffix("s"))))
        assert [row["name"] for row in json.loads(page(kind, "-f", "json"))] == names
        found = csv_rows(page(kind, "-f", "csv"))
        assert [row["name"] for row in found] == names
        assert len(page(kind, "-f", "markdown").splitlines()) == len(names) + 2
        text = page(kind)
        aside = [int(count) for count in ASIDE.findall(text)]
        assert len(text.splitlines()) == len(names) + 1 + len(aside) - sum(aside)


def test_models_show_their_shape_to_people_and_every_field_to_programs():
    lines = page("models").splitlines()
    heading = "name params hidden blocks heads kv ffn vocab seq"
    assert lines[0].split() == heading.split()
    assert max(map(len, lines)) <= 80
    rows = {line.split()[0]: line.split() for line in lines}
    shape = ["8.030", "G", "4,096", "32", "32", "8", "14,336", "128,256", "8,192"]
    assert rows["llama3-8B"] == ["llama3-8B", *shape]
    assert rows["megatron-22B"][-2:] == ["24,576", "2,048"]  # no vocabulary is stated
    found = {row["name"]: row for row in json.loads(page("models", "-f", "json"))}
    for name in ("llama3-8B", "gemma3-4B", "phi-2"):
        shape = inputs.model(name)
        fields = {field.key: getattr(shape, field.name) for field in spec_fields(Model)}
        count = {"name": name, "parameters": parameter_count(shape)}
        told = {key: found[name].pop(key) for key in ("family", "aliases")}
        assert found[name] == count | fields
        assert told["family"] in name
        assert told["aliases"] == [*aliases(catalog.names("model")[name])]


def test_all_kinds_at_once(refuses):
    kinds = ["models", "systems", "executions", "presets", "engines"]
    kinds += ["studies", "campaigns", "deployments", "workloads"]
    listed = json.loads(page("-f", "json"))
    assert list(listed) == kinds
    (system,) = (row for row in listed["systems"] if row["name"] == "a100_80g")
    assert (system["matrix_tflops"], system["mem1"]) == (
        {"float16": 312},
        {"GiB": 80, "GBps": 2048},
    )
    assert page("-f", "markdown").count("\n## ") == len(kinds) - 1
    wanted = f"KIND: expected one of {', '.join(kinds)} for --format csv"
    refuses(("catalog",), [("-f csv", wanted), ("-f csv", "calculon catalog models --format csv")])


@for_each(
    ("words", "found"),
    [
        ("models LLAMA3. phi-2", {"llama3.1-405B", "llama3.2-1B", "llama3.2-3B", "phi-2"}),
        ("nvl72", {"gb200_nvl72", "gb300_nvl72", "vr200_nvl72"}),
        ("models mlp-", {"mlp-2x1024", "mlp-4x1024"}),
        ("systems _sxm --family hopper --where memory>100", {"h200_141g_sxm"}),
        ("models --family qwen --where parameters<1e9", {"qwen2.5-0.5B", "qwen3-0.6B"}),
        ("models 70b --where kv_heads==8&vocab>1e5", {"llama3-70B"}),
    ],
)
def test_words_families_and_figures_filter_names(words, found):
    listed = json.loads(page(*(word.replace("&", " and ") for word in words.split()), "-f", "json"))
    rows = listed if isinstance(listed, list) else [row for rows in listed.values() for row in rows]
    assert {row["name"] for row in rows} == found


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


def test_one_system_is_shown_with_the_meaning_of_its_fields(output_of):
    out = output_of("catalog", "h100_80g_nvl8")
    assert out.startswith("h100_80g_nvl8: a system (")
    lines = [line.split() for line in out.splitlines()]
    assert ["mem1.GBps", "3,072", "GB/s", "bandwidth"] in lines


def test_a_page_for_programs(run):
    found = json.loads(run("catalog", "show", "gb200", "-f", "json").out)
    assert (found["name"], found["kind"], found["family"]) == (
        *("gb200_nvl72", "system"),
        "NVIDIA Blackwell",
    )
    assert found["overlay_of"] == "b200_sxm"
    assert found["aliases"] == aliases(catalog.names("system")["gb200_nvl72"])
    assert "gb200" in found["aliases"]
    figures = {row["figure"]: row for row in found["figures"]}
    assert figures["network 0"]["value"] == "72 processors"
    assert found["measured"]
    assert found["assumed"]


def test_every_page_fits_80_columns(run):
    for kind in ("model", "system"):
        for name in some(catalog.names(kind), 8):
            out = run("catalog", "show", name).out
            assert max(len(line) for line in out.splitlines() if "/" not in line) <= 80, name


def test_what_the_catalog_does_not_have_is_said(refuses):
    rows = [
        ("show megatron-2t", "did you mean 'megatron-1T'?"),
        ("show 8xh100", "system: h100_80g_sxm"),
        ("show", "catalog show: expected the name of a model, system"),
        ("h100_80g_sxmm", "did you mean 'h100_80g_sxm'?"),
        ("--family zzz", "families are AMD CDNA"),
        ("presets --family nvidia", "models and systems have families"),
        ("systems --where memry>3", "did you mean 'memory'?"),
        ("systems --where memory>", "a condition on columns"),
        ("systems --where name>3", "values of incompatible types"),
    ]
    refuses(("catalog",), rows)


def test_every_kind_has_a_page_and_lists_its_fields(run, output_of):
    names = (
        "llama3-8B",
        "llama3-8B_h100x64",
        "Megatron-LM",
        "megatron-lm@2024",
        "tutorial",
        "b200_sxm",
    )
    for name in names:
        out = output_of("catalog", "show", name)
        assert name.lower() in out.splitlines()[0].lower()
        if name != "Megatron-LM":  # the name of a preset is megatron-lm
            assert run("catalog", name).code == 0
            assert json.loads(run("catalog", name, "-f", "json").out)
            rows = csv_rows(run("catalog", name, "-f", "csv").out)
            assert {row["field"] for row in rows}
