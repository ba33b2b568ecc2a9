"""Translation of executions between frameworks: choices are kept, framework defaults are replaced."""

from collections.abc import Collection, Mapping
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.execution import Execution
from calculon.declarations.fields import optional_defaults, spec_fields
from calculon.declarations.preset_file import plain as written
from calculon.declarations.presets import find_preset

NO_SETTING = (
    *("edition", "preset", "seq_length", "attn_kernel"),
    *(one.name for one in spec_fields(Execution) if one.declaration.of == "circumstance"),
)
"""Fields that no launcher sets: they belong to the estimate, the machine, or the data."""


_OWN_WAY = (
    *("grad_dtype", "grad_comm_dtype", "tp_async", "seq_par_ag_redo", "overlap_param_gather"),
    *("compile_scope", "ce_impl", "launch_mode", "grad_fusion"),
)
"""Fields that each framework handles differently unless the user sets them."""


@dataclass(frozen=True, slots=True)
class Translated:
    """An execution translated for a framework.

    fields: All fields of the execution.
        changes: Fields whose value the framework changes, with the old and the new value.
            both.
    """

    fields: Mapping[str, Any]
    changes: Mapping[str, tuple[Any, Any]]


def translated(
    execution: Mapping[str, Any], preset: str, settable: Collection[str], title: str
) -> Translated:
    """Return an execution as a framework runs it.

    Args:
        execution: All fields of an execution; fields at their default may be left out.
        preset: Preset of the framework.
        settable: Fields that the framework's settings determine.
        title: Name of the framework in messages.

    Raises:
        SpecError: For inference, and for a field that was chosen and that neither settings nor the preset can express,
        with the value that the framework runs.
    """
    complete = optional_defaults(Execution) | dict(execution)
    if not complete["training"]:
        raise _refusal("training", title, True, False)
    origin = optional_defaults(Execution) | find_preset(str(complete["preset"])).usual(complete)
    target = find_preset(preset)
    usual = optional_defaults(Execution) | target.usual(complete)
    own_way = () if _builds_on(str(complete["preset"]), preset) else _OWN_WAY
    fields, changes = dict(complete), {}
    for name in (field.name for field in spec_fields(Execution)):
        value = complete[name]
        # A value that the target framework uses anyway needs no setting.
        if name in NO_SETTING or name not in usual or value == usual[name]:
            continue
        # ``auto``, and fields that frameworks handle differently, are not choices of the user: the target decides.
        is_framework_choice = value == "auto" or name in own_way
        if name in settable and target.problem(name, value) is None and not is_framework_choice:
            continue
        if value == origin.get(name):
            fields[name] = usual[name]
            changes[name] = value, usual[name]
        elif name not in settable:
            raise _refusal(name, title, usual[name], value)
    return Translated(fields, changes)


def _builds_on(name: str, base: str) -> bool:
    """Return True if a preset is another one, or changes it: then settings state its own values."""
    while name and name != base:
        name = find_preset(name).base
    return bool(name)


def _refusal(name: str, title: str, runs: Any, found: Any) -> SpecError:
    """Return the error of a field for which a launcher has no setting."""
    wanted = f"{written(runs)}, as {title} runs it: it has no setting for this field"
    return SpecError(
        "execution", Problem(name, wanted, written(found), f"--set {name}={written(runs)}")
    )
