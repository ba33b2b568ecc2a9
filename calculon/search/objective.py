"""Objectives of a search: a statistic to maximize or minimize."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.base.records import Column, column, columns
from calculon.base.units import Array, Count, Seconds
from calculon.cost.batch import Batch
from calculon.declarations.named_values import CORRECTED
from calculon.declarations.run_figures import RUN_FIGURES
from calculon.declarations.short_names import STATISTICS as SHORT
from calculon.declarations.statistics import Capacity, CorrectedStats
from calculon.editions.edition import Edition

if TYPE_CHECKING:
    from calculon.campaign.whole_run import WholeRun

SENSES = ("max", "min")

LARGER = ("samples/s", "tokens/s", "requests/s", "FLOP/s", "fraction", "tokens/USD", "tokens")
"""Units of statistics that are better when larger."""

MEMORY = tuple(column.name for column in columns(Capacity))
"""Statistics of the required memory."""


@dataclass(frozen=True, slots=True)
class Objective:
    """Statistic and sense; its *score* is larger for better executions."""

    statistic: Column
    sense: str

    @classmethod
    def parse(cls, text: str, where: str = "objective", *, whole_runs: bool = False) -> "Objective":
        """Read ``STATISTIC[:max|min]``; the sense defaults to the better direction. Errors name the argument `where`.

        With `whole_runs`, figures of training runs are statistics too.

        Raises:
            SpecError: For an unknown statistic (with the nearest names) or sense.
        """
        find = partial(known_statistic, where=where, whole_runs=whole_runs)
        return cls.read(text, find, where)

    @classmethod
    def read(
        cls, text: str, find: Callable[[str], Column], where: str = "objective"
    ) -> "Objective":
        """Read ``NAME[:max|min]``; `find` returns the statistic of a name. Errors as of :meth:`parse`."""
        name, colon, sense = text.partition(":")
        statistic = find(name)
        if not colon:
            sense = _natural_sense(statistic)
        if sense not in SENSES:
            raise SpecError(where, Problem(name, "max or min after the colon", repr(sense)))
        return cls(statistic, sense)

    def score(self, record: "Batch | WholeRun") -> Array:
        """Return the scores of executions or training runs, on the axes that the statistic depends on."""
        return self.value(self.statistic.of(record))

    def value(self, score: Array) -> Array:
        """Return the statistic for scores, or the scores for a statistic."""
        return score if self.sense == "max" else np.negative(score)

    @property
    def of_memory(self) -> bool:
        """True for required memory, which is known before any time is computed."""
        return self.statistic.name in MEMORY

    @property
    def of_runs(self) -> bool:
        """True for a figure of training runs."""
        return self.statistic.name in RUN_FIGURES

    def bound(
        self, time_lower_bound: Callable[[], Seconds], batch_size: Count, tokens: Count
    ) -> Array | None:
        """Return an upper bound of the score of executions with at least this time; None if time gives no bound.

        Rates are per sample or token of a batch. The last digits of a time depend on the order of summation; the bound
        is relaxed by 1e-9 to allow for them.
        """
        slack = 1 - 1e-9
        if (self.statistic.name, self.sense) == ("sample_rate", "max"):
            return batch_size / (time_lower_bound() * slack)
        if (self.statistic.name, self.sense) == ("tokens_per_second", "max"):
            return tokens / (time_lower_bound() * slack)
        if (self.statistic.name, self.sense) == ("total_time", "min"):
            return np.asarray(-time_lower_bound() * slack)
        return None


def known_statistic(name: str, where: str, *, whole_runs: bool = False) -> Column:
    """Return a statistic, or with `whole_runs` a figure of training runs, by name, short name, or description.

    >>> known_statistic("time", "objective") is known_statistic("Time of one iteration", "objective")
    True

    Raises:
        SpecError: For an unknown name; the hint names the nearest statistic, or an option that adds this statistic.
    """
    if whole_runs and name in RUN_FIGURES:
        return RUN_FIGURES[name]
    try:
        return column(CorrectedStats, statistic_name(name))
    except KeyError:
        known = [c.name for c in columns(CorrectedStats)] + [*RUN_FIGURES] * whole_runs
        known += SHORT
        usual = f"examples: {', '.join(SHORT)}; all: calculon describe stats"
        hint = of_a_run(name) or nearest(name, known) or usual
        raise SpecError(where, Problem("", "a statistic", repr(name), hint)) from None


def statistic_name(text: str) -> str:
    """Return the name of the statistic that a text means, by short name or description; other text is unchanged."""
    known = {**{one.name: one.name for one in columns(CorrectedStats)}, **SHORT}
    words = {one.help.lower(): one.name for one in columns(CorrectedStats)}
    return known.get(text) or known.get(text.lower()) or words.get(text.lower(), text)


def of_a_run(name: str) -> str:
    """Return the hint that makes a figure of training runs available; empty for any other name."""
    return (
        "it describes a training run: add --tokens 15T, or --campaign (campaign={...} in Python)"
        if name in RUN_FIGURES
        else ""
    )


def check_statistic(name: str, where: str, edition: Edition) -> None:
    """Refuse a statistic that an edition does not compute.

    Raises:
        SpecError: With the edition that computes it.
    """
    computed = {c.name for c in edition.columns}
    if name in {c.name for c in columns(CorrectedStats)} - computed:
        wanted = f"a statistic of edition {edition.name}"
        raise SpecError(where, Problem("", wanted, repr(name), f"add --edition {CORRECTED}"))


def _natural_sense(statistic: Column) -> str:
    """Return max for rates and efficiencies, and min for other statistics."""
    return "max" if statistic.unit.symbol in LARGER else "min"
