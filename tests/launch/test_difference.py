"""The difference of two executions in settings: made to the file, it says the other execution."""

from itertools import permutations
from pathlib import Path

import pytest

from calculon import inputs
from calculon.base.errors import SpecError
from calculon.launch.dialect import Dialect, Parsed, Reading, Setting, nearest_settings
from calculon.launch.dialects import DIALECTS, read_launch
from calculon.launch.difference import PROCESSORS, Change, difference
from calculon.search.driver import search
from tests.advise.by_hand import fields_of
from tests.launch.laws import collected, launch_of
from tests.store import cache

MODEL = inputs.model("llama3-8B")


@cache
def _plans(preset: str) -> list[dict[str, object]]:
    """Return plans of a framework that differ in much."""
    found = search(MODEL, "h100_80g_sxm", 16, 128, "bfloat16", top=60, preset=preset)
    ranks = range(0, len(found), max(1, len(found) // 5))
    return [fields_of(found[rank].execution) | {"seq_length": MODEL.seq_size} for rank in ranks]


def _said(dialect: Dialect, settings: dict[str, object], processors: int) -> dict[str, object]:
    """Return the fields that settings say."""
    stated = {name: Setting(name, value) for name, value in settings.items()}
    reading = Reading(Parsed("settings", stated), processors)
    for row in dialect.rows:
        if row.subject == "execution":
            reading.execution.update(row.read(reading))
    return {name: reading.execution[name] for name in dialect.fields}


def _made(settings: dict[str, object], changes: tuple[Change, ...]) -> dict[str, object]:
    """Return settings after changes."""
    found = dict(settings)
    for one in changes:
        if one.kind == "drop":
            assert found.pop(one.name) == one.before
        elif one.name != PROCESSORS:
            assert (one.name in found) == (one.kind == "change")
            found[one.name] = one.after
    return found


def _nearest(dialect, fields):
    try:
        return nearest_settings(dialect, fields)
    except SpecError:
        return None, []


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
def test_changes_make_one_execution_the_other(dialect):
    plans = _plans(dialect.preset)
    assert len(plans) > 1
    for mine, other in permutations(plans, 2):
        settings, unsaid = _nearest(dialect, mine)
        if settings is None:
            continue  # what it has no words for
        found = difference(dialect, mine, other)
        if _nearest(dialect, other)[0] is None:
            assert found.refused
            continue
        assert difference(dialect, mine, mine).changes == ()
        said = _said(dialect, _made(settings, found.changes), other["num_procs"])
        refused = {one.field for one in (*found.refused, *unsaid)}
        assert {name for name in dialect.fields if said[name] != other[name]} <= refused


def _unlike_after_changes(path: Path) -> list[str]:
    """Return the fields that settings of a file, changed to those of another plan, say otherwise."""
    launch = launch_of(path)
    mine = fields_of(inputs.execution(launch.execution, edition="corrected"))
    other = _plans(launch.dialect.preset)[0]
    experts = any(name.endswith("num_moe_experts") for name in launch.stated)
    model = inputs.model("mixtral-8x7B") if experts else None
    found = difference(launch.dialect, mine, other, model, launch.stated)
    stated = {name: one.value for name, one in launch.stated.items()}
    names = {one.name: name for name, one in launch.stated.items()}
    for one in found.changes:
        name = names.get(one.name, one.name)
        assert (name in stated) == (one.kind != "add") or name == PROCESSORS
        if one.kind == "drop":
            del stated[name]
        elif name != PROCESSORS:
            stated[name] = one.after
    said = _said(launch.dialect, stated, other["num_procs"])
    different = {name for name in launch.dialect.fields if said[name] != other[name]}
    return [f"{path.name}: {name}" for name in different - {one.field for one in found.refused}]


@pytest.mark.parametrize("name", [name for name in DIALECTS if name != "megatron-lm"])
def test_a_file_after_the_changes_says_the_other_plan(name):
    files = collected(name.replace("-", "_"))
    assert [field for path in files for field in _unlike_after_changes(path)] == []


def test_words_are_those_of_the_file():
    flag = Change("change", "--tensor-model-parallel-size", 8, 4, "run.sh:3")
    assert str(flag) == "change --tensor-model-parallel-size 8 to 4"
    assert str(Change("add", "--overlap-param-gather", None, True)) == "add --overlap-param-gather"
    assert str(Change("drop", "--tp-comm-overlap", True, None)) == "drop --tp-comm-overlap"
    assert str(Change("add", "ddp.bucket_size", None, 8)) == "add ddp.bucket_size: 8"
    assert str(Change("change", "model.x", True, False)) == "change model.x: true to false"


def test_what_a_file_says_in_other_words_is_dropped():
    script = (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 1 --global-batch-size 8 "
    )
    script += "--tensor-model-parallel-size 1 --bf16 --checkpoint-activations\n"
    launch = read_launch(script, "run.sh")
    mine = fields_of(
        inputs.execution({**launch.execution, "seq_length": 2048}, edition="corrected")
    )
    other = mine | {"activation_recompute": "none"}
    only, length = difference(launch.dialect, mine, other, None, launch.stated).changes
    assert str(length) == "add --seq-length 2048"
    assert (only.kind, only.name, only.place) == ("drop", "--checkpoint-activations", "run.sh:1")


def test_a_field_that_cannot_be_said_is_told_and_the_rest_is_changed():
    stored = {"activation_recompute": "none", "recompute_modules": "none"}
    mine = _plans("megatron-lm")[0] | stored
    other = mine | {"tp_async": not mine["tp_async"], "microbatch_size": 1, "batch_size": 64}
    for name in ("megatron-bridge", "nemo"):
        found = difference(DIALECTS[name], mine, other)
        assert [one.field for one in found.refused] == ["tp_async"]
        assert any("batch_size" in one.name for one in found.changes)
