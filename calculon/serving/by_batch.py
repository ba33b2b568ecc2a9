"""Batch curve: times and rates of a replica at every batch, and the bounds that limit the batch."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from calculon.base.display import Tabular, draw_result
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Fraction, Seconds
from calculon.campaign.goals import TimeSpan
from calculon.serving.default_deployment import solver_of
from calculon.serving.passes.replica import Replica
from calculon.serving.passes.row_times import CAUSES
from calculon.serving.records.deployments import Deployments
from calculon.serving.records.load import SATURATED
from calculon.serving.serve import Served
from calculon.serving.served_record import with_replicas
from calculon.serving.states.operating_point import OperatingPointSolver

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure

PLACES = 160
"""Approximate number of batches on a curve: all batches if there are fewer, otherwise evenly spaced on a log scale."""


@dataclass(frozen=True, slots=True)
class BatchBound:
    """Bound of the batch: its name, as in :class:`~calculon.serving.states.served_points.Point`, and largest batch."""

    name: str
    batch: int


@dataclass(frozen=True)
class ByBatch(Tabular):
    """Figures of a saturated replica by the number of sequences that it decodes concurrently.

    Attributes:
        served: The deployment with its workload.
        batch (shape (batches,)): Sequences of a replica, ascending: from 1 to the largest batch that fits into memory
        and into a pass.
        tpot, decode, ttft (shape (batches,)): Time per output token, time of a pass that decodes all sequences, and
        time to first token while the batch decodes.
        prefill_share (shape (batches,)): Share of time spent on prefill.
        request_rate (shape (batches,)): Requests per second of one replica.
        causes (shape (causes, batches)): Time per output token without prefill, by
        :data:`~calculon.serving.passes.row_times.CAUSES`.
        cuts: Bounds of the batch: memory, ``max_batch``, ``token_budget``, processors that prefill, and limits of the
            workload that some batch misses; 0 if no batch meets the limit.
    """

    served: Served
    batch: Array
    tpot: Seconds
    decode: Seconds
    ttft: Seconds
    prefill_share: Fraction
    request_rate: Array
    causes: Seconds
    cuts: tuple[BatchBound, ...]

    @property
    def output_rate(self) -> Array:
        """Generated tokens per second of all replicas."""
        result: Array = (
            self.request_rate * self.served.workload.output * self.served.deployment.replicas
        )
        return result

    @property
    def output_rate_per_proc(self) -> Array:
        """Generated tokens per second and processor."""
        result: Array = self.output_rate / self.served.deployment.num_procs
        return result

    @property
    def columns(self) -> dict[str, Array]:
        """Columns of the table, by name."""
        found = {
            "batch": self.batch,
            "tpot": self.tpot,
            "decode_time": self.decode,
            "ttft": self.ttft,
            "prefill_share": self.prefill_share,
            "interactivity": 1 / self.tpot,
            "output_rate": self.output_rate,
            "output_rate_per_proc": self.output_rate_per_proc,
        }
        return found | {
            f"decoding_{name}": one for name, one in zip(CAUSES, self.causes, strict=True)
        }

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        served = self.served
        point = served.stats
        return {
            "model": served.model.name,
            "system": served.system.name,
            "provenance": served.system.provenance.to_dict(),
            "deployment": with_replicas(served.deployment),
            "workload": served.workload.to_dict(),
            "columns": {name: column.tolist() for name, column in self.columns.items()},
            "cuts": {one.name: one.batch for one in self.cuts},
            "point": {
                "batch": point["concurrency"],
                "cut": served.cut,
                "saturated": served.workload.kind == SATURATED,
                "tpot": point["tpot"],
                "ttft": point["ttft"],
                "output_rate_per_proc": point["output_rate_per_proc"],
            },
        }

    def table(self) -> dict[str, Array]:
        """Return a row for each batch (:attr:`columns`): times in s, rates in tokens/s, shares of 1."""
        return self.columns

    @overload
    def plot(self, kind: str = "batch", *, interactive: Literal[False] = False) -> "Figure": ...

    @overload
    def plot(self, kind: str = "batch", *, interactive: Literal[True]) -> "InteractiveFigure": ...

    def plot(
        self, kind: str = "batch", *, interactive: bool = False
    ) -> "Figure | InteractiveFigure":
        """Draw the curves, like ``calculon plot batch``.

        Args:
            kind: Only ``batch`` is available.
            interactive: Return a Plotly figure, as on the web page (extra ``web``).

        Raises:
            SpecError: For a kind other than ``batch``, and if the plotting library is missing.
        """
        return draw_result(self, kind, interactive=interactive)


def by_batch(served: Served) -> ByBatch:
    """Return times and rates of a deployment over its batch.

    At each batch these are the figures of a saturated replica that always has this number of sequences, equal to the
    result of :func:`~calculon.serving.serve.serve` with this ``max_batch``.
    """
    bounds = [*_bounds(served)]
    most = min(one.batch for one in bounds if one.name in _HARD_BOUNDS)
    cuts = (*bounds, *_limits(served, most))
    batch = _places(most, [one.batch for one in cuts])
    each = Deployments.of(served.deployment).take(np.zeros(len(batch), int))
    load = OperatingPointSolver(Replica(served.model, served.system, each, served.workload))
    state, _, decode = load.state(batch)
    times = load.replica.decode_pass(batch)
    shares = np.stack([one / times.time for one in times.causes().values()])
    static = served.deployment.batching == "static"
    # a static batch is prefilled before it decodes, so its time per token contains no prefill
    decoding = state.tpot if static else state.tpot * (1 - state.prefill_share)
    return ByBatch(
        served=served,
        batch=batch,
        tpot=state.tpot,
        decode=decode,
        ttft=load.limited_time("ttft", batch),
        prefill_share=state.prefill_share,
        request_rate=state.rate,
        causes=shares * decoding,
        cuts=cuts,
    )


_HARD_BOUNDS = ("memory", "token_budget")
"""Bounds beyond which nothing runs."""


def _places(most: int, cuts: Sequence[int]) -> Array:
    """Return batches from 1 to `most`: all of them if there are few, else a grid with powers of two and all bounds."""
    if most <= PLACES:
        return np.arange(1.0, most + 1)
    # common batches are powers of two, and the curve shows each bound exactly
    doubled = 2.0 ** np.arange(most.bit_length())
    cutting = [float(one) for one in cuts if 1 <= one <= most]
    grid = np.round(np.geomspace(1, most, PLACES))
    return np.unique(np.concatenate([grid, doubled, cutting]))


def _bounds(served: Served) -> Iterator[BatchBound]:
    """Yield the bounds of the batch that do not come from limits of the workload, each independent of the others."""
    d, w = served.deployment, served.workload
    # a deployment and a workload without any limit show each remaining bound on its own
    every = replace(d, max_batch=0)
    load = replace(
        w, rate=None, users=None, think=TimeSpan(0), requests=None, ttft_limit=None, tpot_limit=None
    )
    free = solver_of(served.model, served.system, every, load)
    for name, capacity in free.batch_capacities().items():
        yield BatchBound(name, int(capacity[0]))
    found = free.solve_single()
    if found.cut == "prefill":
        yield BatchBound(found.cut, found.batch)
    if d.max_batch:
        yield BatchBound("max_batch", d.max_batch)


def _limits(served: Served, most: int) -> Iterator[BatchBound]:
    """Yield the limits of the workload that some batch misses."""
    single = solver_of(served.model, served.system, served.deployment, served.workload)
    for name in ("tpot", "ttft"):
        limit: float | None = getattr(served.workload, f"{name}_limit")
        if limit is None:
            continue
        kept = single.largest_within(name, limit, np.full(1, float(most)))
        if kept[0] < most:
            yield BatchBound(name, int(kept[0]))
