"""Times and rates of a replica over its batch, and where each bound cuts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from calculon.base.display import Displayed, draw_result
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Fraction, Seconds
from calculon.campaign.goals import TimeSpan
from calculon.serving.passes.replica import Replica
from calculon.serving.passes.row_times import CAUSES
from calculon.serving.plain_deployment import loaded
from calculon.serving.records.deployments import Deployments
from calculon.serving.records.load import SATURATED
from calculon.serving.serve import Served
from calculon.serving.served_record import with_replicas
from calculon.serving.states.operating_point import Load

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure

PLACES = 160
"""Batches of a curve, about: all of few, else those whose logarithms are evenly spaced."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A bound of the batch: its name, as of :class:`~calculon.serving.served_points.Point`, and the largest batch."""

    name: str
    batch: int


@dataclass(frozen=True)
class ByBatch(Displayed):
    """What a saturated replica gives over the sequences that it decodes at a time.

    Attributes:
        served: The deployment under its workload.
        batch (shape (batches,)): Sequences of a replica, ascending: from 1 to the most that have room in memory and in
            a pass.
        tpot, decode, ttft (shape (batches,)): Time per token, the pass that decodes all sequences, and prefill of a
            prompt beside them.
        prefill_share (shape (batches,)): Share of the time that prompts take.
        request_rate (shape (batches,)): Of one replica.
        causes (shape (causes, batches)): The part of the time per token in which nothing is prefilled, by
            :data:`~calculon.serving.row_times.CAUSES`.
        cuts: Bounds: memory, ``max_batch``, ``token_budget``, processors that prefill, and limits of the workload that
            some batch misses; 0 is a limit that no batch keeps.
    """

    served: Served
    batch: Array
    tpot: Seconds
    decode: Seconds
    ttft: Seconds
    prefill_share: Fraction
    request_rate: Array
    causes: Seconds
    cuts: tuple[Cut, ...]

    @property
    def output_rate(self) -> Array:
        """Generated tokens per second of all replicas."""
        found: Array = (
            self.request_rate * self.served.workload.output * self.served.deployment.replicas
        )
        return found

    @property
    def output_rate_per_proc(self) -> Array:
        """Generated tokens per second for each processor."""
        found: Array = self.output_rate / self.served.deployment.num_procs
        return found

    @property
    def columns(self) -> dict[str, Array]:
        """The columns of the table by name."""
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
        """Return everything as plain values."""
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

    def to_frame(self) -> "pd.DataFrame":
        """Return a DataFrame with a row for each batch."""
        import pandas as pd  # only for people who want frames

        return pd.DataFrame(self.columns)

    @overload
    def plot(self, kind: str = "batch", *, interactive: Literal[False] = False) -> "Figure": ...

    @overload
    def plot(self, kind: str = "batch", *, interactive: Literal[True]) -> "InteractiveFigure": ...

    def plot(
        self, kind: str = "batch", *, interactive: bool = False
    ) -> "Figure | InteractiveFigure":
        """Draw the curves, as ``calculon plot batch`` does.

        Args:
            interactive: As the page in a browser draws it (extra ``web``): a plotly Figure.

        Raises:
            SpecError: For another kind than ``batch``, and where the library is missing.
        """
        return draw_result(self, kind, interactive=interactive)


def by_batch(served: Served) -> ByBatch:
    """Return times and rates of a deployment over its batch.

    At each batch they are those of a saturated replica that has so many sequences at all times, as
    :func:`~calculon.serving.serve.serve` finds them where this is ``max_batch``.
    """
    bounds = [*_bounds(served)]
    most = min(one.batch for one in bounds if one.name in _ROOM)
    cuts = (*bounds, *_limits(served, most))
    batch = _places(most, [one.batch for one in cuts])
    each = Deployments.of(served.deployment).take(np.zeros(len(batch), int))
    load = Load(Replica(served.model, served.system, each, served.workload))
    state, _, decode = load.state(batch)
    times = load.replica.decode_pass(batch)
    shares = np.stack([one / times.time for one in times.causes().values()])
    static = served.deployment.batching == "static"
    decoding = state.tpot if static else state.tpot * (1 - state.prefill_share)
    return ByBatch(
        served=served,
        batch=batch,
        tpot=state.tpot,
        decode=decode,
        ttft=load.limited("ttft", batch),
        prefill_share=state.prefill_share,
        request_rate=state.rate,
        causes=shares * decoding,
        cuts=cuts,
    )


_ROOM = ("memory", "token_budget")
"""Bounds beyond which nothing runs."""


def _places(most: int, cuts: Sequence[int]) -> Array:
    """Return batches from 1 to the most: all of few, else a grid with powers of two, and those where something cuts."""
    if most <= PLACES:
        return np.arange(1.0, most + 1)
    doubled = 2.0 ** np.arange(most.bit_length())
    cutting = [float(one) for one in cuts if 1 <= one <= most]
    grid = np.round(np.geomspace(1, most, PLACES))
    return np.unique(np.concatenate([grid, doubled, cutting]))


def _bounds(served: Served) -> Iterator[Cut]:
    """Yield the bounds of the batch that no limit of the workload sets, each found without the others."""
    d, w = served.deployment, served.workload
    every = replace(d, max_batch=0)
    load = replace(
        w, rate=None, users=None, think=TimeSpan(0), requests=None, ttft_limit=None, tpot_limit=None
    )
    free = loaded(served.model, served.system, every, load)
    for name, room in free.rooms().items():
        yield Cut(name, int(room[0]))
    found = free.answer()
    if found.cut == "prefill":
        yield Cut(found.cut, found.batch)
    if d.max_batch:
        yield Cut("max_batch", d.max_batch)


def _limits(served: Served, most: int) -> Iterator[Cut]:
    """Yield the limits of the workload that not every batch keeps."""
    single = loaded(served.model, served.system, served.deployment, served.workload)
    for name in ("tpot", "ttft"):
        limit: float | None = getattr(served.workload, f"{name}_limit")
        if limit is None:
            continue
        kept = single.kept(name, limit, np.full(1, float(most)))
        if kept[0] < most:
            yield Cut(name, int(kept[0]))
