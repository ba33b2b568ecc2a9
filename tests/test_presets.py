"""Presets: files, what they fill in, what they refuse, and what a search tries under them."""

import itertools
import json
from dataclasses import replace

import pandas as pd
import pytest

import calculon
from calculon import inputs
from calculon.base.errors import SpecError
from calculon.declarations import catalog
from calculon.declarations.execution import Execution
from calculon.declarations.fields import optional_defaults
from calculon.declarations.named_values import PRESETS
from calculon.declarations.presets import COMMON, PUBLISHED_FORMS, find_preset
from calculon.inputs import execution
from calculon.plan.plan import NAMES, Plan
from calculon.plan.rules.all_rules import REASONS, check
from calculon.search.driver import search
from calculon.search.request import make_space
from tests.cases import for_each
from tests.helpers import LLAMA_X64, PLAIN, document

FRAMEWORKS = [name for name in PRESETS if name not in (PUBLISHED_FORMS, COMMON)]
DATED = [f"{name}@{month}" for name in PRESETS if (month := find_preset(name).since)]
"""The oldest releases of each framework with dates."""

SHORT = {"num_procs": 64, "tensor_par": 1, "pipeline_par": 1, "batch_size": 128}
"""The least that an execution states: degrees and batch."""

SPLIT = SHORT | {"tensor_par": 4, "pipeline_par": 2}

PADDED = {"moe_capacity_percent": 100, "moe_pad_to_capacity": True}


def test_each_preset_has_a_file():
    assert sorted(catalog.names("preset")) == sorted(PRESETS)


@for_each("name", PRESETS)
def test_every_entry_has_a_reason(name):
    preset = find_preset(name)
    assert preset.family == preset.name == name
    assert all(entry.why.endswith(".") for entry in preset.entries.values())
    assert all(one.why.endswith(".") for one in (*preset.limits, *preset.uneven))
    assert not name.startswith(tuple("mtdlh")) or (preset.framework and preset.version)


@for_each(
    ("name", "stated", "model"),
    itertools.product(
        FRAMEWORKS + DATED, (SHORT, SPLIT), ("llama3-8B", "mixtral-8x7B", "falcon-40B")
    ),
)
def test_what_a_preset_fills_in_it_can_run(name, stated, model):
    found = find_preset(name).completed(stated)
    problems = [one for field in found if (one := find_preset(name).problem(field, found[field]))]
    assert not [one for one in problems if one.field not in stated]
    shape = inputs.model(model)
    plan = Plan.of(execution({"base": name} | stated, model=shape))
    code = int(check(shape, inputs.system("b200_sxm"), plan)[0])
    assert REASONS[code] in ("", "framework_option" if stated is SPLIT else "")


def test_the_published_preset_fills_in_defaults():
    stated = PLAIN | {"edition": "corrected"}
    found = execution(stated)
    assert found.to_dict() == optional_defaults(Execution) | stated


def test_edition_corrected_has_what_all_frameworks_share():
    stated = {name: value for name, value in PLAIN.items() if name != "preset"}
    corrected = execution(stated, edition="corrected")
    assert corrected.preset == "common"
    assert (corrected.attn_impl, corrected.coll_algo) == ("flash", "auto")
    assert corrected.zero_stage == "0"
    sharded = {"data_par": 2, "num_procs": 2, "batch_size": 2, "optimizer_sharding": True}
    assert execution(stated | sharded, edition="corrected").zero_stage == "1"
    assert execution(stated | {"training": False}, edition="corrected").zero_stage == "auto"
    assert execution(stated).to_dict() == stated


def test_what_is_stated_wins_over_the_preset():
    found = execution({"base": "megatron-lm", "ce_impl": "fused", "zero_stage": 2} | SHORT)
    assert found.ce_impl == "fused"
    assert found.zero_stage == "2"
    assert found.overlap_param_gather  # which follows from the number as from the text


def test_fsdp_of_megatron_is_that_of_pytorch():
    plain, split = ({"base": "megatron-lm", "zero_stage": stage} | SHORT for stage in ("1", "fsdp"))
    assert (execution(plain).grad_fusion, execution(split).grad_fusion) == (True, False)
    assert not execution(plain | {"data_par_overlap": False}).overlap_param_gather
    with pytest.raises(SpecError, match="--use-torch-fsdp2 refuses expert parallelism"):
        calculon.estimate("mixtral-8x7B", split | {"expert_par": 8}, "h100_80g_sxm")


@for_each("name", ["megatron-lm", "megatron-lm-ub", "megatron-bridge"])
def test_graphs_of_a_whole_iteration_need_fixed_rows_of_experts(name):
    stated = {"base": name, **SHORT, "expert_par": 8, "moe_dispatcher": "alltoall"}
    for fixed in ({"launch_mode": "graph_parts"}, {"moe_dispatcher": "hybridep"}, PADDED):
        calculon.estimate("mixtral-8x7B", stated | {"launch_mode": "graph"} | fixed, "gb200")
    with pytest.raises(SpecError, match="use launch_mode=graph_parts"):
        calculon.estimate("mixtral-8x7B", stated | {"launch_mode": "graph"}, "gb200")


@for_each(
    ("stated", "words"),
    [
        (
            {"base": "megatron-lm", "tensor_par_overlap": "ring"},
            "tensor_par_overlap: expected none, as megatron-lm runs it, found ring",
        ),
        ({"base": "llm-foundry"}, "as llm-foundry runs it"),
        ({"base": "deepspeed", "zero_stage": "2"}, "pipeline engine takes ZeRO-1"),
    ],
)
def test_what_a_framework_lacks_is_refused_with_the_reason(stated, words):
    with pytest.raises(SpecError, match=words):
        calculon.estimate("llama3-8B", stated | SPLIT, "h100_80g_sxm")


@for_each(
    ("name", "words"),
    [
        ("deepspeed", "or tensor_par_comm_type=rs_ag, with which"),
        ("huggingface", "over the ranks of tensor parallelism.* Use expert_par=1"),
    ],
)
def test_experts_on_ranks_of_tensor_groups_are_refused_with_what_to_use_instead(name, words):
    stated = {"base": name, **SHORT, "tensor_par": 2, "expert_par": 4}
    with pytest.raises(SpecError, match=words):
        calculon.estimate("mixtral-8x7B", stated, "h100_80g_sxm")


def test_the_published_edition_has_no_presets():
    with pytest.raises(SpecError, match="corrected"):
        calculon.estimate(
            "gpt3-175B", LLAMA_X64 | {"edition": "sc23", "preset": "megatron-lm"}, "a100_80g"
        )


@for_each("name", PRESETS)
def test_an_execution_reads_itself_back(name):
    stated = PLAIN if name in (PUBLISHED_FORMS, COMMON) else SHORT
    found = execution(stated | {"edition": "corrected", "preset": name})
    assert execution(json.loads(json.dumps(found.to_dict()))) == found


def test_a_table_is_filled_in_row_by_row():
    stated = {n: v for n, v in LLAMA_X64.items() if n not in ("preset", "attn_impl", "edition")}
    rows = [
        stated | {"edition": "corrected"},
        stated | {"edition": "corrected", "preset": "published"},
        {n: v for n, v in stated.items() if n in PLAIN} | {"edition": "sc23"},
    ]
    assert [Plan.from_records(rows).row(i) for i in range(3)] == [execution(row) for row in rows]


def test_a_file_changes_a_preset(tmp_path):
    mine = tmp_path / "mine.json"
    mine.write_text(
        json.dumps(
            {
                "title": "Ours",
                "base": "megatron-lm",
                "fields": {"ce_impl": {"value": "fused", "why": "Ours."}},
            }
        )
    )
    found = find_preset(str(mine))
    assert found.family == "megatron-lm"
    usual = execution({"base": "megatron-lm"} | SHORT)
    assert execution(SHORT, preset=str(mine)) == replace(usual, ce_impl="fused")
    (tmp_path / "plan.json").write_text(json.dumps({"base": "mine.json"} | SHORT))
    found = inputs.resolve_execution(str(tmp_path / "plan.json"))
    assert found.execution == replace(usual, ce_impl="fused")
    assert (found.preset.name, found.preset.family) == ("mine", "megatron-lm")
    with pytest.raises(SpecError, match=r"none\.json: expected a preset"):
        execution(SHORT | {"preset": "none.json"})


@for_each("name", [name for name in PRESETS if find_preset(name).changes])
def test_a_month_has_the_entries_before_the_next_change(name):
    preset = find_preset(name)
    changes = {one.before for one in preset.changes}
    for month in sorted({preset.since, *(one for one in changes if one > preset.since)}):
        found = find_preset(f"{name}@{month}")
        ahead = sorted(
            (one for one in preset.changes if one.before > month), key=lambda c: c.before
        )
        for field in found.entries:
            entries = [one.fields[field] for one in ahead if field in one.fields]
            assert found.entries[field] == [*entries, preset.entries.get(field)][0]
    assert found.entries.items() >= preset.entries.items()
    assert found.digest != preset.digest


def test_an_execution_records_the_values_of_a_month_and_the_preset_without_it():
    """A year is its last month; Transformer Engine prefers cuDNN since 2024-05, DeepEP came in 2025-05."""
    dated = execution({"base": "megatron-lm@2024-04", **SHORT})
    assert (dated.preset, dated.attn_kernel) == ("megatron-lm", "flash2")
    assert execution({"base": "megatron-lm@2024-05", **SHORT}).attn_kernel == "auto"
    assert find_preset("megatron@2024").entries == find_preset("megatron-lm@2024-12").entries
    assert find_preset("megatron-lm-ub@2024-07").entries["ce_impl"].value == "megatron"
    assert not find_preset("megatron-lm@2024").uneven
    assert find_preset("megatron-lm@2026").entries == find_preset("megatron-lm").entries
    experts = {"num_procs": 8, "expert_par": 8, "moe_dispatcher": "deepep"}
    with pytest.raises(SpecError, match=r"megatron-lm@2025-04 runs it, found deepep.*0\.12"):
        execution(SHORT | experts, preset="megatron-lm@2025-04")
    assert execution(SHORT | experts, preset="megatron-lm@2025-05").moe_dispatcher == "deepep"
    for preset, said in (
        ("megatron-lm@2023", "from 2024-04 on.*megatron-lm-2021"),
        ("megatron-lm@1999", "from 2024-04 on.*found 1999"),
        ("megatron-lm-ub@2023", "the first that megatron-lm-ub describes"),
        (
            "megatron-bridge@2023",
            "from 2026-03 on, the first that megatron-bridge describes, found 2023$",
        ),
        ("megatron-lm@2030", "up to 2026-11, the date of the catalog, found 2030"),
        ("megatron-lm@2026-12", "up to 2026-11"),
        ("megatron-lm@may", "a month or a year, such as megatron-lm@2024-04"),
        ("llm-foundry@2024", "presets with dates: megatron-lm, megatron-lm-ub"),
    ):
        with pytest.raises(SpecError, match=said):
            execution(SHORT, preset=preset)


@for_each(
    ("change", "said"),
    [
        ({"since": "2024"}, "since: expected a month"),
        ({"changes": [{"before": "soon", "fields": {}}]}, "before: expected a month"),
        ({"fields": {"ce_imp": {"value": "fused"}}}, "did you mean 'ce_impl'"),
        ({"fields": {"ce_impl": {"value": "fused", "run": []}}}, "an object with value"),
        ({"fields": {"ce_impl": {"value": "fused", "runs": ["eager"]}}}, "values that it supports"),
        ({"fields": {"ce_impl": {"value": "fused", "runs": ["fused"]}}}, "are stated by the base"),
        ({"limits": [{"that": "tensor_par > 1", "why": "x"}]}, "are stated by the base"),
        ({"fields": {"tensor_par": {"value": 4, "tries": [4]}}}, "from divisors"),
        (
            {"fields": {"zero_stage": {"value": "'1' if data_par > 1 else '0'"}}},
            "values to search",
        ),
        ({"fields": {"ce_impl": {"value": 3}}}, "expected one of"),
        ({"limits": [{"that": "tp > 1", "why": "x"}]}, "fields of an execution"),
        ({"practice": [{"that": "microbatch_size == 1", "why": "so"}]}, "microbatch_size"),
        ({"titel": "x"}, "did you mean 'title'"),
        ({"base": "megatro"}, "did you mean megatron-lm, megatron-lm-ub, megatron-bridge or"),
    ],
)
def test_a_wrong_file_is_told_by_its_place(tmp_path, change, said):
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"title": "Ours", "fields": {}} | change))
    with pytest.raises(SpecError, match=said):
        find_preset(str(mine))


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_search_finds_only_what_the_framework_can_run(name):
    found = search("llama3-8B", "h100_80g_sxm", 8, 8, "bfloat16", preset=name, top=2)
    assert len(found)
    preset = find_preset(name)
    for one in found:
        assert one.execution.preset == name
        fields = {field: getattr(one.execution, field) for field in NAMES}
        assert not any(preset.problem(field, fields[field]) for field in fields)
        known = fields | one.model.to_dict()
        assert all(limit.that.of(known) for limit in preset.limits)
        assert not one.execution.weight_offload
        again = calculon.estimate("llama3-8B", one.execution.to_dict(), "h100_80g_sxm")
        assert again.stats == one.stats


def test_a_search_adds_what_the_framework_has_and_refuses_the_rest():
    space = ("llama3-8B", "h100_80g_sxm", 16, 64, "bfloat16")
    few = search(*space, preset="megatron-lm")
    more = search(*space, preset="megatron-lm", add={"ce_impl": "fused"})
    assert more.counts.total > few.counts.total
    with pytest.raises(SpecError, match="as megatron-lm runs it"):
        search(*space, preset="megatron-lm", add={"tensor_par_overlap": "ring"})
    with pytest.raises(SpecError, match="preset=megatron-lm needs"):
        search("megatron-22B", *space[1:], preset="megatron-lm", edition="sc23")


def _better(change):
    """Return the system of a search with better figures than the catalog's."""
    system = document("systems", "h100_80g_sxm")
    for (place, name), factor in change.items():
        part = system[place] if isinstance(place, str) else system["networks"][place]
        part[name] *= factor
    return system


LARGE = pytest.mark.large


@pytest.mark.parametrize(
    ("name", "model", "procs"),
    [
        ("megatron-lm", "llama3-8B", 16),
        pytest.param("megatron-lm", "llama3-70B", 64, marks=LARGE),
        pytest.param("torchtitan", "llama3-70B", 64, marks=LARGE),
        pytest.param("common", "llama3-70B", 64, marks=LARGE),
    ],
)
def test_a_better_machine_is_never_slower_replanned(name, model, procs):
    space = {"model": model, "num_procs": procs, "max_batch_size": procs, "datatype": "bfloat16"}
    before = search(system=_better({}), preset=name, **space).best.stats["total_time"]
    changes = [
        {("mem1", "GiB"): 1.5},
        {("mem1", "GiB"): 3},
        {("mem1", "GBps"): 1.5},
        {(0, "bandwidth"): 2},
        {(1, "bandwidth"): 2},
    ]
    for change in changes:
        after = search(system=_better(change), preset=name, **space).best.stats["total_time"]
        assert after <= before * (1 + 1e-12), change


def test_torchtitan_runs_uncompiled():
    """Then nothing has a scope; where blocks are compiled, whole steps are not."""
    space = ("llama3-8B", "h100_80g_sxm", 8, 64, "bfloat16")
    eager = search(*space, preset="torchtitan", fix={"fusion": "none"}).best.execution
    assert (eager.compile_scope, eager.rotary_impl) == ("step", "complex")
    compiled = search(*space, preset="torchtitan").best.execution
    assert (compiled.fusion, compiled.compile_scope) == ("compile", "blocks_and_loss")
    with pytest.raises(SpecError, match="compiled one by one"):
        calculon.estimate("llama3-8B", replace(compiled, compile_scope="step"), "h100_80g_sxm")


def test_common_shards_weights_and_lays_out_uneven_stages():
    """Llama 3.1 405B on 1,024 H100 needs sharded weights, and its 126 blocks divide over 2 stages alone."""
    space = ("llama3.1-405B", "h100_80g_sxm", 1024, 512, "bfloat16")
    assert search(*space, preset=COMMON).best.execution.zero_stage == "fsdp"
    found = search(*space, preset=COMMON, fix={"pipeline_par": 16, "zero_stage": "1"}).best
    assert (found.execution.pipeline_par, found.execution.pp_layout) == (16, "uniform")


DOMAINS = (4, 5, 8, 12, 18, 36, 64, 72, 144)


@pytest.mark.parametrize(
    ("name", "model", "procs"),
    [
        ("megatron-lm", "llama3-8B", 12),
        pytest.param("megatron-lm", "llama3-70B", 64, marks=LARGE),
        pytest.param("megatron-lm", "llama3-70B", 96, marks=LARGE),
        pytest.param("torchtitan", "llama3-8B", 48, marks=LARGE),
        pytest.param("common", "llama3-8B", 60, marks=LARGE),
    ],
)
def test_a_larger_domain_is_never_slower_replanned(name, model, procs):
    """Of sizes that degrees do not divide, such as 72, as many processors are used as sit evenly."""
    found = []
    for size in (one for one in DOMAINS if one < 2 * procs):  # larger ones hold all processors
        system = _better({})
        system["networks"][0]["size"] = size
        best = search(model, system, procs, procs, "bfloat16", preset=name).best
        found.append(best.stats["total_time"])
    for before, after in itertools.pairwise(found):
        assert after <= before * (1 + 1e-12)


@pytest.mark.parametrize("capacity", [40, pytest.param(80, marks=LARGE)])
def test_a_domain_of_72_is_no_slower_than_one_of_8_with_a_trillion_parameters(capacity):
    """4,608 processors: with 40 GiB tensor groups of 16 use 48 of 72, since 9 replicas divide by 3."""
    best = []
    for size in (8, 72):
        system = _better({})
        system["mem1"]["GiB"], system["networks"][0]["size"] = capacity, size
        space = ("megatron-1T", system, 4608, 4608, "bfloat16")
        best.append(search(*space, preset="megatron-lm").best)
    assert best[1].stats["total_time"] <= best[0].stats["total_time"]
    used = [domain.used for domain in best[1].domains]
    assert used == ([48] if capacity == 40 else [])


FOUR = {"tensor_par": 4, "pipeline_par": 2, "data_par": 8, "batch_size": 512}
"""The degrees and the batch."""


@for_each("name", [COMMON, *FRAMEWORKS])
def test_degrees_and_batch_are_enough(name):
    found = execution(FOUR, preset=name)
    assert (found.num_procs, found.microbatch_size) == (4 * 2 * 8, 1)
    datatype = "float16" if name == "megatron-lm-2021" else "bfloat16"
    assert (found.datatype, found.edition) == (datatype, "corrected")
    count = {n: v for n, v in FOUR.items() if n != "data_par"} | {"num_procs": 4 * 2 * 8}
    assert execution(count, preset=name) == found
    assert execution(FOUR | {"base": name}) == found
    assert execution(FOUR | {"edition": "corrected", "preset": name}) == found


@for_each(
    ("change", "said"),
    [
        ({"data_par": None}, "num_procs: expected num_procs or data_par; the other follows"),
        (
            {"data_par": None, "num_procs": 60},
            r"num_procs: expected a multiple of tensor_par \* pipeline_par = 4 \* 2, since "
            "data_par is left out, found 60",
        ),
        ({"pipeline_par": None}, "pipeline_par: expected a whole number"),
        ({"batch_size": None}, "batch_size: expected a whole number"),
        ({"tensor_par": "4"}, "tensor_par: .* Hint: no quotes"),
        ({"num_procs": 63}, "expected tensor_par x pipeline_par x data_par = 4 x 2 x 8 = 64"),
    ],
)
def test_what_cannot_follow_is_told_once(change, said):
    stated = {n: v for n, v in (FOUR | change).items() if v is not None}
    with pytest.raises(SpecError, match=said) as caught:
        calculon.estimate("llama3-8B", stated, "h100_80g_sxm", edition="corrected")
    assert len(caught.value.problems) == 1


def test_the_published_edition_needs_all_of_its_fields():
    with pytest.raises(SpecError, match="edition: expected corrected, or a base") as caught:
        execution(FOUR)
    assert "microbatch_size" in str(caught.value)
    with pytest.raises(SpecError, match="microbatch_size: expected a whole number") as caught:
        execution(FOUR | {"edition": "sc23"})
    assert len(caught.value.problems) == 23 - len(FOUR)
    with pytest.raises(SpecError, match="training: expected true or false"):
        execution({n: v for n, v in PLAIN.items() if n != "training"})


def test_columns_are_filled_in_like_files():
    names = ["megatron-lm", COMMON, "torchtitan"]
    files = [execution(FOUR, preset=name) for name in names]
    columns = {name: [value] * 3 for name, value in FOUR.items()} | {"preset": names}
    for plan in (
        Plan.from_columns(columns),
        Plan.from_records([FOUR | {"preset": name} for name in names]),
        Plan.from_frame(pd.DataFrame(columns)),
    ):
        assert [plan.row(i) for i in range(3)] == files
    assert Plan.from_columns(FOUR, "corrected").row(0) == execution(FOUR, edition="corrected")
    found = calculon.evaluate("llama3-8B", "h100_80g_sxm", pd.DataFrame(columns))
    assert found.feasible.all()


def test_columns_of_the_published_edition_are_not_filled_in():
    columns = {name: [value] * 2 for name, value in FOUR.items()}
    with pytest.raises(SpecError, match="microbatch_size: expected a column of this name"):
        Plan.from_columns(columns)
    with pytest.raises(SpecError, match="microbatch_size: expected a column of this name"):
        Plan.from_columns(columns | {"edition": ["corrected", "sc23"]})


def test_processors_that_are_no_product_are_a_reason_of_their_row():
    columns = {"num_procs": [64, 60], "tensor_par": 4, "pipeline_par": 2, "batch_size": 512}
    found = calculon.evaluate("llama3-8B", "h100_80g_sxm", columns, edition="corrected")
    assert found.reason.tolist() == ["", "invalid_data_par"]


def test_a_base_and_another_preset_contradict_each_other():
    with pytest.raises(SpecError, match="megatron-lm, the base of this file"):
        execution({"base": "megatron-lm", "preset": "torchtitan"} | SHORT)


def test_tensor_parallelism_leaves_a_node_only_when_it_is_asked_to():
    def degrees(preset, **fix):
        asked = ("llama3-70B", "h100_80g_sxm", 64, 64, "bfloat16")
        return {unit.tensor_par for unit in make_space(*asked, preset=preset, fix=fix).units}

    assert degrees("megatron-lm") == {1, 2, 4, 8}
    assert degrees("megatron-lm", tensor_par=16) == {16}
    assert max(degrees("published")) == 64


@for_each(
    ("model", "modules"),
    [
        ("llama3-8B", ("none", "norm", "mlp")),
        ("mixtral-8x7B", ("none", "norm", "moe_act", "norm+moe_act", "moe")),
        ("minicpm3-4B", ("none", "norm", "mlp", "mla_up_proj", "norm+mla_up_proj")),
    ],
)
def test_a_search_under_megatron_tries_the_modules_that_a_model_has(model, modules):
    space = make_space(model, "h100_80g_sxm", 16, 64, "bfloat16", preset="megatron-lm")
    assert space.switches["recompute_modules"] == modules


def test_torchtitan_copies_what_collectives_of_split_sequences_take():
    """In a search, too, which would leave the copies out where that is faster."""
    fix = {"tensor_par": 8, "tensor_par_overlap": "none"}
    space = ("llama3-8B", "h100_80g_sxm", 16, 32, "bfloat16")
    found = search(*space, preset="torchtitan", fix=fix).best.execution
    assert found.seq_par_copies
    with pytest.raises(SpecError, match="seq_par_copies"):
        calculon.estimate("llama3-8B", replace(found, seq_par_copies=False), "h100_80g_sxm")


def test_hugging_face_runs_tensor_parallelism_and_ulysses_where_they_are_asked_for():
    space = make_space("llama3-8B", "h100_80g_sxm", 16, 32, "bfloat16", preset="huggingface")
    assert {unit.tensor_par for unit in space.units} == {1}
    asked = SHORT | {"num_procs": 16, "tensor_par": 2, "context_par": 2, "cp_comm": "a2a"}
    one = execution({"base": "huggingface", "zero_stage": "1"} | asked)
    assert (one.tensor_par, one.cp_comm, one.zero_stage) == (2, "a2a", "1")
    code = check(inputs.model("llama3-8B"), inputs.system("h100_80g_sxm"), Plan.of(one))[0]
    assert REASONS[int(code)] in ("", "mem1_capacity")
