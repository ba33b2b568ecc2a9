"""The figures of a whole run from the steps that it takes: one code path for one execution and for a hundred million.

Every argument and result is a column: an array whose last axis is *execution*, or a number.
"""

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from calculon.base.arrays import cached_property
from calculon.base.frozen import dataclass
from calculon.base.records import apply, record_of
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
from calculon.campaign.checkpoint import Saving, saving
from calculon.campaign.end_of_run import SHARES, mean, quantiles
from calculon.campaign.energy import Draw, Energy, carbon, draw, energy
from calculon.campaign.exponentials import Values, quiet, ratio
from calculon.campaign.goodput import (
    Spent,
    best_interval,
    best_steps,
    best_two_levels,
    spent,
    spent_with_copies,
)
from calculon.campaign.job_failures import combined, jitter, job_mtbf, rework, slow_nodes
from calculon.campaign.money import Money, Quote, money, own_price, quote, storage, storage_quote
from calculon.campaign.record import DAY, HOUR, Campaign
from calculon.campaign.spares import away, cheapest_spares, elastic_rate, share_of_time_waiting
from calculon.declarations.run_figures import CampaignFigures, DaysByUse
from calculon.hardware.system import System

NODE = 8
"""Processors that fail together, where a system does not say which share a host."""


def processors_of_node(system: System) -> int:
    """Return how many processors of a machine share a host, or where it does not say so its innermost network."""
    host = system.ext.host
    return min(NODE, system.networks[0].size) if host is None else host.processors


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Steps with the same batch and length of sequences.

    Attributes:
        steps, step_time: How many there are, and seconds of one.
        tokens: Tokens of all of them.
        working: Share of a step in which the engines work; else they wait for others. 1 where it is not known.
    """

    steps: Count
    step_time: Seconds
    tokens: Count
    working: Values = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What runs on what.

    Attributes:
        system: The machine.
        num_procs, replicas: Processors, and replicas of the model.
        parameters, active: Parameters of the model, and those that a token passes.
        checkpoint_size: Bytes of a checkpoint.
        peak: FLOP/s of a processor in the type of products; not-a-number where it is not known.
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
    """A whole run: its figures by the names of :class:`CampaignFigures`, each computed when it is asked for.

    Attributes:
        campaign: What was asked.
        job: What runs on what.
        stretches: The steps, in their order.
        pauses: Changes of the execution, each of which is a restart from a checkpoint.
        rounded: Whether intervals between checkpoints are as stated, and whole steps. Else they are those with which
            the run is the shortest: no run with steps of at least this time is shorter (of one level of checkpoints).
    """

    campaign: Campaign
    job: Job
    stretches: tuple[Stretch, ...]
    pauses: int = 0
    rounded: bool = True

    # -- work ---------------------------------------------------------------------------------------------------------

    @cached_property
    def steps(self) -> Count:
        """Steps that count."""
        return _total(self.stretches, lambda one: one.steps)

    @cached_property
    def useful(self) -> Seconds:
        """Time of the steps that count."""
        return _total(self.stretches, lambda one: one.steps * one.step_time)

    @cached_property
    def tokens(self) -> Count:
        """Tokens of the run."""
        return _total(self.stretches, lambda one: one.tokens)

    @cached_property
    def working(self) -> Fraction:
        """Share of the time of steps in which engines work."""
        return (
            _total(self.stretches, lambda one: one.steps * one.step_time * one.working)
            / self.useful
        )

    @property
    def peak(self) -> Values:
        """FLOP/s of a processor in the type of products."""
        return self.job.peak

    @cached_property
    def step(self) -> Seconds:
        """Mean time of a step."""
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
        """What slow nodes, until they are replaced, and variation between ranks add to the steps."""
        r, n = self.campaign.reliability, self.job
        if r.slow_factor == 1 and not r.jitter:
            return np.zeros(())
        slower = slow_nodes(n.nodes, r.slow_share, r.slow_factor) - 1.0
        varied = jitter(n.num_procs, r.jitter) - 1.0 if r.jitter else 0.0
        return slower * np.minimum(self.useful, float(r.slow_detect)) + varied * self.useful

    @cached_property
    def spikes(self) -> Count:
        """Loss spikes."""
        if not self.campaign.spikes:
            return np.zeros(())
        return self.campaign.spikes * self.tokens / TERA

    @cached_property
    def repeated(self) -> Seconds:
        """Time of steps that loss spikes and silent corruptions take back."""
        none = np.zeros(())
        r, spikes = self.campaign.reliability, self.campaign.spikes
        back = self.spikes * self.campaign.rollback_steps * self.step if spikes else none
        if not r.silent:
            return back
        done = self.useful + self.slowed + self.evaluation + back
        return back + done * (self._rework - 1.0)

    @cached_property
    def silent_mtbf(self) -> Seconds:
        """Mean time between silent corruptions of the job."""
        silent = self.campaign.reliability.silent
        return (
            ratio(HOUR, silent * np.asarray(self.job.num_procs)) if silent else np.asarray(np.inf)
        )

    @cached_property
    def _rework(self) -> Array:
        found_after = float(self.campaign.reliability.silent_detect)
        interval = self.checkpoint_interval if self.rounded else 0.0
        return rework(found_after, interval, self.recovery, self.silent_mtbf)

    @cached_property
    def work(self) -> Seconds:
        """All that the steps of the run take, without failures and checkpoints."""
        return self.useful + self.slowed + self.evaluation + self.repeated

    # -- failures and checkpoints -------------------------------------------------------------------------------------

    @cached_property
    def mtbf(self) -> Seconds:
        """Mean time between interruptions of the job: failures, and spot processors that are taken back."""
        r = self.campaign.reliability
        own: Values = r.mtbf_processor / HOUR
        if self.quote is not None and self.quote.mtbf_hours is not None:
            own = combined(own, self.quote.mtbf_hours)
        others = () if r.mtbf_common is None else (r.mtbf_common / HOUR,)
        return job_mtbf(self.job.num_procs, own, *others)

    @cached_property
    def saves(self) -> Saving:
        """How checkpoints are saved and loaded."""
        job = self.job
        size = job.checkpoint_size
        return saving(self.campaign.checkpoints, job.system, size, job.num_procs, job.nodes)

    @cached_property
    def recovery(self) -> Seconds:
        """From a failure to the next step."""
        r = self.campaign.reliability
        return r.detect + r.restart + self.saves.load

    @cached_property
    def best_interval(self) -> Seconds:
        """The time between checkpoints with which a run is the shortest, if the storage could take them."""
        c = self.campaign.checkpoints
        if c.levels == 1:
            return best_interval(self.saves.pause, self._between_losses)
        return best_two_levels(self._pauses, self._between_losses, c.memory_lost)[1]

    @property
    def _between_losses(self) -> Seconds:
        """Mean time between losses of work of both kinds; for the least time of a run failures alone."""
        return combined(self.mtbf, self.silent_mtbf) if self.rounded else self.mtbf

    @cached_property
    def checkpoint_interval(self) -> Seconds:
        """The time of steps between checkpoints: as stated, or the best that the storage can take."""
        c, least = self.campaign.checkpoints, self.saves.least_interval
        if not self.rounded:
            best = best_interval(self.saves.pause, self.mtbf)
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
        """Return an interval that is no longer than the run; without failures nothing is ever saved."""
        return np.where(np.isinf(interval), np.inf, np.minimum(interval, self.useful))

    @cached_property
    def memory_interval(self) -> Seconds:
        """The time of steps between copies in the memory of other nodes, of two levels."""
        stated = self.campaign.checkpoints.memory_interval
        if stated is not None:
            return np.asarray(float(stated))
        lost = self.campaign.checkpoints.memory_lost
        best = best_two_levels(self._pauses, self.mtbf, lost)[0]
        return np.minimum(np.maximum(best, self.step), self.checkpoint_interval)

    @property
    def _pauses(self) -> tuple[Seconds, Seconds]:
        """Time that steps wait for a copy in memory, and for a checkpoint."""
        return self.saves.memory_pause, self.saves.pause

    @cached_property
    def spent(self) -> Spent:
        """What failures and checkpoints take for each second of work."""
        c, r = self.campaign.checkpoints, self.campaign.reliability
        if c.levels == 1:
            return spent(self.checkpoint_interval, self.saves.pause, self.recovery, self.mtbf)
        intervals = self.memory_interval, self.checkpoint_interval
        recoveries = np.asarray(r.detect + r.restart), self.recovery
        return spent_with_copies(intervals, self._pauses, recoveries, self.mtbf, c.memory_lost)

    @cached_property
    def planned_restart(self) -> Seconds:
        """Time of a restart that is no failure, which nobody has to detect."""
        return self.campaign.reliability.restart + self.saves.load

    @cached_property
    def restarts(self) -> Seconds:
        """Time of restarts that are no failures: changes of the execution, and loss spikes."""
        return (self.pauses + self.spikes) * self.planned_restart

    @cached_property
    def away(self) -> Count:
        """Mean number of nodes in repair; never more than there are."""
        r, n = self.campaign.reliability, self.job
        node_mtbf = ratio(r.mtbf_processor, r.hardware_share * n.node)
        return np.minimum(away(n.nodes, node_mtbf, float(r.repair)), n.nodes)

    @cached_property
    def spare_nodes(self) -> Count:
        """Nodes that stand by: as stated, or as many as make the paid time the least."""
        r = self.campaign.reliability
        if r.spares is not None:
            return np.asarray(float(r.spares))
        return np.zeros(()) if r.elastic else np.asarray(cheapest_spares(self.away, self.job.nodes))

    @cached_property
    def _complete(self) -> Fraction:
        """Share of its time in which the job has all of its nodes, or what rate it has without."""
        if self.campaign.reliability.elastic:
            return elastic_rate(self.away, self.spare_nodes, self.job.replicas, self.job.nodes)
        return 1.0 - share_of_time_waiting(self.away, self.spare_nodes)

    @cached_property
    def running(self) -> Seconds:
        """Time of the run without waiting for nodes."""
        return self.work * (1.0 + self.spent.total) + self.restarts

    @cached_property
    def wall(self) -> Seconds:
        """Expected time of the run; infinite where the job is never complete."""
        with quiet():
            return np.asarray(self.running / self._complete)

    # -- figures ------------------------------------------------------------------------------------------------------

    @cached_property
    def days(self) -> Array:
        """See :class:`CampaignFigures`, as of all that follows."""
        return self.wall / DAY

    def days_by(self, shares: tuple[float, ...]) -> Array:
        """Return the days by which given shares of such runs have ended, as failures leave them; shape (shares, ...).

        With two levels it is the law of one, scaled to their mean.
        """
        c, scale = self.campaign.checkpoints, np.asarray(1.0)
        times = self.checkpoint_interval, self.saves.pause, self.recovery, self.mtbf
        if c.levels > 1:
            recovery = self.recovery - (1.0 - c.memory_lost) * self.saves.load
            times = self.memory_interval, self.saves.memory_pause, recovery, self.mtbf
            scale = self.work * (1.0 + self.spent.total) / mean(self.work, *times)
        with quiet():
            found = scale * quantiles(self.work, *times, shares) + self.restarts
            return np.asarray(found / self._complete / DAY)

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
        """The price of an hour of a processor; None where none is known."""
        fleet, stated = self.campaign.fleet, self.job.system.ext.price
        owned, own = None, None if stated is None else stated.own
        if own is not None and fleet.usd_per_kwh is not None and self.draw is not None:
            owned = own_price(
                own,
                self.job.node,
                power_kw=self.draw.per_processor(self.job.num_procs, self.job.nodes) / KILO,
                usd_per_kwh=fleet.usd_per_kwh,
                pue=fleet.pue or 1.0,
            )
        return quote(stated, fleet.price_kind, given=fleet.price, owned=owned)

    @cached_property
    def money(self) -> Money | None:
        """US dollars by what they are for; None where no price is known."""
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
    def draw(self) -> Draw | None:
        """The power of processors and nodes; None where nothing is known of it."""
        return draw(self.job.system.ext.power, self.working, tdp=self.campaign.fleet.tdp)

    @cached_property
    def energy(self) -> Energy | None:
        """Energy by what takes it; None where no power is known."""
        if self.draw is None:
            return None
        busy = self.work * (1.0 + self.spent.lost)
        return energy(
            self.draw,
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
        """Days by what they are spent on."""
        work, share = self.work, self.spent
        return DaysByUse(
            useful=self.useful / DAY,
            evaluation=self.evaluation / DAY,
            saving=work * share.saving / DAY,
            lost=work * share.lost / DAY,
            restart=(work * share.restart + self.restarts) / DAY,
            waiting=(self.wall - self.running) / DAY,
            repeated=self.repeated / DAY,
            slowed=self.slowed / DAY,
        )

    def figures(self) -> CampaignFigures:
        """Return all figures, each a whole column."""
        shape = self.wall.shape
        found = record_of(CampaignFigures, self)
        return apply(lambda column: np.broadcast_to(np.asarray(column, float), shape), [found])


def _total(stretches: Sequence[Stretch], part: Callable[[Stretch], Array]) -> Array:
    """Return the sum of a figure of stretches, from the first to the last."""
    parts = (np.asarray(part(one), float) for one in stretches)
    return reduce(np.add, parts)
