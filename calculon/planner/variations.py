"""Executions changed in a few fields: what follows from the changed ones is changed along with them."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from calculon.evaluate import Evaluation, evaluate
from calculon.hardware.system import System
from calculon.plan.columns import DEFAULTS, field_of
from calculon.plan.plan import NAMES, Plan
from calculon.plan.rules.data_rules import NEEDING
from calculon.presets import find_preset
from calculon.spec.axes import PUBLISHED_AXES
from calculon.spec.execution import Execution
from calculon.spec.model import Model
from calculon.spec.plan_words import replicas

UNSPLIT = ("auto", "0")
"""Values of ``zero_stage`` that split nothing by themselves."""

Fields = dict[str, Any]

_ASKED = ("num_procs", "microbatch_size", "datatype")
"""Fields that are the question itself where a preset could derive them, too: processors from their split."""


def varied(execution: Execution, changes: Mapping[str, Any]) -> Fields:
    """Return the fields of an execution with some of them changed.

    A field that is as its preset derives it from others is derived again; one that the others rule out has the value
    that they leave. Whether a framework and a system can run the result is not looked at.
    """
    before = {name: getattr(execution, name) for name in NAMES}
    preset = find_preset(execution.preset)
    usual = preset.usual(before)
    kept = {n: v for n, v in before.items() if n in _ASKED or usual.get(n, ...) != v}
    left = before
    if changes.get("preset", execution.preset) != execution.preset:
        preset = find_preset(changes["preset"])
        left = {**before, **{n: v for n, v in DEFAULTS.items() if n not in kept}}
    return _consistent({**left, **preset.completed({**kept, **changes})})


def _consistent(fields: Fields) -> Fields:
    """Return fields of which those that others rule out have the value that is left."""
    e = dict(fields)
    if replicas(e) == 1:
        e |= {"optimizer_sharding": False, "data_par_overlap": False}
        e["zero_stage"] = e["zero_stage"] if e["zero_stage"] in UNSPLIT else "0"
    elif e["zero_stage"] not in UNSPLIT:
        e["optimizer_sharding"] = True
    elif e["zero_stage"] == "0" and e["optimizer_sharding"]:
        e["zero_stage"] = "1"
    for name in NEEDING:
        if e["zero_stage"] not in field_of(name).declaration.needs["zero_stage"]:
            e[name] = DEFAULTS[name]
    if e["pipeline_par"] == 1:
        e |= {"pipeline_interleaving": 1, "p2p_overlap": False}
    if e["tensor_par"] == 1:
        e |= {"tensor_par_overlap": "none", "tp_async": False}
    full = e["activation_recompute"] == "full"
    if full:
        e["recompute_modules"] = "none"
    every = e["recompute_every"] == max(1, e["recompute_blocks"])
    if (full and every) or e["tensor_par_comm_type"] != "rs_ag":
        e["seq_par_ag_redo"] = False
    return e


def evaluated(
    model: Model, system: System, executions: Iterable[Fields], *, networks: bool = True
) -> Evaluation:
    """Return executions as a table; with `networks`, each on every network where it states them."""
    rows = [
        one
        for fields in executions
        for one in (_on_networks(fields, len(system.networks)) if networks else (fields,))
    ]
    return evaluate(model, system, Plan.from_records(rows))


def _on_networks(fields: Fields, count: int) -> Iterator[Fields]:
    """Yield an execution on all combinations of networks for the axes that it has; once where they follow."""
    if fields["mesh_order"] != "stated":
        yield fields
        return
    choices = [range(count) if fields[axis.degree] > 1 else (0,) for axis in PUBLISHED_AXES]
    for networks in product(*choices):
        yield fields | {axis.network: n for axis, n in zip(PUBLISHED_AXES, networks, strict=True)}
