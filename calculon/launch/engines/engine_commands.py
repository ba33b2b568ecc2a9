"""Deployments as commands of engines: what is chosen is kept, what only our defaults say is as the engine runs it."""

from collections.abc import Mapping
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.fields import shown
from calculon.launch.dialect import Dialect, Fields, Parsed, Reading, Row, Setting, Writing
from calculon.launch.engines.engine_files import BESIDE
from calculon.launch.server import Server

OF_ESTIMATE = ("price", "reserve_gib", "routing")
"""Fields that no engine has: they are of the estimate, the text or the market, and kept in a comment."""

THE_ENGINE = "engine"
"""The field that says which engine runs a deployment: a command is of one, whatever the field says."""

_SHARE = "memory_fraction"


@dataclass(frozen=True, slots=True)
class Commanded:
    """A deployment as an engine runs it.

    Attributes:
        settings: What says it.
        changes: Fields at our default of which the engine runs another value: both.
    """

    settings: Fields
    changes: Mapping[str, tuple[Any, Any]]


def commanded(
    dialect: Dialect,
    deployment: Mapping[str, Any],
    defaults: Mapping[str, Any],
    server: Server | None = None,
) -> Commanded:
    """Return the settings of an engine that say a deployment, in the order of the rows.

    Args:
        dialect: The engine.
        deployment: All fields of the deployment, as in a file.
        defaults: Defaults of those that have one. Fields at their default are open: the engine runs its own value of
            them where it cannot run ours.
        server: Model and machine, which shares of all memory need.

    Raises:
        SpecError: For fields that the engine cannot express, each with the value that it runs.
    """
    fields, changes = dict(deployment), dict[str, tuple[Any, Any]]()
    if problems := [*_unknown_fields(dialect, deployment, defaults)]:
        raise SpecError("deployment", problems)
    settings: Fields = {}
    for row in dialect.rows:
        own = _own(dialect, row, fields, server)
        open_fields = [n for n in row.fields if n in defaults and fields[n] == defaults[n]]
        try:
            settings |= row.write(_writing(dialect, fields, server))
        except SpecError as error:
            (name,) = (one.field for one in error.problems)
            if name not in open_fields or own.get(name, fields[name]) == fields[name]:
                raise
            changes[name] = fields[name], own[name]
            fields[name] = own[name]
            settings |= row.write(_writing(dialect, fields, server))
    for name in OF_ESTIMATE:
        if fields.get(name) is not None and fields[name] != defaults.get(name):
            settings[BESIDE + name] = fields[name]
    if problems := _unsaid(dialect, settings, fields, defaults, server):
        raise SpecError("deployment", problems)
    return Commanded(settings, changes)


def command_text(
    dialect: Dialect,
    deployment: Mapping[str, Any],
    defaults: Mapping[str, Any],
    server: Server | None = None,
) -> str:
    """Return the script that starts an engine for a deployment; arguments and errors as of :func:`commanded`."""
    found = commanded(dialect, deployment, defaults, server)
    processors = int(deployment["num_procs"])
    each = int(deployment["tensor_par"]) * int(deployment["pipeline_par"])
    head = [f"{dialect.title}, written for {dialect.version}: {processors:,} processors"]
    if processors > each:
        head.append(
            f"{processors // each:,} replicas: this starts one of them, on {each:,} processors"
        )
    head += [
        f"{name}: {shown(new)}, not {shown(old)}" for name, (old, new) in found.changes.items()
    ]
    if server is None and not _says(dialect, found.settings):
        share = f"{deployment[_SHARE]:g} of what is free"
        head.append(
            f"{_SHARE}: {share}, which is a share of all memory where model and machine are known"
        )
    return dialect.render(found.settings, processors, head)


def _says(dialect: Dialect, settings: Mapping[str, Any]) -> bool:
    """Return whether settings say the share of the cache."""
    rows = (row for row in dialect.rows if _SHARE in row.fields)
    return any(name in settings for row in rows for name in row.settings)


def _writing(dialect: Dialect, fields: Mapping[str, Any], server: Server | None) -> Writing:
    return Writing(dialect.title, fields, server=server, kind="deployment")


def _unknown_fields(
    dialect: Dialect, deployment: Mapping[str, Any], defaults: Mapping[str, Any]
) -> list[Problem]:
    """Return the fields that an engine has no option for, and that are not at their default."""
    known = (*dialect.fields, *OF_ESTIMATE, THE_ENGINE)
    return [
        Problem(
            name,
            f"{shown(defaults[name])}, as {dialect.title} runs it: it has no option for this field",
            shown(value),
            "" if defaults[name] is None else f"--set {name}={defaults[name]}",
        )
        for name, value in deployment.items()
        if name not in known and name in defaults and value != defaults[name]
    ]


def _own(dialect: Dialect, row: Row, fields: Mapping[str, Any], server: Server | None) -> Fields:
    """Return what an engine runs of the fields of a row without any option, the others being given."""
    reading = Reading(Parsed(dialect.name, {}), int(fields["num_procs"]), server)
    reading.deployment.update(fields)
    return row.read(reading) if _SHARE not in row.fields else {}


def _unsaid(
    dialect: Dialect,
    settings: Fields,
    fields: Mapping[str, Any],
    defaults: Mapping[str, Any],
    server: Server | None,
) -> list[Problem]:
    """Return the fields that settings do not say: the nearest is what they say."""
    stated = {name: Setting(name, value) for name, value in settings.items()}
    reading = Reading(Parsed("deployment", stated), int(fields["num_procs"]), server)
    for row in dialect.rows:
        reading.deployment.update(row.read(reading))
    hint = "" if server is not None else "model and machine make it a share of all memory: --system"
    return [
        Problem(
            name,
            f"{shown(said)}, the nearest that {dialect.title} can express",
            shown(fields[name]),
            hint if name == _SHARE else "",
        )
        for name in dialect.fields
        if (said := reading.deployment.get(name, defaults.get(name))) != fields[name]
    ]
