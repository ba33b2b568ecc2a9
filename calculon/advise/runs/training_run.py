"""Whole training run of a plan: parts, figures (goodput, MFU, days, money, energy) and assumptions."""

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from calculon.advise.runs.published_comparison import published_comparison
from calculon.advise.runs.run_details import (
    energy_details,
    money_details,
    node_details,
    warnings_of,
)
from calculon.advise.runs.run_parts import RunPart, parts_of
from calculon.advise.sensitivity_of_case import largest, run_sensitivity
from calculon.advise.sensitivity_result import Sensitivity
from calculon.architecture.parameters import active_count
from calculon.base.display import WithMfu, columns_of, draw_result
from calculon.base.errors import Infeasible
from calculon.base.frozen import dataclass
from calculon.base.record_arrays import only_values
from calculon.campaign.assumed import assumed_defaults
from calculon.campaign.exponentials import ignore_float_errors
from calculon.campaign.interval_choice import interval_choice
from calculon.campaign.limits import Limit, limits
from calculon.campaign.record import Campaign
from calculon.campaign.run_columns import job, timed_segment, tokens_of_run
from calculon.campaign.scaling_laws import COUNTED, COUNTS, LAWS, losses, tokens_of_loss
from calculon.campaign.whole_run import WholeRun
from calculon.declarations.model import Model
from calculon.declarations.presets import Preset
from calculon.declarations.result_records import QUESTION
from calculon.estimate.estimate import Estimate
from calculon.estimate.question import question
from calculon.hardware.system import System

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure


NEVER = 1e6
"""Ratio of the time of a run to the time of its steps from which on it never ends."""


_NESTED = ("execution", "rollout")
"""Members of a part that have members."""


@dataclass(frozen=True)
class TrainingRun(WithMfu[float | None]):
    """A whole training run.

    Attributes:
        campaign: Requested run.
        parts: Parts of the run, in order.
        whole: Time, money and energy of the run, by their parts.
    """

    campaign: Campaign
    parts: tuple[RunPart, ...]
    whole: WholeRun

    @cached_property
    def figures(self) -> dict[str, float | None]:
        """Figures by name (:class:`~calculon.declarations.run_figures.CampaignFigures`).

        None for unknown figures, and for events that never occur, such as a failure.
        """
        found = only_values(self.whole.figures()).items()
        return {
            name: one if one is not None and math.isfinite(one) else None for name, one in found
        }

    @property
    def main(self) -> RunPart:
        """Longest part."""
        return max(self.parts, key=lambda one: one.days)

    @property
    def model(self) -> Model:
        """Model."""
        return self.main.estimate.model

    @property
    def system(self) -> System:
        """Machine."""
        return self.main.estimate.system

    @property
    def tokens(self) -> float:
        """Tokens of the run, in whole steps."""
        return sum(one.steps * one.tokens_per_step for one in self.parts)

    @property
    def assumed(self) -> list[dict[str, Any]]:
        """Defaults of the campaign that were not stated, as plain data."""
        return assumed_defaults(self.campaign, [self.system.name])

    @property
    def preset(self) -> Preset:
        """Framework that runs it."""
        preset = self.main.estimate.preset
        assert preset is not None
        return preset

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """Limits that the campaign states."""
        return limits(self.campaign, self.figures)

    @property
    def pauses(self) -> int:
        """Restarts between parts that are split differently."""
        return sum(one.restarts for one in self.parts)

    @cached_property
    def expected_loss(self) -> dict[str, Any]:
        """Final loss by both laws, the parameters that they count, and the tokens per parameter.

        For a run to a target loss, also the tokens needed by both laws. Sources: :mod:`calculon.campaign.scaling_laws`.
        """
        parameters = float(active_count(self.model))
        result: dict[str, Any] = {
            "parameters": parameters,
            "counted": COUNTED,
            "tokens_per_parameter": self.tokens / parameters,
            "loss": losses(parameters, self.tokens),
            "sources": {name: law.source for name, law in LAWS.items()},
        }
        if self.campaign.loss is not None:
            result["tokens"] = tokens_of_loss(self.campaign.loss, parameters)
            result["counts"] = COUNTS.name
        return result

    @cached_property
    def days_between(self) -> tuple[float, float] | None:
        """Prediction interval of the days, scaled from the interval of the steps of the longest part."""
        belief, days = self.main.estimate.belief, self.figures["days"]
        if belief is None or days is None:
            return None
        # The interval is of the training step; generation shifts it without widening it.
        before, whole = self.main.rollout_time, self.main.step_time
        low, high = ((end + before) / whole * days for end in (belief.low, belief.high))
        return low, high

    @cached_property
    def largest_elasticities(self) -> dict[str, list[dict[str, Any]]]:
        """The three largest elasticities of ``days``, and of ``usd`` if there is a price, as plain data.

        Empty for runs with rollouts.
        """
        if any(one.rollout_time for one in self.parts):
            return {}
        return largest(self, ("days", "usd"))

    def with_plan(self, other: Estimate) -> "TrainingRun":
        """Return the same run with another plan, or on another machine; errors as for :func:`campaign`."""
        return training_run(self.campaign, other)

    def sensitivity(self, of: str = "days", **options: Any) -> Sensitivity:
        """Analyze a figure of the run: elasticities, shadow prices, break-even.

        Args:
            of: Name of the figure.
            **options: Arguments ``spread``, ``replan``, ``against`` and ``against_system`` of
                :func:`calculon.sensitivity`.

        Raises:
            SpecError, Infeasible: As :func:`calculon.sensitivity`.
        """
        return run_sensitivity(self, of, **options)

    def to_dict(self) -> dict[str, Any]:
        """Return the run as plain data."""
        main = self.main.estimate
        known = {} if main.origin is None else main.origin.to_dict()
        asked = {"execution": {**known, "fields": main.execution.to_dict()}}
        return {
            QUESTION: question(main.model, main.system, main.edition, self.preset, **asked)
            | {"campaign": dict(self.campaign.document)},
            "tokens": self.tokens,
            "expected_loss": self.expected_loss,
            "figures": dict(self.figures),
            "days_between": None if self.days_between is None else list(self.days_between),
            "limits": [one.to_dict() for one in self.limits],
            "nodes": node_details(self.whole),
            "checkpoint": interval_choice(self.whole).to_dict(),
            "money": money_details(self.whole),
            "energy": energy_details(self.whole),
            "published": published_comparison(self.whole, self.model.name),
            "warnings": warnings_of(self.whole),
            "parts": [one.to_dict() for one in self.parts],
            "assumed": self.assumed,
        }

    def _statistic(self, name: str) -> float | None:
        return self.main.estimate.stats.get(name)

    def table(self) -> dict[str, list[Any]]:
        """Return a row for each part, in their order, with fields and statistics of its execution.

        A part has the number of its ``phase``, a ``name``, ``tokens``, ``seq_size`` in tokens, ``steps``, and whether
        the run ``restarts`` before it. ``step_time`` (s) has ``rollout_time``, ``days`` are without failures, and
        ``note`` says how its execution differs from the stated one.
        """
        return columns_of(
            {
                **{name: value for name, value in one.to_dict().items() if name not in _NESTED},
                "rollout_time": one.rollout_time,
                **one.estimate.row,
            }
            for one in self.parts
        )

    @overload
    def plot(
        self, kind: str = "campaign", *, interactive: Literal[False] = False, **options: Any
    ) -> "Figure": ...

    @overload
    def plot(
        self, kind: str = "campaign", *, interactive: Literal[True], **options: Any
    ) -> "InteractiveFigure": ...

    def plot(
        self, kind: str = "campaign", *, interactive: bool = False, **options: Any
    ) -> "Figure | InteractiveFigure":
        """Draw the run.

        Args:
            kind: ``campaign`` (default): breakdown of its days, and the distribution of its end; ``goodput``: goodput
                over the number of processors, with more or fewer replicas of the plan, and batch and tokens in
                proportion.
            interactive: Draw it like the web page (extra ``web``): a plotly Figure.
            **options: For ``goodput``: ``procs``, the processors (``"1024:131072:x2"``), and ``mtbf``, hours between
                failures of a processor, one curve each (:func:`calculon.advise.runs.goodput_by_size.goodput_by_size`).

        Raises:
            SpecError: For an unknown kind or option, and if the library is missing.
        """
        return draw_result(self, kind, interactive=interactive, **options)

    def __repr__(self) -> str:
        e = self.main.estimate
        days, goodput = self.figures["days"], self.figures["goodput"]
        return (
            f"<TrainingRun of {e.model.name} on {e.execution.num_procs:,} x {e.system.name}: "
            f"{days:.1f} days, goodput {goodput:.1%}>"
        )


def training_run(campaign: Campaign, base: Estimate) -> TrainingRun:
    """Return the whole run of an estimated plan; errors as for :func:`calculon.campaign`."""
    e, parameters = base.execution, float(active_count(base.model))
    seq_size = e.seq_length or base.model.seq_size
    tokens = tokens_of_run(campaign, parameters, e.batch_size * seq_size)
    # A run without stretches is enough for the time of a restart, which decides where phases may
    # change their plan.
    run = WholeRun(campaign, job(campaign, base.system, e.datatype, _lookup(base), parameters), ())
    parts = parts_of(campaign, base, tokens, parameters, float(run.planned_restart))
    main = max(parts, key=lambda one: one.days).estimate
    segments = tuple(
        timed_segment(
            np.asarray(one.steps),
            np.asarray(one.tokens_per_step),
            _lookup(one.estimate),
            one.rollout_time,
        )
        for one in parts
    )
    of_job = job(campaign, base.system, e.datatype, _lookup(main), parameters)
    pauses = sum(one.restarts for one in parts)
    whole = replace(run, job=of_job, segments=segments, pauses=pauses)
    result = TrainingRun(campaign, parts, whole)
    _check(result)
    return result


def _check(training_run: TrainingRun) -> None:
    """Refuse a run that never ends, and limits that cannot be checked."""
    whole = training_run.whole
    with ignore_float_errors():
        longer = float(whole.wall / whole.useful)
    # Written so that NaN counts as never.
    if not longer < NEVER:
        said = f"a failure every {float(whole.mtbf):.3g} s, and {float(whole.recovery):.3g} s to restart"
        hint = "raise reliability.mtbf_processor, or shorten restart, detect and load_time"
        raise Infeasible("never_ends", f"the run never ends: {said}. Hint: {hint}")
    limits(training_run.campaign, training_run.figures)


def _lookup(one: Estimate) -> Any:
    """Return the columns of an estimate, of one row, by name."""

    def value(name: str) -> Any:
        if name in one.stats:
            return np.asarray(one.stats[name], float)
        return np.asarray(getattr(one.execution, name))

    return value
