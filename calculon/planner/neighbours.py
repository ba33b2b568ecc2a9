"""What would make one execution fit: the fewest changes of its split and its options after which it does."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from math import prod
from typing import Any

import numpy as np

from calculon.estimate import Estimate, estimate
from calculon.frozen import dataclass
from calculon.hardware.system import System
from calculon.plan.divisors import divisors
from calculon.plan.plan import NAMES
from calculon.planner.in_words import figures
from calculon.planner.variations import UNSPLIT, Fields, evaluated, varied
from calculon.presets import plain
from calculon.spec.axes import FURTHER_AXES
from calculon.spec.execution import Execution
from calculon.spec.model import Model
from calculon.spec.module_sets import INSIDE, modules_of, written
from calculon.spec.named_values import PUBLISHED

MOST_CHANGES = 3
"""Changes that are tried together on the same processors."""

TIMES = (2, 4, 8)
"""By how much degrees are multiplied, each alone or together."""

TIMES_PROCESSORS = (2, 4, 8, 16, 32, 64)

STAGES = ("1", "2", "3", "fsdp")
"""Forms of data parallelism, the ones that split less first."""

PART = 4096
"""Tokens of a sequence that a rank keeps at least where it is split further."""

MOST_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An execution that fits, next to one that does not.

    Attributes
    ----------
    changes : mapping
        The fields that differ, with their values.
    found : Estimate
        The execution.
    """

    changes: Mapping[str, Any]
    found: Estimate

    def __str__(self) -> str:
        fields = ", ".join(f"{name}={plain(value)}" for name, value in self.changes.items())
        return f"{fields} ({figures(self.found)})"


def neighbours(model: Model, execution: Execution, system: System) -> tuple[Neighbour, ...]:
    """Return the executions nearest to one that fit, the fastest first: those with the fewest changes.

    Where none fits on the same processors, those on the fewest more of them.
    """
    knobs = [*_knobs(model, execution, system)]
    for size in range(1, MOST_CHANGES + 1):
        several = (
            {name: value for change in some for name, value in change.items()}
            for which in combinations(knobs, size)
            for some in product(*which)
        )
        if found := _fitting(model, execution, system, several):
            return found
    for times in TIMES_PROCESSORS:
        if found := _fitting(model, execution, system, _larger(execution, times)):
            return found
    return ()


def hint(model: Model, execution: Execution, system: System) -> str:
    """Say in a sentence what would make an execution fit; nothing where no change of those tried does."""
    found = [str(one) for one in neighbours(model, execution, system)]
    return f"it fits with {'; or with '.join(found)}" if found else ""


def _knobs(model: Model, e: Execution, system: System) -> Iterator[Sequence[Fields]]:
    """Yield what may be changed, each with its values that need less memory than now."""
    if e.training and e.activation_recompute != "full":
        yield [{"activation_recompute": "full"}]
    sizes = divisors(e.microbatch_size)[:-1]
    yield [{"microbatch_size": size} for size in {*sizes[:1], *sizes[-1:]}]
    if e.data_par > 1 and e.training:
        yield list(_stages(e))
    if e.tensor_par > 1 and e.tensor_par_comm_type != "rs_ag":
        yield [{"tensor_par_comm_type": "rs_ag"}]
    for name in ("optimizer_offload", "activations_offload", "weight_offload"):
        if system.usable[1] and not getattr(e, name):
            yield [{name: True}]
    if model.mixes and e.edition != PUBLISHED:
        yield from _of_experts(model, e)
    if model.attends and e.edition != PUBLISHED:
        yield list(_of_sequences(model, e))
    yield [{"tensor_par": e.tensor_par * k} for k in TIMES]
    yield [{"pipeline_par": p} for k in TIMES if (p := e.pipeline_par * k) <= model.num_blocks]


def _of_experts(model: Model, e: Execution) -> Iterator[Sequence[Fields]]:
    """Yield larger groups of experts, and what of experts may be computed again."""
    wider = [e.expert_par * k for k in divisors(model.num_experts // e.expert_par)[1:]]
    yield [{"expert_par": degree} for degree in wider]
    yield [{"recompute_modules": written(modules)} for modules in _more_modules(e)]


def _of_sequences(model: Model, e: Execution) -> Iterator[Fields]:
    """Yield more parts of long sequences."""
    length = e.seq_length or model.seq_size
    degrees = (e.context_par * k for k in TIMES)
    for degree in (d for d in degrees if length % (2 * d) == 0 and length // d >= PART):
        yield {"context_par": degree}


def _more_modules(e: Execution) -> Iterator[frozenset[str]]:
    """Yield larger sets of modules that are computed again, with some of experts."""
    now = modules_of(e.recompute_modules)
    again = e.training and e.activation_recompute != "full" and e.recompute_modules != "ops"
    if not again or not now.isdisjoint({"activation", "moe"}):
        return
    for more, less in (("moe_act", ()), ("moe", INSIDE["moe"])):
        if more not in now:
            yield (now | {more}).difference(less)


def _stages(e: Execution) -> Iterator[Fields]:
    """Yield the forms of data parallelism that split more than now."""
    if e.zero_stage in UNSPLIT and not e.optimizer_sharding:
        yield {"optimizer_sharding": True}
    if e.edition != PUBLISHED:
        now = STAGES.index(e.zero_stage) if e.zero_stage in STAGES else 0
        yield from ({"zero_stage": stage} for stage in STAGES[now + 1 :])


def _larger(e: Execution, times: int) -> Iterator[Fields]:
    """Yield the ways to use so many times the processors, with all blocks recomputed or as it is."""
    for by_tensor, by_pipeline in product(divisors(times), repeat=2):
        if times % (by_tensor * by_pipeline) == 0:
            split = {
                "num_procs": e.num_procs * times,
                "tensor_par": e.tensor_par * by_tensor,
                "pipeline_par": e.pipeline_par * by_pipeline,
            }
            yield split
            yield split | {"activation_recompute": "full", "microbatch_size": 1}


def _fitting(
    model: Model, execution: Execution, system: System, several: Iterator[Fields]
) -> tuple[Neighbour, ...]:
    """Return the executions with some of several changes that fit, the fastest first."""
    rows = [row for changes in several if (row := _changed(model, execution, changes))]
    if not rows:
        return ()
    table = evaluated(model, system, rows)
    times = np.where(table.feasible, table["total_time"], np.inf)
    found: dict[tuple[Any, ...], Neighbour] = {}
    for row in np.argsort(times, kind="stable").tolist():
        if len(found) == MOST_SHOWN or not np.isfinite(times[row]):
            break
        one = table.plan.row(row)
        changes = {n: v for n in NAMES if (v := getattr(one, n)) != getattr(execution, n)}
        kind = tuple(name for name in changes if not name.endswith("_net"))
        if kind not in found:
            found[kind] = Neighbour(changes, estimate(model, one, system))
    return tuple(found.values())


def _changed(model: Model, e: Execution, changes: Fields) -> Fields | None:
    """Return an execution with changes, its replicas and chunks as they then divide; None where nothing does."""
    split = {"num_procs": e.num_procs, "tensor_par": e.tensor_par, "pipeline_par": e.pipeline_par}
    split |= {name: value for name, value in changes.items() if name in split}
    degrees = [axis.degree for axis in FURTHER_AXES if not axis.folded]
    further = prod(changes.get(degree, getattr(e, degree)) for degree in degrees)
    data_par, rest = divmod(
        split["num_procs"], split["tensor_par"] * split["pipeline_par"] * further
    )
    if rest or not data_par or e.batch_size % data_par:
        return None
    if "pipeline_par" in changes:
        blocks = -(-model.num_blocks // split["pipeline_par"])
        chunks = max(n for n in divisors(blocks) if n <= e.pipeline_interleaving)
        changes = {**changes, "pipeline_interleaving": chunks}
    return varied(e, {**changes, **split, "data_par": data_par})
