"""A whole training run of a plan: its parts, its figures, and what was assumed."""

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from calculon import inputs
from calculon.architecture.parameters import active_count
from calculon.campaign.assumed import counts
from calculon.campaign.exponentials import quiet
from calculon.campaign.interval_choice import interval_choice
from calculon.campaign.job_mtbf import small_job_warning
from calculon.campaign.launched import with_launch
from calculon.campaign.limits import Limit, limits
from calculon.campaign.read import CampaignSource, read_campaign
from calculon.campaign.record import Campaign
from calculon.campaign.run_columns import job, stretch
from calculon.campaign.run_length import tokens_of_run
from calculon.campaign.scaling_laws import COUNTED, COUNTS, LAWS, losses, tokens_of_loss
from calculon.campaign.whole_run import WholeRun
from calculon.display import Displayed, drawn
from calculon.errors import Infeasible
from calculon.estimate import Estimate, estimate
from calculon.frozen import dataclass
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.inspect.question import question
from calculon.planner.launch_flags import launch_in
from calculon.planner.published_beside import published_beside
from calculon.planner.run_details import energy_details, money_details, node_details
from calculon.planner.run_parts import Part, parts_of
from calculon.presets import Preset
from calculon.records import only_values
from calculon.spec.execution import Execution
from calculon.spec.model import Model
from calculon.spec.named_values import CORRECTED
from calculon.spec.result_selection import QUESTION

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class TrainingRun(Displayed):
    """A whole training run.

    Attributes
    ----------
    campaign : Campaign
        What was asked.
    parts : tuple of Part
        Its steps, in their order.
    whole : WholeRun
        What it takes, with money and energy by their parts.
    """

    campaign: Campaign
    parts: tuple[Part, ...]
    whole: WholeRun

    @cached_property
    def figures(self) -> dict[str, float | None]:
        """Its figures by name (:class:`~calculon.run_figures.CampaignFigures`).

        None of what is not known, and of what never comes, such as a failure.
        """
        found = only_values(self.whole.figures()).items()
        return {
            name: one if one is not None and math.isfinite(one) else None for name, one in found
        }

    @property
    def main(self) -> Part:
        """The part that takes the longest."""
        return max(self.parts, key=lambda one: one.days)

    @property
    def model(self) -> Model:
        """The model."""
        return self.main.estimate.model

    @property
    def system(self) -> System:
        """The machine."""
        return self.main.estimate.system

    @property
    def tokens(self) -> float:
        """Tokens of the run: whole steps of them."""
        return sum(one.steps * one.tokens_per_step for one in self.parts)

    @property
    def preset(self) -> Preset:
        """Framework that runs it."""
        preset = self.main.estimate.preset
        assert preset is not None
        return preset

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """The limits that the campaign states."""
        return limits(self.campaign, self.figures)

    @property
    def pauses(self) -> int:
        """Restarts between parts that are split differently."""
        return sum(one.restarts for one in self.parts)

    @cached_property
    def expected_loss(self) -> dict[str, Any]:
        """The loss at the end by both laws, the parameters that they count, and the tokens for each of them.

        Of a run to a loss also the tokens to it by both laws. Sources: :mod:`calculon.campaign.scaling_laws`.
        """
        parameters = float(active_count(self.model))
        found: dict[str, Any] = {
            "parameters": parameters,
            "counted": COUNTED,
            "tokens_per_parameter": self.tokens / parameters,
            "loss": losses(parameters, self.tokens),
            "sources": {name: law.source for name, law in LAWS.items()},
        }
        if self.campaign.loss is not None:
            found["tokens"] = tokens_of_loss(self.campaign.loss, parameters)
            found["counts"] = COUNTS.name
        return found

    @cached_property
    def days_between(self) -> tuple[float, float] | None:
        """Where measured runs put the days of the run: as the interval of the steps of the longest part."""
        belief, days = self.main.estimate.belief, self.figures["days"]
        if belief is None or days is None:
            return None
        ends = (end / self.main.step_time * days for end in (belief.low, belief.high))
        low, high = ends
        return low, high

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        main = self.main.estimate
        known = {} if main.origin is None else main.origin.to_dict()
        warned = small_job_warning(main.execution.num_procs)
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
            "published": published_beside(self.whole, self.model.name),
            "warnings": [warned] if warned else [],
            "parts": [one.to_dict() for one in self.parts],
            "assumed": [
                {"field": path, "value": value, "unit": unit, "source": source}
                | {"counts": counts(self.campaign, path)}
                for path, value, unit, source in self.campaign.defaults
            ],
        }

    def plot(self, kind: str = "campaign", **options: Any) -> "Figure":
        """Draw the run.

        Parameters
        ----------
        kind : str
            ``campaign`` (default): where its days go, and when it ends; ``goodput``: goodput over the number of
            processors, with as many replicas of the plan more or fewer and a batch in proportion.
        **options
            Of ``goodput``: ``procs``, the processors (``"1024:131072:x2"``), and ``mtbf``, hours of a processor between
            failures, a curve each (:func:`calculon.planner.goodput_by_size.goodput_by_size`).

        Raises
        ------
        SpecError
            For another kind or option, and where matplotlib is missing.
        """
        return drawn(self, kind, **options)

    def __repr__(self) -> str:
        e = self.main.estimate
        days, goodput = self.figures["days"], self.figures["goodput"]
        return (
            f"<TrainingRun of {e.model.name} on {e.execution.num_procs:,} x {e.system.name}: "
            f"{days:.1f} days, goodput {goodput:.1%}>"
        )


def campaign(
    model: Source | Model,
    execution: Source | Execution | int,
    system: Source | System,
    run: CampaignSource | None = None,
    *,
    preset: str | None = None,
    **options: Any,
) -> TrainingRun:
    """Return the whole training run of a plan: days, failures, checkpoints, money and energy.

    Parameters
    ----------
    model, execution, system : str, path, mapping or record
        As in :func:`calculon.estimate`; the edition is ``corrected``. Of a number of processors instead of an
        execution the best plan is taken, as of :func:`calculon.plan`.
    run : str, path, mapping or Campaign, optional
        The campaign: a name of the catalog, a file, or its fields. What it leaves out counts as the execution says
        it where that is the launch file of a trainer: tokens, the ramp of the batch, steps between checkpoints.
    preset : str, optional
        As in :func:`calculon.estimate`.
    **options
        Fields of the campaign that count instead of those of `run`: ``tokens="15T"``, ``deadline="60d"``; of a part of
        it with two underscores: ``fleet__price=2.0``.

    Raises
    ------
    SpecError
        For a malformed request, such as a run without tokens, or a budget without a price.
    Infeasible
        When a part of the run does not fit, which the message says, and when failures are so many that it never ends.
        A run beyond its limits is told all the same (:attr:`TrainingRun.limits`).
    """
    stated = {name.replace("__", "."): value for name, value in options.items()}
    asked = read_campaign(run, stated)
    if (launch := launch_in(execution)) is not None:
        asked = with_launch(asked, launch)
    if isinstance(execution, int):
        base = _planned(model, execution, system, preset, asked)
    else:
        shape, machine = inputs.model(model), inputs.system(system)
        base = estimate(shape, execution, machine, edition=CORRECTED, preset=preset)
    return training_run(asked, base)


def _planned(
    model: Source | Model,
    num_procs: int,
    system: Source | System,
    preset: str | None,
    asked: Campaign,
) -> Estimate:
    """Return the best plan on so many processors, for the batch and the length of the end of the run."""
    from calculon.planner.answer import space_of  # what a given plan does without
    from calculon.planner.ask import ask
    from calculon.planner.remedies import BEST
    from calculon.planner.unfit import why_none
    from calculon.search.driver import run as search
    from calculon.search.ranking import Best

    batch, seq = asked.at_the_end
    question = ask(model, num_procs, system, preset=preset, batch=batch, seq=seq)
    found = search(space_of(question, num_procs), Best(BEST, 1))
    if not len(found):
        reason = why_none(found.counts)
        raise Infeasible("nothing", f"no plan fits: {reason}; calculon plan says what would")
    return found[0]


def training_run(asked: Campaign, base: Estimate) -> TrainingRun:
    """Return the whole run of an estimated plan; errors as of :func:`campaign`."""
    e, parameters = base.execution, float(active_count(base.model))
    seq_size = e.seq_length or base.model.seq_size
    tokens = tokens_of_run(asked, parameters, e.batch_size * seq_size)
    run = WholeRun(asked, job(asked, base.system, e.datatype, _lookup(base), parameters), ())
    parts = parts_of(asked, base, tokens, parameters, float(run.planned_restart))
    main = max(parts, key=lambda one: one.days).estimate
    stretches = tuple(
        stretch(np.asarray(one.steps), np.asarray(one.tokens_per_step), _lookup(one.estimate))
        for one in parts
    )
    of_job = job(asked, base.system, e.datatype, _lookup(main), parameters)
    pauses = sum(one.restarts for one in parts)
    whole = replace(run, job=of_job, stretches=stretches, pauses=pauses)
    found = TrainingRun(asked, parts, whole)
    _check(found)
    return found


def _check(found: TrainingRun) -> None:
    """Refuse a run that never ends, and one with limits that cannot be checked."""
    with quiet():
        wall = float(found.whole.wall)
    if not math.isfinite(wall):
        whole = found.whole
        said = f"a failure each {float(whole.mtbf):.3g} s, and {float(whole.recovery):.3g} s to restart"
        hint = "raise reliability.mtbf_processor, or shorten restart, detect and load_time"
        raise Infeasible("never_ends", f"the run never ends: {said}. Hint: {hint}")
    limits(found.campaign, found.figures)


def _lookup(one: Estimate) -> Any:
    """Return the columns of an estimate, of one row, by name."""

    def value(name: str) -> Any:
        if name in one.stats:
            return np.asarray(one.stats[name], float)
        return np.asarray(getattr(one.execution, name))

    return value
