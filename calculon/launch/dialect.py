"""The form of a dialect: which settings of a launcher are which fields of ours, and how both are read and written.

A dialect is a list of rows. A row reads some settings into fields of an execution, of a model or of a campaign, and
writes them back. A setting that no row has asked for is told: as one without effect on time or memory, as one whose
effect is not modelled, or as unknown. So is a value that the file alone does not say.
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
from calculon.launch.server import Server
from calculon.launch.texts.name_patterns import any_of, names_in
from calculon.launch.texts.reading_budget import check_numbers
from calculon.launch.texts.reading_budget import reading as reading_file
from calculon.launch.translation import Translated, translated

Fields = dict[str, Any]

Subject = Literal["execution", "deployment", "model", "campaign"]
"""What the fields of a row are of."""

Language = Literal["shell", "python", "yaml", "toml", "json"]


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A value that a file alone does not say.

    Attributes:
        text: What stands there, such as ``$SLURM_NNODES``, or ``8 or 4``.
        needs: The variable on which it depends, where there is one: what is asked for.
        conditional: Whether the file alone does not say if there is the setting at all, rather than its value.
    """

    text: str
    needs: str = ""
    conditional: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting as it stands in a file: its name there, its value, and its place (``run.sh:12``)."""

    name: str
    value: Any
    place: str = ""

    def __str__(self) -> str:
        return self.name if self.value is True else f"{self.name} {plain(self.value)}"

    def to_dict(self) -> Fields:
        """Return it as plain data; a value that the file alone does not say as its text."""
        value = str(self.value) if isinstance(self.value, Unresolved) else self.value
        return {"name": self.name, "value": value, "place": self.place}


def plain(value: object) -> str:
    """Write a value of a setting as a message shows it.

    >>> plain([8, "a"]), plain(False), plain(Unresolved("$TP"))
    ('8 a', 'false', '$TP')
    """
    if isinstance(value, (list, tuple)):
        return " ".join(map(plain, value))
    return str(value) if isinstance(value, (str, Unresolved)) else shown(value)


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a file says, in the names of its dialect.

    Attributes:
        file: Its name, for messages.
        settings: Its settings by name; values are numbers, texts, true and false, lists of these, or
            :class:`Unresolved`.
        num_procs: Processors that it is launched on; None where it says nothing of them.
        notes: What else a reader must know: branches that were not decided, commands that were passed over.
    """

    file: str
    settings: Mapping[str, Setting]
    num_procs: int | Unresolved | None = None
    notes: tuple[str, ...] = ()


class Reading:
    """Settings on their way to fields: remembers which of them were asked for.

    Attributes:
        parsed: What the file says.
        execution, deployment, model, campaign: The fields that earlier rows have read.
        server: What a server runs on and with which model, where that is known.
        used: Names that rows have asked for, stated or not.
        lost: Names whose value is not modelled, and what that changes (:meth:`not_modelled`).
        notes: What else a reader must know of the file.
        lenient: Whether values that the file alone does not say count as absent: for a model or a campaign.
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
        """Processors: those that were asked for, else those of the file; None where neither says how many.

        Raises:
            SpecError: Where the file says that it depends on something else.
        """
        if self.asked_procs is not None:
            return self.asked_procs
        found = self.parsed.num_procs
        if isinstance(found, Unresolved):
            raise self._unknown_procs(found.text)
        return found

    def processors(self) -> int:
        """Return the processors; errors as :attr:`num_procs`, also where nothing says how many."""
        found = self.num_procs
        if found is None:
            raise self._unknown_procs("nothing that says it")
        return found

    def _unknown_procs(self, found: str) -> SpecError:
        hint = "import-flags --procs N says how many"
        return SpecError(self.parsed.file, Problem("processors", "a number", found, hint))

    def setting(self, *names: str) -> Setting | None:
        """Return the first of some settings that is stated; all of them count as read.

        Raises:
            SpecError: For a value of an execution that the file alone does not say.
        """
        self.used.update(names)
        found = next((s for n in names if (s := self.parsed.settings.get(n)) is not None), None)
        if found is None or not isinstance(found.value, Unresolved):
            return found
        if self.lenient:
            return None
        needs = found.value.needs
        hint = (
            f"import-flags --env {needs}=VALUE says it"
            if needs
            else "write the value into the file"
        )
        raise self.error(found, "a value that the file says", hint)

    def get(self, *names: str, default: Any = None) -> Any:
        """Return the value of the first of some settings that is stated; errors as :meth:`setting`."""
        found = self.setting(*names)
        return default if found is None else found.value

    def stated(self, *names: str, default: Any) -> Setting:
        """Return the first of some settings that is stated, else the first name with a default."""
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
        """Return a switch; what a script has after it, and does not say, are other settings.

        Raises:
            SpecError: For any other value than true and false.
        """
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
        """Return the value of a setting, if it is one of some names.

        Raises:
            SpecError: Where it is none.
        """
        if isinstance(setting.value, (list, dict)) or setting.value not in names:
            raise self.error(setting, f"one of {', '.join(map(str, names))}")
        return setting.value

    def not_modelled(self, name: str, effect: str) -> None:
        """Say that the value of a setting, where it is stated, changes the result, but not here; and how."""
        self.lost[name] = effect

    def error(self, setting: Setting, wanted: str, hint: str = "") -> SpecError:
        """Return the error of a setting with another value than what is wanted."""
        place = setting.place or self.parsed.file
        found = plain(setting.value) if isinstance(setting.value, Unresolved) else None
        return SpecError(place, Problem(setting.name, wanted, found or shown(setting.value), hint))


@dataclass(frozen=True)
class Writing:
    """An execution, or a deployment, on its way to settings.

    Attributes:
        dialect: What it is written for.
        execution: All fields of the execution, or of the deployment.
        model: The model, where it is known.
        campaign: What is known of the run beside, as of :class:`Launch`.
        server: What a server runs on and with which model, where that is known.
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
        """Return the error of a field whose value the launcher cannot express; `wanted` says which it can."""
        text = f"what {self.dialect} can express: {wanted}"
        return SpecError(self.kind, Problem(name, text, shown(self.execution[name]), hint))


@dataclass(frozen=True, slots=True)
class Row:
    """Some settings that are some fields.

    Attributes:
        fields: The fields that it reads, and writes: for these ``read(write(x)) = x``.
        settings: The names that it knows, which count as read whether it asks for them or not; the first of those with
            one meaning is the one that is written.
        read: Returns all of its fields, of a setting that is absent with what the launcher does without it.
        write: Returns the settings that say so, those that are the launcher's default left out.
        subject: What the fields are of.
    """

    fields: tuple[str, ...]
    settings: tuple[str, ...]
    read: Callable[[Reading], Fields]
    write: Callable[[Writing], Fields]
    subject: Subject = "execution"


@dataclass(frozen=True)
class Dialect:
    """A launcher: how its files are parsed and written, and the rows of its settings.

    Attributes:
        name, title, version: Its name on the command line, what it is, and the version that the rows were written for.
        preset: Preset that says how it runs what no setting says.
        rows: In the order in which they are read and written.
        no_effect: Patterns of settings without effect on time and memory of a step (learning rates, logs, files), in a
            text (:func:`calculon.launch.texts.name_patterns.names_in`).
        not_modelled: Effects that are not modelled, and patterns of the settings that have them; the first that match
            count.
        parse: Returns what a text says, given the name of the file, and values of variables that it may ask for.
        render: Returns the text of a file with some settings, given processors, and lines of comment for its head.
        recognises: Whether a text, given the name of the file, is of this dialect.
        suffix: That of its files.
        presets: Further presets, which some of its settings choose.
        elsewhere: Fields that a training script says and its files do not: they are kept as they are, and told in
            comments.
        subject: What its files are of: an execution, or of an engine that serves a deployment.
        language: Returns the language of a text, given the name of the file.
        named: Returns the name of a setting, given that in a file, or the word of a script.
        spelled: Returns the name of a setting as it is written in a new line of a file.
        sections: The functions that make sections which files usually lack.
        refused: Returns what the launcher refuses of a text on some processors.
        needed: Returns what settings need beyond an execution, such as variables of the environment; None for what
            must not be stated.
        in_version_of: Returns settings in the names of the version of a file, given what it states.
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
    recognises: Callable[[str, str], bool]
    suffix: str = ".sh"
    presets: tuple[str, ...] = ()
    elsewhere: Sequence[str] = ()
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
        """The fields of an execution, or of a deployment, that its settings say."""
        rows = (row for row in self.rows if row.subject == self.subject)
        return tuple(dict.fromkeys(name for row in rows for name in row.fields))


@dataclass(frozen=True)
class Launch(Tabular):
    """What a file of a launcher says.

    Attributes:
        dialect: Its dialect.
        execution: An execution as in a file: the preset as its ``base``, and every field that the settings say; empty
            of a server.
        deployment: A deployment as in a file, of an engine that serves; empty of a training.
        model, campaign: Fields of a model, and of the run: ``tokens``, ``save_interval`` (steps), ``async_save``,
            ``batch_ramp`` (batch at the start, step, samples), ``batch_schedule`` (tokens, and the batch from there
            on). Empty where nothing is said; a model of the catalog is its ``name`` alone.
        used: Settings that were read.
        ignored: Settings without effect on time and memory of a step.
        not_modelled: Settings that change the result, but not here; and how.
        unknown: Settings that the dialect does not know; they may change the result.
        unresolved: Settings of the model or the campaign whose value the file alone does not say.
        notes: What else a reader must know of the file.
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

        ``effect`` is what a setting changes that is not modelled.
        """
        known = self.to_dict()
        rows = ({**one, "became": kind} for kind in _BECAME for one in known[kind])
        return columns_of(rows, ("name", "value", "place", "became", "effect"))

    def to_dict(self) -> Fields:
        """Return it as plain data: format, what was read, and all settings by what became of them."""
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
    """Read a file of a launcher.

    Args:
        dialect: Its dialect.
        text, file: What it contains, and its name.
        num_procs: Processors, where the file does not say how many.
        variables: Values of variables of the environment, and of arguments (``1``), that the file asks for.
        server: Model and machine of an engine that serves.

    Raises:
        SpecError: For what cannot be parsed, for a value that means nothing, or that the file alone does not say, and
            for a contradiction, with both numbers.
    """
    with reading_file(file) as budget:
        budget.spend_text(text)
        parsed = dialect.parse(text, file, variables or {})
    for one in parsed.settings.values():
        check_numbers(one.value, one.place or file, one.name)
    reading = Reading(parsed, num_procs, server)
    for row in dialect.rows:
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
    """Return the fields of a deployment that settings say, and the engine; empty of a training."""
    said = {name: value for name, value in reading.deployment.items() if value is not None}
    return {"engine": dialect.name, **said} if dialect.subject == "deployment" else said


def _sorted(dialect: Dialect, reading: Reading) -> dict[str, tuple[Any, ...]]:
    """Return every setting of a file, sorted by what became of it."""
    kinds = ("used", "ignored", "not_modelled", "unknown", "unresolved")
    found: dict[str, list[Any]] = {kind: [] for kind in kinds}
    ignored = any_of(names_in(dialect.no_effect))
    effects = {p: effect for effect, text in dialect.not_modelled.items() for p in names_in(text)}
    lost = any_of(effects)
    for name, setting in reading.parsed.settings.items():
        effect = ""
        if lost.match(name):
            effect = next(words for one, words in effects.items() if fnmatchcase(name, one))
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
    """Return the settings that say an execution, in the order of the rows.

    Of an execution for another framework, what that one runs and this one lacks, unasked, is as this one runs it
    (:func:`calculon.launch.translation.translated`).

    Args:
        dialect: What to write for.
        execution: All fields of an execution.
        model: The model: some settings count its blocks or tokens, and those of its shape are left out without it.
        campaign: What is known of the run, as of :class:`Launch`.

    Raises:
        SpecError: For a value that the launcher cannot express; the hint has the nearest that it can.
    """
    found, wrong = nearest_settings(dialect, execution, model, campaign)
    if wrong:
        raise SpecError("execution", wrong)
    return found


def nearest_settings(
    dialect: Dialect,
    execution: Mapping[str, Any],
    model: Model | None = None,
    campaign: Mapping[str, Any] | None = None,
) -> tuple[Fields, list[Problem]]:
    """Return the settings nearest to an execution, and the fields that they do not say; as :func:`settings_of`."""
    fields = dict(_translated(dialect, execution).fields)
    if model is not None and not fields["seq_length"]:
        fields["seq_length"] = model.seq_size
    writing = Writing(dialect.title, fields, model, campaign or {})
    found: Fields = {}
    for row in dialect.rows:
        if row.subject == "model" and model is None:
            continue
        found |= row.write(writing)
    return found, _unsaid(dialect, found, fields)


def _translated(dialect: Dialect, execution: Mapping[str, Any]) -> Translated:
    """Return an execution as the launcher runs it, under its usual preset or one that its settings choose."""
    own = execution.get("preset")
    preset = str(own) if own in dialect.presets else dialect.preset
    kept = (*dialect.fields, *dialect.elsewhere)
    return translated(execution, preset, kept, dialect.title)


def _unsaid(dialect: Dialect, settings: Fields, fields: Mapping[str, Any]) -> list[Problem]:
    """Return the fields that settings do not say: the nearest is what they say."""
    stated = {name: Setting(name, value) for name, value in settings.items()}
    reading = Reading(Parsed("execution", stated), int(fields["num_procs"]))
    rows = [row for row in dialect.rows if row.subject == "execution"]
    for row in rows:
        reading.execution.update(row.read(reading))
    return [
        Problem(name, f"{shown(said)}, the nearest that {dialect.title} can express", shown(value))
        for name in dialect.fields
        if (said := reading.execution[name]) != (value := fields[name])
    ]


def write(
    dialect: Dialect,
    execution: Mapping[str, Any],
    model: Model | None = None,
    campaign: Mapping[str, Any] | None = None,
) -> str:
    """Return the file of a launcher that runs an execution, with the version that it was written for.

    Arguments and errors as of :func:`settings_of`.
    """
    settings = settings_of(dialect, execution, model, campaign)
    processors = int(execution["num_procs"])
    head = [f"{dialect.title}, written for {dialect.version}: {processors:,} processors"]
    kept = _translated(dialect, execution)
    head += [f"{name}: {shown(new)}, not {shown(old)}" for name, (old, new) in kept.changes.items()]
    own = {"seq_length": model.seq_size} if model is not None else {}
    told = {name: kept.fields[name] or own.get(name) for name in dialect.elsewhere}
    head += [f"{name}: {shown(v)}, said by the training script" for name, v in told.items() if v]
    return dialect.render(settings, processors, head)
