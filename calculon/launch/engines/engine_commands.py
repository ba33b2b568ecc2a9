"""Deployments as engine commands: explicit choices are kept, our defaults give way to the engine's behavior."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.fields import shown
from calculon.declarations.serving_classes import engine_name
from calculon.launch.dialect import Dialect, Fields, Parsed, Reading, Row, Setting, Writing
from calculon.launch.engines.engine_files import COMMENTED
from calculon.launch.engines.engine_rows import MEMORY_SHARE, OF_EXPERTS, OF_HOST
from calculon.launch.server import Server

NOT_IN_ENGINES = ("price", "reserve_gib", *OF_EXPERTS, *OF_HOST)
"""Fields that no engine has: they describe the estimate, the text or the market, and are kept in a comment."""

ENGINE_FIELD = "engine"
"""Field that names the engine of a deployment; a command is written for one engine, whatever the field says."""

_SHARE = "memory_fraction"


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """A deployment as an engine runs it.

    Attributes:
        settings: Settings of the engine.
        changes: Fields at our default that the engine runs with a different value: both values.
    """

    settings: Fields
    changes: Mapping[str, tuple[Any, Any]]


def engine_command(
    dialect: Dialect,
    deployment: Mapping[str, Any],
    defaults: Mapping[str, Any],
    server: Server | None = None,
    filled: Mapping[str, Any] | None = None,
) -> EngineCommand:
    """Return the engine settings of a deployment, in the order of the rows.

    Args:
        dialect: Dialect of the engine.
        deployment: All fields of the deployment, as in a file.
        defaults: Defaults of fields that have one. Fields at their default are open: if the engine cannot run our
            value, it runs its own.
        server: Model and machine, which shares of total memory depend on.
        filled: Values that reading the command fills in by itself.

    Raises:
        SpecError: For fields that the engine cannot express, each with the value that it runs.
    """
    fields, changes = dict(deployment), dict[str, tuple[Any, Any]]()
    # A share of all memory is written as it is; with model and machine, the caller has converted it.
    own = () if server is not None else (MEMORY_SHARE,)
    if problems := [*_unknown_fields(dialect, deployment, defaults, own)]:
        raise SpecError("deployment", problems)
    settings: Fields = {}
    for row in dialect.rows:
        usual = _own(dialect, row, fields, server)
        open_fields = [n for n in row.fields if n in defaults and fields[n] == defaults[n]]
        try:
            settings |= row.write(_writing(dialect, fields, server))
        except SpecError as error:
            (name,) = (one.field for one in error.problems)
            if name not in open_fields or usual.get(name, fields[name]) == fields[name]:
                raise
            changes[name] = fields[name], usual[name]
            fields[name] = usual[name]
            settings |= row.write(_writing(dialect, fields, server))
    for name in NOT_IN_ENGINES:
        known = (defaults.get(name), (filled or {}).get(name))
        if fields.get(name) is not None and fields[name] not in known:
            settings[COMMENTED + name] = fields[name]
    engine = str(fields.get(ENGINE_FIELD, ""))
    if engine_name(engine) == dialect.name != engine:
        settings[COMMENTED + ENGINE_FIELD] = engine
    if problems := _missed_fields(dialect, settings, fields, defaults, server):
        raise SpecError("deployment", problems)
    return EngineCommand(settings, changes)


def command_text(
    dialect: Dialect,
    deployment: Mapping[str, Any],
    defaults: Mapping[str, Any],
    server: Server | None = None,
    filled: Mapping[str, Any] | None = None,
) -> str:
    """Return the script that starts an engine for a deployment; arguments and errors as in :func:`engine_command`."""
    found = engine_command(dialect, deployment, defaults, server, filled)
    head = command_head(dialect, deployment, found, server)
    return dialect.render(found.settings, int(deployment["num_procs"]), head)


def command_head(
    dialect: Dialect,
    deployment: Mapping[str, Any],
    found: EngineCommand,
    server: Server | None = None,
) -> list[str]:
    """Return the comment lines of a script: release, processors, replicas, and fields that the engine changes."""
    processors = int(deployment["num_procs"])
    each = int(deployment["tensor_par"]) * int(deployment["pipeline_par"])
    head = [f"{dialect.title}, written for {dialect.version}: {processors:,} processors"]
    if processors > each:
        head.append(
            f"{processors // each:,} replicas: this script starts one of them, on {each:,} processors"
        )
    head += [
        f"{name}: {dialect.title} uses {shown(new)} instead of {shown(old)}"
        for name, (old, new) in found.changes.items()
    ]
    if server is None and not _says(dialect, found.settings):
        share = f"{deployment[_SHARE]:g} of the free memory"
        head.append(
            f"{_SHARE}: {share}, written as a share of total memory if model and machine are known"
        )
    return head


def _says(dialect: Dialect, settings: Mapping[str, Any]) -> bool:
    """Return true if the settings include the memory share of the cache."""
    rows = (row for row in dialect.rows if _SHARE in row.fields)
    return any(name in settings for row in rows for name in row.settings)


def _writing(dialect: Dialect, fields: Mapping[str, Any], server: Server | None) -> Writing:
    return Writing(dialect.title, fields, server=server, kind="deployment")


def _unknown_fields(
    dialect: Dialect,
    deployment: Mapping[str, Any],
    defaults: Mapping[str, Any],
    own: Sequence[str],
) -> list[Problem]:
    """Return problems with fields that an engine has no option for and that differ from their default; not of `own`."""
    known = (*dialect.fields, *NOT_IN_ENGINES, ENGINE_FIELD, *own)
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
    """Return the fields of a row as the engine runs them without any option, given all other fields."""
    reading = Reading(Parsed(dialect.name, {}), int(fields["num_procs"]), server)
    reading.deployment.update(fields)
    return row.read(reading) if _SHARE not in row.fields else {}


def _missed_fields(
    dialect: Dialect,
    settings: Fields,
    fields: Mapping[str, Any],
    defaults: Mapping[str, Any],
    server: Server | None,
) -> list[Problem]:
    """Return problems with fields that the settings do not reproduce when they are read back."""
    stated = {name: Setting(name, value) for name, value in settings.items()}
    reading = Reading(Parsed("deployment", stated), int(fields["num_procs"]), server)
    for row in dialect.rows:
        reading.deployment.update(row.read(reading))
    hint = (
        ""
        if server is not None
        else "it becomes a share of total memory if model and machine are known: --system"
    )
    return [
        Problem(
            name,
            f"{shown(actual)}, the nearest that {dialect.title} can express",
            shown(fields[name]),
            hint if name == _SHARE else "",
        )
        for name in dialect.fields
        if (actual := reading.deployment.get(name, defaults.get(name))) != fields[name]
    ]
