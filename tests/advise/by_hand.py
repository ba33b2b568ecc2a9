"""Changes of executions once more, one at a time and in plain Python: what follows, and all that there are."""

from itertools import combinations

import calculon
from calculon.advise.neighbors import SWITCHES
from calculon.base.errors import CalculonError
from calculon.declarations.presets import find_preset
from calculon.plan.columns import DEFAULTS, FIELDS, field_of
from calculon.plan.plan import NAMES

DEGREES = ("tensor_par", "pipeline_par", "context_par")
PLAIN = {"datatype": "bfloat16", "preset": "megatron-lm", "pipeline_par": 1}
PLANS = {
    "ZeRO on 64": (
        "llama3-70B",
        PLAIN | {"num_procs": 64, "tensor_par": 2, "batch_size": 512, "microbatch_size": 4},
    ),
    "chunks": (
        "llama3.1-405B",
        PLAIN
        | {"num_procs": 512, "tensor_par": 8, "batch_size": 512, "microbatch_size": 1}
        | {"pipeline_par": 2, "pipeline_interleaving": 21},
    ),
    "fully sharded": ("gpt3-13B-hf", "gpt3-13B_a100x2_fsdp"),
}
"""Models and executions that several tests change."""


def fields_of(execution):
    """The fields of an execution."""
    return {name: getattr(execution, name) for name in NAMES}


def followed(model, execution, changes):
    """The fields of an execution with some changed and what follows from that; None where no replicas are left."""
    before = fields_of(execution)
    preset = find_preset(execution.preset)
    usual = preset.usual(before)
    e = before | changes
    if "data_par" not in changes:
        inner = 1
        for name in DEGREES:
            inner *= e[name]
        if e["num_procs"] % inner:
            return None
        e["data_par"] = e["num_procs"] // inner
    asked = {*changes, "num_procs", "microbatch_size", "datatype", "data_par"}
    kept = {n: v for n, v in e.items() if n in asked or usual.get(n, ...) != before[n]}
    e = {**before, **preset.completed(kept)}
    if "pipeline_interleaving" not in changes and e["pipeline_par"] != before["pipeline_par"]:
        blocks = -(-model.num_blocks // e["pipeline_par"])
        e["pipeline_interleaving"] = max(
            n for n in range(1, before["pipeline_interleaving"] + 1) if blocks % n == 0
        )
    _replicas(e)
    if e["pipeline_par"] == 1:
        e["pipeline_interleaving"] = 1
    if e["tensor_par"] == 1:
        e["tensor_par_overlap"] = "none"
        if "tensor_par_comm_type" in changes:
            e["tensor_par_comm_type"] = "ar"
    stores = e["recompute_every"] > max(1, e["recompute_blocks"])
    if e["tensor_par_comm_type"] != "rs_ag" or (e["activation_recompute"] == "full" and not stores):
        e["seq_par_ag_redo"] = False
    _meaningless(e)
    return e


def _replicas(e):
    split = e["zero_stage"] not in ("auto", "0")
    if e["data_par"] * e["context_par"] == 1:
        e |= {"optimizer_sharding": False, "data_par_overlap": False}
        e["zero_stage"] = "0" if split else e["zero_stage"]
    elif e["zero_stage"] != "auto":
        e["optimizer_sharding"] = split


def _meaningless(e):
    """Options without what they need have their default."""
    for _ in range(len(FIELDS)):
        for field in FIELDS:
            for name, values in field.declaration.needs.items():
                again = field.name in ("recompute_every", "recompute_blocks")
                if e[name] not in values and not (again and e["recompute_modules"] != "none"):
                    e[field.name] = DEFAULTS[field.name]


def single_changes(model, execution, system):
    """Every other value of every field that may be changed on the same processors, with the same batch."""
    preset, published = find_preset(execution.preset), execution.edition == "sc23"
    procs = range(1, execution.num_procs + 1)
    values = {"tensor_par": procs, "pipeline_par": range(1, model.num_blocks + 1)}
    values["microbatch_size"] = range(1, execution.batch_size + 1)
    values["pipeline_interleaving"] = range(1, model.num_blocks + 1)
    if not published:
        values["context_par"] = procs
    if model.mixes:
        values |= {"expert_par": procs, "expert_tensor_par": range(execution.tensor_par + 1)}
    for name in SWITCHES:
        has = not preset.entries or name in preset.entries
        if has and not (published and name in DEFAULTS):
            values[name] = field_of(name).values
    if not published and (not preset.entries or "launch_mode" in preset.entries):
        fixed = not model.mixes or execution.moe_pad_to_capacity
        values["launch_mode"] = ("graph", "graph_parts") if fixed else ("graph_parts",)
    if execution.mesh_order == "stated":
        nets = range(len(system.networks))
        values |= dict.fromkeys(("tensor_par_net", "pipeline_par_net", "data_par_net"), nets)
    if not model.attends:
        values.pop("context_par", None)
    if execution.zero_stage != "auto":
        values.pop("optimizer_sharding", None)
    return [
        (name, value)
        for name, several in values.items()
        for value in several
        if value != getattr(execution, name)
        and preset.problem(name, value) is None
        and (name, value) != ("zero_stage", "auto")
    ]


def fewest(model, execution, system, most=2):
    """The fewest changes after which an execution runs, and the fields of all of so many; 0 where none does."""
    singles = single_changes(model, execution, system)
    for size in range(1, most + 1):
        several = [dict(some) for some in combinations(singles, size) if len(dict(some)) == size]
        rows, changes = [], []
        for one in several:
            row = followed(model, execution, one)
            if row is not None and all(row[name] == value for name, value in one.items()):
                rows.append(row)
                changes.append(frozenset(one))
        legal = calculon.evaluate(model, system, rows).feasible if rows else []
        if found := {one for one, runs in zip(changes, legal, strict=True) if runs}:
            return size, found
    return 0, set()


def searched(model, execution, system, **fix):
    """Return the result of a search for the question of an execution."""
    fix = {"batch_size": execution.batch_size, **fix}
    asked = (model, system, execution.num_procs, execution.batch_size, execution.datatype)
    return calculon.search(*asked, preset=execution.preset, fix=fix)


def runs(model, execution, system):
    """Whether an estimate of an execution can be had."""
    try:
        calculon.estimate(model, execution, system)
    except CalculonError:
        return False
    return True
