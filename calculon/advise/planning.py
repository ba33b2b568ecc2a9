"""Public function ``plan``: one processor count in detail, or fleets compared by their whole runs."""

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, overload

from calculon.advise.answer import Answer, answer
from calculon.advise.ask import ask
from calculon.advise.runs.fleet import FleetAnswer
from calculon.advise.runs.fleet_search import ask_fleet, fleet_answer, usual_objective
from calculon.base.errors import Problem, SpecError
from calculon.campaign.read import CampaignSource, read_campaign
from calculon.campaign.record import Campaign
from calculon.declarations.fields import spec_fields
from calculon.declarations.model import Model
from calculon.estimate.argument_order import takes_either_order
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.search.request import is_word, meant_word, with_words


@overload
def plan(
    model: Source | Model,
    num_procs: int | str | Sequence[int],
    system: Source | System,
    *,
    preset: str | None = None,
    tokens: float | str | None = None,
    batch: int | str | None = None,
    seq: int | str | None = None,
    dtype: str | None = None,
    mine: Source | None = None,
    fix: Mapping[str, Any] | None = None,
    add: Mapping[str, Any] | None = None,
    campaign: CampaignSource | None = None,
    risk: float | str | None = None,
    objective: None = None,
    **run: Any,
) -> Answer: ...


@overload
def plan(
    model: Source | Model,
    num_procs: int | str | Sequence[int],
    system: Source | System | Sequence[Source | System],
    *,
    objective: str,
    **words: Any,
) -> FleetAnswer: ...


@takes_either_order
def plan(
    model: Source | Model,
    num_procs: int | str | Sequence[int],
    system: Any,
    *,
    preset: str | None = None,
    tokens: float | str | None = None,
    batch: int | str | None = None,
    seq: int | str | None = None,
    dtype: str | None = None,
    mine: Source | None = None,
    fix: Mapping[str, Any] | None = None,
    add: Mapping[str, Any] | None = None,
    campaign: CampaignSource | None = None,
    risk: float | str | None = None,
    objective: str | None = None,
    **run: Any,
) -> Answer | FleetAnswer:
    """Plan a training run: the best execution, its alternatives, and the best plans on other processor counts.

    Args:
        model, system: As in :func:`calculon.estimate`; aliases of names, and the ``config.json`` of a model, are
            accepted as well.
        num_procs: Number of processors: one count, which adds half and twice as many for comparison, or several;
            ``"1k"`` is 1,024.
        preset: Framework that runs the training: a name, or a file; by default chosen by
            :func:`calculon.declarations.presets.usual_preset` for the machine and the processors.
        tokens: Tokens of the whole training run, such as ``15e12`` or ``"15T"``: adds days and processor-hours.
        batch, seq: Global batch in sequences (``512``) or tokens (``"4M"``), and tokens per sequence. The default batch
            is 4 Mi tokens, limited to between 1,024 and 64 Ki tokens per processor; the default sequence length is the
            model's, at most 8,192.
        dtype: Precision (:data:`calculon.declarations.spellings.PRECISIONS`): ``"bf16"`` (default), ``"fp8"``,
            ``"mxfp8"``, ...
        mine: Baseline plan to compare with the best one: ``"tp=8 pp=4 mbs=1"``, fields, or an execution.
        fix, add: As in :func:`calculon.search`.
        campaign, **run: The whole run, as `run` and options of :func:`calculon.campaign`: ``deadline="60d"``,
            ``fleet__price=2.0``. Words of plans are further values of `fix`: ``tp=4``, ``pp=[2, 4]``, ``sp=True``.
        risk: Probability of running out of memory that the recommended plan may have: ``"10%"`` (default) or ``0.1``.
            With ``1`` all plans that are predicted to fit may be recommended.
        objective: ``"usd"``, ``"days"``, ``"processor_hours"``, ...: compares counts (``"any"``: all that could meet
            the deadline) of one system or several by this figure, under the limits of the run. The default with a
            deadline, a budget, several systems or ``"any"`` is ``"usd"``.

    Examples:
        >>> from calculon import plan
        >>> answer = plan("llama-3-8b", 64, "h100", batch="4M")
        >>> answer.best.execution.num_procs, answer.question.batch_size
        (64, 512)
        >>> plan("llama-3-8b", 64, "h100", tp=4, pp=2).best.execution.data_par
        8
    """
    of_plan = {name: value for name, value in run.items() if is_word(name)}
    of_run = {name: value for name, value in run.items() if name not in of_plan}
    words: dict[str, Any] = {"preset": preset, "batch": batch, "seq": seq, "dtype": dtype}
    words |= {"tokens": tokens, "mine": mine, "add": add, "risk": risk}
    words["fix"] = with_words("plan", fix, of_plan) if of_plan else fix
    return _planned(model, num_procs, system, words, objective, _run_of(campaign, of_run))


def _run_of(campaign: CampaignSource | None, options: Mapping[str, Any]) -> Campaign:
    """Return the whole run that a plan is for."""
    fields = [field.key for field in spec_fields(Campaign)]
    for name in options:
        # Nested fields (`fleet__price`, `phases[0].tokens`) are checked later; their first part
        # must exist.
        if re.split(r"__|[.\[]", name)[0] not in fields:
            known = list(dict.fromkeys((*_WORDS, *fields)))
            hint = meant_word(name, options[name], known) or f"the arguments are {', '.join(known)}"
            raise SpecError("plan", Problem(name, "an argument of plan", repr(name), hint))
    stated = {name.replace("__", "."): value for name, value in options.items()}
    return read_campaign(campaign, stated)


_WORDS = tuple(inspect.signature(plan).parameters)[3:-1]
"""Argument names of :func:`plan`, without fields of the run."""


def _planned(
    model: Any,
    num_procs: Any,
    system: Any,
    words: dict[str, Any],
    objective: Any,
    campaign: Campaign,
) -> Answer | FleetAnswer:
    """Return the plan, or the comparison of fleets if there is an objective."""
    if objective is None:
        named = system.split(",") if isinstance(system, str) else system
        several = len(named) if isinstance(named, (list, tuple)) else 1
        objective = usual_objective(num_procs, several, campaign)
    if objective is None:
        tokens = words.pop("tokens")
        return answer(
            ask(model, num_procs, system, **words, tokens_of_run=tokens, campaign=campaign)
        )
    return fleet_answer(
        ask_fleet(model, num_procs, system, campaign=campaign, objective=objective, **words)
    )
