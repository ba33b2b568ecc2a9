"""What several tests share: the reference results, and how numbers are compared."""

import csv
import gzip
import io
import json
import math
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import calculon
from calculon.architecture.shape import Sizes
from calculon.base.records import columns
from calculon.declarations.scope_choices import BatchChoice, BlockChoice, LayoutChoice, StepChoice
from calculon.declarations.statistics import Stats
from calculon.plan.choices import grouped
from calculon.plan.plan import Plan
from calculon.plan.schedule import Schedule
from tests.store import cache

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "tests" / "reference"
RELATIVE = 1e-9
"""How closely published numbers are met."""

NAMES = tuple(column.name for column in columns(Stats))
"""The statistics, in published order."""

FLOOR = 1e-15
"""Seconds that do not count in exposed times, which are differences of nearly equal times, clamped at 0."""


def document(folder: str, name: str) -> dict[str, Any]:
    """Read a spec file that the repository ships, as it stands."""
    return json.loads((ROOT / folder / f"{name}.json").read_text())


def csv_rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a table in CSV, by the names of its columns."""
    return list(csv.DictReader(io.StringIO(text)))


@cache
def reference_cases(name: str) -> tuple[dict[str, Any], ...]:
    """Read a file of reference results, one case a line."""
    with gzip.open(REFERENCE / f"{name}.jsonl.gz", "rt") as lines:
        return tuple(json.loads(line) for line in lines)


@cache
def reference_system(name: str) -> calculon.System:
    """Return a system of the catalog, or one that only the reference results use."""
    own = REFERENCE / "systems" / f"{name}.json"
    return calculon.inputs.system(own if own.exists() else name)


C = TypeVar("C", LayoutChoice, BlockChoice, StepChoice, BatchChoice)

PLAIN: dict[str, Any] = {
    "num_procs": 1,
    "tensor_par": 1,
    "pipeline_par": 1,
    "data_par": 1,
    "tensor_par_net": 0,
    "pipeline_par_net": 0,
    "data_par_net": 0,
    "batch_size": 1,
    "microbatch_size": 1,
    "datatype": "float16",
    "fused_activation": False,
    "attention_type": "multihead",
    "activation_recompute": "none",
    "pipeline_interleaving": 1,
    "optimizer_sharding": False,
    "tensor_par_comm_type": "ar",
    "tensor_par_overlap": "none",
    "seq_par_ag_redo": False,
    "data_par_overlap": False,
    "weight_offload": False,
    "activations_offload": False,
    "optimizer_offload": False,
    "training": True,
    "preset": "published",
}
"""An execution on one processor: nothing is recomputed, overlapped, split or offloaded, and nothing filled in."""

CORRECTED_PLAIN = PLAIN | {"edition": "corrected", "pipeline_par_net": 1, "data_par_net": 1}
"""The same in edition ``corrected``; stages and replicas, if there are several, are on the second network."""

CORRECTED_FLASH = CORRECTED_PLAIN | {"datatype": "bfloat16", "attn_impl": "flash"}
"""The same in bfloat16 with fused attention."""

LLAMA_X64: dict[str, Any] = PLAIN | {
    "num_procs": 64,
    "tensor_par": 2,
    "data_par": 32,
    "pipeline_par_net": 1,
    "data_par_net": 1,
    "batch_size": 512,
    "microbatch_size": 2,
    "datatype": "bfloat16",
    "fused_activation": True,
    "optimizer_sharding": True,
    "tensor_par_comm_type": "rs_ag",
    "tensor_par_overlap": "ring",
    "data_par_overlap": True,
    "edition": "corrected",
    "attn_impl": "flash",
    "ce_impl": "fused",
    "grad_buffer": "full",
}
"""Llama 3 8B on 64 processors: tensor parallelism in rings, ZeRO-1 as published with whole gradients."""

LLAMA_X64_P4 = LLAMA_X64 | {"pipeline_par": 4, "data_par": 8}
"""The same in four stages."""


def choice_of(kind: type[C], plan: Plan) -> C:
    """Return the choice that all executions of a table share."""
    ((choice, _),) = grouped(plan, kind)
    return choice


def _changed(kind: type[C], changes: dict[str, Any]) -> C:
    plan = Plan.from_records([PLAIN | changes])
    assert (plan.malformed < 0).all()
    return choice_of(kind, plan)


def layout_choice(**changes: Any) -> LayoutChoice:
    """Return what decides which layers there are, of a plain execution with some changes."""
    return _changed(LayoutChoice, changes)


def block_choice(**changes: Any) -> BlockChoice:
    """Return what decides what a block costs, of a plain execution with some changes."""
    return _changed(BlockChoice, changes)


def step_choice(**changes: Any) -> StepChoice:
    """Return what decides what an optimizer step costs, of a plain execution with some changes."""
    return _changed(StepChoice, changes)


def sizes(**numbers: Any) -> Sizes:
    """Return columns that size blocks: on the first network, the vocabulary as it is, but for what is given."""
    length = max(np.size(values) for values in numbers.values())
    plain = {
        "tensor_par": np.ones(length),
        "microbatch_size": np.ones(length),
        "tensor_par_net": np.zeros(length, int),
        "vocab_pad_multiple": np.ones(length),
        "seq_length": np.zeros(length),
    }
    return Sizes(**plain | numbers)


def schedule_of(plan: Plan, model: calculon.Model, system: calculon.System) -> Schedule:
    """Return the schedule of executions that share a choice."""
    return Schedule(plan, choice_of(BatchChoice, plan), model, system)


def unlabeled(layer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a layer in a list, but for those that say of which kind of block it is."""
    return {name: value for name, value in layer.items() if name not in ("kind", "blocks")}


def differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """List the members in which two results differ by more than the published precision."""
    names = sorted({*found} ^ {*expected}) or "the same in another order"
    assert list(found) == list(expected), f"members of one result only: {names}"
    return [
        f"{name}: {found[name]!r} instead of {wanted!r}"
        for name, wanted in expected.items()
        if not _close(found[name], wanted, floor(name))
    ]


def floor(name: str) -> float:
    """Return the difference of a statistic that does not count, in seconds."""
    return FLOOR if "exposed" in name else 0.0


def _close(found: Any, expected: Any, least: float) -> bool:
    if isinstance(expected, str) or expected is None or found is None:
        return found == expected
    return math.isclose(found, expected, rel_tol=RELATIVE, abs_tol=least)


def bits(stats: Mapping[str, float | None]) -> np.ndarray:
    """Return the bit patterns of the statistics of one execution; null is not-a-number."""
    values = [math.nan if stats[name] is None else stats[name] for name in NAMES]
    return np.array(values).view(np.int64)


def table_bits(result: calculon.Evaluation) -> np.ndarray:
    """Return the bit patterns of a table, one row per execution."""
    return np.stack([result[name] for name in NAMES], axis=1).view(np.int64)


def refusal(call: Callable[..., Any], *args: Any, **keywords: Any) -> str:
    """Return the message with which a call is refused; nothing if it is not."""
    try:
        call(*args, **keywords)
    except calculon.SpecError as error:
        return str(error)
    return ""


def take_signals() -> None:
    """Let a new process take the signals that end one, also where the tests ignore some, as under nohup.

    What is ignored is inherited, so that such a process would go on to its end.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
