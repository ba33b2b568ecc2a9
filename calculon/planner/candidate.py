"""One plan among others: its execution, its figures, and how simple it is."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np

from calculon.campaign.money import Quote
from calculon.campaign.record import Campaign
from calculon.campaign.run_columns import whole_runs
from calculon.campaign.whole_run import WholeRun
from calculon.estimate import Estimate
from calculon.frozen import dataclass
from calculon.hardware.system import System
from calculon.plan.plan import NAMES
from calculon.records import only_values
from calculon.search.search_result import SearchResult
from calculon.statistics import BOUNDS

MOST = 1000
"""Executions among which the simplest is looked for."""

SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan that fits.

    Attributes
    ----------
    execution : mapping
        Its fields by name.
    stats : mapping
        Its statistics by name, with both ends of the interval of its time; what is undefined is None.
    domain : int
        Processors of the innermost network.
    """

    execution: Mapping[str, Any]
    stats: Mapping[str, Any]
    domain: int

    @property
    def time(self) -> float:
        """Seconds of a step."""
        return float(self.stats["total_time"])

    @property
    def simplicity(self) -> tuple[int, ...]:
        """A key that is less for plans with fewer parts: offloads, kinds of parallelism, stages, chunks, ranks."""
        e = self.execution
        kinds = sum(e[name] > 1 for name in ("tensor_par", "pipeline_par", "context_par"))
        offloads = sum(bool(e[name]) for name in _OFFLOADS)
        repeats = ("none", "attn_only", "full").index(e["activation_recompute"])
        stages = e["pipeline_par"], e["pipeline_interleaving"]
        return offloads, e["tensor_par"] > self.domain, kinds, *stages, repeats, e["tensor_par"]

    def run(
        self, campaign: Campaign, system: System, tokens: float, tokens_per_step: int
    ) -> WholeRun:
        """Return the whole run of it: so many tokens, with failures and checkpoints."""

        def lookup(name: str) -> Any:
            return np.asarray(self.stats[name] if name in self.stats else self.execution[name])

        datatype = str(self.execution["datatype"])
        return whole_runs(campaign, system, datatype, tokens, np.asarray(tokens_per_step), lookup)

    def training(
        self, campaign: Campaign, system: System, tokens: float, tokens_per_step: int
    ) -> dict[str, Any]:
        """Return days and processor-hours of a training: of its steps alone, and of the whole run.

        ``days``, their interval and ``processor_hours`` are those of the steps, without failures and pauses;
        ``campaign`` has the figures of the run with them, and the interval of its expected days; ``price`` is that of
        a processor-hour.
        """
        steps = tokens / tokens_per_step
        run = self.run(campaign, system, tokens, tokens_per_step)
        whole = only_values(run.figures())
        ends = [self.stats.get(name) for name in BOUNDS]
        low, high = (None if end is None else steps * end / SECONDS_PER_DAY for end in ends)
        days = whole["days"] or 0.0
        first, last = (None if end is None else days * end / self.time for end in ends)
        return {
            "tokens": tokens,
            "steps": steps,
            "days": steps * self.time / SECONDS_PER_DAY,
            "days_low": low,
            "days_high": high,
            "processor_hours": steps * self.time / SECONDS_PER_HOUR * self.execution["num_procs"],
            "campaign": whole | {"days_low": first, "days_high": last},
            "price": told_price(run.quote),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return it as a result of a search is written."""
        return {"execution": dict(self.execution), "stats": dict(self.stats)}


def told_price(quote: Quote | None) -> dict[str, Any] | None:
    """Return the price of a processor-hour as plain data, with kind, source and date; None where none is known."""
    if quote is None:
        return None
    usd = float(np.asarray(quote.usd).item())
    return {"usd": usd, "kind": quote.kind, "source": quote.source, "date": quote.date}


_OFFLOADS = ("weight_offload", "activations_offload", "optimizer_offload")


def candidates(found: SearchResult) -> list[Candidate]:
    """Return the executions of a search as candidates, best first."""
    domain = found.space.system.networks[0].size
    return [Candidate(execution, stats, domain) for execution, stats in found.winners()]


def tied(found: SearchResult) -> list[tuple[int, Candidate]]:
    """Return the executions of a search that measured runs do not tell apart from the fastest, with their ranks.

    The simplest comes first, the fastest of equally simple ones; of the :data:`MOST` best.
    """
    domain = found.space.system.networks[0].size
    several = islice(zip(found.winners(), found.orders, strict=True), MOST)
    alike = [
        (rank, Candidate(*winner, domain))
        for rank, (winner, order) in enumerate(several)
        if not order.told_apart
    ]
    return sorted(alike, key=lambda one: (one[1].simplicity, one[1].time))


def of_estimate(estimate: Estimate) -> Candidate:
    """Return an estimate as a candidate."""
    fields = {name: getattr(estimate.execution, name) for name in NAMES}
    ends = estimate.belief
    low, high = (None, None) if ends is None else (ends.low, ends.high)
    stats = {**estimate.stats, **dict(zip(BOUNDS, (low, high), strict=True))}
    return Candidate(fields, stats, estimate.system.networks[0].size)
