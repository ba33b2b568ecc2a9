"""Executions that one framework runs, for another: what is chosen is kept, what only the framework says is not."""

from collections.abc import Collection, Mapping
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.execution import Execution
from calculon.declarations.fields import optional_defaults, spec_fields
from calculon.declarations.presets import find_preset
from calculon.declarations.presets import plain as written

NO_SETTING = (
    *("edition", "preset", "seq_length", "attn_kernel"),
    *(one.name for one in spec_fields(Execution) if one.declaration.of == "circumstance"),
)
"""Fields that no launcher sets: they are of the estimate, of the machine, or of the data."""


_OWN_WAY = (
    *("grad_dtype", "grad_comm_dtype", "tp_async", "seq_par_ag_redo", "overlap_param_gather"),
    *("compile_scope", "ce_impl", "launch_mode", "grad_fusion"),
)
"""What each framework does in a way of its own, unless another is asked for."""


@dataclass(frozen=True, slots=True)
class Translated:
    """An execution for a framework.

    Attributes:
        fields: All of its fields.
        changes: Fields of which the framework runs another value than the one that the execution was written for, and
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
        settable: Fields that its settings say.
        title: What it is called in messages.

    Raises:
        SpecError: For inference, and for a field that was chosen and that neither settings nor the preset say; with the
            value that the framework runs.
    """
    whole = optional_defaults(Execution) | dict(execution)
    if not whole["training"]:
        raise _refusal("training", title, True, False)
    own = optional_defaults(Execution) | find_preset(str(whole["preset"])).usual(whole)
    target = find_preset(preset)
    usual = optional_defaults(Execution) | target.usual(whole)
    fields, changes = dict(whole), {}
    for name in (field.name for field in spec_fields(Execution)):
        value = whole[name]
        if name in NO_SETTING or name not in usual or value == usual[name]:
            continue
        own_form = value == "auto" or (name in _OWN_WAY and whole["preset"] != preset)
        if name in settable and target.problem(name, value) is None and not own_form:
            continue
        if value == own.get(name):
            fields[name] = usual[name]
            changes[name] = value, usual[name]
        elif name not in settable:
            raise _refusal(name, title, usual[name], value)
    return Translated(fields, changes)


def _refusal(name: str, title: str, runs: Any, found: Any) -> SpecError:
    """Return the error of a field that a launcher has no setting for."""
    wanted = f"{written(runs)}, as {title} runs it: it has no setting for this field"
    return SpecError(
        "execution", Problem(name, wanted, written(found), f"--set {name}={written(runs)}")
    )
