"""The page of an estimate: its parts add up, fit the width, and say what matters."""

import io
import re
from dataclasses import replace
from itertools import product

import pytest
from rich.console import Console

import calculon
from calculon.declarations.execution import Execution
from calculon.declarations.fields import spec_fields
from calculon.declarations.model import Model
from calculon.declarations.statistics import ALL_PARTS_OF_TIME
from calculon.documents.confidence import ABOVE, ABOVE_MODEL, OUTSIDE, remarks
from calculon.documents.context_section import context_lines
from calculon.documents.estimate_result import result_of
from calculon.documents.expert_section import expert_lines, rows_text
from calculon.documents.figures_group import DROPPED
from calculon.documents.model_details import details
from calculon.documents.page import GROUP_COLORS, PARTS, estimate_page
from calculon.documents.result import Result
from calculon.documents.setup import setup_texts
from calculon.documents.stage_table import PAIRED
from calculon.render import terminal
from calculon.render.digits import WITHOUT_INTERVAL, Digits
from tests.cases import for_each
from tests.documents.drawing import drawn, drawn_lines, flat
from tests.draws import some
from tests.helpers import LLAMA_X64, PLAIN, document
from tests.store import cache, cache_by_repr

EXAMPLE = document("examples", "3072_t4_p64_d12_mbs4_full")
LLAMA = ("llama3-8B", LLAMA_X64, "h100_80g_sxm")
SPREADS = {"spreads": [{"low": 0.9, "high": 1.2, "level": 0.8571}]}
FITS = [
    SPREADS | {"part": part} for part in ("networks[1]", "networks[0]", "mem1", "matrix.float16")
]
OFFLOADS = ("weight_offload", "activations_offload", "optimizer_offload")
CALIBRATED = document("systems", "a100_80g") | {"calibration": {"fits": FITS}}
TINY = document("models", "megatron-126M") | {"num_blocks": 1, "seq_size": 128}
CASES = {
    "the example": ("megatron-1T", EXAMPLE, "a100_80g"),
    "one processor": ("megatron-126M", PLAIN, "a100_80g"),
    "inference of a tiny model": (TINY, PLAIN | {"training": False}, "h100_80g_nvl8"),
    "today": LLAMA,
    "fully sharded": (
        "gpt3-13B-hf",
        document("examples", "gpt3-13B_a100x2_fsdp") | {"mem_reserved_mib": 1024},
        "a100_80g_sxm",
    ),
    "unlimited memory": ("megatron-1T", EXAMPLE, "a100_80e"),
    "calibrated": ("megatron-1T", EXAMPLE, CALIBRATED),
    "offloading": (
        "megatron-1T",
        EXAMPLE
        | {
            "tensor_par": 8,
            "pipeline_par": 8,
            "data_par": 48,
            "microbatch_size": 1,
            "pipeline_interleaving": 2,
            "activation_recompute": "attn_only",
            **dict.fromkeys(OFFLOADS, True),
            "data_par_overlap": True,
            "tensor_par_overlap": "ring",
        },
        "a100_80g",
    ),
}


@cache_by_repr
def estimated(case, layers=False):
    return calculon.estimate(*case, layers=layers)


def page(case, layers=False):
    return estimate_page(result_of(estimated(case, layers)))


def plain(case, layers=False, width=80):
    """Return a page in a file, without blanks at the ends of its lines."""
    return "\n".join(drawn_lines(page(case, layers), width=width))


def test_every_part_of_the_time_has_words_and_a_color():
    assert tuple(sorted(PARTS)) == tuple(sorted(ALL_PARTS_OF_TIME))
    assert {group for _, group in PARTS.values()} == set(GROUP_COLORS)


def test_plain_text_keeps_to_80_columns_of_ascii():
    wrong = [
        f"{name}: {line}"
        for name, case in CASES.items()
        for line in plain(case, layers=True).splitlines()  # the other page ends before the layers
        if len(line) > 80 or not line.isascii()
    ]
    assert not wrong


def test_no_color_when_not_wanted(monkeypatch):
    for unwanted in (True, False):
        monkeypatch.setenv("NO_COLOR", "1" * unwanted)
        stream = io.StringIO()
        console = Console(file=stream, force_terminal=True, color_system="truecolor")
        console.print(terminal.page(page(CASES["the example"])))
        colors = re.search(r"\x1b\[3\d", stream.getvalue())  # of any number of colors
        assert (colors is None) == unwanted


def test_a_calibrated_system_has_an_interval_and_says_what_it_is_from():
    text, other = (plain(CASES[name], width=160) for name in ("calibrated", "the example"))
    (line,) = (one for one in text.splitlines() if one.startswith("  interval"))
    assert "85 %: " in line
    assert line.endswith("from residuals of matrix.float16, mem1, networks[0], networks[1]")
    assert "assumed exact" not in text
    assert "interval  " not in other


# -- the corrected edition --------------------------------------------------------------------------------------------


def test_how_sure_a_result_is_fits_any_width():
    nearest = estimated(LLAMA).belief.nearest
    for width in (50, 80, 100, 160):
        lines = plain(LLAMA, width=width)
        assert max(map(len, lines.splitlines())) <= width
        text = flat(lines)
        assert all(run.study in text and f"{run.error:+.0f} %" in text for run in nearest), width
        assert "\N{HORIZONTAL ELLIPSIS}" not in text[: text.index("Figures: ")], width


def test_a_remark_is_there_where_a_result_beats_every_published_run():
    sheet = result_of(estimated(LLAMA))
    run = {"study": "a", "label": "b", "processor": "H100", "type": "float8", "relative": False}
    run |= {"experts": 8, "mfu": 0.6, "measured_mfu": 0.2, "comparable_mfu": 0.4, "excess": 0.5}
    model, other = {**run, "of": "model"}, {**run, "of": "class", "label": "c", "relative": True}
    start, end = "MFU 60 % causal, 50 % above the best", "40 % of this plan's peak rate (a"
    own, every = (
        f"published run on H100 in float8: {end}, b)",
        f"published run with experts on the related H100 in float8: {end}, c)",
    )
    both = f"{start} {own.replace(' on', ' of this model on')}; 50 % above the best {every}"
    for above, outside, told in (
        ([model], (), [(ABOVE_MODEL, f"{start} {own}")]),
        ([other], (), [(ABOVE, f"{start} {every}")]),
        ([model, other], (), [(ABOVE, both)]),
        ([], ("one", "two"), [(OUTSIDE, "one; two")]),
        ([], (), []),
    ):
        belief = {**sheet.belief, "above": above, "outside": outside, "memory": None}
        assert list(remarks(belief)) == told


def test_without_an_interval_numbers_have_three_digits():
    sheet = result_of(estimated(LLAMA))
    assert replace(sheet, interval=None).digits == Digits(WITHOUT_INTERVAL)
    assert replace(sheet, edition="sc23").digits == Digits()
    text = drawn(estimate_page(replace(sheet, interval=None, belief=None)))
    assert "interval" not in text
    assert f"{sheet.value('total_time'):.2f} s per iteration" in text


def _values(field):
    """Return values of an optional field that are not its default."""
    choices = [value for value in field.declaration.choices if value != field.default]
    numbers = [number for number in (1, 4096) if number != field.default]
    return {str: choices, bool: [not field.default], int: numbers, float: [0.25, 1.0]}[
        field.annotation
    ]


OF_THE_SPLIT = ("context_par", "expert_par", "expert_tensor_par")
"""Fields that are in the line of the split."""


def _optional(cls):
    """Return the names of required fields, and every value of the optional ones that is not its default."""
    fields = spec_fields(cls)
    values = [
        (field.name, value)
        for field in fields
        if field.declaration.optional and field.name not in ("edition", *OF_THE_SPLIT)
        for value in _values(field)
    ]
    return [field.name for field in fields if not field.declaration.optional], values


def test_every_optional_field_of_a_model_is_said_where_it_is_no_default():
    required, values = _optional(Model)
    bare = {name: result_of(estimated(LLAMA)).inputs.model[name] for name in required}
    assert list(details(bare)) == []
    unsaid = [
        f"{name}={value}" for name, value in values if len([*details(bare | {name: value})]) != 1
    ]
    assert values
    assert not unsaid, "add them to _WORDS of documents/model_details.py"


def test_every_optional_field_of_an_execution_is_said_where_it_is_no_default():
    required, values = _optional(Execution)
    sheet = result_of(estimated(LLAMA))
    bare = {name: sheet.execution[name] for name in required}

    def options(**fields):
        return setup_texts(replace(sheet, execution=bare | fields))["options"]

    without = options()
    unsaid = [
        f"{name}={value}"
        for name, value in values
        for stated in [options(**{name: value})]
        if not stated.startswith(f"{without}, ")
        or not (isinstance(value, bool) or str(value) in stated)
    ]
    assert values
    assert not unsaid


ENDS = [
    *product(
        ("full", "attn_only", "none"),
        ((), OFFLOADS[:1], OFFLOADS[1:2], OFFLOADS[2:], OFFLOADS),
        (1, 2),
    )
]


@pytest.mark.parametrize(("recompute", "offloaded", "stages"), some(ENDS, 4))
def test_memory_of_the_ends_is_part_of_what_the_tiers_need(recompute, offloaded, stages):
    execution = LLAMA[1] | {"activation_recompute": recompute, **dict.fromkeys(offloaded, True)}
    execution |= {"pipeline_par": stages, "data_par": 32 // stages}
    result = calculon.estimate(LLAMA[0], execution, LLAMA[2])
    sheet = result_of(result)
    for tier, kinds in enumerate(sheet.memory(), start=1):
        needed = result.stats[f"proc_mem_tier{tier}_cap_req"]
        assert sum(kinds.values()) == pytest.approx(needed, rel=1e-12)
        assert all(size >= 0 for size in kinds.values())
    blocks = result.stats["block_weight_space"] * (32 // stages)
    assert sheet.memory()[1]["weights"] == (blocks if "weight_offload" in offloaded else 0)
    # without the model the blocks of a stage follow from the statistics
    alone = Result(stats=result.stats, edition="corrected", execution=execution)
    assert alone.memory() == sheet.memory()


@for_each(
    ("case", "said", "unsaid"),
    [
        ("one processor", ("Communication: none",), ("Groups", "offloading", "bubble")),
        ("inference of a tiny model", ("Inference of model", "us per iteration"), ("backward",)),
        (
            "offloading",
            (
                "Host memory: 63.16 GiB of 512 GiB",
                "would hide all offloading; host memory has 32 GB/s",
                "offloading of weights, activations and optimizer",
            ),
            (),
        ),
        ("fully sharded", ("gathered weights 1.7 GiB", "gradients being reduced", "reserved 1.0 GiB"), ()),
    ],
)  # fmt: skip
def test_a_page_says_what_matters_and_nothing_of_what_is_zero(case, said, unsaid):
    text = flat(plain(CASES[case], layers=case.startswith("inference")))
    assert [words for words in said if words not in text] == []
    assert [words for words in unsaid if words in text] == []


def test_memory_of_communication_and_what_is_reserved_have_their_lines():
    result = estimated(CASES["fully sharded"])
    kinds, away = result_of(result).memory()
    names = ("gathered_space", "comm_buffer_space", "fragment_space", "reserved_space")
    assert list(kinds.values())[-4:] == [result.stats[name] for name in names]
    assert sum(kinds.values()) == pytest.approx(result.stats["proc_mem_tier1_cap_req"], rel=1e-12)
    assert not any(away.values())
    alone = Result(stats=result.stats, edition="corrected")
    assert alone.memory() == (kinds, away)


def _rows_of_groups(case):
    lines = plain(case).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("Groups: "))
    section = lines[start + 2 :]
    end = section.index("") if "" in section else len(section)
    return [line.split() for line in section[:end]]


def test_groups_are_listed_by_network():
    model, execution, system = LLAMA
    form = {"zero_stage": "fsdp", "dp_shard": 16, "mesh_order": "tp-dp-pp", "coll_algo": "auto"}
    case = model, execution | form | {"grad_buffer": "sharded"}, system
    rows = _rows_of_groups(case)
    moved = iter(
        f"{one:.2f}"
        for group in estimated(case).groups
        for one in (size / 1e9 for size in group.bytes if size)
    )
    assert rows == [
        ["tensor-parallel", "32", "0-1", "0", "2", next(moved), "GB"],
        ["data,", "shards", "4", "0,", "2,", "...,", "30", "0", "4", next(moved), "GB"],
        ["1", "4", next(moved), "GB"],
        ["data,", "copies", "32", "0,", "32", "1", "2", next(moved), "GB"],
    ]
    execution = PLAIN | {"num_procs": 2, "data_par": 2, "batch_size": 2, "training": False}
    rows = _rows_of_groups(("megatron-126M", execution | {"data_par_net": 1}, "a100_80g"))
    assert rows == [["data-parallel", "1", "0-1", "1", "2", "-"]]  # replicas that send nothing


PAIRED_RUN = document("examples", "mixtral-8x7B_h100x64") | {
    "tensor_par": 1,
    "tensor_par_comm_type": "ar",
    "pipeline_par": 4,
    "pipeline_interleaving": 2,
    "data_par": 16,
    "expert_tensor_par": 1,
    "ep_overlap": "1f1b",
}


def test_stages_of_pairs_show_what_they_hide():
    """Their time is without it; where nothing is hidden, there is no column."""
    large = {"base": "h100_80g_sxm", "mem1": {"GiB": 10_000}}
    for overlap in ("1f1b", "none"):
        question = "mixtral-8x7B", PAIRED_RUN | {"ep_overlap": overlap}, large
        text = plain(question)
        assert (PAIRED in flat(text)) == (overlap == "1f1b")
        stages = estimated(question).stages
        assert any(row["hidden_time"] for row in stages) == (overlap == "1f1b")
        times = [row["forward_time"] + row["backward_time"] - row["hidden_time"] for row in stages]
        assert f"stage {times.index(max(times))} limits the time" in text


# -- experts -----------------------------------------------------------------------------------------------------------

MIXTRAL = ("mixtral-8x7B", document("examples", "mixtral-8x7B_h100x64"), "h100_80g_sxm")


@cache
def _experts(**changes):
    """Return the result of Mixtral with changed fields, and the lines that describe its experts."""
    model, execution, _ = MIXTRAL
    result = result_of(calculon.estimate(model, execution | changes, "h200_141g_sxm"))
    return result, expert_lines(result)


@pytest.mark.parametrize(("experts", "width", "replicas"), [(8, 1, 2), (8, 2, 1), (1, 2, 8)])
def test_the_spread_of_experts_is_told_by_its_degrees(experts, width, replicas):
    result, lines = _experts(expert_par=experts, expert_tensor_par=width)
    degrees = f"EP {experts} x ETP {width} x EDP {replicas}"
    assert lines["spread"].startswith(f"{degrees}: ")
    apart = (experts, width) != (1, 2)  # else as tensor_par splits everything
    assert (f"(experts {degrees})" in setup_texts(result)["split"]) == apart
    assert ("no state to shard" in lines["spread"]) == (replicas == 1)
    assert ("each whole" in lines["spread"]) == (width == 1)
    assert bool(lines["sent"]) == (experts > 1)


def test_rows_of_an_expert_are_those_that_the_busiest_processor_has():
    tokens, chosen, tensor = 8192, 2, 2
    even = tokens // tensor * chosen * 8 // 8
    assert _experts()[1]["rows"].startswith(f"{even:,} per expert")
    skewed = _experts(moe_imbalance_percent=150)[1]["rows"]
    assert skewed.startswith(f"{even * 3 // 2:,} per expert")
    assert "with 150 % of the mean" in skewed


def test_few_rows_and_dropped_ones_are_said():
    few = _experts(seq_length=128)[1]["rows"]
    assert few.startswith("128 per expert")
    assert "reading weights takes longer than multiplying" in few
    assert "multiplying" not in _experts()[1]["rows"]
    result, dropped = _experts(moe_imbalance_percent=125, moe_capacity_percent=100)
    assert "20 % of the rows dropped" in dropped["rows"]
    assert DROPPED in drawn(estimate_page(result), width=160)  # which MFU counts
    assert DROPPED not in drawn(estimate_page(_experts()[0]), width=160)


def test_it_is_said_how_much_imbalance_memory_suffices_for():
    result, _ = _experts()
    for load, tight in ((1.0, True), (1.09, True), (1.1, False), (1.58, False)):
        told = expert_lines(replace(result, imbalance_headroom=load))["headroom"]
        assert told.startswith("tight: ") == tight, load
        assert f"at most {round(100 * load)} % of the mean rows" in told


@pytest.mark.parametrize(("experts", "width"), [(1, 2), (8, 1)])
def test_rows_that_a_block_is_to_have_are_those_that_it_has(experts, width):
    result, _ = _experts(expert_par=experts, expert_tensor_par=width)
    told = rows_text(result.inputs.model, result.execution, 8192)
    rows = result.stats["expert_rows"] / (8 // experts)
    assert told.startswith(f"{8 // experts} of 8 experts on each processor, {rows:,.0f} rows")


# -- context parallelism, recipes, folded schedules --------------------------------------------------------------------

SEQUENCE, PARTS_OF_SEQUENCE = 131_072, 8
LONG = {"seq_length": SEQUENCE, "batch_size": 32, "microbatch_size": 1, "data_par": 4}


def _context(**changes):
    """Return the result of Llama 3 8B with sequences split over 8, and the lines that describe it."""
    model, _, system = LLAMA
    execution = document("examples", "llama3-8B_h100x64") | LONG | {"context_par": 8} | changes
    result = result_of(calculon.estimate(model, execution, system))
    return result, context_lines(result)


def test_a_ring_sends_keys_and_values_of_the_other_parts():
    """Of 8 heads of 128, half on each tensor-parallel rank; gradients of them come home with one transfer more."""
    result, lines = _context()
    part = SEQUENCE // PARTS_OF_SEQUENCE * 2 * (8 // 2) * 128 * 2
    sent = {row["pass"]: row for row in result.context_exchange["sent"]}
    others = PARTS_OF_SEQUENCE - 1
    assert sent["forward"]["moved"] == others * part
    assert sent["activation_grad"]["moved"] == (2 * others + 1) * part
    ring = result.context_exchange["ring"]
    assert ring["steps"] == PARTS_OF_SEQUENCE
    assert ring["transfer"] == pytest.approx(sent["forward"]["time"] / others)
    assert f"{part / 2**20:.1f} MiB" in lines["memory"]
    assert "zigzag" in lines["split"]
    assert "balanced" in lines["split"]
    assert "TP 2 x CP 8 x PP 1 x DP 4" in setup_texts(result)["split"]
    assert "CP 8" in result.split


def test_it_is_said_that_others_wait_for_the_last_part():
    result, lines = _context(
        cp_balance="contiguous",
        base="common",
        optimizer_sharding=True,
        activation_recompute="full",
    )
    most = (2 * PARTS_OF_SEQUENCE - 1) / PARTS_OF_SEQUENCE
    assert result.context_exchange["imbalance"] == pytest.approx(most, rel=1e-4)
    assert "1.87 times the mean" in lines["split"]


@pytest.mark.parametrize(
    ("way", "words"), [("all_gather", "whole sequences"), ("a2a", "share of the heads")]
)
def test_every_way_of_exchange_has_words(way, words):
    few = {"context_par": 4, "data_par": 8}
    result, lines = _context(cp_comm=way, activation_recompute="full", **few)
    assert words in lines["exchange"]
    assert "ring" not in result.context_exchange
    assert lines["sent"].endswith("of the time")


def test_linear_attention_says_in_how_many_blocks_it_exchanges_heads():
    execution = document("examples", "llama3-8B_h100x64") | {"context_par": 2, "tensor_par": 8}
    execution |= {"batch_size": 32, "microbatch_size": 1, "data_par": 4, "seq_length": 32_768}
    large = {"base": "h100_80g_sxm", "mem1": {"GiB": 10_000}}
    text = plain(("minimax-text-01", execution, large))
    assert re.search(r"tokens for heads \(linear\) +forward .* 70\n", text)
    assert re.search(r"keys and values +forward .* 10\n", text)
    assert max(map(len, text.splitlines())) <= 80


def test_a_recipe_is_told_in_words():
    model, _, _ = LLAMA
    execution = document("examples", "llama3-8B_h100x64") | {"fp8_recipe": "mxfp8"}
    told = setup_texts(result_of(calculon.estimate(model, execution, "b200_sxm")))
    assert told["recipe"].startswith("mxfp8: operands of the products of blocks are in 8 bits")
    assert not setup_texts(result_of(estimated(LLAMA)))["recipe"]


@pytest.mark.parametrize(
    ("schedule", "chunks", "words"),
    [
        ("zbv", 2, "rank 0 has blocks 1-4 and 29-32, rank 3 has 13-16 and 17-20"),
        ("dualpipe", 1, "rank 0 has blocks 1-8 and 25-32, rank 3 has 25-32 and 1-8; all weights"),
    ],
)
def test_ranks_of_folded_schedules_say_which_blocks_they_have(schedule, chunks, words):
    execution = document("examples", "llama3-8B_h100x64_p4") | {
        "base": "common",
        "pp_schedule": schedule,
        "pipeline_interleaving": chunks,
        "optimizer_sharding": True,
    }
    text = flat(plain(("llama3-8B", execution, "h200_141g_sxm")))
    assert words in text
    assert "rank 1 to 2" in text


def test_a_narrow_step_names_a_wider_precision_that_is_faster():
    plan = {"base": "megatron-lm", "num_procs": 8, "batch_size": 64, "tensor_par": 1}
    plan |= {"pipeline_par": 1}

    def estimate(model, recipe):
        return calculon.estimate(model, plan | {"fp8_recipe": recipe}, "b200_sxm")

    narrow, wide = estimate("gpt2-124M", "nvfp4"), estimate("gpt2-124M", "none")
    time = wide.stats["total_time"]
    assert time < estimate("gpt2-124M", "mxfp8").stats["total_time"]
    assert narrow.wider_step == {"dtype": "bf16", "total_time": time}
    assert narrow.to_dict()["wider_step"] == narrow.wider_step
    less = round(100 * (1 - time / narrow.stats["total_time"]))
    text = flat("\n".join(drawn_lines(estimate_page(result_of(narrow)))))
    assert "Precision: with products in bf16 it takes" in text
    assert f", {less} % less." in text
    # Wide products are faster for a narrow model only; a plan in 16 bits has no wider precision.
    assert wide.wider_step is None
    assert estimate("llama3.2-1B", "mxfp8").wider_step is None


def test_a_step_that_launches_limit_names_the_time_in_graphs():
    plan = {"base": "megatron-lm", "num_procs": 8, "batch_size": 64, "tensor_par": 1}
    plan |= {"pipeline_par": 1, "expert_par": 8, "microbatch_size": 1, "seq_length": 1024}
    of = {mode: plan | {"launch_mode": mode} for mode in ("auto", "graph_parts")}
    eager, graphs = (calculon.estimate("qwen3-30b-a3b", one, "gb200") for one in of.values())
    time = graphs.stats["total_time"]
    assert eager.graph_step == eager.to_dict()["graph_step"]
    assert eager.graph_step == {"launch_mode": "graph_parts", "total_time": time, "supported": True}
    assert graphs.graph_step is None
    assert "graph_step" not in graphs.to_dict()
    # Megatron-LM has no graphs with full recomputation, even where the host limits the step.
    full = calculon.estimate("qwen3-30b-a3b", plan | {"activation_recompute": "full"}, "gb200")
    assert full.stats["host_wait_time"] > 0.05 * full.stats["total_time"]
    assert full.graph_step is None
    less = round(100 * (1 - time / eager.stats["total_time"]))
    for estimate, lines in ((eager, 1), (graphs, 0)):
        text = flat("\n".join(drawn_lines(estimate_page(result_of(estimate)))))
        share = estimate.stats["host_wait_time"] / estimate.stats["total_time"]
        waiting = f", {100 * share:.0f} % of the parts above is waiting for the host"
        assert share > 0.05
        assert text.count(waiting) == text.count("Host: kernel launches limit the step; ") == 1
        assert text.count("(launch_mode=graph_parts) it takes ") == lines
        assert text.count(f", {less} % less.") == lines
