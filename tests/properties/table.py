"""Tables of random executions, drawn and evaluated once in a run; laws change them and evaluate them again.

Sizes differ within a table, and choices between its forms: executions of equal choices are evaluated together.
"""

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import calculon
from calculon import inputs
from calculon.architecture.segments import kinds_by_block
from calculon.declarations import catalog
from calculon.declarations.paths import joined
from calculon.estimate.evaluate import Evaluation
from calculon.plan.columns import DEFAULTS
from calculon.plan.plan import Plan
from calculon.plan.rules.all_rules import check
from tests.draws import FACTOR, SEED, draws
from tests.store import stored
from tests.strategies import (
    Document,
    _corrected_row,
    _more,
    divisors,
    every_table,
    extended_pairs,
)

T = TypeVar("T")
Array = np.ndarray[Any, Any]

SLACK = 1 + 1e-12
"""Rounding that comparisons of times and sizes allow."""

SYSTEMS = ("a100_80g_sxm", "h100_80g_sxm", "h200_141g_sxm", "b200_sxm")
"""Systems of the catalog whose rates are formulas."""


@dataclass
class Table:
    """Executions of one model on one system."""

    model: Document
    system: Document
    rows: list[Document]

    @cached_property
    def found(self) -> Evaluation:
        """All statistics."""
        return calculon.evaluate(self.model, self.system, Plan.from_records(self.rows))

    def change(self, **fields: Any) -> "Table":
        """Return the table with some fields of all executions changed."""
        return self.each(lambda row: fields)

    def each(self, change: Callable[[Document], Document]) -> "Table":
        """Return the table with the fields changed that a function returns for an execution."""
        return replace(self, rows=[row | change(row) for row in self.rows])

    def of(self, **fields: Any) -> "Table":
        """Return the table with some fields of the model changed."""
        return replace(self, model=self.model | fields)

    def on(self, change: Callable[[Document], Any]) -> "Table":
        """Return the table with a copy of the system that a function has changed."""
        system = copy.deepcopy(self.system)
        change(system)
        return replace(self, system=system)

    def changed(self, changes: "dict[str, Change]") -> dict[str, "Table"]:
        """Return the table with each change, which may be of the model, of executions or of values of the system.

        All but other models are evaluated at once, which changes no bit: see ``test_what_if.py``.
        """
        tables = {name: change(self) for name, change in changes.items()}
        together = [table for table in tables.values() if table.model == self.model]
        rows = [row for table in together for row in table.rows]
        before = {path: part[key] for path, part, key in values_of(self.system)}
        new_values: list[Document] = []
        for table in together:
            after = {path: part[key] for path, part, key in values_of(table.system)}
            assert after.keys() == before.keys()
            new = {path: value for path, value in after.items() if value != before[path]}
            new_values += [new] * len(table.rows)
        found = calculon.what_if(self.model, Plan.from_records(rows), self.system, new_values)
        begin = 0
        for table in together:
            end = begin + len(table.rows)
            table.found = found.take(slice(begin, end))
            begin = end
        return tables

    def take(self, rows: slice) -> "Table":
        """Return the table of some executions, with their statistics."""
        part = replace(self, rows=self.rows[rows])
        part.found = self.found.take(rows)
        return part

    def only(self, keep: Callable[[Document], bool]) -> "Table":
        """Return the table of the executions that a function chooses."""
        return replace(self, rows=[row for row in self.rows if keep(row)])


Change = Callable[[Table], Table]


def values_of(part: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the path of each value in a document that is neither list nor object, its list or object, and its key."""
    for key in part if isinstance(part, dict) else range(len(part)):
        inside = joined(path, key)
        if isinstance(part[key], (dict, list)):
            yield from values_of(part[key], inside)
        else:
            yield inside, part, key


# -- draws ------------------------------------------------------------------------------------------------------------


def evaluated(tables: Iterable[Table]) -> list[Table]:
    """Evaluate tables before they are stored."""
    found = list(tables)
    assert all(len(table.found) == len(table.rows) for table in found)
    return found


def collected(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """Draw from a strategy, without a test."""
    found: list[T] = []

    @seed(SEED)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(drawn: T) -> None:
        found.append(drawn)

    collect()
    return found


@stored
def corrected(count: int = draws(6), forms: int = 2, sizes: int = 20) -> list[Table]:
    """Draw models with any fields and systems of any shape that are never too small, and evaluate executions."""
    found = []
    for number, (model, system) in enumerate(collected(extended_pairs(), count)):
        random = Random(f"corrected {SEED} {number}")
        found.append(of_forms(random, model, system, _corrected_row, forms, sizes))
    return evaluated(found)


@stored
def of_catalog(count: int = draws(6), forms: int = 3, sizes: int = 30) -> list[Table]:
    """Draw models whose rows are aligned, on systems of the catalog, and evaluate executions with all options."""
    found = []
    for number in range(count):
        random = Random(f"catalog {SEED} {number}")
        system, model = _system(SYSTEMS[number % len(SYSTEMS)]), _model(random)
        found.append(of_forms(random, model, system, _form, forms, sizes))
    return evaluated(found)


@stored
def with_all_fields() -> list[Table]:
    """Draw executions with any fields on systems with any additions, some of which contradict themselves."""
    return evaluated(Table(*one) for one in collected(every_table(8, contradicting=2), draws(14)))


def of_forms(
    random: Random,
    model: Document,
    system: Document,
    form: Callable[[Random, Document, Document], Document],
    forms: int,
    sizes: int,
) -> Table:
    """Draw forms that no rule forbids, and return executions of them and of other sizes of each."""
    decoded = inputs.model(model), inputs.system(system)

    def legal(drawn: list[Document]) -> list[Document]:
        faults = check(*decoded, Plan.from_records(drawn))
        return [row for row, fault in zip(drawn, faults, strict=True) if not fault]

    rows: list[Document] = []
    while len(rows) < forms:
        rows += legal([form(random, model, system)])
    for one in rows[:]:
        sized = [_sized(random, one, model, system) for _ in range(3 * sizes)]
        rows += legal(sized)[: sizes - 1]
    return Table(model, system, rows)


def _system(name: str) -> Document:
    """Return a system whose memory never decides, with the types that its laws were fitted to.

    Its host memory has one rate, where the file has steps on which more bytes take less time.
    """
    system = copy.deepcopy(catalog.load("system", name)[1])
    system["mem2"]["MB_efficiency"] = [[0, 0.85]]
    system["mem1"]["GiB"] = system["mem2"]["GiB"] = 1e12
    types = ("float16", "bfloat16", "float8")
    system["matrix"] = {name: e for name, e in system["matrix"].items() if name in types}
    return system


def _model(random: Random) -> Document:
    """Choose a model with rows that are aligned on every rank, as fewer bytes of an odd row may take longer."""
    ranks = random.choice((4, 8, 8, 6))
    heads = ranks * random.choice((1, 2, 4, 8))
    model = {
        "hidden": 128 * ranks * random.choice((1, 2, 4, 8)),
        "feedforward": 128 * ranks * random.choice((1, 3, 8, 16, 28)),
        "seq_size": 128 * random.choice((1, 8, 16, 32, 64)),
        "attn_heads": heads,
        "attn_size": random.choice((64, 128, 128)),
        "num_blocks": random.choice((2, 4, 8, 12, 24, 32, 36, 48, 61)),
        "vocab": 128 * ranks * random.choice((20, 40, 125)),
    }
    options: Document = {
        "kv_heads": (heads, heads // 2, ranks),
        "activation": ("relu", "squared_relu", "swiglu", "geglu"),
        "norm": ("layernorm_no_bias", "layernorm_plain", "rmsnorm"),
        "qk_norm": ("head", "full"),
        "parallel_attention": (True,),
        "attention_gate": (True,),
        "dropout": (False,),
        "rotary": (0.25, 0.5, 1.0),
        "causal": (False,),
        "sliding_window": (64, 512, 5000),
        "full_attention_every": (1, 2, 5),
        "positions": (2**17,),
    }
    if random.random() < 0.25:
        return model | _latents(random) | {"norms": 2, "norm": "rmsnorm"}
    switches = ("qkv_bias", "out_bias", "mlp_bias", "tied", "embedding_norm", "head_bias")
    options |= dict.fromkeys(switches, (True,))
    model |= {
        name: random.choice(values) for name, values in options.items() if random.random() < 0.35
    }
    model["norms"] = random.choice((1, 2) if "parallel_attention" in model else (2, 4))
    return model


def _latents(random: Random) -> Document:
    """Choose widths of latent attention."""
    nope, rope = random.choice((64, 128)), random.choice((32, 64))
    return {
        "attn_size": nope + rope,
        "q_lora_rank": random.choice((0, 256, 1536)),
        "kv_lora_rank": random.choice((256, 512)),
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": random.choice((64, 128, 256)),
    }


def _form(random: Random, model: Document, system: Document) -> Document:
    """Choose an execution in 16 bits, of which some have products in 8."""
    row = {"datatype": "float8"}
    while row["datatype"] == "float8":
        row = _corrected_row(random, model, system)
    row |= _more(random, row, model, system)
    plain = row["matmul_impl"] == "gemm" and row["tensor_par_overlap"] == "none"
    if "float8" in system["matrix"] and plain and random.random() < 0.3:
        row["matmul_dtype"] = "float8"
    row["mesh_order"] = random.choice(("stated", "tp-dp-pp", "tp-pp-dp"))
    return row | {"seq_length": 0}


def _sized(random: Random, form: Document, model: Document, system: Document) -> Document:
    """Return a form with other sizes, of which some contradict it."""
    row = dict(form)
    degrees = divisors(math.gcd(model["hidden"], model["feedforward"], model["attn_heads"]))
    if row["tensor_par"] > 1:
        row["tensor_par"] = random.choice(degrees[1:])
    stated = ("first_stage_blocks", "last_stage_blocks", "stage_blocks")
    laid_out = row.get("pp_layout", "uniform") != "uniform" or any(map(row.get, stated))
    if row["pipeline_par"] > 1 and not laid_out:
        row["pipeline_par"] = random.randint(2, min(8, model["num_blocks"]))
    blocks = -(-model["num_blocks"] // row["pipeline_par"])
    if row["pipeline_interleaving"] > 1 and not laid_out:
        row["pipeline_interleaving"] = random.choice(divisors(blocks)[1:] or [1])
    if row["data_par"] > 1:
        row["data_par"] = random.choice((2, 3, 4, 8, 16))
    row["num_procs"] = row["tensor_par"] * row["pipeline_par"] * row["data_par"]
    row["microbatch_size"] = random.choice((1, 1, 2, 3, 4, 8))
    microbatches = random.choice((1, 2, 3, 4, 7, 8, 16, 64))
    row["batch_size"] = row["data_par"] * row["microbatch_size"] * microbatches
    if row["mesh_order"] == "stated":
        for name in ("tensor_par_net", "pipeline_par_net", "data_par_net"):
            row[name] = random.randrange(len(system["networks"]))
    stage = row.get("zero_stage", "auto")
    if stage in ("3", "fsdp"):
        if not laid_out:
            chunk = max(1, blocks // row["pipeline_interleaving"])
            row["fsdp_unit"] = random.choice(divisors(chunk))
        row["fsdp_prefetch"] = random.choice((0, 1, 1, 2))
    if stage in ("1", "2", "3", "fsdp"):
        row["dp_shard"] = random.choice((0, *divisors(row["data_par"])[1:]))
    if stage in ("0", "1", "2"):
        row["ddp_bucket_mib"] = random.choice((0, 1, 25, 400))
    if stage == "2":
        row["grad_group"] = random.choice((1, 1, 2, 3))
    if row.get("recompute_every", 1) > 1:
        row["recompute_every"] = random.choice((2, 3, 4))
    return row | {"vocab_pad_multiple": random.choice((1, 1, 8, 128))}


# -- comparisons ------------------------------------------------------------------------------------------------------


Law = Callable[[Table], Array]
"""How far each execution is from what a law allows: above 0 breaks it, not-a-number has nothing to compare."""


def above(low: Array, high: Array, slack: float = SLACK) -> Array:
    """Return by how much numbers exceed others that they should not exceed."""
    found: Array = low - high * slack
    return found


def excess(low: Table, high: Table, *names: str, slack: float = SLACK) -> Array:
    """Return by how much statistics of ``low`` exceed those of ``high``; infinite where only one of both runs."""
    over = np.fmax.reduce([above(low.found[name], high.found[name], slack) for name in names])
    return np.where(low.found.feasible == high.found.feasible, over, np.inf)


def excess_time(low: Table, high: Table, *, more_gradients: bool = False) -> Array:
    """Return by how much total times of ``low`` exceed those of ``high``, in which passes take longer.

    Longer passes may expose less of the gradients, by more than what they take longer. If stages have different kinds
    of block, gradients of a stage hide behind its own passes, which may be other ones than those that pace the batch.
    If ``high`` has ``more_gradients``, they may fill one more of the buckets of stated size, all of which hide but the
    last, and leave less for that. Of such executions it is what exposed gradients do not account for, if that is less.
    """
    over = excess(low, high, "total_time")
    passes = [t.found["total_time"] - t.found["dp_comm_exposed_time"] for t in (low, high)]
    kinds = bool(kinds_by_block(inputs.model(low.model)))
    exposed_less = np.array(
        [
            row["data_par_overlap"] and (kinds or (more_gradients and row.get("ddp_bucket_mib", 0)))
            for row in low.rows
        ],
        bool,
    )
    return np.where(exposed_less & np.isfinite(over), np.minimum(over, above(*passes)), over)


def difference(
    one: Table, other: Table, *, rtol: float = 0.0, without: Iterable[str] = ()
) -> Array:
    """Return by how much statistics differ relatively, less what is allowed; infinite where only one of both runs."""
    worst = np.where(one.found.feasible, 0.0, np.nan)
    worst[one.found.feasible != other.found.feasible] = np.inf
    for name in {*one.found.names} - {*without}:
        mine, theirs = one.found[name], other.found[name]
        worst[np.isnan(mine) != np.isnan(theirs)] = np.inf
        worst = np.fmax(worst, np.abs(mine - theirs) - rtol * np.abs(theirs))
    return worst


def holds(law: Law, tables: Iterable[Table], *, least: int = 1) -> int:
    """Try a law on some tables, and return how many executions it could be tried on; with the first seed so many.

    If one breaks it, the failure shows the simplest similar execution.
    """
    compared = 0
    for table in tables:
        over = law(table)
        wrong = np.flatnonzero(over > 0)
        if len(wrong):
            row = simplest(law, table, table.rows[wrong[0]])
            stated = {name: value for name, value in row.items() if value != DEFAULTS.get(name)}
            pytest.fail(
                f"{len(wrong)} of {len(over)}, by {over[wrong[0]]:.3g}: {stated}\n"
                f"model {table.model}\nsystem {table.system}"
            )
        compared += int((~np.isnan(over)).sum())
    assert compared >= least or SEED > 1
    return compared


def holds_on_changes(
    law: Callable[[str, Table, Table], Array], table: Table, changes: dict[str, Change]
) -> int:
    """Try a law of a table and each change of it, as :func:`holds` does."""
    compared, changed = 0, table.changed(changes)
    for name, change in changes.items():

        def on_change(one: Table, name: str = name, change: Change = change) -> Array:
            return law(name, one, changed[name] if one is table else change(one))

        print(name)  # a failure shows the last one
        compared += holds(on_change, [table], least=0)
    return compared


def excused(over: Array, reasons: Iterable[str], broken: Counter[str]) -> Array:
    """Leave out executions for which a law is known not to hold, and count by reason those that break it."""
    reasons = np.array(list(reasons), dtype=object)
    broken.update(reasons[(reasons != "") & (over > 0)])
    return np.where(reasons == "", over, np.nan)


def drawn_otherwise() -> bool:
    """Return whether other executions are drawn than in the full suite, of which others break a law."""
    return SEED > 1 or FACTOR > 1


def simplest(law: Law, table: Table, row: Document) -> Document:
    """Set back optional fields to their defaults, one after the other, as long as the law is still broken."""
    kept = {"edition", "preset"}
    for name in [n for n in row if n not in kept and row[n] != DEFAULTS.get(n, row[n])]:
        plainer = row | {name: DEFAULTS[name]}
        if law(replace(table, rows=[plainer]))[0] > 0:
            row = plainer
    return row
