"""``--set PATH=VALUE``: single values of the specs of a command, changed for one call."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from calculon.errors import Problem, SpecError, nearest
from calculon.spec.fields import spec_fields
from calculon.spec.parse import parse_value
from calculon.spec.paths import no_path, steps_of

OPTION = "--set"
EXAMPLES = {
    "model": "model.seq_size=4096",
    "execution": "execution.tensor_par=4",
    "system": "system.mem1.GiB=120",
}
"""A change of each kind of spec."""


def add_changes(parser: argparse.ArgumentParser, *kinds: str) -> None:
    """Declare ``--set`` for a command that takes these kinds of specs: model, execution, system."""
    examples = ", ".join(EXAMPLES[kind] for kind in kinds)
    prefix = (
        "" if len(kinds) == 1 else "; without the name of its spec where only one has the field"
    )
    parser.add_argument(
        OPTION,
        dest="changes",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help=f"change a value for this call: {examples}{prefix}; may be repeated",
    )


def with_changes(texts: Sequence[str], **sources: Any) -> dict[str, Any]:
    """Return specs with what ``--set`` changes in them, by kind.

    Parameters
    ----------
    texts : sequence of str
        ``PATH=VALUE``, the path with the kind of its spec before it or without.
    **sources
        Source of each kind of spec that the command takes, in any form; None where it is known later.

    Raises
    ------
    SpecError
        For a path that no spec of the command has, or that several have. Whether it leads to a value is checked
        where the spec is read.
    """
    from calculon.inputs import Changed

    changes = parsed(texts, tuple(sources))
    return {
        kind: Changed.of(source, changes[kind]) if source is not None else None
        for kind, source in sources.items()
    }


def parsed(texts: Sequence[str], kinds: Sequence[str]) -> dict[str, dict[str, object]]:
    """Return new values by path for each kind of spec; errors as :func:`with_changes`."""
    changes: dict[str, dict[str, object]] = {kind: {} for kind in kinds}
    for text in texts:
        path, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not path or not value:
            wanted = f"PATH=VALUE, such as {EXAMPLES[kinds[0]]}"
            raise SpecError(OPTION, Problem("", wanted, repr(text)))
        if not steps_of(path):
            raise SpecError(OPTION, no_path(path))
        kind, inside = _owner(path, kinds)
        try:
            changes[kind][inside] = parse_value(value)
        except SpecError as error:
            raise SpecError(OPTION, Problem(path, error.expected, error.found)) from None
    return changes


def _owner(path: str, kinds: Sequence[str]) -> tuple[str, str]:
    """Return the kind of spec that a path is about, and the path in it."""
    fields = _fields()
    first, _, rest = path.partition(".")
    if first in fields and rest:
        if first in kinds:
            return first, rest
        raise SpecError(OPTION, _not_here(path, first, rest, kinds))
    name = str(steps_of(path)[0])
    owners = [kind for kind in kinds if name in fields[kind]]
    if len(owners) == 1:
        return owners[0], path
    if owners:
        both = " or ".join(f"{kind}.{path}" for kind in owners)
        raise SpecError(OPTION, Problem(path, both, "a field of each"))
    for kind in fields:
        if name in fields[kind]:
            raise SpecError(OPTION, _not_here(path, kind, path, kinds))
    known = [one for kind in kinds for one in fields[kind]]
    hint = nearest(name, known) or "see: calculon describe " + kinds[0]
    wanted = f"a field of the {_listed(kinds)}"
    raise SpecError(OPTION, Problem(path, wanted, repr(name), hint))


def _not_here(path: str, kind: str, inside: str, kinds: Sequence[str]) -> Problem:
    """Return the problem with a path into a spec that the command does not take."""
    hint = f"in a search: --fix {inside}=VALUE" if kind == "execution" else ""
    return Problem(path, f"a field of the {_listed(kinds)}", f"one of the {kind}", hint)


def _listed(kinds: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))


def _fields() -> Mapping[str, tuple[str, ...]]:
    """Return the fields of each kind of spec, as files name them."""
    from calculon.hardware.system import System
    from calculon.spec.execution import Execution
    from calculon.spec.model import Model

    records = {"model": Model, "execution": Execution, "system": System}
    return {
        kind: tuple(field.key for field in spec_fields(record)) for kind, record in records.items()
    }
