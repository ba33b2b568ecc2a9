"""JSON Schema of the spec files, generated from the declarations, for completion and checks in editors.

It expresses what the decoder checks in single fields. Conditions on several fields (a product of degrees, descending
thresholds) are checked only by the decoder.
"""

from typing import Any, get_args, get_origin

from calculon.declarations.fields import JSON_TYPES, SpecField, spec_fields
from calculon.declarations.overlay import BASE, HELP

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(cls: type) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the files that decode into a record class.

    Undeclared keys are an error if the class refuses them, and allowed if they only cause a warning. For a class with
    overlays (:mod:`calculon.declarations.overlay`), a file with a base may leave out anything and is not checked
    further; a file that a preset completes may leave out fields.

    >>> from calculon.declarations.model import Model
    >>> schema(Model)["properties"]["hidden"]["minimum"]
    1
    """
    head = {"$schema": DIALECT, "title": cls.__name__}
    whole = _record(cls)
    if not getattr(cls, "overlays", False):
        return head | whole
    # Both branches share these two members; the rest applies only to files without a base.
    described = {"description": whole.pop("description"), "type": whole.pop("type")}
    if completed := getattr(cls, "completed_where", ()):
        needed = {"required": whole.pop("required")}
        whole |= {"if": {"anyOf": [_states(*one) for one in completed]}, "else": needed}
    base = {BASE: {"type": "string", "minLength": 1, "description": HELP[cls.__name__.lower()]}}
    overlay = {"if": {"required": [BASE]}, "then": {"properties": base}, "else": whole}
    return head | described | overlay


def _states(field: str, value: str) -> dict[str, Any]:
    """Return the schema of objects in which a field has this value."""
    return {"required": [field], "properties": {field: {"const": value}}}


def part_schema(cls: type) -> dict[str, Any]:
    """Return the JSON Schema of a part of a document that decodes into a record class."""
    return _record(cls)


def _record(cls: type) -> dict[str, Any]:
    fields = spec_fields(cls)
    properties = {field.key: _described(field) for field in fields}
    silent: tuple[str, ...] = getattr(cls, "silent_keys", ())
    result: dict[str, Any] = {
        "description": (cls.__doc__ or "").partition("\n")[0],
        "type": "object",
        "properties": properties | dict.fromkeys(silent, True),
        "required": [field.key for field in fields if not field.declaration.optional],
    }
    if getattr(cls, "unknown_keys", "error") == "error":
        result["additionalProperties"] = False
    return result


def _described(field: SpecField) -> dict[str, Any]:
    declaration = field.declaration
    words = f"{declaration.help} [{declaration.unit}]" if declaration.unit else declaration.help
    described = _value(field) | {"description": words}
    return (
        described | {"default": field.default}
        if field.annotation in JSON_TYPES and field.default is not None
        else described
    )


def _value(field: SpecField) -> dict[str, Any]:
    kind, declaration = field.annotation, field.declaration
    if kind in JSON_TYPES:
        return declaration.schema(kind)
    if get_origin(kind) is dict:
        one = _record(get_args(kind)[1])
        return {
            "type": "object",
            "properties": dict.fromkeys(declaration.choices, one),
            "minProperties": 1,
            "additionalProperties": False,
        }
    if get_origin(kind) is tuple:
        least = 0 if declaration.optional else 1
        return {"type": "array", "minItems": least, "items": _record(get_args(kind)[0])}
    if own := getattr(kind, "schema", None):
        result: dict[str, Any] = own()
        return result
    return _record(kind)
