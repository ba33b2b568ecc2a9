"""Candidate plans: an execution with its statistics, its simplicity, and the training run with it."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from calculon.architecture.parameters import active_count
from calculon.base.frozen import dataclass
from calculon.base.records import columns
from calculon.campaign.money import Quote
from calculon.campaign.record import Campaign
from calculon.campaign.run_columns import whole_runs
from calculon.campaign.whole_run import WholeRun
from calculon.declarations.model import Model
from calculon.declarations.run_figures import DAYS_BETWEEN, RUN_FIGURES, CampaignFigures
from calculon.declarations.statistics import BOUNDS, OFFLOADS, CorrectedStats
from calculon.estimate.estimate import Estimate
from calculon.hardware.system import System
from calculon.plan.mesh import DEGREES
from calculon.plan.plan import NAMES, all_fields
from calculon.search.search_result import SearchResult

MOST = 1000
"""Number of best executions among which the simplest is selected."""

COLUMNS = (
    *NAMES,
    *(one.name for one in columns(CorrectedStats)),
    *BOUNDS,
    *RUN_FIGURES,
    *DAYS_BETWEEN,
)
"""Columns of a table of plans: fields, statistics, interval of the time, and figures of a whole run."""

SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """Plan that fits.

    Attributes:
        execution: Fields by name.
        stats: Statistics by name, including both ends of the prediction interval of the time; undefined ones are None.
        domain: Processors of the innermost network.
    """

    execution: Mapping[str, Any]
    stats: Mapping[str, Any]
    domain: int

    @property
    def time(self) -> float:
        """Seconds per step."""
        return float(self.stats["total_time"])

    @property
    def simplicity(self) -> tuple[int, ...]:
        """Sort key, lower for simpler plans: offloads, kinds of parallelism, stages, chunks, recomputation, ranks."""
        e = self.execution
        kinds = sum(e[name] > 1 for name in DEGREES if name != "data_par")
        offloads = sum(bool(e[name]) for name in OFFLOADS)
        repeats = ("none", "attn_only", "full").index(e["activation_recompute"])
        stages = e["pipeline_par"], e["pipeline_interleaving"]
        return offloads, e["tensor_par"] > self.domain, kinds, *stages, repeats, e["tensor_par"]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan in the format of a search result."""
        return {"execution": dict(self.execution), "stats": dict(self.stats)}


def whole_runs_of(
    plans: Sequence[Candidate],
    campaign: Campaign,
    model: Model,
    system: System,
    tokens: float,
    tokens_per_step: int,
) -> WholeRun:
    """Return the whole runs of plans on one machine with the same number of tokens, one entry per plan."""

    def lookup(name: str) -> Any:
        known = plans[0].stats if name in plans[0].stats else plans[0].execution
        of_stats = known is plans[0].stats
        return np.array([(one.stats if of_stats else one.execution)[name] for one in plans])

    datatype = str(plans[0].execution["datatype"])
    active, each_step = float(active_count(model)), np.asarray(tokens_per_step)
    return whole_runs(campaign, system, datatype, tokens, each_step, lookup, active)


def trainings(
    plans: Sequence[Candidate],
    campaign: Campaign,
    model: Model,
    system: System,
    tokens: float,
    tokens_per_step: int,
) -> list[dict[str, Any]]:
    """Return days and processor-hours of a training run with each plan: of the steps alone, and of the whole run.

    ``days``, their interval and ``processor_hours`` count steps only, without failures and pauses; ``campaign`` has the
    figures of the whole run, with the interval of its expected days; ``price`` is the price per processor-hour.
    """
    if not plans:
        return []
    run = whole_runs_of(plans, campaign, model, system, tokens, tokens_per_step)
    usd, figures = None if run.quote is None else run.quote.usd, run.figures()
    values = {one.name: one.values(figures) for one in columns(CampaignFigures)}
    prices = np.broadcast_to(np.nan if usd is None else usd, len(plans))
    # The relative width of the interval of the run equals that of a step: failures scale with its
    # duration.
    steps, result = tokens / tokens_per_step, []
    for i, one in enumerate(plans):
        whole = {name: column[i] for name, column in values.items()}
        ends = [one.stats.get(name) for name in BOUNDS]
        low, high = (None if end is None else steps * end / SECONDS_PER_DAY for end in ends)
        days, hours = steps * one.time / SECONDS_PER_DAY, steps * one.time / SECONDS_PER_HOUR
        expected = whole["days"] or 0.0
        first, last = (None if end is None else expected * end / one.time for end in ends)
        row: dict[str, Any] = {"tokens": tokens, "steps": steps, "days": days}
        row |= {"days_low": low, "days_high": high}
        row |= {"processor_hours": hours * one.execution["num_procs"]}
        row |= {"campaign": whole | {"days_low": first, "days_high": last}}
        result.append(row | {"price": price_as_dict(run.quote, float(prices[i]))})
    return result


def price_as_dict(quote: Quote | None, usd: float) -> dict[str, Any] | None:
    """Return the price of a processor-hour as plain data, with kind, source and date; None if it is unknown."""
    if quote is None:
        return None
    return {"usd": usd, "kind": quote.kind, "source": quote.source, "date": quote.date}


def candidates(result: SearchResult) -> list[Candidate]:
    """Return the executions of a search as candidates, best first."""
    domain = result.space.system.networks[0].size
    return [Candidate(execution, stats, domain) for execution, stats in result.winners()]


def tied_candidates(result: SearchResult) -> list[tuple[int, Candidate]]:
    """Return the executions that measurements cannot distinguish from the fastest, with their ranks.

    Among the :data:`MOST` best, the simplest comes first; of equally simple ones, the fastest.
    """
    domain = result.space.system.networks[0].size
    several = islice(zip(result.winners(), result.orders, strict=True), MOST)
    alike = [
        (rank, Candidate(*winner, domain))
        for rank, (winner, order) in enumerate(several)
        if not order.distinguishable
    ]
    return sorted(alike, key=lambda one: (one[1].simplicity, one[1].time))


def candidate_of(estimate: Estimate) -> Candidate:
    """Return an estimate as a candidate."""
    fields = all_fields(estimate.execution)
    stats = {**estimate.stats, **estimate.bounds}
    return Candidate(fields, stats, estimate.system.networks[0].size)
