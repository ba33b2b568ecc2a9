"""Overlays: the document that they stand for, and every way in which they do not stand for one."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculon import inputs
from calculon.declarations import catalog
from calculon.declarations.overlay import difference, merged
from calculon.study.points import plan
from calculon.study.study_file import Study
from tests.draws import draws
from tests.helpers import document, refusal

RUN = ("llama3-8B", "llama3-8B_h100x64")

# RFC 7396, appendix A: target, patch, result
EXAMPLES = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


def test_the_examples_of_the_standard():
    for target, patch, result in EXAMPLES:
        assert merged(target, patch) == result


PLAIN = st.recursive(
    st.one_of(st.integers(0, 2), st.lists(st.none() | st.integers(0, 1), max_size=2)),
    lambda inside: st.dictionaries(st.sampled_from("abc"), inside, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.sampled_from("abcd"), PLAIN, max_size=4)


@settings(max_examples=draws(60), deadline=None)
@given(DOCUMENTS, DOCUMENTS)
def test_a_difference_merged_over_the_old_is_the_new(old, new):
    patch = difference(old, new)
    assert merged(old, patch) == new
    assert bool(patch) == (old != new)


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(name, **members):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(members))
        return str(path)

    return call


def test_an_overlay_is_the_base_with_its_members(write):
    path = write("mine.json", base="h100_80g_sxm", mem1={"GiB": 94}, ext={"networks": None})
    system, plain = inputs.system(path), inputs.system("h100_80g_sxm")
    assert (system.name, system.mem1.capacity) == ("mine", 94 * 2**30)
    assert (system.mem1.bandwidth, system.networks) == (plain.mem1.bandwidth, plain.networks)
    assert (system.ext.networks, set(system.ext.rates)) == ((), set(plain.ext.rates))
    mapping = {"base": "h100_80g_sxm", "mem1": {"GiB": 94}}
    assert inputs.system(mapping).mem1.capacity == system.mem1.capacity
    whole = document("systems", "h100_80g_sxm")
    whole["mem1"]["GiB"] = 94
    assert catalog.load("system", path)[1] == whole | {
        "ext": {key: v for key, v in whole["ext"].items() if key != "networks"}
    }


def test_bases_are_beside_their_file_and_may_have_bases(write, tmp_path):
    (tmp_path / "raw.json").write_text(json.dumps(document("systems", "a100_80g")))
    write("deep/one.json", base="../raw.json", mem1={"GiB": 60})
    path = write("two.json", base="deep/one.json", mem1={"GBps": 1000})
    system = inputs.system(path)
    assert (system.mem1.capacity, system.mem1.bandwidth) == (60 * 2**30, 1e12)


@pytest.mark.parametrize(
    "members",
    [
        {"networks[0].size": 72},
        {"networks[0]": {"size": 72}},
        {"networks[0]": {"size": 72}, "ext.networks[0]": {"kind": "nvlink"}},
        {"ext.networks[0].kind": "nvlink", "networks[0].size": 72},
    ],
    ids=str,
)
def test_a_path_changes_one_figure_of_a_list(write, members):
    path = write("mine.json", base="b200_sxm", **members)
    whole = document("systems", "b200_sxm")
    assert (whole["networks"][0]["size"], whole["ext"]["networks"][0]["kind"]) == (8, "nvlink")
    whole["networks"][0]["size"] = 72
    assert catalog.load("system", path)[1] == whole
    assert inputs.system(path).networks[0].size == 72


def test_a_path_changes_what_the_other_members_leave(write):
    path = write(
        "mine.json",
        base="a100_80g",
        **{"networks[1].latency": 3e-6, "mem1.GiB": 60, "mem1": {"GBps": 1000}},
        **{"matrix.float16.gflops_efficiency[0][1]": 0.5},
    )
    system = inputs.system(path)
    assert (system.mem1.capacity, system.mem1.bandwidth) == (60 * 2**30, 1e12)
    assert system.networks[1].latency == 3e-6
    assert system.matrix["float16"].efficiency.efficiencies[-1] == 0.5
    assert inputs.system("a100_80g").matrix["float16"].efficiency.efficiencies[-1] != 0.5


def test_members_inside_others_are_no_paths(write):
    """What a file says about its sources is named by path, too."""
    sources = {"networks": "a letter", "networks[0].size": "another"}
    path = write("mine.json", base="a100_80g", about={"sources": sources})
    assert catalog.load("system", path)[1]["about"]["sources"] == sources


def test_what_overrides_a_system_overrides_the_whole_of_an_overlay(write, tmp_path):
    write("mine.json", base="h100_80g_sxm", mem1={"GiB": 94})
    study = {
        "models": ["gpt3-175B"],
        "systems": [{"system": "mine.json", "mem1.GBps": 1000, "mem1.GiB": 70}],
        "num_procs": 64,
        "max_batch_size": 64,
        "datatype": "bfloat16",
    }
    (only,) = plan(Study.decode(study, str(tmp_path / "study.json"))).searches
    assert (only.search.system.mem1.bandwidth, only.search.system.mem1.capacity) == (
        1e12,
        70 * 2**30,
    )


def test_the_base_may_be_an_alias(write):
    write("mine.json", base="h100", mem1={"GiB": 94})
    alias = inputs.system("mine.json").origin.digest
    write("mine.json", base="h100_80g_sxm", mem1={"GiB": 94})
    assert alias == inputs.system("mine.json").origin.digest


def test_what_is_no_overlay_says_why(write, tmp_path):
    for members, message in [
        ({"base": "h100_80g_smx"}, "did you mean 'h100_80g_sxm'?"),
        ({"base": "h1000"}, "did you mean h100_80g_sxm, h100_94g_nvl, "),
        ({"mem1": {"GiB": 94}}, 'a system of the catalog, such as "base": "h100", fills in'),
        ({"base": "a100_80g", "networks.0.size": 4}, "Hint: write networks[0]"),
        ({"base": 3}, "mine.json: base: expected a system of the catalog, or a path relative to"),
        ({"base": "-"}, "base: expected a system"),
        ({"base": "."}, "base: expected a system"),
        ({"base": "mine.json"}, "a base that does not lead back to this file, found mine.json -> "),
        ({"base": "other.json"}, "found mine.json -> other.json -> mine.json"),
        ({"base": "list.json"}, "list.json: expected a system: an object, found [1]"),
        ({"base": "text.json"}, "text.json: expected a JSON document"),
        ({"base": "a100_80g", "mem1": None}, "mine.json: mem1: expected this field, found nothing"),
        ({"base": "a100_80g", "mem1": {"GiB": -1}}, "mine.json: mem1.GiB: expected a number"),
        (
            {"base": "a100_80g", "networks": [{"size": 4}]},
            "mine.json: networks[0]: expected a complete object",
        ),
        (
            {"base": "a100_80g", "networks": [{"size": 4}]},
            'Hint: "networks[0].size" changes one value; or repeat the list of a100_80g',
        ),
        (
            {"base": "a100_80g", "network[0].size": 4},
            "network: expected a field that exists at the top, found no such field. Hint: did you "
            "mean 'networks'?",
        ),
        ({"base": "a100_80g", "networks[0]": None}, "networks[0]: expected a value: a list keeps"),
        ({"base": "a100_80g", "networks[0].sice": 4}, "only the known fields, found the unknown"),
    ]:
        write("other.json", base="mine.json")
        (tmp_path / "list.json").write_text("[1]")
        (tmp_path / "text.json").write_text("{")
        write("mine.json", **members)
        assert message in refusal(inputs.system, "mine.json"), members
