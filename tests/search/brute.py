"""Every execution of a space by nested loops, written from the specification of the search; and small spaces.

Nothing here is shared with the search but the inputs and the rules: the loops make rows, a row that an uncounted rule
rejects is dropped, and :func:`calculon.evaluate` tells what the others cost and why they fail. Optional fields and
their values come from the declarations.
"""

import copy
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cached_property
from itertools import groupby
from random import Random
from typing import Any

import numpy as np

import calculon
from calculon.base.frozen import dataclass
from calculon.declarations.statistics import TIER1
from calculon.editions import EDITIONS
from calculon.estimate.evaluate import Evaluation, evaluate_rows
from calculon.plan.columns import DEFAULTS, field_of
from calculon.plan.plan import NAMES
from calculon.plan.rules.all_rules import REASONS, RULES, check
from calculon.plan.rules.rule import Requests
from calculon.search.best_first import count_space
from calculon.search.candidates import EXTENSIONS, LOOPS
from calculon.search.conditions import Condition
from calculon.search.driver import make_space
from calculon.search.objective import Objective
from calculon.search.space import Space
from tests.declared import ADDED, FIXED, REPLICATING, missing, others
from tests.strategies import divisors

MEMORY = REASONS.index("mem1_capacity")

LIMIT = 250
"""Executions of a random space."""

OUTER = (
    "tensor_par",
    "pipeline_par",
    "batch_size",
    "pipeline_interleaving",
    "activation_recompute",
    "optimizer_sharding",
    "tensor_par_comm_type",
    "seq_par_ag_redo",
    "data_par_overlap",
    "tensor_par_overlap",
    "weight_offload",
    "activations_offload",
    "optimizer_offload",
    "attention_type",
    "fused_activation",
    *EXTENSIONS,
)
"""The loops outside that over microbatch sizes."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A space to search, and its executions, each in its turn."""

    model: calculon.Model
    system: calculon.System
    num_procs: int
    max_batch_size: int
    datatype: str
    fused: tuple[bool, ...] = (True,)
    tensor_overlap: bool = True
    data_overlap: bool = True
    fix: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    add: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    edition: str = "sc23"
    any_batch: bool = False
    preset: str | None = None
    held: dict[str, tuple[Any, ...]] | None = None
    """Values that the search is held to, if the framework chooses the others of `fix`; by default `fix`."""

    @cached_property
    def space(self) -> Space:
        """The space as the search has it."""
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        held = given.pop("held")
        if held is not None:
            given["fix"] = held
        if self.edition != "sc23":
            given["preset"] = self.preset or "published"
        return make_space(**given)

    def on(self, system: calculon.System) -> "Case":
        """The same executions on a system with other capacities."""
        case = dataclasses.replace(self, system=system)
        vars(case).update(rows=self.rows, plan=self.plan, needs=self.needs)
        return case

    @cached_property
    def every(self) -> tuple[list[Row], calculon.Plan]:
        """The executions in the order of the loops, but for those that are not counted: as rows and as a table."""
        nested = list(loops(self))
        plan = table(nested)
        held = np.flatnonzero(self.enumerated(plan))
        return [nested[i] for i in held], plan.take(held)

    @cached_property
    def rows(self) -> list[Row]:
        """The executions as rows."""
        return self.every[0]

    def enumerated(self, plan: calculon.Plan) -> np.ndarray:
        """Which executions no uncounted rule rejects."""
        requests = Requests(self.model, self.system, plan)
        held = np.ones(len(plan), bool)
        for rule in RULES:
            if not rule.counted:
                held &= rule.holds(requests)
        return held

    @cached_property
    def plan(self) -> calculon.Plan:
        """The executions as a table."""
        return self.every[1]

    @cached_property
    def table(self) -> calculon.Evaluation:
        """All statistics of all executions, without those that are only uncertain: a search looks for none of these."""
        found = calculon.evaluate(self.model, self.system, self.plan)
        usable = EDITIONS[self.edition].machine(self.system).usable[0]
        over = found.feasible & (found[TIER1] > usable)
        values = {name: np.where(over, np.nan, found[name]) for name in found.names}
        return Evaluation(found.plan, np.where(over, MEMORY, found.codes), values)

    @cached_property
    def needs(self) -> np.ndarray:
        """Bytes that executions need in the two tiers, shape (2, rows); nan where another rule fails."""
        needs = np.full((2, len(self.rows)), np.nan)
        possible = np.flatnonzero(check(self.model, self.system, self.plan) == 0)
        rows, edition = self.plan.take(possible), EDITIONS[self.edition]
        for part, batch in evaluate_rows(self.model, self.system, rows, edition):
            capacity = batch.capacity
            needs[0, possible[part]] = capacity.proc_mem_tier1_cap_req
            needs[1, possible[part]] = capacity.proc_mem_tier2_cap_req
        return needs

    def visited(self) -> np.ndarray:
        """Which executions the loops reach that give up after the first microbatch size without success."""
        reached = np.zeros(len(self.rows), bool)
        good = self.table.feasible
        for _, same in groupby(range(len(self.rows)), lambda i: [self.rows[i][n] for n in OUTER]):
            for _, numbers in groupby(same, lambda i: self.rows[i]["microbatch_size"]):
                executions = list(numbers)
                reached[executions] = True
                if not good[executions].any():
                    break
        return reached

    def best(self, objective: Objective, count: int, mask: np.ndarray | None = None) -> np.ndarray:
        """Rows of the best feasible executions that meet a mask, the first of equals in :meth:`preferred` first."""
        mask = self.table.feasible if mask is None else mask & self.table.feasible
        rows = self.preferred[mask[self.preferred]]
        scores = score(objective, self.table)[rows]
        return rows[np.argsort(-scores, kind="stable")][:count]

    @cached_property
    def preferred(self) -> np.ndarray:
        """Rows in the order that decides between equals: fewest switches, or as the loops have them in ``sc23``."""
        switches = [self._switches(row) for row in self.rows]
        return np.array(sorted(range(len(self.rows)), key=switches.__getitem__), int)

    def _switches(self, row: Row) -> int:
        """What an execution offloads, recomputes and overlaps."""
        if self.edition == "sc23":
            return 0
        names = ("weight_offload", "activations_offload", "optimizer_offload", "seq_par_ag_redo")
        names += ("data_par_overlap", "p2p_overlap", "overlap_param_gather", "tp_async")
        on = sum(bool(row.get(name)) for name in names) + (row["tensor_par_overlap"] != "none")
        return on + {"none": 0, "full": 2}.get(row["activation_recompute"], 1)


def table(rows: list[Row]) -> calculon.Plan:
    """Make a table of rows."""
    return calculon.Plan.from_columns({name: [row[name] for row in rows] for name in NAMES})


def same_rows(found: calculon.Plan, wanted: calculon.Plan) -> bool:
    """Return whether two tables have the same executions in the same order."""
    return all((found.values(name) == wanted.values(name)).all() for name in NAMES)


def score(objective: Objective, table: calculon.Evaluation) -> np.ndarray:
    """Scores of the rows of a table."""
    values = table[objective.statistic.name]
    return values if objective.sense == "max" else -values


def not_dominated(scores: np.ndarray) -> np.ndarray:
    """Return the columns of scores that no other one equals or beats in each of them; of equals the first."""
    each, other = scores[:, :, None], scores[:, None, :]
    as_good = (other >= each).all(axis=0)
    better = as_good & (other > each).any(axis=0)
    before = np.tri(scores.shape[1], k=-1, dtype=bool)
    return np.flatnonzero(~(better | (as_good & before)).any(axis=1))


def loops(case: Case) -> Iterator[Row]:
    """Nest the loops of section 8.1 of the specification, with what `fix` leaves and what `add` adds."""
    degrees = extension(case, "context_par")
    if degrees == (1,):
        yield from (row for _, row in nested(case, 1))
        return
    found = [one for parts in degrees for one in nested(case, parts)]
    found.sort(key=lambda one: one[0])
    yield from (row for _, row in found)


def batches_of(case: Case, replicas: int, *, exact: bool) -> list[int]:
    """Return the batches of so many replicas: the largest one, then those that are added."""
    largest = replicas * (case.max_batch_size // replicas)
    found = [largest] if largest and (largest == case.max_batch_size or not exact) else []
    for more in case.add.get("batch_size", ()):
        if more % replicas == 0 and more <= largest and more not in found:
            found.append(more)
    return found


def nested(case: Case, parts: int) -> Iterator[tuple[tuple[Any, ...], Row]]:
    """Nest the loops for so many parts of sequences; before each execution comes its place among all."""
    model, add = case.model, case.add
    several = extension(case, "context_par")

    def pick(name: str, candidates: Any) -> list[Any]:
        return [c for c in candidates if c in case.fix.get(name, (c,))]

    offload = (True, False) if case.space.system.usable[1] > 0 else (False,)
    everywhere = True in add.get("activations_offload", ())
    meshed = "stated" not in case.fix.get("mesh_order", ("stated",))
    networks = range(1 if meshed else len(case.system.networks))
    more = add.get("attention_type", ()) if model.kv_heads in (0, 1, model.attn_heads) else ()
    attention = ["multihead", *(a for a in more if a != "multihead")]
    for t in pick("tensor_par", divisors(case.num_procs)):
        attends = model.part in ("block", "attention")
        heads = (model.hidden, model.attn_heads if attends else model.hidden)
        if any(width % t for width in heads) or (
            attends and model.key_value_heads % t and t % model.key_value_heads
        ):
            continue
        pairs = case.num_procs // t
        for p in pick("pipeline_par", pipelines(case, pairs)):
            d, rest = divmod(pairs // p, parts)
            if rest:
                continue
            same = d * parts
            exact = not case.any_batch and case.preset not in (None, "published")
            stage = -(-model.num_blocks // p)
            batches = batches_of(case, d, exact=exact)
            chosen = pick("batch_size", batches) if pick("data_par", [d]) else ()
            for position, batch in enumerate(chosen):
                sizes = divisors(batch // d)
                of_unit = {
                    "num_procs": case.num_procs,
                    "tensor_par": t,
                    "pipeline_par": p,
                    "data_par": d,
                    "batch_size": batch,
                    "datatype": case.datatype,
                    "training": True,
                    "edition": case.edition,
                    "preset": case.preset or "published",
                }
                for chunks in pick("pipeline_interleaving", divisors(stage) if p > 1 else [1]):
                    for recompute in pick("activation_recompute", ("full", "attn_only", "none")):
                        full = recompute == "full"
                        for choices in product(
                            pick,
                            ("optimizer_sharding", (True, False) if same > 1 else (False,)),
                            ("tensor_par_comm_type", ("ar", "p2p_rs_ag", "rs_ag")),
                            ("seq_par_ag_redo", (True, False)),
                            (
                                "data_par_overlap",
                                (True, False) if same > 1 and case.data_overlap else (False,),
                            ),
                            (
                                "tensor_par_overlap",
                                ("none", "ring", "pipe")
                                if t > 1 and case.tensor_overlap
                                else ("none",),
                            ),
                            ("weight_offload", offload),
                            (
                                "activations_offload",
                                (False,) if full and not everywhere else offload,
                            ),
                            ("optimizer_offload", offload),
                            ("attention_type", attention),
                            ("fused_activation", case.fused),
                            *(
                                (
                                    name,
                                    (parts,) if name == "context_par" else extension(case, name, t),
                                )
                                for name in EXTENSIONS
                            ),
                            ("microbatch_size", sizes),
                            ("tensor_par_net", networks if t > 1 else (0,)),
                            ("pipeline_par_net", networks if p > 1 else (0,)),
                            ("data_par_net", networks if d > 1 else (0,)),
                        ):
                            if choices["pp_layout"] not in layouts(case, p):
                                continue
                            length = choices["seq_length"] or model.seq_size
                            if choices["microbatch_size"] * length % t:
                                continue
                            row = {
                                **of_unit,
                                "pipeline_interleaving": chunks,
                                "activation_recompute": recompute,
                                **choices,
                            }
                            place = _place(row, position, case) if len(several) > 1 else ()
                            yield place, row


def _place(row: Row, position: int, case: Case) -> tuple[Any, ...]:
    """Return where an execution is among those with other parts of sequences: the outermost loop comes first."""
    space = case.space
    return tuple(
        position if name == "batch_size" else space.position(name, row[name]) for name in LOOPS
    )


def extension(case: Case, name: str, tensor_par: int = 0) -> tuple[Any, ...]:
    """Return the values of a field that only the corrected edition has: as fixed, or its default and what is added.

    Experts are not split as tensor parallelism splits other layers where the default says that already.
    """
    more = tuple(v for v in case.add.get(name, ()) if v != DEFAULTS[name])
    if name == "pp_layout" and case.preset in UNEVEN:
        more = *EVEN.get(case.preset, ()), UNEVEN[case.preset], *more
    found = case.fix.get(name, tuple(dict.fromkeys((DEFAULTS[name], *more))))
    if name == "expert_tensor_par" and 0 in found:
        found = tuple(width for width in found if width != tensor_par)
    return found


UNEVEN = {"megatron-lm": "balanced", "torchtitan": "both_as_blocks", "deepspeed": "uniform"}
"""How frameworks lay out stages where the blocks do not divide."""

EVEN = {"megatron-lm": ("uniform", "both_as_blocks")}
"""How they lay them out otherwise, if not uniformly alone."""


def pipelines(case: Case, pairs: int) -> list[int]:
    """Return the numbers of stages of so many processors per tensor rank."""
    blocks = case.model.num_blocks
    uneven = UNEVEN.get(case.preset) in case.fix.get("pp_layout", UNEVEN.values())
    added = case.add.get("pipeline_par", ())
    return [p for p in divisors(pairs) if p <= blocks and (blocks % p == 0 or uneven or p in added)]


def layouts(case: Case, stages: int) -> tuple[Any, ...]:
    """Return the layouts that are tried with so many stages."""
    if case.preset not in UNEVEN or "pp_layout" in case.fix:
        return extension(case, "pp_layout")
    usual = EVEN.get(case.preset, ("uniform",))
    ends = (0, 2) if "both_as_blocks" in usual else (0,)
    divide = any((case.model.num_blocks + more) % stages == 0 for more in ends)
    return *(usual if divide else (UNEVEN[case.preset],)), *case.add.get("pp_layout", ())


def product(pick: Any, *named: tuple[str, Any]) -> Iterator[Row]:
    """Nest loops over named candidates, the first one outermost."""
    names = [name for name, _ in named]
    for values in itertools.product(*(pick(name, candidates) for name, candidates in named)):
        yield dict(zip(names, values, strict=True))


# -- random spaces ----------------------------------------------------------------------------------------------------

ADDITIONS: dict[str, Sequence[Any]] = {
    "attention_type": ("multiquery",),
    "activations_offload": (True,),
    "pipeline_par": range(1, 8),
    "batch_size": range(1, 17),
}
"""Values that either edition may be widened with."""

SHAPES: dict[str, Sequence[Any]] = {
    "activation": ("swiglu", "squared_relu"),
    "norm": ("rmsnorm", "layernorm_plain"),
    "norms": (2, 4),
    "qk_norm": ("head", "full"),
    "qkv_bias": (True,),
    "mlp_bias": (True,),
    "parallel_attention": (True,),
    "dropout": (False,),
    "rotary": (0.5,),
    "sliding_window": (2, 100),
    "full_attention_every": (1, 2),
    "vocab": (11, 1000, 51200),
    "tied": (True,),
    "positions": (1024,),
    "embedding_norm": (True,),
    "num_experts": (1, 4, 16),
    "attention_sinks": (True,),
    "attention_gate": (True,),
}
"""Fields of a model that only the corrected edition knows."""


def random_case(random: Random, system: dict[str, Any], edition: str) -> Case:
    """Choose a small space: widened, narrowed, on a system with memory for all of its executions, or without tier 2."""
    system = copy.deepcopy(system)
    system["mem1"]["GiB"], system["mem2"]["GiB"] = 1e9, random.choice((0, 1e9, 1e9))
    while True:
        case = _narrowed(random, _any_case(random, calculon.inputs.system(system), edition))
        if 10 <= count_space(case.space) <= LIMIT:
            return case


def _any_case(random: Random, system: calculon.System, edition: str) -> Case:
    num_procs = random.choice((12, 8, 24, 6, 36, 4, 16, 2))
    batches = (12, 24, random.randint(1, 24), random.randint(1, 3) * num_procs + 1)
    datatype = random.choice(sorted(system.matrix))
    add = {
        name: _some(random, values) for name, values in ADDITIONS.items() if random.random() < 0.5
    }
    fix: Row = {}
    if edition == "corrected":
        names = random.sample(ADDED, random.randint(0, 3))
        if random.random() < 0.5:
            names += ["zero_stage", random.choice(REPLICATING)]
            name = random.choice(FIXED)
            fix = random.choice(({}, {name: _some(random, field_of(name).others)}))
        add |= _widened(random, names, system, datatype)
    return Case(
        _model(random, edition),
        system,
        num_procs,
        random.choice(batches),
        datatype,
        fused=random.choice(((True,), (False,), (False, True))),
        tensor_overlap=random.random() < 0.7,
        data_overlap=random.random() < 0.7,
        fix=fix,
        add=add,
        edition=edition,
    )


def _some(random: Random, values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(random.sample(values, min(len(values), random.choice((1, 1, 2)))))


def _widened(random: Random, names: list[str], system: calculon.System, datatype: str) -> Row:
    """Choose one or two values of some optional fields, and of what these need beside them."""
    add: Row = {}
    for name in names:
        needed = missing(name)
        for of_system in {"matmul_dtype", "fp8_recipe"} & needed.keys():
            there = ("same", "none", *others(of_system, system, datatype))
            needed[of_system] = tuple(value for value in needed[of_system] if value in there)
        values = {name: others(name, system, datatype), **needed}
        if all(values.values()):
            for other, known in values.items():
                more = (*add.get(other, ()), *_some(random, known))
                add[other] = tuple(dict.fromkeys(more))
    return add


def _model(random: Random, edition: str) -> calculon.Model:
    """Choose a small model; some do not divide over some degrees."""
    fields = {
        "hidden": random.choice((12, 24, 60, 144, 768)),
        "feedforward": random.choice((24, 50, 144, 600, 3072)),
        "seq_size": random.choice((12, 1, 3, 128, 130, 1024)),
        "attn_heads": random.choice((12, 24, 6, 1)),
        "attn_size": random.choice((1, 5, 64)),
        "num_blocks": random.choice((4, 6, 12, 1, 2, 3, 5, 8, 16)),
    }
    if edition == "sc23":
        return calculon.Model(**fields)
    more = {n: random.choice(values) for n, values in SHAPES.items() if random.random() < 0.33}
    if "num_experts" in more:
        for name in ("mlp_bias", "parallel_attention", "norms"):
            more.pop(name, None)
        each = {1: 1, 4: 2, 16: 8}[more["num_experts"]]
        more |= {"experts_per_token": each, "expert_feedforward": 48}
    if "parallel_attention" in more:
        more["norms"] = random.choice((1, 2))
    heads, of_keys = random.choice(((6, 2), (6, 3), (12, 1), (12, 4), (24, 8), (24, 0), (1, 1)))
    return calculon.Model(**fields | more | {"attn_heads": heads, "kv_heads": of_keys})


def _narrowed(random: Random, case: Case) -> Case:
    """Fix dimensions to two of their values, then to one, until there are few executions."""
    names, wanted = random.sample(LOOPS, len(LOOPS)), random.randint(0, 6)
    for number, name in enumerate((*names, *names)):
        if number >= wanted and count_space(case.space) <= LIMIT:
            break
        space, count = case.space, 2 - number // len(names)
        values = space.switches[name] if name in space.switches else space.values[name].tolist()
        if len(values) > count:
            fix = case.fix | {name: tuple(random.sample(values, count))}
            narrower = dataclasses.replace(case, fix=fix)
            if count_space(narrower.space):
                case = narrower
    return case


OBJECTIVES = (
    "sample_rate",
    "total_time",
    "sample_rate:min",
    "total_time:max",
    "total_efficiency",
    "tp_comm_exposed_time:min",
    "proc_mem_tier1_cap_req",
    "offload_mem_bw_req:min",
    "dp_comm_exposed_time",
    "useful_flops:max",
    "block_act_storage_space",
)
"""Objectives of either sense, with a bound and without."""

CONDITIONS = (
    None,
    None,
    Condition.parse("tensor_par > 1"),
    Condition.parse("activation_recompute != 'full' and not optimizer_sharding"),
    Condition.parse("bubble_time <= 0.1 * total_time"),
    Condition.parse(
        "data_par_net == tensor_par_net or tp_comm_exposed_time > dp_comm_exposed_time"
    ),
    Condition.parse("total_time < 0"),
)
