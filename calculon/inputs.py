"""Inputs of the public functions: models, systems and executions in any form, whole numbers and switches."""

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from calculon.base.errors import Problem, SpecError, nearest, printable
from calculon.base.frozen import dataclass
from calculon.base.records import columns
from calculon.declarations import arguments, catalog
from calculon.declarations.axes import STATED_DEGREES
from calculon.declarations.decode import decode
from calculon.declarations.execution import Execution
from calculon.declarations.fields import optional_defaults, shown, spec_fields
from calculon.declarations.files import STDIN, SUFFIXES, document_suffix
from calculon.declarations.lists_of_counts import modules_in_letters
from calculon.declarations.model import Model
from calculon.declarations.named_values import CORRECTED
from calculon.declarations.origin import Origin, digest_of, released_types, titled
from calculon.declarations.overlay import BASE
from calculon.declarations.override import override, paths_to
from calculon.declarations.paths import no_path, steps_of
from calculon.declarations.presets import COMMON, Preset, causes, filled, find_preset, usual_preset
from calculon.declarations.result_selection import FURTHER_COLUMNS, TABLE
from calculon.declarations.run_figures import RUN_FIGURES
from calculon.declarations.spellings.plan_pairs import is_plan, is_worded, pairs_of, whole_plan
from calculon.declarations.statistics import CorrectedStats
from calculon.hardware.system import System

if TYPE_CHECKING:
    from calculon.launch.dialect import Launch


@dataclass(frozen=True, slots=True)
class Changed:
    """Spec with some of its values replaced by path, such as ``{"mem1.GiB": 120}``; its name includes the changes."""

    source: "str | os.PathLike[str] | Mapping[str, Any]"
    changes: Mapping[str, object]

    @classmethod
    def of(cls, source: Any, changes: Mapping[str, object]) -> Any:
        """Return a source with further changed values, or the source itself if there are no changes."""
        if not changes:
            return source
        if isinstance(source, cls):
            return cls(source.source, {**source.changes, **changes})
        return cls(source, changes)


Source = str | os.PathLike[str] | Mapping[str, Any] | Changed
"""Catalog name, path (``-`` is standard input), mapping with the fields of a file, or one of these with changes; an
execution also as a plan in pairs: ``"tp=4 pp=2"``."""


_SPECS: dict[str, type] = {"model": Model, "execution": Execution, "system": System}

_FIELDS = {kind: [f.key for f in spec_fields(kind)] for kind in _SPECS.values()}

_NEEDED = {*_FIELDS[Execution]} - optional_defaults(Execution).keys()
"""Fields of the published tool, required in its executions."""

_FIELDS_OF = {kind: _FIELDS[record] for kind, record in _SPECS.items()}
"""Fields of each kind of spec, with their names in files."""

NAMED = ("model", "system", "asked_preset")
"""Columns of result tables with the names of the inputs; ``asked_preset`` holds the preset as given."""

_FURTHER_NAMES = re.compile(r"(Unnamed: \d+|index|level_\d+)?|asked_[\s\S]*")
"""Columns of row labels as pandas names them, and of values as stated (``asked_preset``)."""


def model(source: Source | Model) -> Model:
    """Return a model from a catalog name, a path, a mapping (including a row of a DataFrame) or a record.

    Raises:
        SpecError: If no such model exists, or for any error in it.
    """
    if isinstance(source, Model):
        return source
    return cast("Model", _decoded("model", Model, source))


def system(source: Source | System) -> System:
    """Return a system from a catalog name, a path, a mapping or a record; errors as in :func:`model`."""
    if isinstance(source, System):
        return source
    return cast("System", _decoded("system", System, source))


def _decoded(argument: str, record: type[Model] | type[System], source: Any) -> Model | System:
    """Return a model or system with its origin."""
    raw, file, origin, _ = _load(argument, record, source)
    result = decode(record, raw, file, name=titled(origin.name, origin.changes))
    object.__setattr__(result, "origin", origin)
    return result


def execution(
    source: Source | Execution,
    *,
    edition: str | None = None,
    preset: str | None = None,
    changes: Mapping[str, Any] | None = None,
    system: System | None = None,
    model: Model | None = None,
) -> Execution:
    """Return an execution from a catalog name, a path, a mapping or a record; errors as in :func:`model`.

    Columns of a DataFrame row that are not execution fields (statistics, for example) are ignored.

    Args:
        edition: Edition of the cost model; by default the stated one.
        preset: Preset that fills in missing fields; by default the stated one (``base`` or ``preset``), or else the
            default of the edition. A record has no missing fields.
        changes: Fields to change first.
        system: System that runs it, used by :func:`calculon.declarations.presets.usual_preset`; without it the default
            preset is ``common``.
        model: Model that it runs: a plan in pairs (``"tp=4 pp=2"``) needs its sequence length.
    """
    return resolve_execution(
        source, edition=edition, preset=preset, changes=changes, system=system, model=model
    ).execution


@dataclass(frozen=True, slots=True)
class ResolvedExecution:
    """Execution as requested.

    Attributes:
        execution: All of its fields.
        preset: Preset that filled them in, possibly from a file.
        origin: Origin of the execution; None for a record.
        question: Question of the result that it was taken from; empty for any other execution.
    """

    execution: Execution
    preset: Preset
    origin: Origin | None = None
    question: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Name of its source in messages."""
        return "" if self.origin is None else self.origin.source or self.origin.name


def resolve_execution(
    source: Source | Execution,
    *,
    edition: str | None = None,
    preset: str | None = None,
    changes: Mapping[str, Any] | None = None,
    system: System | None = None,
    model: Model | None = None,
) -> ResolvedExecution:
    """Return an execution, the preset that completed it, and its origin; arguments as in :func:`execution`."""
    fields = in_fields(source, model, system)
    return _resolve(fields, edition, preset, changes, model=model, system=system)


def in_fields(source: Any, model: Model | None, system: System | None) -> Any:
    """Return a plan in pairs, or a mapping with words of plans, as a mapping of fields; any other source unchanged."""
    if isinstance(source, Changed):
        return replace(source, source=in_fields(source.source, model, system))
    if model is None or not (is_plan(source) or is_worded(source)):
        return source
    family = "" if system is None else system.provenance.family
    return whole_plan(pairs_of(source), model.seq_size, partial(usual_preset, family, model=model))


STAND_INS: Mapping[str, Any] = dict.fromkeys((*STATED_DEGREES, "batch_size"), 1)
"""Substitutes for unreadable fields that no preset fills in."""


@dataclass(frozen=True, slots=True)
class Readable:
    """Readable part of an execution.

    Attributes:
        asked: The execution; unreadable fields have the values of its preset.
        problems: Problems with the unreadable fields.
        unread: Unreadable fields, with their substitutes.
        left_out: ``data_par`` if it is missing and the other degrees do not divide the number of processors.
    """

    resolved: ResolvedExecution
    problems: tuple[Problem, ...] = ()
    unread: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def readable_execution(
    source: Source | Execution,
    *,
    edition: str | None = None,
    preset: str | None = None,
    system: System | None = None,
    model: Model | None = None,
) -> Readable:
    """Return the readable part of an execution, and the problems with the rest.

    Raises:
        SpecError: If too little can be read; otherwise as :func:`execution`.
    """
    source = in_fields(source, model, system)
    try:
        return Readable(_resolve(source, edition, preset, model=model, system=system))
    except SpecError as error:
        if isinstance(source, Execution):
            raise
        found, left_out = _readable(source, edition, preset, error, system)
        kept = {"num_procs"} if left_out else set()
        names = [one.field for one in error.problems if one.field not in kept]
        fields = (name for name in names if hasattr(found.execution, name))
        unread = {name: getattr(found.execution, name) for name in fields}
        return Readable(found, error.problems, unread, left_out)


def _readable(
    source: Source,
    edition: str | None,
    preset: str | None,
    error: SpecError,
    system: System | None,
) -> tuple[ResolvedExecution, tuple[str, ...]]:
    """Return an execution without the fields of an error, and the fields that nobody stated."""
    names = [one.field for one in error.problems]
    rest = [name for name in names if name != "num_procs"]
    # The first attempt that decodes keeps most: the stated processors, then exact before rounded replicas.
    for unread, replicas in ((rest, False), (rest, True), (names, False), (names, True)):
        try:
            found = _resolve(
                source, edition, preset, unread=unread, replicas=replicas, system=system
            )
        except SpecError:
            continue
        return found, ("data_par",) if replicas else ()
    raise error from None


def _resolve(
    source: Source | Execution,
    edition: str | None,
    preset: str | None,
    changes: Mapping[str, Any] | None = None,
    *,
    unread: Collection[str] = (),
    replicas: bool = False,
    model: Model | None = None,
    system: System | None = None,
) -> ResolvedExecution:
    """Return an execution, treating `unread` fields as missing; `replicas` rounds its replicas down."""
    asked = {**(changes or {})}
    if isinstance(source, Execution):
        if preset is not None:
            asked["preset"] = find_preset(preset).family
        if edition is not None or preset is not None:
            asked["edition"] = edition or CORRECTED
        whole = replace(source, **asked) if asked else source
        return ResolvedExecution(whole, find_preset(whole.preset if preset is None else preset))
    raw, file, origin, question = stated_execution(source)
    given = {**raw, **asked}
    if model is not None:
        _check_modules(given.get("stage_blocks"), model, file)
    stated = {name: one for name, one in given.items() if name not in unread}
    stated |= {name: one for name, one in STAND_INS.items() if name in unread}
    usual = COMMON
    if system is not None and not given.keys() >= _NEEDED:
        usual = usual_preset(system.provenance.family, given, model=model)
    fields_of, framework = filled(stated, edition, preset, file, usual, model)
    if replicas and isinstance(count := fields_of.get("data_par"), float):
        fields_of = {**fields_of, "data_par": max(1, int(count))}
    try:
        found = decode(Execution, fields_of, file)
    except SpecError as error:
        entries = framework.entries if framework else {}
        problems = causes(error.problems, stated, fields_of, entries)
        raise SpecError(file, problems) from None
    return ResolvedExecution(found, framework or find_preset(found.preset), origin, question)


def _check_modules(layout: object, model: Model, place: str) -> None:
    """Raise SpecError for a layout in letters with another number of MTP modules than the model."""
    found, wanted = modules_in_letters(layout), model.mtp_layers
    if found is not None and found != wanted:
        known = f"{wanted} m (MTP modules), as {model.name} has"
        raise SpecError(place, Problem("stage_blocks", known, f"{found} in {shown(layout)}"))


def stated_execution(source: Source) -> tuple[Mapping[str, Any], str, Origin, Mapping[str, Any]]:
    """Return the stated fields of an execution, without the values that a preset fills in.

    Also return its source for messages, its origin for results, and the question of a result.

    Raises:
        SpecError: If no such execution exists; its fields are checked later, when they are completed.
    """
    raw, file, origin, question = _load("execution", Execution, source)
    if not isinstance(raw, Mapping):
        raise SpecError(file, Problem("", "an object with named fields", shown(raw)))
    if is_row(source):
        check_columns(raw, file)
        # A blank cell (NaN) of an optional field counts as missing.
        optional = optional_defaults(Execution)
        raw = {
            name: value
            for name, value in raw.items()
            if name in _FIELDS[Execution] and not (name in optional and value != value)  # noqa: PLR0124
        }
    return raw, file, origin, question


def owner(
    path: str,
    kinds: Sequence[str],
    place: str,
    further: Mapping[str, Collection[str]] | None = None,
) -> tuple[str, str]:
    """Return the kind of spec that a path belongs to, and the path inside it.

    Args:
        path: A path with its kind (``system.mem1.GiB``), or without if only one kind has its first field.
        kinds: Allowed kinds: model, execution, system, and kinds in `further`.
        place: Name of the input in messages.
        further: Further kinds of specs, with the fields of each; kinds not among `kinds` only improve messages.

    Raises:
        SpecError: For a path that no kind has, or that several have. The path itself is checked when the spec is read.
    """
    if not steps_of(path):
        raise SpecError(place, no_path(path))
    fields: Mapping[str, Collection[str]] = {**_FIELDS_OF, **(further or {})}
    first, _, rest = path.partition(".")
    if first in fields:
        if first not in kinds:
            raise SpecError(place, _not_here(path, first, rest, kinds))
        if rest:
            return first, rest
        some = next(iter(fields[first]))
        wanted = f"one of its fields, such as {first}.{some}"
        raise SpecError(place, Problem(path, wanted, f"the whole {first}"))
    name = str(steps_of(path)[0])
    owners = [kind for kind in kinds if name in fields[kind]]
    if len(owners) == 1:
        return owners[0], path
    if owners:
        both = " or ".join(f"{kind}.{path}" for kind in owners)
        raise SpecError(place, Problem(path, both, "a field of each"))
    for kind in (*(further or ()), *_FIELDS_OF):
        if name in fields[kind]:
            raise SpecError(place, _not_here(path, kind, path, kinds))
    known = [*kinds, *(one for kind in kinds for one in fields[kind])]
    nested = [one for kind in kinds if kind in _SPECS for one in paths_to(_SPECS[kind], name)]
    hint = (
        f"did you mean '{nested[0]}'?" if nested else nearest(name, known)
    ) or "see: calculon describe " + kinds[0]
    wanted = f"a field of the {_listed(kinds)}"
    raise SpecError(place, Problem(path, wanted, repr(name), hint))


def _not_here(path: str, kind: str, inside: str, kinds: Sequence[str]) -> Problem:
    """Return the problem with a path into a kind of spec that the command does not accept."""
    searched = inside and kind in ("execution", "deployment") and "deployment" not in kinds
    first = inside.partition(".")[0]
    hint = _IN_A_SEARCH.get(first, f"--fix {inside}=VALUE") if searched else ""
    wanted = f"a field of the {_listed(kinds)}"
    return Problem(path, wanted, f"one of the {kind}", hint and f"in a search: {hint}")


_IN_A_SEARCH = {
    "num_procs": "use the argument of the processor count",
    "prefill": "--apart tries separate prefill pools",
}
"""Fields that no option of a search fixes, with the option that states them."""


def _listed(kinds: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))


def sources_in(question: Mapping[str, Any], path: str) -> dict[str, Source]:
    """Return model and system of a question if they are found, in the catalog or next to its file.

    Args:
        question: The question of a result.
        path: The file that contains it.
    """
    result: dict[str, Source] = {}
    for argument in ("model", "system"):
        known = question.get(argument)
        if not isinstance(known, Mapping):
            continue
        source, changes = str(known.get("source") or known.get("name") or ""), known.get("set")
        next_to_result = Path(path).parent / source
        if source in catalog.names(argument) or (source and Path(source).is_file()):
            result[argument] = source
        elif source and next_to_result.is_file():
            result[argument] = str(next_to_result)
        if argument in result and changes and isinstance(changes, Mapping):
            result[argument] = Changed(cast("str", result[argument]), changes)
    return result


def check_columns(names: Iterable[object], file: str) -> None:
    """Check that a DataFrame, or a row of it, has only known columns of executions and results.

    A table with ``search`` and ``rank`` is the result of a study, which may have columns of its own.

    Raises:
        SpecError: For unknown columns: a misspelled field would otherwise silently have its default.
    """
    given = dict.fromkeys(map(str, names))
    if {"search", "rank"} <= given.keys():
        return
    known = _columns()
    unknown = [name for name in given if name not in known and not _FURTHER_NAMES.fullmatch(name)]
    if unknown:
        wanted = "only execution fields and columns of results"
        problems = [Problem(n, wanted, "an unknown column", _meant(n)) for n in unknown]
        raise SpecError(file, problems)


@cache
def _columns() -> dict[str, None]:
    """Return the known columns of tables of executions and results."""
    statistics = (column.name for column in columns(CorrectedStats))
    return dict.fromkeys((*_FIELDS[Execution], *statistics, *RUN_FIGURES, *FURTHER_COLUMNS))


def _meant(column: str) -> str:
    """Return a hint on the likely meaning of an unknown column."""
    first = re.split(r"[.\[]", column, maxsplit=1)[0]
    for kind, argument in ((Model, "model"), (System, "system")):
        if first in _FIELDS[kind]:
            return f"{first} belongs to the {argument}, which is a separate argument"
    return nearest(column, list(_columns())) or "leave it out unless it is part of an execution"


def is_row(value: object) -> bool:
    """Return True for a row of a DataFrame, without importing pandas."""
    return getattr(value, "ndim", None) == 1 and hasattr(value, "keys")


def is_frame(value: object) -> bool:
    """Return True for a DataFrame, without importing pandas."""
    return getattr(value, "ndim", None) == 2 and hasattr(value, "columns")


def as_mapping(value: object) -> Mapping[Any, Any] | None:
    """Return a mapping or a row of a DataFrame as a mapping; None for anything else."""
    if isinstance(value, Mapping):
        return value
    row: Any = value
    return dict(row.items()) if is_row(value) else None


def _load(
    argument: str, record: type, source: Any
) -> tuple[object, str, Origin, Mapping[str, Any]]:
    """Return the raw document of a spec, its source for messages, its origin for results, and its question."""
    changes = source.changes if isinstance(source, Changed) else {}
    source = source.source if isinstance(source, Changed) else source
    raw, question = as_mapping(source), cast("Mapping[str, Any]", {})
    if raw is not None:
        name, document, file, path = (
            argument,
            catalog.resolved_document(argument, raw, argument),
            argument,
            "",
        )
        note = ""
    else:
        if not isinstance(source, (str, os.PathLike)) or not str(source):
            raise SpecError(argument, _no_source(argument, source))
        path = os.fsdecode(source)
        name, document, question = _read(argument, path, changes)
        file = "<stdin>" if name == "stdin" else path
        note = catalog.note(argument, path)
        # Keep the catalog name if the text is an alias rather than a path.
        path = path if name == "stdin" or Path(path).exists() else name
    if changes:
        document = override(document, changes, file, record)
    digest = digest_of(document, getattr(record, "silent_keys", ()))
    origin = Origin(
        name=printable(name),
        source=path,
        changes=changes,
        digest=digest,
        note=note,
        released=released_types(document),
    )
    return document, file, origin, question


def _read(
    argument: str, path: str, changes: Mapping[str, object]
) -> tuple[str, object, Mapping[str, Any]]:
    """Read a spec, and the question if it is the execution of a result; an execution may be a launch file."""
    launched = None
    if argument == "execution" and document_suffix(path) not in (*SUFFIXES, TABLE):
        launched = _launched(path, changes)
    if launched is None:
        name, document, question = catalog.read(argument, path)
        known = not isinstance(document, Mapping) or {*_FIELDS[Execution], BASE} & document.keys()
        if argument != "execution" or question or known:
            return name, document, question
        launched = _launched(path, changes)
        if launched is None:
            return name, document, question
    return Path(path).name, catalog.resolved_document(argument, launched, path), {}


def _launched(path: str, changes: Mapping[str, object]) -> Mapping[str, Any] | None:
    """Return the execution of a launch file, with a warning about unsupported settings; None for any other file."""
    stated = changes.get("num_procs")
    launch = _launch(path, stated if type(stated) is int else None)
    if launch is None:
        return None
    from calculon.launch.launch_files import warn_of_lost_settings

    warn_of_lost_settings(path, launch)
    return launch.execution


def launch_in(source: Any, num_procs: int | None = None) -> "Launch | None":
    """Return the content of a launch file; None for any other source of an execution.

    Args:
        source: The source of an execution.
        num_procs: Number of processors, if the file does not state it.
    """
    if not isinstance(source, (str, os.PathLike)) or os.fspath(source) == STDIN:
        return None
    path = os.fspath(source)
    try:
        return _launch(path)
    except SpecError as error:
        if num_procs is None or error.field != "processors":
            raise
    return _launch(path, num_procs)


def _launch(path: str, num_procs: int | None = None) -> "Launch | None":
    """Return a launch file; None for a catalog name, so that most commands do not import launchers."""
    if not os.path.isfile(path):  # noqa: PTH113 (Path raises for a null character)
        return None
    from calculon.launch.launch_files import launched_execution

    return launched_execution(path, num_procs)


def _no_source(argument: str, source: object) -> Problem:
    """Return the problem with a value that is not a source of a spec."""
    wanted = f"a catalog name, a path, a mapping with the fields of a file, or {_RECORDS[argument]}"
    for other, record in _RECORDS.items():
        if arguments.kind(source) == record:
            return Problem("", wanted, record, f"it belongs in the argument {other}")
    several = is_frame(source) or isinstance(source, (list, tuple))
    hint = "use evaluate for tables of executions" if several and argument == "execution" else ""
    return Problem(
        "", wanted, arguments.kind(source) if several else arguments.described(source), hint
    )


_RECORDS = {"model": "a Model", "execution": "an Execution", "system": "a System"}
"""Record type of each argument, with its article."""
