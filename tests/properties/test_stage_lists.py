"""Pipelines that list the blocks of their stages."""

import json
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

import calculon
from calculon import inputs
from calculon.declarations.statistics import FITS
from tests import twin
from tests.draws import draws
from tests.helpers import LLAMA_X64, PLAIN, document
from tests.strategies import with_place

SYSTEM_FILE = json.loads(Path("systems/h100_80g_sxm.json").read_text())
for _kind in ("norm", "activation", "loss"):  # rates that the twin does not know
    del SYSTEM_FILE["ext"]["kernels"][_kind]
MODEL, SYSTEM = inputs.model("llama3-8B"), inputs.system(SYSTEM_FILE)
STATED = LLAMA_X64 | {
    "edition": "corrected",
    "preset": "published",
    "tensor_par": 2,
    "pipeline_par": 4,
    "data_par": 8,
    "mem_reserved_mib": 0,
}


def estimate(**changes):
    return calculon.estimate(MODEL, STATED | changes, SYSTEM).stats


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb_h1"])
def test_a_list_equals_the_same_layout_stated_otherwise(schedule):
    form = {"pp_schedule": schedule, "batch_size": 64}
    stated = estimate(**form, first_stage_blocks=9, last_stage_blocks=7)
    assert estimate(**form, stage_blocks=[9, 8, 8, 7]) == stated


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_equal_chunks_are_the_uniform_layout(chunks):
    each, stages = 8 // chunks, 4 * chunks
    letters = f"Et*{each}|(t*{each}|)*{stages - 2}t*{each}L"
    form = {"pipeline_interleaving": chunks}
    uniform = estimate(**form)
    assert estimate(**form, stage_blocks=letters) == uniform
    assert estimate(**form, stage_blocks=[each] * stages) == uniform


def test_letters_are_read_as_counts():
    form = {"pipeline_interleaving": 2}
    letters = estimate(**form, stage_blocks="Et*3|(t*5|)*5t*4|L")
    assert letters == estimate(**form, stage_blocks=[3, 5, 5, 5, 5, 5, 4, 0])


@pytest.mark.parametrize("letters", ["tt|ttL", "Et|t", "EtL|t", "Et|mtL", "Et|m|tL", "Et|m|mL"])
def test_letters_out_of_order_have_one_message(letters):
    with pytest.raises(
        calculon.SpecError, match="stage_blocks: expected a list of counts"
    ) as error:
        inputs.execution(STATED | {"stage_blocks": letters})
    assert len(error.value.problems) == 1


def test_letters_have_the_mtp_modules_of_the_model():
    for name, modules in (("llama3-8B", 0), ("deepseek-v3", 1)):
        model = inputs.model(name)
        for count in range(3):
            layout = f"Et|t{'m' * count}L"
            plans = ({**STATED, "stage_blocks": layout}, {"pp": 2, "stage_blocks": layout})
            for plan in (*plans, f"pp=2 stage_blocks={layout}"):
                if count == modules:
                    assert inputs.execution(plan, model=model).stage_blocks == "1-1"
                    continue
                with pytest.raises(calculon.SpecError, match=rf"{modules} m \(.*found {count} in"):
                    inputs.execution(plan, model=model)


def test_lists_of_chunks_without_their_number_have_a_hint():
    for chunks, blocks in ((2, "4-4-4-4-4-4-4-4"), (None, "4-4-4-4-4-4-4"), (None, "9-9-9-9")):
        with pytest.raises(calculon.SpecError, match="counts that add up to") as error:
            estimate(stage_blocks=blocks)
        assert error.value.hint.startswith(f"vpp={chunks} ") == bool(chunks)


def test_words_without_values_are_unknown_names():
    with pytest.raises(calculon.SpecError, match="plan: 8: expected a field of an execution"):
        inputs.execution("tp=8 8 8", model=MODEL)


def test_lists_in_plans_may_have_commas_and_blanks():
    forms = ["[9,8,8,7]", "[9, 8, 8, 7]", "9,8,8,7", "9 8 8 7", "Et*9 | t*8, | t*8 |t*7 L"]
    for form in forms:
        for plan in (f"pp=4 stage_blocks={form}", f"stage_blocks={form}, pp=4"):
            assert inputs.execution(plan, model=MODEL).stage_blocks == "9-8-8-7"


def test_lists_are_read_as_lists_and_as_text(tmp_path):
    for stated, text in ([9, 8, 8, 7], "9-8-8-7"), ("Et*16|t*15|tm|L", "16-15-1m-0"):
        (tmp_path / "run.json").write_text(json.dumps(STATED | {"stage_blocks": stated}))
        read = inputs.execution(tmp_path / "run.json")
        assert read.stage_blocks == text
        assert inputs.execution(read.to_dict()) == read


@pytest.mark.parametrize(
    "changes",
    [
        {"stage_blocks": [7, 9, 8, 8]},
        {"stage_blocks": [6, 7, 12, 7], "pp_schedule": "gpipe", "batch_size": 64},
        {"stage_blocks": [4, 4, 4, 4, 5, 4, 4, 3], "pipeline_interleaving": 2},
        {"stage_blocks": [3, 5, 6, 4, 5, 3, 4, 2], "pipeline_interleaving": 2, "batch_size": 208},
        {
            "stage_blocks": [0, 11, 10, 11, 0, 0, 0, 0],
            "pipeline_interleaving": 2,
            "activation_recompute": "full",
        },
        {"stage_blocks": [0, 11, 11, 10], "pp_schedule": "zb_h1"},
        {"stage_blocks": [1, 5, 5, 5, 6, 5, 5, 0], "pipeline_interleaving": 2},
        {"stage_blocks": [3] * 7 + [2] * 5 + [1], "pipeline_par": 13, "num_procs": 208},
        {
            "stage_blocks": [8, 8, 8, 8],
            "zero_stage": "fsdp",
            "fsdp_unit": 4,
            "grad_buffer": "sharded",
        },
    ],
)
def test_lists_equal_the_twin(changes):
    execution = STATED | changes
    text = execution | {"stage_blocks": "-".join(map(str, execution["stage_blocks"]))}
    assert_like_the_twin(MODEL, text)


def assert_like_the_twin(model, execution, system_file=SYSTEM_FILE):
    expected = twin.estimate(model.to_dict(), execution, system_file)
    found = calculon.estimate(model, execution, inputs.system(system_file)).stats
    for name, value in expected.items():
        if isinstance(value, float) and name in found:
            rounding = {"abs": 1e-4} if name == FITS else {"rel": 1e-9}  # ours is read from a table
            assert found[name] == pytest.approx(value, **rounding), name


@pytest.mark.parametrize("seed", range(draws(3)))
def test_random_chunks_equal_the_twin(seed):
    """With experts in the blocks after the first ones, chunks without any, and MTP modules, some in another chunk."""
    random = Random(seed)
    stages, chunks = random.choice((2, 3, 4)), random.choice((2, 3))
    parts = stages * chunks
    blocks = random.randint(parts, 3 * parts)
    cuts = sorted(random.randint(0, blocks) for _ in range(parts - 1))
    counts = [after - before for before, after in pairwise([0, *cuts, blocks])]
    changed = {"num_blocks": blocks, "first_k_dense": random.choice((0, 1, 2))}
    changed |= {"mtp_layers": random.choice((0, 1)), "tied": random.random() < 0.5}
    placed = changed["mtp_layers"] and stages > 2 and random.random() < 0.7
    listed = with_place(random, counts, stages) if placed else map(str, counts)
    model = inputs.model(document("models", "qwen1.5-moe") | changed)
    large = SYSTEM_FILE | {"mem1": SYSTEM_FILE["mem1"] | {"GiB": 10_000}}
    execution = PLAIN | {
        "edition": "corrected",
        "preset": "published",
        "datatype": "bfloat16",
        "coll_algo": "auto",
        "num_procs": 4 * stages,
        "pipeline_par": stages,
        "pipeline_interleaving": chunks,
        "pipeline_par_net": 1,
        "data_par": 4,
        "expert_par": 4,
        "batch_size": 4 * random.choice((stages, 5 * stages, 3 * stages + 1)),
        "ep_overlap": random.choice(("none", "1f1b")),
        "stage_blocks": "-".join(listed),
    }
    assert_like_the_twin(model, execution, large)
