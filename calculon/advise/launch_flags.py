"""Launch files in and out of Python, and a plan of one's own that is one beside another plan."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from calculon import inputs
from calculon.advise.launch_text import launch_text, with_listed_stages
from calculon.base.errors import Problem, SpecError
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.estimate.estimate import Estimate
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.launch.dialect import Dialect, Launch
from calculon.launch.dialects import find_dialect
from calculon.launch.difference import Difference, difference
from calculon.launch.launch_files import launch_text as text_of
from calculon.launch.launch_files import read_launch_file
from calculon.launch.patches.patch import Patch, patched
from calculon.plan.plan import all_fields

if TYPE_CHECKING:
    from calculon.serving.records.deployment import Deployment
    from calculon.serving.serve import Served


class Answered(Protocol):
    """What has a best: the answer of :func:`calculon.plan`, or a search for deployments."""

    @property
    def best(self) -> Any:
        """The best plan, or what the best deployment gives; None where nothing fits."""


def export_flags(
    plan: "Estimate | Answered | Execution | Served | Deployment | Source",
    dialect: str,
    *,
    model: Source | Model | None = None,
    tokens: float | None = None,
    system: Source | System | None = None,
) -> str:
    """Return the launch file that runs a plan, or starts a server: a script, or a configuration.

    Args:
        plan: What to run; of an answer, and of a search for deployments, the best.
        dialect: The launcher: ``megatron-lm``, ``megatron-bridge``, ``nemo``, ``torchtitan``, ``deepspeed``,
            ``accelerate``; of a deployment the engine: ``vllm``, ``sglang``, ``tensorrt-llm``.
        model: The model, whose settings the file then has too; by default that of the estimate, or of the result that
            the plan is from.
        tokens: Tokens of the whole training.
        system: Of a deployment: the machine, which with the model makes its share of the free memory one of all memory.

    Raises:
        SpecError: For a launcher that is not known, and for a field that it cannot express, with the nearest value.

    Examples:
        >>> import calculon
        >>> plan = {"base": "megatron-lm", "num_procs": 8, "tensor_par": 2, "pipeline_par": 1, "batch_size": 64}
        >>> text = calculon.export_flags(plan, "megatron-lm", model="llama3-8B")
        >>> "--tensor-model-parallel-size 2" in text, "--num-query-groups 8" in text
        (True, True)
    """
    found = find_dialect(dialect)
    one: Any = plan
    if found.subject == "deployment":
        from calculon.advise.engine_flags import engine_text  # only for servers

        return engine_text(found, getattr(one, "best", one), model=model, system=system)
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


def exported_plan(plan: Estimate, dialect: str, tokens: float | None = None) -> tuple[str, str]:
    """Return the launch file of a plan, and why it is without the settings of the model; empty where it has them.

    Raises:
        SpecError: For fields of the plan that the launcher cannot express.
    """
    try:
        return export_flags(plan, dialect, tokens=tokens), ""
    except SpecError as error:
        if error.file != plan.model.name:
            raise
        told = "; ".join(map(str, error.problems))
    alone = replace(plan.execution, seq_length=plan.model.seq_size)
    if "stage_blocks" in find_dialect(dialect).fields:
        alone = with_listed_stages(alone, plan.model)
    return export_flags(alone, dialect, tokens=tokens), told


def import_flags(
    source: str | os.PathLike[str],
    dialect: str = "",
    *,
    num_procs: int | None = None,
    variables: Mapping[str, str] | None = None,
    model: Source | Model | None = None,
    system: Source | System | None = None,
) -> Launch:
    """Read a launch file, of training or of an engine that serves: a script, or a configuration. Nothing is executed.

    Args:
        source: The file, or a command that starts an engine; ``-`` is standard input.
        dialect: The launcher; empty: found by looking.
        num_procs: Processors, where the file does not say how many.
        variables: Values of variables of the environment that it asks for.
        model, system: Of an engine: both make its share of all memory a share of what is free.

    Returns:
        Its ``execution`` is one for :func:`calculon.estimate`; ``model`` and ``campaign`` are what it says of those. Of
        an engine it has a ``deployment``, which is one for :func:`calculon.serve`. Every setting is among ``used``,
        ``ignored``, ``not_modelled``, ``unknown`` and ``unresolved``.

    Raises:
        SpecError: For a file of no launcher, a value that means nothing, and a contradiction, with both numbers.
    """
    server = None
    if model is not None and system is not None:
        from calculon.serving.engine_scripts import server_of  # only for servers

        server = server_of(inputs.model(model), inputs.system(system))
    return read_launch_file(
        os.fspath(source), dialect, num_procs=num_procs, variables=variables, server=server
    )


def settings_between(
    mine: Execution, other: Execution, model: Model, launch: Launch | None, dialect: str = ""
) -> Difference:
    """Return what to change in the settings of one plan to run another.

    Args:
        mine, other: Both plans.
        model: Their model.
        launch: The file that says `mine`, if one does.
        dialect: The launcher, where that is another one, or none is.

    Raises:
        SpecError: Where neither says a launcher, and where it cannot express `mine`.
    """
    own = launch is not None and dialect in ("", launch.dialect.name)
    found = launch.dialect if launch is not None and own else find_dialect(dialect)
    both = all_fields(mine), _sayable(found, other, model)
    stated = launch.stated if launch is not None and own else None
    return difference(found, both[0], both[1], model, stated)


def patched_file(
    file: str, mine: Execution, other: Execution, model: Model, launch: Launch
) -> tuple[str, Patch]:
    """Return the text of a launch file, and the file changed so that it runs another plan.

    Args:
        file: The file.
        mine, other: Its plan, and the other one.
        model: Their model.
        launch: What the file says.

    Raises:
        SpecError: Where the changes have no place in the file, or the changed file says something else.
    """
    text = text_of(file)
    between = settings_between(mine, other, model, launch)
    wanted = _sayable(launch.dialect, other, model)
    wanted["seq_length"] = wanted["seq_length"] or model.seq_size
    patch = patched(text, file, between, wanted)
    if mine.batch_size != other.batch_size:
        batches = f"from {mine.batch_size:,} to {other.batch_size:,} sequences"
        told = f"{file}: length and learning rate of the run stay, though its batch goes {batches}"
        patch = replace(patch, notes=(*patch.notes, told))
    return text, patch


def _sayable(dialect: Dialect, execution: Execution, model: Model) -> dict[str, Any]:
    """Return all fields of an execution, with the blocks of its stages listed where a launcher takes lists."""
    listed = "stage_blocks" in dialect.fields
    return dict(all_fields(with_listed_stages(execution, model) if listed else execution))
