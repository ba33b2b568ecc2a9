"""Import and export of launch files from Python, and comparison of a launch file with another plan."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from calculon import inputs
from calculon.advise.launch_text import launch_text, with_listed_stages
from calculon.base.errors import Problem, SpecError
from calculon.declarations import catalog
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.estimate.estimate import Estimate
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.launch.dialect import Dialect, Launch
from calculon.launch.dialects import find_dialect
from calculon.launch.difference import Difference, difference
from calculon.launch.launch_files import SHAPE, differences_of_model, read_launch_file
from calculon.launch.launch_files import launch_text as text_of
from calculon.launch.patches.patch import Patch, patched
from calculon.plan.plan import all_fields

if TYPE_CHECKING:
    from calculon.serving.records.deployment import Deployment
    from calculon.serving.serve import Served


class HasBest(Protocol):
    """Result with a best plan: the answer of :func:`calculon.plan`, or a search for deployments."""

    @property
    def best(self) -> Any:
        """Best plan, or the prediction for the best deployment; None if nothing fits."""


def export_flags(
    plan: "Estimate | HasBest | Execution | Served | Deployment | Source",
    dialect: str,
    *,
    model: Source | Model | None = None,
    tokens: float | None = None,
    system: Source | System | None = None,
) -> str:
    """Return the launch file that runs a plan or starts a server: a script or a configuration.

    Args:
        plan: What to run: a plan or a deployment; for an answer or a search for deployments, its best one.
        dialect: Launcher: ``megatron-lm``, ``megatron-bridge``, ``nemo``, ``torchtitan``, ``deepspeed``,
            ``accelerate``; for a deployment the engine: ``vllm``, ``sglang``, ``tensorrt-llm``.
        model: Model, whose settings are written as well; defaults to the model of the estimate or result.
        tokens: Tokens of the whole training run.
        system: For a deployment: the machine. Together with the model it converts shares of free memory to shares of
            all memory.

    Raises:
        SpecError: For an unknown launcher, and for a field that it cannot express, with the nearest value.

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
        from calculon.advise.engine_flags import engine_text  # needed only for servers

        return engine_text(found, getattr(one, "best", one), model=model, system=system)
    if hasattr(one, "best"):
        one = one.best
        if one is None:
            raise SpecError(
                "export_flags", Problem("plan", "a plan that fits", "an answer without one")
            )
    if isinstance(one, Estimate):
        execution, known = one.execution, one.model
    else:
        asked = inputs.resolve_execution(one)
        execution, known = asked.execution, None
        sources = inputs.sources_in(asked.question, asked.place)
        known = inputs.model(sources["model"]) if "model" in sources else None
    shape = known if model is None else inputs.model(model)
    campaign = {} if tokens is None else {"tokens": tokens}
    return launch_text(found, execution, shape, campaign)


def exported_plan(plan: Estimate, dialect: str, tokens: float | None = None) -> tuple[str, str]:
    """Return the launch file of a plan, and why it lacks the model settings; empty if it has them.

    Raises:
        SpecError: For fields of the plan that the launcher cannot express.
    """
    try:
        return export_flags(plan, dialect, tokens=tokens), ""
    except SpecError as error:
        # Only problems of the model are worth a second attempt without it.
        if error.file != plan.model.name:
            raise
        problems = "; ".join(map(str, error.problems))
    alone = replace(plan.execution, seq_length=plan.model.seq_size)
    if "stage_blocks" in find_dialect(dialect).fields:
        alone = with_listed_stages(alone, plan.model)
    return export_flags(alone, dialect, tokens=tokens), problems


def import_flags(
    source: str | os.PathLike[str],
    dialect: str = "",
    *,
    num_procs: int | None = None,
    variables: Mapping[str, str] | None = None,
    model: Source | Model | None = None,
    system: Source | System | None = None,
) -> Launch:
    """Read a launch file of a training run or a serving engine, a script or a configuration, without executing it.

    Args:
        source: File, or a command that starts an engine; ``-`` is standard input.
        dialect: Launcher; detected if empty.
        num_procs: Processors, if the file does not state them.
        variables: Values of environment variables that the file reads.
        model, system: For an engine: both convert its share of all memory to a share of free memory.

    Returns:
        Launch whose ``execution`` is an input of :func:`calculon.estimate`; ``model`` and ``campaign`` have the related
        settings of the file. For an engine its ``deployment`` is an input of :func:`calculon.serve`. Every setting is
        in one of ``used``, ``ignored``, ``not_modelled``, ``unknown`` and ``unresolved``.

    Raises:
        SpecError: For a file of an unknown launcher, a malformed value, and a contradiction, with both numbers.
    """
    path = os.fspath(source)
    asked: dict[str, Any] = {"num_procs": num_procs, "variables": variables}
    if model is None or system is None:
        return read_launch_file(path, dialect, **asked)
    from calculon.serving.default_deployment import with_released_types  # needed only for servers
    from calculon.serving.engine_scripts import server_of

    shape = inputs.model(model)
    server = server_of(shape, inputs.system(system), released=True)
    found = read_launch_file(path, dialect, server=server, **asked)
    return replace(found, deployment=with_released_types(shape, found.deployment))


def settings_between(
    mine: Execution, other: Execution, model: Model, launch: Launch | None, dialect: str = ""
) -> Difference:
    """Return the settings to change in one plan to run another.

    Args:
        mine, other: Both plans.
        model: Their model.
        launch: Launch file of `mine`, if there is one.
        dialect: Launcher, if it differs from the launch file or there is no file.

    Raises:
        SpecError: If no launcher is given, or if the launcher cannot express `mine`.
    """
    own = launch is not None and dialect in ("", launch.dialect.name)
    found = launch.dialect if launch is not None and own else find_dialect(dialect)
    both = all_fields(mine), _sayable(found, other, model)
    stated = launch.stated if launch is not None and own else None
    return difference(found, both[0], both[1], model, stated)


def patched_file(
    file: str, mine: Execution, other: Execution, model: Model, launch: Launch
) -> tuple[str, Patch]:
    """Return the text of a launch file, and a patch that makes it run another plan.

    Args:
        file: The file.
        mine, other: The plan of the file, and the other plan.
        model: Their model.
        launch: Contents of the file.

    Raises:
        SpecError: If the changes cannot be placed in the file, or the patched file reads back differently.
    """
    text = text_of(file)
    between = settings_between(mine, other, model, launch)
    wanted = _sayable(launch.dialect, other, model)
    # A launch file always states a length, whereas 0 refers to the model.
    wanted["seq_length"] = wanted["seq_length"] or model.seq_size
    patch = patched(text, file, between, wanted)
    if mine.batch_size != other.batch_size:
        batches = f"from {mine.batch_size:,} to {other.batch_size:,} sequences"
        note = f"{file}: run length and learning rate are unchanged, although the batch changes {batches}"
        patch = replace(patch, notes=(*patch.notes, note))
    return text, patch


def check_same_model(path: str, launch: Launch, model: Model) -> None:
    """Raise SpecError if a file, which is to be patched, trains a different model than the requested one."""
    if not (found := differences_of_model(launch, model)):
        return
    name = _catalog_name(launch.model)
    wanted = f"a launch file that trains {model.name}"
    hint = f"plan {name or 'the model of the file'}, or leave out --mine to write a new file"
    raise SpecError(path, Problem("", wanted, f"{name or 'another model'} ({found})", hint))


def _catalog_name(stated: Mapping[str, Any]) -> str:
    """Return the only model of the catalog with the stated shape; empty if there are none or several."""
    models = [inputs.model(name) for name in catalog.names("model")]
    same = [one for one in models if _agree(one, stated, SHAPE)]
    # Launchers pad vocabularies, so they decide only between models of one shape.
    exact = [one for one in same if _agree(one, stated, ("kv_heads", "vocab"))]
    names = [one.name for one in (exact if len(same) > 1 else same)]
    return names[0] if len(names) == 1 else ""


def _agree(model: Model, stated: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Return True if a model has the stated values of some fields."""
    return all(getattr(model, name) == stated[name] for name in names if name in stated)


def _sayable(dialect: Dialect, execution: Execution, model: Model) -> dict[str, Any]:
    """Return all fields of an execution; blocks per stage are listed explicitly if the launcher takes lists."""
    listed = "stage_blocks" in dialect.fields
    return dict(all_fields(with_listed_stages(execution, model) if listed else execution))
