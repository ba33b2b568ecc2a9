"""Study files: what they stand for, and everything that can be wrong with one."""

import copy
import datetime
import json
import time

import numpy as np
import pytest

from calculon.base.errors import SpecError
from calculon.declarations.decode import SpecWarning
from calculon.search.task import run_search
from calculon.study import points
from calculon.study.points import plan
from calculon.study.served_questions import plan_questions
from calculon.study.study_file import Study
from calculon.study.study_summary import make_summary
from calculon.study.study_table import column_of, column_type, parts, shown_names
from tests.helpers import ROOT, refusal

SMALL = {
    "models": [{"model": "megatron-22B", "max_batch_size": 24}],
    "systems": ["a100_80g"],
    "num_procs": [8, 16],
}


def study(**changes):
    raw = copy.deepcopy(SMALL) | changes
    return Study.decode({name: value for name, value in raw.items() if value is not None}, "s.yaml")


def values(**changes):
    return [planned.values for planned in plan(study(**changes)).searches]


def test_a_list_is_each_of_these_and_counts_vary_fastest():
    found = values(
        systems=["h100_80g_nvl8"], datatype=["float16", "float8"], vary={"mem1.GiB": [40, 80]}
    )
    assert [(v["mem1.GiB"], v["datatype"], v["num_procs"]) for v in found] == [
        (gib, datatype, count)
        for gib in (40, 80)
        for datatype in ("float16", "float8")
        for count in (8, 16)
    ]


def test_values_are_put_into_the_specs():
    systems = [{"system": "a100_80g", "mem1.GiB": 40, "networks[0].size": [4, 8]}]
    searches = [p.search for p in plan(study(systems=systems, vary={"seq_size": [1024]})).searches]
    assert {search.system.mem1.capacity for search in searches} == {40 * 2.0**30}
    assert [search.system.networks[0].size for search in searches] == [4, 4, 8, 8]
    assert {search.model.seq_size for search in searches} == {1024}
    assert searches[0].model.name == "megatron-22B"


def test_values_on_one_line_belong_together():
    lines = [{"mem1.GiB": 40, "extra": 5}, {"mem1.GiB": 80, "extra": 10}]
    found = values(vary={"HBM": lines}, quantities={"price": "100 + extra"}, num_procs=8)
    assert [(v["mem1.GiB"], v["extra"], v["price"]) for v in found] == [(40, 5, 105), (80, 10, 110)]


def _runs(**changes):
    """A study of small searches of whole runs, at two prices."""
    raw = {
        "models": ["megatron-126M"],
        "systems": ["a100_80g_sxm"],
        "vary": {"campaign.tokens": ["1G"], "campaign.fleet.price": [1.0, 2.0]},
        "num_procs": 8,
        "max_batch_size": 16,
        "objective": "usd",
        "fix": {"tensor_par": 1, "pipeline_par": 1},
    }
    return Study.decode(raw | changes, "study.yaml")


def test_campaigns_are_values_like_others(tmp_path):
    wanted = [one.search.campaign for one in plan(_runs()).searches]
    assert [one.fleet.price for one in wanted] == [1.0, 2.0]
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"tokens": "1G"}))
    for lines in (
        [{"campaign": str(file), "campaign.fleet.price": [1.0, 2.0]}],
        [{"tokens": "1G", "fleet": {"price": 1.0}}, {"tokens": "1G", "fleet": {"price": 2.0}}],
        [{"campaign": {"tokens": "1G"}, "campaign.fleet.price": [1.0, 2.0]}],
        {"tokens": "1G", "campaign.fleet.price": [1.0, 2.0]},
    ):
        listed = [one.search for one in plan(_runs(vary={}, campaigns=lines)).searches]
        assert [one.campaign for one in listed] == wanted, lines
        assert {one.edition for one in listed} == {"corrected"}, lines


def test_money_is_a_figure_of_a_study():
    planned = plan(_runs()).searches
    outcomes = {one.search.number: run_search(one.search) for one in planned}
    (dear,) = [part for part in parts(planned, outcomes) if part.planned[0] is planned[1]]
    (cheap,) = [part for part in parts(planned, outcomes) if part.planned[0] is planned[0]]
    assert dear.result("usd")[0] == pytest.approx(2 * cheap.result("usd")[0], rel=1e-12)
    assert dear.result("days")[0] == cheap.result("days")[0]
    assert "usd" in shown_names(planned)[1]
    assert make_summary(_runs(), planned).best["usd"][1] == "min"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"vary": {}}, "add --tokens 15T, or --campaign"),
        ({"vary": {"campaign.token": ["1G"]}}, "token"),
        ({"campaigns": ["nowhere.yaml"], "vary": {}}, "nowhere"),
        ({"campaigns": ["llama3-405B"], "vary": {}}, "leave out batch_ramp, seq_ramp"),
        ({"campaigns": ["llama3-70B_15T"], "vary": {}}, "only its length .--tokens 15T., or"),
        ({"campaigns": [{"top": 3}], "vary": {}}, "or with fields of one"),
        ({"campaigns": [{"tokens": "1G", "fleet": {"prize": 2}}], "vary": {}}, "price"),
    ],
)
def test_a_campaign_that_cannot_be_searched_is_told_in_its_place(changes, said):
    with pytest.raises(SpecError, match=said):
        plan(_runs(**changes))


def test_counts_are_derived_from_a_budget():
    quantities = {"price": 30_000, "cost": "price * num_procs"}
    rule = {"largest": 3, "multiples_of": 8, "at_most": "1e6 / price"}
    found = values(quantities=quantities, num_procs=rule)
    assert [(v["num_procs"], v["cost"]) for v in found] == [
        (16, 480_000),
        (24, 720_000),
        (32, 960_000),
    ]


def test_the_batch_may_grow_with_the_processors():
    found = values(models=["megatron-22B"], max_batch_size="2 * num_procs")
    assert [v["max_batch_size"] for v in found] == [16, 32]


def test_settings_reach_the_search():
    search = (
        plan(
            study(
                fused_activation="both",
                mbs_break=True,
                top=3,
                objective="total_time:min",
                where="tensor_par <= 4",
                fix={"tensor_par": [2, 4], "optimizer_sharding": True},
                add={"batch_size": 8},
            )
        )
        .searches[0]
        .search
    )
    assert (search.fused, search.mbs_break, search.top) == ((True, False), True, 3)
    assert (search.objective, search.where) == ("total_time:min", "tensor_par <= 4")
    assert search.fix == {"tensor_par": (2, 4), "optimizer_sharding": (True,)}
    assert search.add == {"batch_size": (8,)}


def test_the_fingerprint_is_of_contents():
    same = plan(study()).fingerprint
    assert plan(study(about="other words")).fingerprint == same
    changes = ({"top": 2}, {"num_procs": [8]}, {"vary": {"mem1.GiB": [79]}})
    assert same not in {plan(study(**change)).fingerprint for change in changes}


def test_the_published_study_is_as_described():
    searches = plan(Study.read(str(ROOT / "examples/studies/system_design_sc23.yaml"))).searches
    assert len(searches) == 3072
    first, last = searches[0].values, searches[-1].values
    assert (first["price"], first["num_procs"]) == (22_250, 5616 - 63 * 8)
    assert (last["price"], last["num_procs"], last["max_batch_size"]) == (60_000, 2080, 3072)
    assert all(p.values["cost"] <= 125e6 for p in searches)


def test_the_shipped_studies_can_be_planned():
    for path in (ROOT / "examples" / "studies").glob("*.yaml"):
        found = Study.read(str(path))
        if found.serves:
            assert plan_questions(found).searches
        else:
            assert make_summary(found, plan(found).searches).best


NUMBERS = list(range(2000))

PROBLEMS = [
    (
        {
            "models": [{"model": "gpt3-175B"}, {"model": "turing-530B", "max_batch_size": 8}],
            "vary": {"HBM": [{"mem1.GiB": 8, "a": 1}, {"mem1.GiB": 9}]},
        },
        "models[0].max_batch_size: expected a whole number of sequences ... found nothing ... other lines have it",
    ),
    ({"datatype": {}}, "datatype: expected one of float8, float16 ... found an empty object"),
    ({"edition": []}, "edition: expected at least one value, found an empty list"),
    (
        {"vary": {"mem1.GBps": [datetime.date(2001, 2, 3)]}},
        "vary.mem1.GBps[0]: expected a number, text, ... found 2001-02-03, which is a date",
    ),
    (
        {"systems": [dict.fromkeys(("mem1.GiB", "mem2.GiB", "x"), NUMBERS) | {"system": "s"}]},
        "systems[0]: expected lists of at most 100,000 combinations ... found 8,000,000,000 combinations",
    ),
    (
        {"num_procs": {"largest": 2e9, "at_most": 2e9}},
        "s.yaml: expected a study of at most 100,000 searches ... found 2,000,000,000 combinations",
    ),
    ({"modles": []}, "modles: expected only the known fields ... did you mean 'models'?"),
    ({"models": None}, "models: expected a list of models ... nothing (the field is missing)"),
    ({"models": [{"max_batch_size": 3}]}, "models[0]: expected a name, or an object with model"),
    (
        {"models": ["megatron-23B"], "max_batch_size": 8},
        "s.yaml: models[0]: megatron-23B: expected a model file ... did you mean 'megatron-22B'?",
    ),
    (
        {"systems": [{"system": "a100_80g", "mem1.GiBs": 3}]},
        "s.yaml: systems[0].mem1.GiBs: expected ... did you mean 'GiB'?",
    ),
    (
        {"systems": ["h100_80g_nvl8", {"system": "a100_80g", "mem1.GiB": [3, -3]}]},
        "s.yaml: systems[1].mem1.GiB: expected a number ... found -3",
    ),
    (
        {"vary": {"mem1": [{"mem1": {"GiB": 8, "GBps": -1}}]}},
        "s.yaml: vary.mem1[0].GBps: expected a number ... found -1",
    ),
    (
        {"systems": [{"system": "a100_80g", "networks[7].size": 4}]},
        "s.yaml: systems[0].networks[7].size: expected a position in networks that exists ... found a list of",
    ),
    (
        {"models": ["a100_80g"], "max_batch_size": 8},
        "models[0]: a100_80g: expected a model file ... a system of the catalog. Hint: are model and system swapped?",
    ),
    (
        {"systems": [{"system": "a100_80g", "memory": [1, -3]}], "models": ["megatron-22B"]},
        "max_batch_size: expected ... found nothing",
    ),
    ({"vary": {"mem3.GiB": [3]}}, "vary.mem3.GiB[0]: expected a setting, a path ... did you mean 'mem2'?"),
    ({"vary": {"mem1.GiB": 3}}, "vary.mem1.GiB: expected a list of values ... found 3"),
    ({"vary": {"datatype": ["float61"]}}, "vary.datatype[0]: expected one of ... did you mean 'float16'?"),
    ({"datatype": "float8"}, "datatype (of megatron-22B, a100_80g): expected a datatype ... 'float8'"),
    ({"objective": "sample_rat"}, "objective: expected a statistic ... did you mean 'sample_rate'?"),
    ({"where": "total_tim < 3"}, "where: total_tim < 3: expected ... did you mean 'total_time'?"),
    ({"fix": {"tensorpar": 3}}, "fix.tensorpar: expected a field ... did you mean 'tensor_par'?"),
    ({"top": 0}, "top: expected a whole number of at least 1, found 0"),
    ({"mbs_break": "yes"}, "mbs_break: expected true or false, found 'yes'"),
    ({"fused_activation": "all"}, "fused_activation: expected true, false or both"),
    ({"max_batch_size": 3}, "max_batch_size: expected values in one place ... in models and in the top"),
    (
        {"num_procs": {"multiples_of": 8, "at_most": 7}},
        "num_procs (of megatron-22B, a100_80g): expected multiples of 8 ... none: at most 7 are allowed",
    ),
    ({"num_procs": [8, True]}, "num_procs: expected processors: a number ... found true"),
    ({"num_procs": {"at_most": "1 / 0"}}, "num_procs.at_most (of ... division by zero"),
    (
        {"num_procs": {"at_most": "prise"}, "quantities": {"price": 3}},
        "num_procs.at_most (of ... did you mean 'price'?",
    ),
    (
        {"num_procs": {"at_most": "1e6 / cost"}, "quantities": {"cost": "num_procs * 2"}},
        "expected values that do not depend on num_procs",
    ),
    ({"quantities": {"a": "b", "b": "a"}}, "expected a formula that does not need itself ... a -> b -> a"),
    ({"quantities": {"a": "__import__('os')"}}, "quantities.a: expected an expression of names ... __import__('os')"),
    ({"quantities": {"sample_rate": 3}}, "quantities.sample_rate: expected a name that is not taken"),
    ({"quantities": {"a": float("nan")}}, "quantities.a: expected a number"),
    (
        {"vary": {"kind": ["x"]}, "quantities": {"a": "kind + 1"}},
        "a (of megatron-22B, a100_80g): expected a number for kind, found 'x'",
    ),
    (
        {"summary": {"rows": ["modell"], "best": {"x": "sample_rate"}}},
        "summary: expected a name of the study ... did you mean 'model'?",
    ),
    (
        {"summary": {"rows": ["model"], "best": {"x": "samplerate"}}},
        "summary.best.x: expected a statistic ... did you mean 'sample_rate'?",
    ),
    ({"summary": {"rows": ["model"], "best": {"x": "sample_rate:most"}}}, "summary.best.x: expected max or min"),
    (
        {"summary": {"rows": ["model"], "best": {"x": "1 / 0"}}},
        "summary.best.x: expected a number from '1 / 0', found division by zero",
    ),
    (
        {"summary": {"rows": ["model"], "best": {"x": "datatype"}}},
        "summary.best.x: expected a number from 'datatype', found text",
    ),
    ({"quantities": {"x": "10 ** 400"}}, "x (of megatron-22B, a100_80g): expected a finite number from"),
]  # fmt: skip
"""Changes of a study, and parts of the message about each, which `...` separates."""


@pytest.mark.parametrize(("changes", "message"), PROBLEMS)
def test_says_what_is_wrong(changes, message):
    said = refusal(lambda: make_summary(found := study(**changes), plan(found).searches))
    assert not [part for part in message.split(" ... ") if part not in said]


def test_a_damaged_spec_is_not_the_fault_of_the_study_that_changes_it(tmp_path):
    spec = json.loads((ROOT / "systems/a100_80g.json").read_text())
    spec["mem2"]["GBps"] = -1
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(spec))
    said = refusal(values, systems=[{"system": str(path), "mem1.GiB": 40}])
    assert said.startswith(f"{path}: mem2.GBps: expected a number")


OTHERS = {
    "a model": "models/megatron-22B.json",
    "a system": "systems/a100_80g.json",
    "an execution": "examples/gpt2-124M_a100x2_ddp.json",
    "a preset": "examples/presets/common.json",
    "a validation study": "validation/llama3/study.yaml",
}


@pytest.mark.parametrize(("kind", "path"), OTHERS.items(), ids=str)
def test_another_kind_of_file_is_recognized(kind, path):
    with pytest.raises(SpecError) as error:
        Study.read(str(ROOT / path))
    assert (error.value.expected, error.value.found) == ("a study", kind)
    assert len(error.value.problems) == 1


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("r.json", '{"total_time": 1.0, "sample_rate": 2.0}', "the result of an estimate"),
        ("r.json", '{"0": {"execution": {}, "stats": {}}}', "the results of a search"),
        ("r.json", '[{"search": 0, "total_time": 1.0}]', "the results of a study"),
        ("r.csv", "search,total_time\n0,1.0\n", "a table"),
    ],
)
def test_results_are_no_study(name, text, found, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(SpecError, match=f"expected a study.*, found {found}"):
        Study.read(str(tmp_path / name))


def test_all_problems_of_a_file_are_told_at_once():
    with pytest.raises(SpecError) as error:
        study(top=0, datatype="float61", tpo=1)
    assert [problem.field for problem in error.value.problems] == ["tpo", "datatype", "top"]


def test_a_value_of_a_spec_may_have_keys_of_any_type():
    with pytest.raises(SpecError, match=r"s.yaml: systems\[0\]\.mem1\.GBps: expected a number"):
        values(systems=[{"system": "a100_80g", "mem1.GBps": {1: 2, "a": 3}}])


def test_many_wrong_names_are_told_at_once_and_soon():
    begin = time.process_time()
    names = [f"max_batch_sizes_{i}" for i in range(10_000)]
    with pytest.raises(SpecError) as error:
        study(**dict.fromkeys(names, 0), quantities=dict.fromkeys(names, 0))
    assert len(error.value.problems) >= len(names)
    assert time.process_time() - begin < 5


def test_a_document_of_another_kind_is_refused():
    with pytest.raises(SpecError, match=r"s\.yaml: expected an object with models and systems"):
        Study.decode([1], "s.yaml")


def test_a_column_takes_whole_numbers_of_any_size():
    column = column_of([10**30, None, 1], column_type([10**30, None, 1]))
    assert column.tolist()[::2] == [1e30, 1]
    assert np.isnan(column[1])


def test_a_value_without_effect_is_one_note_a_model():
    models = [{"model": name, "max_batch_size": 8} for name in ("megatron-22B", "llama3-8B")]
    with pytest.warns(SpecWarning) as noted:
        plan(study(models=models, edition="corrected", fix={"ce_impl": "fused"}))
    (note,) = (str(one.message) for one in noted)
    assert note.startswith("search: ce_impl=fused has no effect: megatron-22B states no vocabulary")


def test_a_study_of_too_many_different_systems_is_refused(monkeypatch):
    monkeypatch.setattr(points, "MAX_SPECS", 3)
    assert len(plan(study(vary={"mem1.GBps": [1, 2]})).searches)
    with pytest.raises(SpecError, match=r"at most 3 different models and systems, found more"):
        plan(study(vary={"mem1.GBps": [1, 2, 3]}))
