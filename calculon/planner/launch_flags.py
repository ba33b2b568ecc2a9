"""Launch files in and out of Python, and a plan of one's own that is one beside another plan."""

import os
from collections.abc import Mapping
from typing import Any, Protocol

from calculon import inputs
from calculon.errors import Problem, SpecError
from calculon.estimate import Estimate
from calculon.inputs import Source
from calculon.launch.dialect import Launch
from calculon.launch.dialects import find_dialect
from calculon.launch.difference import Difference, difference
from calculon.launch.launch_files import launched_execution, read_launch_file
from calculon.plan.plan import NAMES
from calculon.planner.launch_text import launch_text, with_listed_stages
from calculon.spec.execution import Execution
from calculon.spec.files import STDIN
from calculon.spec.model import Model


class Answered(Protocol):
    """What has a best plan: the answer of :func:`calculon.plan`."""

    @property
    def best(self) -> Estimate | None:
        """The best plan; None where nothing fits."""


def export_flags(
    plan: Estimate | Answered | Execution | Source,
    dialect: str,
    *,
    model: Source | Model | None = None,
    tokens: float | None = None,
) -> str:
    """Return the launch file that runs a plan: a script, or a configuration.

    Parameters
    ----------
    plan : Estimate, Answer, Execution, str, path or mapping
        What to run; of an answer its best plan.
    dialect : str
        The launcher: ``megatron-lm``, ``megatron-bridge``, ``nemo``, ``torchtitan``, ``deepspeed``, ``accelerate``.
    model : str, path, mapping or Model, optional
        The model, whose settings the file then has too; by default that of the estimate, or of the result that the plan
        is from.
    tokens : float, optional
        Tokens of the whole training.

    Raises
    ------
    SpecError
        For a launcher that is not known, and for a field that it cannot express, with the nearest value.

    Examples
    --------
    >>> import calculon
    >>> plan = {"base": "megatron-lm", "num_procs": 8, "tensor_par": 2, "pipeline_par": 1, "batch_size": 64}
    >>> text = calculon.export_flags(plan, "megatron-lm", model="llama3-8B")
    >>> "--tensor-model-parallel-size 2" in text, "--num-query-groups 8" in text
    (True, True)
    """
    found = find_dialect(dialect)
    one: Any = plan
    if hasattr(one, "best"):
        one = one.best
        if one is None:
            raise SpecError(
                "export_flags", Problem("plan", "a plan that fits", "an answer of none")
            )
    if isinstance(one, Estimate):
        execution, known = one.execution, one.model
    else:
        asked = inputs.asked_execution(one)
        execution, known = asked.execution, None
        sources = inputs.sources_in(asked.question, asked.place)
        known = inputs.model(sources["model"]) if "model" in sources else None
    shape = known if model is None else inputs.model(model)
    campaign = {} if tokens is None else {"tokens": tokens}
    return launch_text(found, execution, shape, campaign)


def import_flags(
    source: str | os.PathLike[str],
    dialect: str = "",
    *,
    num_procs: int | None = None,
    variables: Mapping[str, str] | None = None,
) -> Launch:
    """Read a launch file: a script, or a configuration. Nothing in it is executed.

    Parameters
    ----------
    source : str or path
        The file; ``-`` is standard input.
    dialect : str
        The launcher; empty: found by looking.
    num_procs : int, optional
        Processors, where the file does not say how many.
    variables : mapping of str to str, optional
        Values of variables of the environment that it asks for.

    Returns
    -------
    Launch
        Its ``execution`` is one for :func:`calculon.estimate`; ``model`` and ``campaign`` are what it says of those.
        Every setting is among ``used``, ``ignored``, ``not_modelled``, ``unknown`` and ``unresolved``.

    Raises
    ------
    SpecError
        For a file of no launcher, a value that means nothing, and a contradiction, with both numbers.
    """
    return read_launch_file(os.fspath(source), dialect, num_procs=num_procs, variables=variables)


def launch_in(source: Any, num_procs: int | None = None) -> Launch | None:
    """Return what a file says that is one of a launcher; nothing for any other source of an execution.

    Parameters
    ----------
    source : object
        What was given for an execution.
    num_procs : int, optional
        Processors, where the file does not say how many.
    """
    if not isinstance(source, (str, os.PathLike)) or os.fspath(source) == STDIN:
        return None
    path = os.fspath(source)
    if not os.path.isfile(path):  # noqa: PTH113 (a text that can be no path has none)
        return None
    try:
        return launched_execution(path)
    except SpecError as error:
        if num_procs is None or error.field != "processors":
            raise
    return launched_execution(path, num_procs)


def settings_between(
    mine: Execution, other: Execution, model: Model, launch: Launch | None, dialect: str = ""
) -> Difference:
    """Return what to change in the settings of one plan to run another.

    Parameters
    ----------
    mine, other : Execution
        Both plans.
    model : Model
        Their model.
    launch : Launch or None
        The file that says `mine`, if one does.
    dialect : str
        The launcher, where that is another one, or none is.

    Raises
    ------
    SpecError
        Where neither says a launcher, and where it cannot express `mine`.
    """
    own = launch is not None and dialect in ("", launch.dialect.name)
    found = launch.dialect if launch is not None and own else find_dialect(dialect)
    whole = with_listed_stages(other, model) if "stage_blocks" in found.fields else other
    both = [{name: getattr(one, name) for name in NAMES} for one in (mine, whole)]
    stated = launch.stated if launch is not None and own else None
    return difference(found, both[0], both[1], model, stated)
