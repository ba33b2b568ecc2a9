"""Figures of a whole run from the steps that it takes, with one code path for one execution and a hundred million.

Every argument and result is a column: an array whose last axis is *execution*, or a number.
"""

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from calculon.base.arrays import cached_property
from calculon.base.frozen import dataclass
from calculon.base.record_arrays import apply, record_of
from calculon.base.units import (
    KILO,
    TERA,
    Array,
    Bytes,
    Count,
    Flops,
    Fraction,
    Seconds,
)
from calculon.campaign.checkpoint import SaveCost, save_cost
from calculon.campaign.end_of_run import SHARES, mean, quantiles
from calculon.campaign.energy import Energy, PowerDraw, carbon, energy, power_draw
from calculon.campaign.exponentials import Values, ignore_float_errors, ratio
from calculon.campaign.goodput import (
    Overhead,
    best_interval,
    best_steps,
    best_two_levels,
    overhead,
    two_level_overhead,
)
from calculon.campaign.job_failures import combined, jitter, job_mtbf, rework, slow_nodes
from calculon.campaign.money import Money, Quote, money, own_price, quote, storage, storage_quote
from calculon.campaign.record import DAY, HOUR, Campaign
from calculon.campaign.spares import (
    cheapest_spares,
    elastic_rate,
    nodes_in_repair,
    share_of_time_waiting,
)
from calculon.declarations.run_figures import CampaignFigures, DaysByUse
from calculon.hardware.system import System

NODE = 8
"""Processors that fail together if a system does not state which of them share a host."""


def processors_of_node(system: System) -> int:
    """Return the number of processors per host; if the system does not state it, the size of its inner network."""
    host = system.ext.host
    return min(NODE, system.networks[0].size) if host is None else host.processors


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSegment:
    """Steps with the same batch and sequence length.

    Attributes:
        steps, step_time: Number of steps, and seconds per step.
        tokens: Tokens of all steps.
        working: Share of a step in which the engines are busy; in the rest they wait for other ranks. 1 if unknown.
    """

    steps: Count
    step_time: Seconds
    tokens: Count
    working: Values = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Model and processors of a run.

    Attributes:
        system: The machine.
        num_procs, replicas: Processors, and data-parallel replicas of the model.
        parameters, active: Parameters of the model, and active parameters per token.
        checkpoint_size: Bytes of a checkpoint.
        peak: Peak FLOP/s of a processor in the type of matrix products; NaN if unknown.
    """

    system: System
    num_procs: Count
    replicas: Count
    parameters: Count
    active: Count
    checkpoint_size: Bytes
    peak: Values = np.nan

    @property
    def node(self) -> int:
        """Processors of a node, which fail together and share a host."""
        return processors_of_node(self.system)

    @property
    def nodes(self) -> Count:
        """Nodes of the job."""
        return np.ceil(np.asarray(self.num_procs) / self.node)


@dataclass(frozen=True)
class WholeRun:
    """A whole run, with the figures of :class:`CampaignFigures` as properties that are computed on demand.

    Attributes:
        campaign: The campaign that describes the run.
        job: Model and processors.
        segments: Segments of steps, in order.
        pauses: Changes of the execution, each of which is a restart from a checkpoint.
        rounded: True for checkpoint intervals as stated and in whole steps; False for the optimal interval, which gives
            a lower bound: no run whose steps take at least this long is shorter (with one level of checkpoints).
    """

    campaign: Campaign
    job: Job
    segments: tuple[TimedSegment, ...]
    pauses: int = 0
    rounded: bool = True

    # -- work ---------------------------------------------------------------------------------------------------------

    @cached_property
    def steps(self) -> Count:
        """Number of useful steps."""
        return _total(self.segments, lambda one: one.steps)

    @cached_property
    def useful(self) -> Seconds:
        """Time of the useful steps."""
        return _total(self.segments, lambda one: one.steps * one.step_time)

    @cached_property
    def tokens(self) -> Count:
        """Tokens of the run."""
        return _total(self.segments, lambda one: one.tokens)

    @cached_property
    def working(self) -> Fraction:
        """Share of step time in which the engines are busy."""
        return (
            _total(self.segments, lambda one: one.steps * one.step_time * one.working) / self.useful
        )

    @property
    def peak(self) -> Values:
        """Peak FLOP/s of a processor in the type of matrix products."""
        return self.job.peak

    @cached_property
    def step(self) -> Seconds:
        """Mean step time."""
        return self.useful / self.steps

    @cached_property
    def evaluation(self) -> Seconds:
        """Time of evaluations."""
        asked = self.campaign
        if not asked.evaluate_every:
            return np.zeros(())
        return self.steps // asked.evaluate_every * float(asked.evaluate_time)

    @cached_property
    def slowed(self) -> Seconds:
        """Time that stragglers add to the steps: slow nodes until they are replaced, and variation between ranks."""
        r, n = self.campaign.reliability, self.job
        if r.slow_factor == 1 and not r.jitter:
            return np.zeros(())
        slower = slow_nodes(n.nodes, r.slow_share, r.slow_factor) - 1.0
        varied = jitter(n.num_procs, r.jitter) - 1.0 if r.jitter else 0.0
        return slower * np.minimum(self.useful, float(r.slow_detect)) + varied * self.useful

    @cached_property
    def spikes(self) -> Count:
        """Number of loss spikes."""
        if not self.campaign.spikes:
            return np.zeros(())
        return self.campaign.spikes * self.tokens / TERA

    @cached_property
    def repeated(self) -> Seconds:
        """Time of steps repeated after loss spikes and silent data corruption."""
        none = np.zeros(())
        r, spikes = self.campaign.reliability, self.campaign.spikes
        back = self.spikes * self.campaign.rollback_steps * self.step if spikes else none
        if not r.silent:
            return back
        done = self.useful + self.slowed + self.evaluation + back
        return back + done * (self._rework - 1.0)

    @cached_property
    def silent_mtbf(self) -> Seconds:
        """Mean time between silent data corruptions of the job."""
        silent = self.campaign.reliability.silent
        return (
            ratio(HOUR, silent * np.asarray(self.job.num_procs)) if silent else np.asarray(np.inf)
        )

    @cached_property
    def _rework(self) -> Array:
        found_after = float(self.campaign.reliability.silent_detect)
        # the lower bound assumes that no work before a corruption is lost, i.e. an interval of 0
        interval = self.checkpoint_interval if self.rounded else 0.0
        return rework(found_after, interval, self.recovery, self.silent_mtbf)

    @cached_property
    def work(self) -> Seconds:
        """Time of all steps, without failures and checkpoints."""
        return self.useful + self.slowed + self.evaluation + self.repeated

    # -- failures and checkpoints -------------------------------------------------------------------------------------

    @cached_property
    def mtbf(self) -> Seconds:
        """Mean time between interruptions of the job: failures, and spot processors that are taken back."""
        r = self.campaign.reliability
        per_processor: Values = r.mtbf_processor / HOUR
        if self.quote is not None and self.quote.mtbf_hours is not None:
            per_processor = combined(per_processor, self.quote.mtbf_hours)
        others = () if r.mtbf_common is None else (r.mtbf_common / HOUR,)
        return job_mtbf(self.job.num_procs, per_processor, *others)

    @cached_property
    def saves(self) -> SaveCost:
        """Cost of saving and loading checkpoints."""
        job = self.job
        size = job.checkpoint_size
        return save_cost(self.campaign.checkpoints, job.system, size, job.num_procs, job.nodes)

    @cached_property
    def recovery(self) -> Seconds:
        """Time from a failure to the next step."""
        r = self.campaign.reliability
        return r.detect + r.restart + self.saves.load

    @cached_property
    def best_interval(self) -> Seconds:
        """Optimal time between checkpoints for the shortest run, if storage is fast enough."""
        c = self.campaign.checkpoints
        if c.levels == 1:
            return best_interval(self.saves.pause, self._between_losses)
        return best_two_levels(self._pauses, self._between_losses, c.memory_lost)[1]

    @property
    def _between_losses(self) -> Seconds:
        """Mean time between losses of work, by failure or corruption; failures alone for a lower bound."""
        return combined(self.mtbf, self.silent_mtbf) if self.rounded else self.mtbf

    @cached_property
    def checkpoint_interval(self) -> Seconds:
        """Useful time between checkpoints: as stated, or the best that the storage can sustain."""
        c, least = self.campaign.checkpoints, self.saves.least_interval
        if not self.rounded:
            best = best_interval(self.saves.pause, self.mtbf)
            # a stated number of steps is not limited by storage below, so the bound must not be either
            waits = c.interval_steps is None and np.any(least > best)
            return np.maximum(best, np.minimum(least, self.useful)) if waits else best
        if c.interval_steps is not None:
            return c.interval_steps * self.step
        if c.interval is None and c.levels == 1:
            steps = best_steps(self.step, self.saves.pause, self._between_losses, least)
        else:
            wanted = self.best_interval if c.interval is None else float(c.interval)
            steps = np.maximum(np.round(wanted / self.step), np.ceil(least / self.step))
        return self._within_run(np.maximum(steps, 1.0) * self.step)

    def _within_run(self, interval: Seconds) -> Seconds:
        """Return an interval no longer than the run; it remains infinite without failures, when nothing is saved."""
        return np.where(np.isinf(interval), np.inf, np.minimum(interval, self.useful))

    @cached_property
    def memory_interval(self) -> Seconds:
        """Useful time between copies in the memory of other nodes, with two levels of checkpoints."""
        stated = self.campaign.checkpoints.memory_interval
        if stated is not None:
            return np.asarray(float(stated))
        lost = self.campaign.checkpoints.memory_lost
        best = best_two_levels(self._pauses, self.mtbf, lost)[0]
        return np.minimum(np.maximum(best, self.step), self.checkpoint_interval)

    @property
    def _pauses(self) -> tuple[Seconds, Seconds]:
        """Time that training is blocked by an in-memory copy, and by a checkpoint."""
        return self.saves.memory_pause, self.saves.pause

    @cached_property
    def overhead(self) -> Overhead:
        """Overhead of failures and checkpoints per second of work."""
        c, r = self.campaign.checkpoints, self.campaign.reliability
        if c.levels == 1:
            return overhead(self.checkpoint_interval, self.saves.pause, self.recovery, self.mtbf)
        intervals = self.memory_interval, self.checkpoint_interval
        recoveries = np.asarray(r.detect + r.restart), self.recovery
        return two_level_overhead(intervals, self._pauses, recoveries, self.mtbf, c.memory_lost)

    @cached_property
    def planned_restart(self) -> Seconds:
        """Time of a planned restart, which needs no detection."""
        return self.campaign.reliability.restart + self.saves.load

    @cached_property
    def restarts(self) -> Seconds:
        """Time of planned restarts: changes of the execution, and loss spikes."""
        return (self.pauses + self.spikes) * self.planned_restart

    @cached_property
    def in_repair(self) -> Count:
        """Mean number of nodes in repair, at most all nodes of the job."""
        r, n = self.campaign.reliability, self.job
        node_mtbf = ratio(r.mtbf_processor, r.hardware_share * n.node)
        return np.minimum(nodes_in_repair(n.nodes, node_mtbf, float(r.repair)), n.nodes)

    @cached_property
    def spare_nodes(self) -> Count:
        """Number of spare nodes: as stated, or the number with the least paid time."""
        r = self.campaign.reliability
        if r.spares is not None:
            return np.asarray(float(r.spares))
        # an elastic job continues without the missing node, so it pays for no spares unless they are stated
        return (
            np.zeros(())
            if r.elastic
            else np.asarray(cheapest_spares(self.in_repair, self.job.nodes))
        )

    @cached_property
    def _complete(self) -> Fraction:
        """Share of time in which the job has all of its nodes; for an elastic job its mean relative rate."""
        if self.campaign.reliability.elastic:
            return elastic_rate(self.in_repair, self.spare_nodes, self.job.replicas, self.job.nodes)
        return 1.0 - share_of_time_waiting(self.in_repair, self.spare_nodes)

    @cached_property
    def running(self) -> Seconds:
        """Time of the run without waiting for nodes."""
        return self.work * (1.0 + self.overhead.total) + self.restarts

    @cached_property
    def other(self) -> Seconds:
        """Time beyond steps, failures and checkpoints, as a stated factor of their time."""
        return self.running * (self.campaign.overhead_factor - 1.0)

    @cached_property
    def wall(self) -> Seconds:
        """Expected wall time of the run; infinite if the job is never complete."""
        with ignore_float_errors():
            return np.asarray((self.running + self.other) / self._complete)

    # -- figures ------------------------------------------------------------------------------------------------------

    @cached_property
    def days(self) -> Array:
        """Expected days of the run; this and the following properties are described in :class:`CampaignFigures`."""
        return self.wall / DAY

    def days_by(self, shares: tuple[float, ...]) -> Array:
        """Return the days by which given shares of similar runs have ended, given random failures; shape (shares, ...).

        With two levels of checkpoints this is the distribution of the first level, scaled to the mean of both.
        """
        c, scale = self.campaign.checkpoints, np.asarray(1.0)
        times = self.checkpoint_interval, self.saves.pause, self.recovery, self.mtbf
        if c.levels > 1:
            # most failures restart from memory and load no checkpoint
            recovery = self.recovery - (1.0 - c.memory_lost) * self.saves.load
            times = self.memory_interval, self.saves.memory_pause, recovery, self.mtbf
            scale = self.work * (1.0 + self.overhead.total) / mean(self.work, *times)
        with ignore_float_errors():
            found = scale * quantiles(self.work, *times, shares) + self.restarts
            return np.asarray(found * self.campaign.overhead_factor / self._complete / DAY)

    @cached_property
    def _quantiles(self) -> Array:
        return self.days_by(SHARES)

    @property
    def days_p10(self) -> Array:  # noqa: D102
        return self._quantiles[0]

    @property
    def days_p50(self) -> Array:  # noqa: D102
        return self._quantiles[1]

    @property
    def days_p90(self) -> Array:  # noqa: D102
        return self._quantiles[2]

    @cached_property
    def processor_hours(self) -> Array:  # noqa: D102
        return (self.job.num_procs + self.spare_nodes * self.job.node) * self.wall / HOUR

    @cached_property
    def goodput(self) -> Fraction:  # noqa: D102
        return self.useful / self.wall

    @cached_property
    def failures(self) -> Count:  # noqa: D102
        return ratio(self.running, self.mtbf)

    @property
    def mtbf_hours(self) -> Array:  # noqa: D102
        return self.mtbf / HOUR

    @property
    def checkpoint_time(self) -> Seconds:  # noqa: D102
        return self.saves.pause

    @property
    def checkpoint_size(self) -> Bytes:  # noqa: D102
        return self.saves.size

    @cached_property
    def mfu_effective(self) -> Fraction:  # noqa: D102
        done: Flops = 6.0 * self.job.active * self.tokens
        return done / (self.peak * self.processor_hours * HOUR)

    @cached_property
    def quote(self) -> Quote | None:
        """Price of a processor-hour; None if unknown."""
        fleet, stated = self.campaign.fleet, self.job.system.ext.price
        owned_price, stated_own = None, None if stated is None else stated.own
        if stated_own is not None and fleet.usd_per_kwh is not None and self.power_draw is not None:
            owned_price = own_price(
                stated_own,
                self.job.node,
                power_kw=self.power_draw.per_processor(self.job.num_procs, self.job.nodes) / KILO,
                usd_per_kwh=fleet.usd_per_kwh,
                pue=fleet.pue or 1.0,
            )
        return quote(stated, fleet.price_kind, given=fleet.price, owned=owned_price)

    @cached_property
    def money(self) -> Money | None:
        """US dollars by purpose; None if no price is known."""
        if self.quote is None:
            return None
        shelf = storage_quote(self.job.system.ext.price, given=self.campaign.fleet.storage)
        per_month = 0.0 if shelf is None else shelf.usd
        stored = storage(self.saves.size, self.campaign.checkpoints.kept, self.days, per_month)
        return money(
            self.processor_hours,
            self.quote,
            stored=stored,
            experiments=self.campaign.experiments,
            storage_quote=shelf,
        )

    @cached_property
    def usd(self) -> Array:  # noqa: D102
        return np.full_like(self.wall, np.nan) if self.money is None else self.money.run

    @cached_property
    def tokens_per_usd(self) -> Array:  # noqa: D102
        return self.tokens / self.usd

    @cached_property
    def power_draw(self) -> PowerDraw | None:
        """Power of processors and nodes; None if unknown."""
        return power_draw(self.job.system.ext.power, self.working, tdp=self.campaign.fleet.tdp)

    @cached_property
    def energy(self) -> Energy | None:
        """Energy by consumer; None if no power is known."""
        if self.power_draw is None:
            return None
        # lost work was computed at full power before it was destroyed
        busy = self.work * (1.0 + self.overhead.lost)
        return energy(
            self.power_draw,
            self.job.num_procs,
            self.job.nodes,
            busy_hours=busy / HOUR,
            waiting_hours=(self.wall - busy) / HOUR,
            spare_nodes=self.spare_nodes,
            pue=self.campaign.fleet.pue or 1.0,
        )

    @cached_property
    def mwh(self) -> Array:  # noqa: D102
        return np.full_like(self.wall, np.nan) if self.energy is None else self.energy.total / KILO

    @cached_property
    def t_co2(self) -> Array:  # noqa: D102
        grams = self.campaign.fleet.g_co2_per_kwh
        return np.full_like(self.wall, np.nan) if grams is None else carbon(self.mwh * KILO, grams)

    @cached_property
    def by_use(self) -> DaysByUse:
        """Days by use."""
        work, share = self.work, self.overhead
        return DaysByUse(
            useful=self.useful / DAY,
            evaluation=self.evaluation / DAY,
            saving=work * share.saving / DAY,
            lost=work * share.lost / DAY,
            restart=(work * share.restart + self.restarts) / DAY,
            waiting=(self.wall - self.running - self.other) / DAY,
            repeated=self.repeated / DAY,
            slowed=self.slowed / DAY,
            other=self.other / DAY,
        )

    def figures(self) -> CampaignFigures:
        """Return all figures as full columns."""
        shape = self.wall.shape
        found = record_of(CampaignFigures, self)
        return apply(lambda column: np.broadcast_to(np.asarray(column, float), shape), [found])


def _total(segments: Sequence[TimedSegment], part: Callable[[TimedSegment], Array]) -> Array:
    """Return the sum of a figure over all segments."""
    parts = (np.asarray(part(one), float) for one in segments)
    # added from first to last, so that results do not depend on the order in which NumPy would sum an array
    return reduce(np.add, parts)
