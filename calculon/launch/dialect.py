"""The form of a dialect: which settings of a launcher are which fields of ours, and how both are read and written.

A dialect is a list of rows. A row reads some settings into fields of an execution, of a model or of a campaign, and
writes them back. A setting that no row has asked for is told: as one without effect on time or memory, as one whose
effect is not modelled, or as unknown.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Any, Literal

from calculon.errors import Problem, SpecError
from calculon.frozen import dataclass
from calculon.spec.fields import shown
from calculon.spec.model import Model

Fields = dict[str, Any]

Subject = Literal["execution", "model", "campaign"]
"""What the fields of a row are of."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting as it stands in a file: its name there, its value, and its place (``run.sh:12``)."""

    name: str
    value: Any
    place: str = ""

    def __str__(self) -> str:
        return self.name if self.value is True else f"{self.name} {shown(self.value)}"


@dataclass(frozen=True, slots=True)
class Parsed:
    """The settings of a file, by name in its dialect, and the processors that it is launched on, where it says so."""

    file: str
    settings: Mapping[str, Setting]
    num_procs: int | None = None


class Reading:
    """Settings on their way to fields: remembers which of them were asked for.

    Attributes
    ----------
    parsed : Parsed
        What the file says.
    execution, model, campaign : dict
        The fields that earlier rows have read.
    num_procs : int or None
        Processors: those that were asked for, else those of the file.
    """

    def __init__(self, parsed: Parsed, num_procs: int | None = None) -> None:
        self.parsed = parsed
        self.num_procs = num_procs or parsed.num_procs
        self.execution: Fields = {}
        self.model: Fields = {}
        self.campaign: Fields = {}
        self.used: set[str] = set()

    def setting(self, *names: str) -> Setting | None:
        """Return the first of some settings that is stated; all of them count as read."""
        self.used.update(names)
        return next((s for n in names if (s := self.parsed.settings.get(n)) is not None), None)

    def get(self, *names: str, default: Any = None) -> Any:
        """Return the value of the first of some settings that is stated."""
        found = self.setting(*names)
        return default if found is None else found.value

    def count(self, *names: str, default: int | None = None) -> int | None:
        """Return a whole number.

        Raises
        ------
        SpecError
            For any other value.
        """
        found = self.setting(*names)
        if found is None or found.value is None:
            return default
        value = found.value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
            raise self.error(found, "a whole number")
        return int(value)

    def switch(self, *names: str, default: bool = False) -> bool:
        """Return a switch.

        Raises
        ------
        SpecError
            For any other value than true and false.
        """
        found = self.setting(*names)
        if found is None or found.value is None:
            return default
        if not isinstance(found.value, bool):
            raise self.error(found, "true or false")
        return found.value

    def error(self, setting: Setting, wanted: str, hint: str = "") -> SpecError:
        """Return the error of a setting with another value than what is wanted."""
        place = setting.place or self.parsed.file
        return SpecError(place, Problem(setting.name, wanted, shown(setting.value), hint))


@dataclass(frozen=True)
class Writing:
    """An execution on its way to settings.

    Attributes
    ----------
    dialect : str
        What it is written for.
    execution : mapping
        All fields of the execution.
    model : Model or None
        The model, where it is known.
    campaign : mapping
        What is known of the run beside: ``tokens``, ``save_interval``.
    """

    dialect: str
    execution: Mapping[str, Any]
    model: Model | None = None
    campaign: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.execution[name]

    def refuse(self, name: str, wanted: str, hint: str = "") -> SpecError:
        """Return the error of a field whose value the launcher cannot express; `wanted` says which it can."""
        text = f"what {self.dialect} can express: {wanted}"
        return SpecError("execution", Problem(name, text, shown(self.execution[name]), hint))


@dataclass(frozen=True, slots=True)
class Row:
    """Some settings that are some fields.

    Attributes
    ----------
    fields : tuple of str
        The fields that it reads, and writes: for these ``read(write(x)) = x``.
    settings : tuple of str
        The names that it knows; the first of those with one meaning is the one that is written.
    read : callable
        Returns all of its fields, of a setting that is absent with what the launcher does without it.
    write : callable
        Returns the settings that say so, those that are the launcher's default left out.
    subject : str
        What the fields are of.
    """

    fields: tuple[str, ...]
    settings: tuple[str, ...]
    read: Callable[[Reading], Fields]
    write: Callable[[Writing], Fields]
    subject: Subject = "execution"


@dataclass(frozen=True)
class Dialect:
    """A launcher: how its files are parsed and written, and the rows of its settings.

    Attributes
    ----------
    name, title, version : str
        Its name on the command line, what it is, and the version that the rows were written for.
    preset : str
        Preset that says how it runs what no setting says.
    rows : sequence of Row
        In the order in which they are read and written.
    no_effect : sequence of str
        Patterns of settings without effect on time and memory of a step (learning rates, logs, files).
    not_modelled : mapping of str to str
        Patterns of settings whose effect is not modelled, and what it is.
    parse : callable
        Returns the settings of a text, and the processors that it says, given the name of the file.
    render : callable
        Returns the text of a file with some settings, given processors.
    recognises : callable
        Whether a text, given the name of the file, is of this dialect.
    """

    name: str
    title: str
    version: str
    preset: str
    rows: Sequence[Row]
    no_effect: Sequence[str]
    not_modelled: Mapping[str, str]
    parse: Callable[[str, str], Parsed]
    render: Callable[[Mapping[str, Any], int], str]
    recognises: Callable[[str, str], bool]

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of an execution that its settings say."""
        rows = (row for row in self.rows if row.subject == "execution")
        return tuple(dict.fromkeys(name for row in rows for name in row.fields))


@dataclass(frozen=True)
class Launch:
    """What a file of a launcher says.

    Attributes
    ----------
    dialect : Dialect
        Its dialect.
    execution : mapping
        An execution as in a file: the preset as its ``base``, and every field that the settings say.
    model, campaign : mapping
        Fields of a model, and of the run: ``tokens``, ``save_interval``. Empty where nothing is said.
    ignored : tuple of Setting
        Settings without effect on time and memory of a step.
    not_modelled : tuple of (Setting, str)
        Settings that change the result, but not here; and how.
    unknown : tuple of Setting
        Settings that the dialect does not know; they may change the result.
    """

    dialect: Dialect
    execution: Mapping[str, Any]
    model: Mapping[str, Any]
    campaign: Mapping[str, Any]
    ignored: tuple[Setting, ...]
    not_modelled: tuple[tuple[Setting, str], ...]
    unknown: tuple[Setting, ...]


def read(dialect: Dialect, text: str, file: str, *, num_procs: int | None = None) -> Launch:
    """Read a file of a launcher.

    Parameters
    ----------
    dialect : Dialect
        Its dialect.
    text, file : str
        What it contains, and its name.
    num_procs : int, optional
        Processors, where the file does not say how many.

    Raises
    ------
    SpecError
        For what cannot be parsed, for a value that means nothing, and for a contradiction, with both numbers.
    """
    reading = Reading(dialect.parse(text, file), num_procs)
    for row in dialect.rows:
        getattr(reading, row.subject).update(row.read(reading))
    ignored, lost, unknown = [], [], []
    for name, setting in reading.parsed.settings.items():
        if name in reading.used:
            continue
        if _matches(name, dialect.no_effect):
            ignored.append(setting)
        elif effect := next(
            (w for p, w in dialect.not_modelled.items() if fnmatchcase(name, p)), ""
        ):
            lost.append((setting, effect))
        else:
            unknown.append(setting)
    return Launch(
        dialect=dialect,
        execution={"base": dialect.preset, **reading.execution},
        model=reading.model,
        campaign=reading.campaign,
        ignored=tuple(ignored),
        not_modelled=tuple(lost),
        unknown=tuple(unknown),
    )


def settings_of(
    dialect: Dialect,
    execution: Mapping[str, Any],
    model: Model | None = None,
    campaign: Mapping[str, Any] | None = None,
) -> Fields:
    """Return the settings that say an execution, in the order of the rows.

    Parameters
    ----------
    dialect : Dialect
        What to write for.
    execution : mapping
        All fields of an execution.
    model : Model, optional
        The model: some settings count its blocks or tokens, and those of its shape are left out without it.
    campaign : mapping, optional
        ``tokens`` and ``save_interval`` of the run.

    Raises
    ------
    SpecError
        For a value that the launcher cannot express; the hint has the nearest that it can.
    """
    writing = Writing(dialect.title, execution, model, campaign or {})
    found: Fields = {}
    for row in dialect.rows:
        if row.subject == "model" and model is None:
            continue
        found |= row.write(writing)
    return found


def write(
    dialect: Dialect,
    execution: Mapping[str, Any],
    model: Model | None = None,
    campaign: Mapping[str, Any] | None = None,
) -> str:
    """Return the file of a launcher that runs an execution; arguments and errors as of :func:`settings_of`."""
    settings = settings_of(dialect, execution, model, campaign)
    return dialect.render(settings, int(execution["num_procs"]))


def number(setting: str, name: str, default: int = 1, *others: str) -> Row:
    """Return the row of a whole number that is a field as it is; left out where it is the default."""
    return Row(
        fields=(name,),
        settings=(setting, *others),
        read=lambda one: {name: one.count(setting, *others, default=default)},
        write=lambda one: {} if one[name] == default else {setting: one[name]},
    )


def switch(setting: str, name: str, on: Any = True, off: Any = False) -> Row:
    """Return the row of a switch that is a field with two values; left out where it is off."""
    return Row(
        fields=(name,),
        settings=(setting,),
        read=lambda one: {name: on if one.switch(setting) else off},
        write=lambda one: {setting: True} if one[name] == on else {},
    )


def named(setting: str, name: str, ours: Mapping[Any, Any], default: Any) -> Row:
    """Return the row of a field with names: those of the launcher, and ours; left out where it is its default.

    Where several names of the launcher are one value of ours, the first is written.
    """
    theirs: Fields = {}
    for there, here in ours.items():
        theirs.setdefault(here, there)

    def read_name(one: Reading) -> Fields:
        found = one.setting(setting)
        if found is None:
            return {name: ours[default]}
        if found.value not in ours:
            raise one.error(found, f"one of {', '.join(map(str, ours))}")
        return {name: ours[found.value]}

    def write_name(one: Writing) -> Fields:
        if one[name] not in theirs:
            raise one.refuse(name, ", ".join(map(str, theirs)))
        return {} if one[name] == ours[default] else {setting: theirs[one[name]]}

    return Row((name,), (setting,), read_name, write_name)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
