"""``--set PATH=VALUE``: override single values of the specs for one call."""

from collections.abc import Sequence
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.cli.options import Parser
from calculon.declarations.parse import parse_value
from calculon.declarations.paths import no_path, steps_of

OPTION = "--set"
EXAMPLES = {
    "model": "model.seq_size=4096",
    "execution": "execution.tensor_par=4",
    "system": "system.mem1.GiB=120",
    "campaign": "campaign.reliability.restart=10min",
    "deployment": "max_batch=64",
    "workload": "workload.prompt_cv=1",
}
"""Example change for each kind of spec."""


def add_changes(parser: Parser, *kinds: str) -> None:
    """Declare ``--set`` for a command that takes these `kinds` of specs, keys of :data:`EXAMPLES`."""
    examples = ", ".join(EXAMPLES[kind] for kind in kinds)
    parser.option(
        f"{OPTION} PATH=VALUE",
        f"change a value for this call: {examples}; may be repeated",
        "" if len(kinds) == 1 else "; the spec name may be omitted if only one spec has the field",
        dest="changes",
        action="append",
        default=[],
    )


def with_changes(texts: Sequence[str], **sources: Any) -> dict[str, Any]:
    """Return the specs with the changes of ``--set`` applied, by kind.

    Args:
        texts: ``PATH=VALUE``; the path may start with the kind of its spec.
        **sources: Source of each kind of spec that the command takes, in any form; None if it is known only later.

    Raises:
        SpecError: For a path that no spec of the command has, or that several have. The path's value is validated
            when the spec is read.
    """
    from calculon.inputs import Changed

    changes = parsed(texts, tuple(sources))
    return {
        kind: Changed.of(source, changes[kind]) if source is not None else None
        for kind, source in sources.items()
    }


def parsed(texts: Sequence[str], kinds: Sequence[str]) -> dict[str, dict[str, object]]:
    """Return the new values by path for each kind of spec; raise the errors of :func:`with_changes`."""
    from calculon.inputs import owner

    changes: dict[str, dict[str, object]] = {kind: {} for kind in kinds}
    further = _further(kinds) or None
    for text in texts:
        path, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not path or not value:
            wanted = f"PATH=VALUE, such as {EXAMPLES[kinds[0]]}"
            raise SpecError(OPTION, Problem("", wanted, repr(text)))
        if not steps_of(path):
            raise SpecError(OPTION, no_path(path))
        kind, inside = owner(path, kinds, OPTION, further)
        try:
            meant = parse_value(value)
        except SpecError as error:
            raise SpecError(OPTION, Problem(path, error.expected, error.found)) from None
        # YAML reads "model:" as an object; here it is a text, unless it starts with a brace
        changes[kind][inside] = value if isinstance(meant, dict) and value[0] != "{" else meant
    return changes


def _further(kinds: Sequence[str]) -> dict[str, list[str]]:
    """Return the fields of specs that only some commands take, including deployment fields that a search may choose."""
    from calculon.declarations.fields import spec_fields

    records: dict[str, type] = {}
    if "campaign" in kinds:
        from calculon.campaign.record import Campaign

        records["campaign"] = Campaign
    if {"deployment", "workload"} & {*kinds}:
        from calculon.serving.records.deployment import Deployment
        from calculon.serving.records.load import Workload

        records |= {"deployment": Deployment, "workload": Workload}
    return {kind: [one.key for one in spec_fields(record)] for kind, record in records.items()}
