"""Launch dialects: how the settings of a launcher correspond to our fields, and how both are read and written.

A dialect is a list of rows. A row reads settings into fields of an execution, a model or a campaign, and writes them
back. Every setting that no row asks for is reported: as without effect on time or memory, as not modeled, or as
unknown. Values that the file alone does not determine are reported, too.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Any, Literal, overload

from calculon.base.display import Tabular, columns_of
from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.fields import shown
from calculon.declarations.model import Model
from calculon.declarations.presets import find_preset
from calculon.launch.server import Server
from calculon.launch.texts.name_patterns import any_of, names_in
from calculon.launch.texts.reading_budget import check_numbers
from calculon.launch.texts.reading_budget import reading as reading_file
from calculon.launch.translation import Translated, translated

Fields = dict[str, Any]

Subject = Literal["execution", "deployment", "model", "campaign"]
"""Subject of the fields of a row."""

Language = Literal["shell", "python", "yaml", "toml", "json"]


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A value that the file alone does not determine.

    Attributes:
        text: Text in the file, such as ``$SLURM_NNODES``, or alternatives, such as ``8 or 4``.
        needs: Variable that determines the value and that the user is asked for; empty if there is none.
        conditional: True if the file alone does not determine whether the setting is present at all.
    """

    text: str
    needs: str = ""
    conditional: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in a file: its name there, its value, and its place (``run.sh:12``)."""

    name: str
    value: Any
    place: str = ""

    def __str__(self) -> str:
        return self.name if self.value is True else f"{self.name} {plain(self.value)}"

    def to_dict(self) -> Fields:
        """Return a JSON-serializable dict; an unresolved value becomes its text."""
        value = str(self.value) if isinstance(self.value, Unresolved) else self.value
        return {"name": self.name, "value": value, "place": self.place}


def plain(value: object) -> str:
    """Format the value of a setting for messages.

    >>> plain([8, "a"]), plain(False), plain(Unresolved("$TP"))
    ('8 a', 'false', '$TP')
    """
    if isinstance(value, (list, tuple)):
        return " ".join(map(plain, value))
    return str(value) if isinstance(value, (str, Unresolved)) else shown(value)


@dataclass(frozen=True, slots=True)
class Parsed:
    """Contents of a file, with settings named as in its dialect.

    Attributes:
        file: Name of the file, for messages.
        settings: Settings by name; values are numbers, strings, booleans, lists of these, or :class:`Unresolved`.
        num_procs: Processors of the launch; None if the file does not state them.
        notes: Other remarks for the reader: undecided branches, skipped commands.
    """

    file: str
    settings: Mapping[str, Setting]
    num_procs: int | Unresolved | None = None
    notes: tuple[str, ...] = ()


class Reading:
    """Settings that are being read into fields; records which settings rows have asked for.

    Attributes:
        parsed: Contents of the file.
        execution, deployment, model, campaign: Fields that earlier rows have read.
        server: Machine and model of a server, if known.
        used: Names that rows have asked for, stated or not.
        lost: Effects of settings whose value is not modeled, by name (:meth:`not_modelled`).
        notes: Other remarks about the file.
        lenient: True to treat unresolved values as absent: for a model or a campaign, which are optional.
    """

    def __init__(
        self, parsed: Parsed, num_procs: int | None = None, server: Server | None = None
    ) -> None:
        self.parsed = parsed
        self.asked_procs = num_procs
        self.server = server
        self.execution: Fields = {}
        self.deployment: Fields = {}
        self.model: Fields = {}
        self.campaign: Fields = {}
        self.used: set[str] = set()
        self.lost: dict[str, str] = {}
        self.notes: list[str] = []
        self.lenient = False

    @property
    def num_procs(self) -> int | None:
        """Number of processors: the requested number, else the file's; None if neither is known.

        Raises:
            SpecError: If the file's number is unresolved.
        """
        if self.asked_procs is not None:
            return self.asked_procs
        result = self.parsed.num_procs
        if isinstance(result, Unresolved):
            raise self._unknown_procs(result.text)
        return result

    def processors(self) -> int:
        """Return the number of processors; errors as :attr:`num_procs`, and if nothing states it."""
        result = self.num_procs
        if result is None:
            raise self._unknown_procs("no number")
        return result

    def _unknown_procs(self, found: str) -> SpecError:
        hint = "set it with calculon import-flags FILE --procs N"
        return SpecError(self.parsed.file, Problem("processors", "a number", found, hint))

    def setting(self, *names: str) -> Setting | None:
        """Return the first of several settings that the file states; all of them count as read.

        Raises:
            SpecError: For an unresolved value of an execution.
        """
        self.used.update(names)
        result = next((s for n in names if (s := self.parsed.settings.get(n)) is not None), None)
        if result is None or not isinstance(result.value, Unresolved):
            return result
        if self.lenient:
            return None
        needs = result.value.needs
        hint = (
            f"set it with calculon import-flags FILE --env {needs}=VALUE"
            if needs
            else "write the value into the file"
        )
        raise self.error(result, "a value that the file determines", hint)

    def get(self, *names: str, default: Any = None) -> Any:
        """Return the value of the first of several settings that the file states; errors as :meth:`setting`."""
        found = self.setting(*names)
        return default if found is None else found.value

    def stated(self, *names: str, default: Any) -> Setting:
        """Return the first of several settings that the file states, else the first name with a default."""
        return self.setting(*names) or Setting(names[0], default)

    @overload
    def count(self, *names: str, default: int, least: int | None = None) -> int: ...

    @overload
    def count(
        self, *names: str, default: int | None = None, least: int | None = None
    ) -> int | None: ...

    def count(
        self, *names: str, default: int | None = None, least: int | None = None
    ) -> int | None:
        """Return a whole number.

        Raises:
            SpecError: For any other value, and for a number below `least`.
        """
        found = self.setting(*names)
        if found is None or found.value is None:
            return default
        value = found.value
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value != int(value):
            raise self.error(found, "a whole number")
        if least is not None and value < least:
            raise self.error(found, f"a whole number of at least {least}")
        return int(value)

    def switch(self, *names: str, default: bool = False) -> bool:
        """Return the value of a switch. An unresolved text after a flag in a script may hold further settings.

        Raises:
            SpecError: For any value except true and false.
        """
        # In a script, ``--flag $ARGS`` reads like a flag with a value, but the variable may hold further flags.
        after = next((s.value for n in names if (s := self.parsed.settings.get(n))), None)
        if isinstance(after, Unresolved) and not after.conditional:
            self.used.update(names)
            self.notes.append(f"{after.text} may hold further settings")
            return True
        found = self.setting(*names)
        if found is None or found.value is None:
            return default
        if not isinstance(found.value, bool):
            raise self.error(found, "true or false")
        return found.value

    def choice(self, setting: Setting, names: Collection[Any]) -> Any:
        """Return the value of a setting if it is one of the allowed names.

        Raises:
            SpecError: For any other value.
        """
        if isinstance(setting.value, (list, dict)) or setting.value not in names:
            raise self.error(setting, f"one of {', '.join(map(str, names))}")
        return setting.value

    def not_modelled(self, name: str, effect: str) -> None:
        """Record that the value of a setting changes the result but is not modeled, with its effect."""
        self.lost[name] = effect

    def error(self, setting: Setting, wanted: str, hint: str = "") -> SpecError:
        """Return the error of a setting with an unexpected value."""
        place = setting.place or self.parsed.file
        found = plain(setting.value) if isinstance(setting.value, Unresolved) else None
        return SpecError(place, Problem(setting.name, wanted, found or shown(setting.value), hint))


@dataclass(frozen=True)
class Writing:
    """An execution, or a deployment, that is being written as settings.

    Attributes:
        dialect: Title of the launcher.
        execution: All fields of the execution, or of the deployment.
        model: Model, if known.
        campaign: Known fields of the whole run, as in :class:`Launch`.
        server: Machine and model of a server, if known.
        kind: ``execution`` or ``deployment``.
    """

    dialect: str
    execution: Mapping[str, Any]
    model: Model | None = None
    campaign: Mapping[str, Any] = field(default_factory=dict)
    server: Server | None = None
    kind: Subject = "execution"

    def __getitem__(self, name: str) -> Any:
        return self.execution[name]

    def refuse(self, name: str, wanted: str, hint: str = "") -> SpecError:
        """Return the error of a field value that the launcher cannot express; `wanted` lists the possible values."""
        text = f"a value that {self.dialect} can express: {wanted}"
        return SpecError(self.kind, Problem(name, text, shown(self.execution[name]), hint))


@dataclass(frozen=True, slots=True)
class Row:
    """Correspondence between some settings and some fields.

    Attributes:
        fields: Fields that it reads and writes: for these ``read(write(x)) = x``.
        settings: Known names, which count as read even if the reader does not ask for them; of several names with one
            meaning, the first is written.
        read: Function that returns all fields; an absent setting means the launcher's default.
        write: Function that returns the settings for the fields, without those at the launcher's default.
        subject: Subject of the fields.
    """

    fields: tuple[str, ...]
    settings: tuple[str, ...]
    read: Callable[[Reading], Fields]
    write: Callable[[Writing], Fields]
    subject: Subject = "execution"


@dataclass(frozen=True)
class Dialect:
    """A launcher or engine: how its files are parsed and written, and the rows of its settings.

    Attributes:
        name, title, version: Name on the command line, full name, and the version that the rows describe.
        preset: Preset with the launcher's behavior that no setting controls.
        rows: Rows in the order of reading and writing.
        no_effect: Patterns of settings without effect on the time and memory of a step (learning rates, logs, files),
            as text for :func:`calculon.launch.texts.name_patterns.names_in`.
        not_modelled: Effects that are not modeled, with patterns of their settings; the first match counts.
        parse: Function from a text, the name of its file and the values of variables to the parsed file.
        render: Function from settings, number of processors and head comments to the text of a file.
        recognizes: Function from a text and the name of its file that returns true for this dialect.
        suffix: Suffix of files.
        presets: Further presets that settings can select.
        not_in_file: Fields that the training script states and the files do not: they are kept and written as comments.
        subject: Subject of its files: an execution, or the deployment of a serving engine.
        language: Function from a text and the name of its file to its language.
        named: Function from the name of a setting in a file, or a word of a script, to its name in the dialect.
        spelled: Function from the name of a setting to its spelling in a new line of a file.
        sections: Functions that create sections which files usually lack.
        refused: Function from a text and a number of processors to the combinations that the launcher refuses.
        needed: Function from settings to other requirements, such as environment variables; None marks a setting that
            must not be stated.
        in_version_of: Function that converts settings to the names of a file's version, given the stated settings.
    """

    name: str
    title: str
    version: str
    preset: str
    rows: Sequence[Row]
    no_effect: str
    not_modelled: Mapping[str, str]
    parse: Callable[[str, str, Mapping[str, str]], Parsed]
    render: Callable[[Mapping[str, Any], int, Sequence[str]], str]
    recognizes: Callable[[str, str], bool]
    suffix: str = ".sh"
    presets: tuple[str, ...] = ()
    not_in_file: Sequence[str] = ()
    subject: Subject = "execution"
    language: Callable[[str, str], Language] = lambda text, file: "shell"
    named: Callable[[str], str] = str
    spelled: Callable[[str], str] = str
    sections: Mapping[str, str] = field(default_factory=dict)
    refused: Callable[[str, int], Sequence[Problem]] = lambda text, num_procs: ()
    needed: Callable[[Fields], Fields] = lambda settings: {}
    in_version_of: Callable[[Fields, Mapping[str, Setting]], Fields] = lambda settings, stated: (
        settings
    )

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of an execution, or of a deployment, that its settings determine."""
        rows = (row for row in self.rows if row.subject == self.subject)
        return tuple(dict.fromkeys(name for row in rows for name in row.fields))


@dataclass(frozen=True)
class Launch(Tabular):
    """Result of reading a launch file.

    Attributes:
        dialect: Dialect of the file.
        execution: Execution as in a file: the preset as its ``base``, and every field that settings determine; empty
            for a server.
        deployment: Deployment of a serving engine as in a file; empty for training.
        model, campaign: Fields of the model and of the whole run: ``tokens``, ``save_interval`` (steps),
            ``async_save``, ``batch_ramp`` (initial batch, increment, samples), ``batch_schedule`` (tokens, and the
            batch from there on). Empty if nothing is stated; a catalog model has its ``name`` only.
        used: Settings that were read.
        ignored: Settings without effect on time and memory of a step.
        not_modelled: Settings that change the result but are not modeled, with their effect.
        unknown: Settings that the dialect does not know; they may change the result.
        unresolved: Settings of the model or the campaign whose value the file alone does not determine.
        notes: Other remarks about the file.
        stated: All settings of the file, by their names in the dialect.
    """

    dialect: Dialect
    execution: Mapping[str, Any]
    model: Mapping[str, Any]
    campaign: Mapping[str, Any]
    deployment: Mapping[str, Any] = field(default_factory=dict)
    used: tuple[Setting, ...] = ()
    ignored: tuple[Setting, ...] = ()
    not_modelled: tuple[tuple[Setting, str], ...] = ()
    unknown: tuple[Setting, ...] = ()
    unresolved: tuple[Setting, ...] = ()
    notes: tuple[str, ...] = ()
    stated: Mapping[str, Setting] = field(default_factory=dict)

    def __repr__(self) -> str:
        lost = len(self.not_modelled) + len(self.unknown) + len(self.unresolved)
        return f"<Launch {self.dialect.name}: {len(self.stated)} settings, {lost} not read>"

    def table(self) -> dict[str, list[Any]]:
        """Return a row for each setting: name, value, place, and what it ``became``: ``used``, ``ignored``, ...

        ``effect`` is what a setting changes that is not modeled.
        """
        known = self.to_dict()
        rows = ({**one, "became": kind} for kind in _BECAME for one in known[kind])
        return columns_of(rows, ("name", "value", "place", "became", "effect"))

    def to_dict(self) -> Fields:
        """Return a JSON-serializable dict: the format, the results, and all settings by category."""
        document: Fields = {"format": self.dialect.name, "version": self.dialect.version}
        document |= {name: dict(getattr(self, name)) for name in ("execution", "model", "campaign")}
        document |= {"deployment": dict(self.deployment)} if self.deployment else {}
        for kind in ("used", "ignored", "unknown", "unresolved"):
            document[kind] = [one.to_dict() for one in getattr(self, kind)]
        lost = [one.to_dict() | {"effect": effect} for one, effect in self.not_modelled]
        return document | {"not_modelled": lost, "notes": list(self.notes)}


_BECAME = ("used", "ignored", "not_modelled", "unknown", "unresolved")
"""Kinds of settings."""


def read(
    dialect: Dialect,
    text: str,
    file: str,
    *,
    num_procs: int | None = None,
    variables: Mapping[str, str] | None = None,
    server: Server | None = None,
) -> Launch:
    """Read a launch file.

    Args:
        dialect: Dialect of the file.
        text, file: Contents and name of the file.
        num_procs: Processors, if the file does not state them.
        variables: Values of environment variables, and of arguments (``1``), that the file refers to.
        server: Model and machine of a serving engine.

    Raises:
        SpecError: For anything that cannot be parsed, for an invalid or unresolved value, and for a contradiction, with
        both numbers.
    """
    with reading_file(file) as budget:
        budget.spend_text(text)
        parsed = dialect.parse(text, file, variables or {})
    for one in parsed.settings.values():
        check_numbers(one.value, one.place or file, one.name)
    reading = Reading(parsed, num_procs, server)
    for row in dialect.rows:
        # Only the main subject must be complete: a model or campaign is read as far as the file determines it.
        reading.lenient = row.subject != dialect.subject
        reading.used.update(row.settings)
        getattr(reading, row.subject).update(row.read(reading))
    fields = dict(reading.execution)
    base = {"base": fields.pop("preset", dialect.preset)} if dialect.subject == "execution" else {}
    return Launch(
        dialect=dialect,
        execution={**base, **fields},
        deployment=_deployment(dialect, reading),
        model=reading.model,
        campaign=reading.campaign,
        notes=(*reading.parsed.notes, *reading.notes),
        stated=reading.parsed.settings,
        **_sorted(dialect, reading),
    )


def _deployment(dialect: Dialect, reading: Reading) -> Fields:
    """Return the engine and the fields of a deployment that settings determine; empty for training."""
    stated = {name: value for name, value in reading.deployment.items() if value is not None}
    return {"engine": dialect.name, **stated} if dialect.subject == "deployment" else stated


def _sorted(dialect: Dialect, reading: Reading) -> dict[str, tuple[Any, ...]]:
    """Return the settings of a file by category."""
    kinds = ("used", "ignored", "not_modelled", "unknown", "unresolved")
    found: dict[str, list[Any]] = {kind: [] for kind in kinds}
    ignored = any_of(names_in(dialect.no_effect))
    effects = {p: effect for effect, text in dialect.not_modelled.items() for p in names_in(text)}
    lost = any_of(effects)
    for name, setting in reading.parsed.settings.items():
        # One compiled pattern finds the few settings with an effect; only these are matched one pattern at a time.
        effect = ""
        if lost.match(name):
            effect = next(words for one, words in effects.items() if fnmatchcase(name, one))
        # A row's own report comes before patterns: it knows the value and its effect.
        if name in reading.lost:
            found["not_modelled"].append((setting, reading.lost[name]))
        elif name in reading.used:
            open_ended = isinstance(setting.value, Unresolved)
            found["unresolved" if open_ended else "used"].append(setting)
        elif ignored.match(name):
            found["ignored"].append(setting)
        elif effect:
            found["not_modelled"].append((setting, effect))
        else:
            found["unknown"].append(setting)
    return {kind: tuple(settings) for kind, settings in found.items()}


def settings_of(
    dialect: Dialect,
    execution: Mapping[str, Any],
    model: Model | None = None,
    campaign: Mapping[str, Any] | None = None,
) -> Fields:
    """Return the settings of an execution, in the order of the rows.

    Behavior that another framework's execution takes from its preset, and that this launcher lacks, is replaced by this
    launcher's (:func:`calculon.launch.translation.translated`).

    Args:
        dialect: Dialect to write.
        execution: All fields of an execution.
        model: Model: some settings count its blocks or tokens, and the settings of its shape are left out without it.
        campaign: Known fields of the whole run, as in :class:`Launch`.

    Raises:
        SpecError: For a value that the launcher cannot express; the message has the nearest possible value.
    """
    result, wrong = nearest_settings(dialect, execution, model, campaign)
    if wrong:
        raise SpecError("execution", wrong)
    return result


def nearest_settings(
    dialect: Dialect,
    execution: Mapping[str, Any],
    model: Model | None = None,
    campaign: Mapping[str, Any] | None = None,
) -> tuple[Fields, list[Problem]]:
    """Return the settings nearest to an execution, and problems with fields that they miss; as :func:`settings_of`."""
    fields = dict(_translated(dialect, execution).fields)
    # The default sequence length is the model's, but launchers need an explicit number.
    if model is not None and not fields["seq_length"]:
        fields["seq_length"] = model.seq_size
    writing = Writing(dialect.title, fields, model, campaign or {})
    found: Fields = {}
    for row in dialect.rows:
        if row.subject == "model" and model is None:
            continue
        found |= row.write(writing)
    return found, _missed_fields(dialect, found, fields)


def _translated(dialect: Dialect, execution: Mapping[str, Any]) -> Translated:
    """Return an execution as the launcher runs it, with its default preset or the preset that its settings select."""
    own = str(execution.get("preset", ""))
    # Settings may select a preset on which that of the execution is based: user buffers those of megatron-bridge.
    while own and own not in dialect.presets:
        own = find_preset(own).base
    preset = own or dialect.preset
    kept = (*dialect.fields, *dialect.not_in_file)
    return translated(execution, preset, kept, dialect.title)


def _missed_fields(dialect: Dialect, settings: Fields, fields: Mapping[str, Any]) -> list[Problem]:
    """Return problems with fields that the settings do not reproduce when they are read back."""
    stated = {name: Setting(name, value) for name, value in settings.items()}
    reading = Reading(Parsed("execution", stated), int(fields["num_procs"]))
    rows = [row for row in dialect.rows if row.subject == "execution"]
    for row in rows:
        reading.execution.update(row.read(reading))
    return [
        Problem(
            name, f"{shown(actual)}, the nearest that {dialect.title} can express", shown(value)
        )
        for name in dialect.fields
        if (actual := reading.execution[name]) != (value := fields[name])
    ]


def write(
    dialect: Dialect,
    execution: Mapping[str, Any],
    model: Model | None = None,
    campaign: Mapping[str, Any] | None = None,
    preset: str = "",
) -> str:
    """Return the text of a launch file that runs an execution, with the launcher version in its head.

    Arguments and errors as in :func:`settings_of`; `preset` is the name of a preset of earlier releases, if any.
    """
    settings = settings_of(dialect, execution, model, campaign)
    processors = int(execution["num_procs"])
    head = [f"{dialect.title}, written for {dialect.version}: {processors:,} processors"]
    if preset:
        head += [f"planned with {preset}: those releases may name settings differently"]
    kept = _translated(dialect, execution)
    head += [
        f"{name}: {dialect.title} uses {shown(new)} instead of {shown(old)}"
        for name, (old, new) in kept.changes.items()
    ]
    own = {"seq_length": model.seq_size} if model is not None else {}
    comments = {name: kept.fields[name] or own.get(name) for name in dialect.not_in_file}
    head += [f"{name}: {shown(v)}, set in the training script" for name, v in comments.items() if v]
    return dialect.render(settings, processors, head)
