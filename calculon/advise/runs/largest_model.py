"""Largest model that a fleet trains in a given time, with the compute-optimal ratio of tokens to parameters."""

import math
import re
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any

from calculon import inputs
from calculon.advise.runs.run_of_plan import campaign
from calculon.advise.runs.training_run import TrainingRun
from calculon.architecture.parameters import active_count
from calculon.base.display import WithMfu, columns_of
from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.campaign.goals import CHINCHILLA, Interval
from calculon.campaign.read import CampaignSource, read_campaign
from calculon.campaign.record import DAY, Campaign
from calculon.campaign.scaling_laws import COUNTED, FLOP_PER_PARAMETER_AND_TOKEN, LAWS, losses
from calculon.declarations import catalog
from calculon.declarations.model import Model
from calculon.declarations.spellings import processor_counts
from calculon.estimate.argument_order import takes_either_order
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.serving.serve import flat

FIRST_MFU = 0.4
"""MFU assumed for the first model; Llama 3 405B has 38 to 43 %, arXiv:2407.21783, table 4."""

_SMALLER = 0.8
"""Maximum ratio of the parameters of the next model to those of a model that did not fit."""

SMALLEST = 70e6
"""Parameters of the smallest model in the fits of the laws, arXiv:2203.15556, abstract: they do not hold below it."""

RULE = "20 tokens for each parameter"
"""Ratio of Hoffmann et al., arXiv:2203.15556, table 3, by all three of their approaches."""


@dataclass(frozen=True)
class Optimum:
    """Compute-optimal model and tokens according to one law.

    Attributes:
        law: The law: :data:`RULE`, or a name of :data:`~calculon.campaign.scaling_laws.LAWS`.
        parameters, tokens: Number of parameters, and number of training tokens.
    """

    law: str
    parameters: float
    tokens: float

    @property
    def loss(self) -> dict[str, float]:
        """Final loss according to both laws."""
        return losses(self.parameters, self.tokens)

    def to_dict(self) -> dict[str, Any]:
        """Return the optimum as plain data."""
        known = {"law": self.law, "parameters": self.parameters, "tokens": self.tokens}
        return {**known, "tokens_per_parameter": self.tokens / self.parameters, "loss": self.loss}


@dataclass(frozen=True)
class LargestModel(WithMfu[float | None]):
    """The largest model that a fleet trains in some days, by each law.

    Attributes:
        system: Machine.
        num_procs: Number of processors.
        days: Available days.
        nearest: Run, on this fleet, of the catalog model whose parameters are nearest to the optimum, with its
            compute-optimal tokens: it sets the rate of the fleet.
        too_large: Catalog models nearer to the optimum that do not fit on this fleet.
    """

    system: System
    num_procs: int
    days: float
    nearest: TrainingRun
    too_large: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        """FLOP per day at 6 per parameter and token, from :attr:`nearest`, failures included."""
        run = self.nearest
        work = FLOP_PER_PARAMETER_AND_TOKEN * _parameters(run.model) * run.tokens
        return work / float(run.figures["days"] or math.inf)

    @property
    def compute(self) -> float:
        """Total FLOP of the fleet in these days."""
        return self.rate * self.days

    def cost(self, figure: str) -> float | None:
        """Return the amount of a figure proportional to time, such as ``usd``; None if unknown."""
        figures = self.nearest.figures
        value, takes = figures[figure], figures["days"]
        return None if value is None or not takes else value * self.days / takes

    @cached_property
    def optima(self) -> tuple[Optimum, ...]:
        """Compute-optimal parameters and tokens, by the usual rule and by both laws."""
        return optima(self.compute)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        run = self.nearest
        return {
            "system": self.system.name,
            "num_procs": self.num_procs,
            "days": self.days,
            "compute": self.compute,
            **{name: self.cost(name) for name in COSTS},
            "mfu_effective": run.figures["mfu_effective"],
            "counted": COUNTED,
            "sources": {RULE: "arXiv:2203.15556, table 3"}
            | {name: law.source for name, law in LAWS.items()},
            "optima": [one.to_dict() for one in self.optima],
            "too_large": list(self.too_large),
            "nearest": {"parameters": _parameters(run.model), "run": run.to_dict()},
        }

    def _statistic(self, name: str) -> float | None:
        return self.nearest.main.estimate.stats.get(name)

    def table(self) -> dict[str, list[Any]]:
        """Return a row for each ``law``: ``parameters``, ``tokens`` and ``tokens_per_parameter``, and ``loss`` by LAW.

        The losses at the end are columns ``loss.LAW``.
        """
        return columns_of(flat(one.to_dict()) for one in self.optima)

    def __repr__(self) -> str:
        best = self.optima[0]
        return (
            f"<LargestModel on {self.num_procs:,} x {self.system.name} in {self.days:g} days: "
            f"{best.parameters:.3g} parameters, {best.tokens:.3g} tokens, nearest {self.nearest.model.name}>"
        )


def optima(compute: float) -> tuple[Optimum, ...]:
    """Return the compute-optimal parameters and tokens for some FLOP, by the usual rule and by both laws.

    >>> [f"{one.parameters:.3g}" for one in optima(5.76e23)]  # Chinchilla: 70e9 parameters
    ['6.93e+10', '3.22e+10', '7.22e+10']
    """
    each = math.sqrt(compute / (FLOP_PER_PARAMETER_AND_TOKEN * CHINCHILLA))
    found = [Optimum(RULE, each, CHINCHILLA * each)]
    for name, law in LAWS.items():
        parameters, tokens = law.optimum(compute)
        found.append(Optimum(name, float(parameters), float(tokens)))
    return tuple(found)


@takes_either_order
def largest_model(
    num_procs: int | str,
    system: Source | System,
    days: float | str | None = None,
    run: CampaignSource | None = None,
    *,
    preset: str | None = None,
    **options: Any,
) -> LargestModel:
    """Return the largest model that a fleet trains in a given time, with compute-optimal tokens.

    The rate of the fleet is taken from a catalog model of about this size, planned on the fleet, with failures and
    checkpoints. The search repeats until the model whose rate was used is the nearest one.

    Args:
        num_procs: Processors; ``"1k"`` is 1,024.
        system: The machine.
        days: Days, or words (``"8w"``); by default the deadline of the campaign.
        run: Failures, checkpoints and prices, as in :func:`calculon.campaign`; how long its run is does not count.
        preset, **options: As in :func:`calculon.campaign`, without :data:`OF_A_RUN`.

    Raises:
        SpecError: For a malformed request, such as one without days, or an option for the length of a run.
        Infeasible: If no catalog model of such a size fits on these processors, and if the days are too few for a model
            of :data:`SMALLEST` parameters.

    Examples:
        >>> found = largest_model(256, "h100_80g_sxm", days=30)
        >>> 10e9 < found.optima[0].parameters < 60e9
        True
    """
    stated = {name.replace("__", "."): value for name, value in options.items()}
    for path in stated:
        if problem := not_asked(path):
            raise SpecError("campaign", problem)
    asked = read_campaign(run, stated)
    machine, count = inputs.system(system), processor_counts(str(num_procs))[0]
    span = _span(days, asked)
    document = {name: one for name, one in asked.document.items() if name not in _NOT_OWN}
    own = read_campaign({**document, "tokens": "chinchilla"})
    result = _search(machine, count, span / DAY, own, preset)
    _check(result)
    return result


_DATATYPE = "bfloat16"

COSTS = ("usd", "mwh", "t_co2")
"""Figures of a run that are proportional to its days."""

OF_A_RUN = (
    *("tokens", "loss", "steps", "phases", "batch_ramp", "seq_ramp"),
    *("budget_usd", "budget_mwh"),
)
"""Fields of a campaign that belong to the run of one particular model: the largest model replaces them."""

_NOT_OWN = (*OF_A_RUN, "deadline", "about")


def not_asked(path: str) -> Problem | None:
    """Return the problem with a campaign field, given by path, for the largest model; None if it is allowed.

    >>> not_asked("tokens").found, not_asked("fleet.price")
    ('the largest model', None)
    """
    if re.split(r"[.\[]", path)[0] not in OF_A_RUN:
        return None
    hint = "state the deadline; the answer has the costs"
    return Problem(path, "a run of one particular model", "the largest model", hint)


def _search(
    machine: System, count: int, days: float, requested: Campaign, preset: str | None
) -> LargestModel:
    """Return the answer with the rate of the catalog model nearest to it."""
    tried: dict[str, TrainingRun | None] = {}
    why: dict[str, None] = {}
    # A first guess only: after the first planned model, its real rate replaces it.
    flops = count * days * DAY * FIRST_MFU * machine.matrix[_DATATYPE].peak
    while name := _nearest(flops, tried):
        try:
            found = tried[name] = campaign(name, count, machine, requested, preset=preset)
        except Infeasible as error:
            tried[name], why[str(error)] = None, None
            continue
        too_large = tuple(one for one, run in tried.items() if run is None)
        answer = LargestModel(machine, count, days, found, too_large)
        flops = answer.compute
        if _nearest(flops, tried) in tried:  # converged: this model, or one that leads back to it
            return answer
    words = f"no model of the catalog of at most this size runs on {count:,} x {machine.name}"
    several = f"; tried: {', '.join(tried)}" if len(why) > 1 else ""
    raise Infeasible("nothing_fits", f"{words}: {next(iter(why))}{several}")


def _check(answer: LargestModel) -> None:
    """Refuse a time that is too short for any model."""
    best = answer.optima[0].parameters
    if best >= SMALLEST:
        return
    # Compute grows with the square of the parameters, as tokens are proportional to them.
    need = answer.days * (SMALLEST / best) ** 2
    procs = f"{answer.num_procs:,} x {answer.system.name}"
    raise Infeasible(
        "too_short",
        f"in {answer.days:.3g} days {procs} train a model of {best:.3g} parameters, but the scaling laws hold only "
        f"from {SMALLEST:.3g} on: at least {need:.3g} days are needed",
    )


def _span(days: float | str | None, requested: Campaign) -> float:
    """Return the available seconds."""
    if days is None:
        if requested.deadline is None:
            hint = "calculon campaign any 1024 h100 --deadline 60d"
            problem = Problem("deadline", "the available days", "nothing", hint)
            raise SpecError("campaign", problem)
        return float(requested.deadline)
    problems: list[Problem] = []
    found = Interval.decode(days, "days", problems, DAY)
    if problems:
        raise SpecError("campaign", problems)
    return float(found)


@cache
def _catalog() -> Mapping[str, float]:
    """Return the parameters of the dense language models of the catalog by name (they have a vocabulary).

    The law of compute is that of plain transformers, so models with linear attention are no reference for its rate.
    """
    models = ((name, inputs.model(name)) for name in catalog.names("model"))
    plain = ((name, one) for name, one in models if not (one.has_experts or one.has_linear))
    return {name: _parameters(one) for name, one in plain if one.vocab}


def _parameters(model: Model) -> float:
    return float(active_count(model))


def _nearest(flops: float, tried: Mapping[str, TrainingRun | None]) -> str:
    """Return the model nearest to the optimum, smaller than all that do not fit; empty if there is none."""
    wanted = math.sqrt(flops / (FLOP_PER_PARAMETER_AND_TOKEN * CHINCHILLA))
    known = _catalog()
    most = min(
        (_SMALLER * known[name] for name, run in tried.items() if run is None), default=math.inf
    )
    left = [name for name, parameters in known.items() if parameters <= most]
    # Nearest in ratio: twice as large is as far as half as large.
    return min(left, key=lambda name: abs(math.log(known[name] / wanted)), default="")
