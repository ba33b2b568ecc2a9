"""Encode a declared record as the document that :func:`calculon.declarations.decode.decode` reads."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from calculon.declarations.fields import spec_fields


def encode(record: object) -> dict[str, Any]:
    """Return the fields of a result record as plain data, in the order of declaration."""
    kind: Any = type(record)
    return {one.key: _plain(getattr(record, one.name)) for one in spec_fields(kind)}


def _plain(value: Any) -> Any:
    """Return a value as plain data; records with ``to_dict`` encode themselves."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if dataclasses.is_dataclass(value):
        return encode(value)
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [*map(_plain, value)] if isinstance(value, tuple) else value
