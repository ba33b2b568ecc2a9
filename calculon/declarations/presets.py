"""Presets: defaults of execution fields for a framework, and the combinations that the framework cannot run.

A preset fills in the fields that an execution leaves out, restricts the candidates of a search, and refuses values that
the framework does not support. Each is a file of ``examples/presets``, with a reason for every entry.

``NAME@MONTH`` or ``NAME@YEAR`` (``megatron-lm@2024``) is the framework as it was at the end of that month or year: its
file states the entries that earlier releases had instead of the current ones. Executions record their values, and the
preset itself without a date.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Any

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations import catalog
from calculon.declarations.axes import MESH_AXES
from calculon.declarations.decode import decode
from calculon.declarations.execution import Execution
from calculon.declarations.expression import Expression
from calculon.declarations.fields import optional_defaults, shown
from calculon.declarations.files import SUFFIXES, document_suffix
from calculon.declarations.model import Model
from calculon.declarations.named_values import (
    CORRECTED,
    EDITION_NAMES,
    PRESETS,
    PUBLISHED,
)
from calculon.declarations.origin import digest_of
from calculon.declarations.preset_file import (
    Change,
    Entries,
    Entry,
    Limit,
    Practice,
    PresetFile,
    Uneven,
    month_of,
    plain,
)

PUBLISHED_FORMS, COMMON = PRESETS[:2]
"""Presets that are not frameworks: the published tool, and the options that all frameworks share."""


@dataclass(frozen=True, slots=True, eq=False)  # a kind is one of few constants
class PresetKind:
    """Kind of presets: of frameworks, which fill in executions, or of engines, which fill in deployments.

    Attributes:
        catalog: Kind of document in the catalog, and the field that names a preset.
        names: Presets of the catalog.
        base: Preset that a file changes by default; empty if its base has to be stated.
        file, entries: Records of a file, and of its fields.
        defaults: Defaults of fields that neither a file nor the preset states.
        order: Function from the text of a month or release to a value that grows in time; false for any other text.
        release: Words for a release in messages.
    """

    catalog: str
    names: tuple[str, ...]
    base: str
    file: type[PresetFile]
    entries: type[Entries]
    defaults: Mapping[str, Any]
    order: Callable[[str], Any]
    release: str


FRAMEWORKS = PresetKind(
    catalog="preset",
    names=PRESETS,
    base=COMMON,
    file=PresetFile,
    entries=Entries,
    defaults=optional_defaults(Execution),
    order=month_of,
    release="a month or a year",
)
"""Presets of training frameworks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Options of a framework.

    Attributes:
        name: Name as requested.
        family: One of :data:`~calculon.declarations.named_values.PRESETS`: itself, or the preset that it changes.
        base: Name of the preset that it changes; empty for none.
        title, framework, version: Description.
        source: Source of the entries, in addition to the source in each.
        entries: Fields in the order in which they are filled in.
        limits: Combinations that the framework cannot run.
        practice: Rules that its users follow.
        uneven: Layouts that a search tries if degrees do not divide the blocks; without any, it skips these degrees.
        since: First month whose releases it describes; empty if it describes the current ones only.
        changes: Changes of the framework since then.
        month: Month of its releases (YYYY-MM), or release of an engine; empty for the current ones.
        digest: SHA-256 of its files.
        kind: Kind of presets that it belongs to.
    """

    name: str
    family: str
    base: str
    title: str
    framework: str
    version: str
    source: str
    entries: Mapping[str, Entry] = field(default_factory=dict)
    limits: tuple[Limit, ...] = ()
    practice: tuple[Practice, ...] = ()
    uneven: tuple[Uneven, ...] = ()
    since: str = ""
    changes: tuple[Change, ...] = ()
    month: str = ""
    digest: str = ""
    kind: PresetKind = FRAMEWORKS

    def to_dict(self) -> dict[str, str]:
        """Return the name in the form that results carry, with the name of the base preset, and the hash."""
        base = {} if self.name == self.family else {"base": self.family}
        return {"name": self.name, **base, "sha256": self.digest}

    @property
    def published(self) -> bool:
        """True for the preset of the published tool: every default as published."""
        return self.family == PUBLISHED_FORMS

    @property
    def words(self) -> str:
        """Name, with framework and version if stated."""
        described = " ".join(filter(None, (self.framework, self.version)))
        return f"{self.name} ({described or self.title[0].lower() + self.title[1:]})"

    def tried(self, name: str) -> tuple[Any, ...] | None:
        """Return the values of a field that a search tries by default; None if the preset does not list any."""
        entry = self.entries.get(name)
        return None if entry is None or not entry.tries else entry.tries

    def practised(self, degrees: Mapping[str, float], names: Collection[str]) -> bool:
        """Return True if degrees follow the rules of practice that do not read a requested field.

        Args:
            degrees: Values of :data:`PRACTISED` or of :data:`OF_SEQUENCES`; rules that read other names are skipped.
            names: Fixed fields; rules that read them are skipped.
        """
        return all(
            any(name in names or name not in degrees for name in one.that.names)
            or bool(one.that.value(degrees.__getitem__))
            for one in self.practice
        )

    def problem(self, name: str, value: Any, place: str = "") -> Problem | None:
        """Return the problem with a value that the framework does not support, or None."""
        entry = self.entries.get(name)
        if entry is None or not entry.runs or value in entry.runs:
            return None
        several = "one of " if len(entry.runs) > 1 else ""
        wanted = f"{several}{', '.join(map(plain, entry.runs))}, as {self.name} runs it"
        hint = f"{_words_of(entry.runs)}; {entry.why}" if name == "fp8_recipe" else entry.why
        return Problem(place or name, wanted, plain(value), hint)

    def too_new(self, stated: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield the stated fields with values that only later releases than this month's support.

        Columns are not checked. Rules of executions know the current releases only.
        """
        if not self.month:
            return
        current = _preset(self.name.partition(AT)[0], (), self.kind)
        for name in self.entries:
            if name not in stated or isinstance(stated[name], np.ndarray):
                continue
            value = self._held(name, stated[name])
            problem = self.problem(name, value)
            if problem is not None and current.problem(name, value) is None:
                yield problem

    def runs(self, asked: Mapping[str, Any]) -> bool:
        """Return True if the framework can run the given fields; limits on unknown fields are not checked."""
        if any(self.problem(name, value) for name, value in asked.items()):
            return False
        known = self.completed(asked)
        readable = (one.that for one in self.limits if known.keys() >= {*one.that.names})
        try:
            return all(
                bool(one.value(lambda name: self._held(name, known[name]))) for one in readable
            )
        except (TypeError, ValueError, ArithmeticError):
            return False  # a malformed value, which the decoder reports

    def usual(self, execution: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value of each entry for a complete execution, regardless of the value that it states."""
        return {name: self.computed(name, execution) for name in self.entries}

    def computed(self, name: str, known: Mapping[str, Any], others: object = None) -> Any:
        """Return the value of the entry of a field, from other fields, or columns of them, as in files.

        Raises:
            LookupError, TypeError, ValueError, ArithmeticError: If it reads a missing or malformed field.
        """
        value = self.entries[name].value
        if not isinstance(value, Expression):
            return value

        def value_of(name: str) -> Any:
            if name in self.kind.entries.others:
                return getattr(others, name, self.kind.entries.others[name])
            return self._held(name, known[name]) if name in known else self.kind.defaults[name]

        return value.value(value_of)

    def completed(self, stated: Mapping[str, Any], others: object = None) -> dict[str, Any]:
        """Return fields of a spec, or columns of a table, with missing fields filled in.

        A field whose expression reads a missing or malformed one remains missing: the decoder reports both.

        Args:
            stated: Fields as in a file.
            others: The model, or another object with the further names that values may read as attributes.
        """
        values = {**stated, self.kind.catalog: self.family}
        for name in self.entries:
            if name not in values:
                try:
                    values[name] = self.computed(name, values, others)
                except (LookupError, TypeError, ValueError, ArithmeticError):
                    continue
        return values

    def _held(self, name: str, value: Any) -> Any:
        """Return a stated value, or a column, in the form of a record: named values that are digits become text."""
        declaration = self.kind.entries.fields[name].declaration
        if not declaration.choices:
            return value
        if isinstance(value, np.ndarray) and value.ndim:
            return value.astype(str) if value.dtype.kind in "iu" else value
        return declaration.plain(value)


def find_preset(source: str, kind: PresetKind = FRAMEWORKS) -> Preset:
    """Return a preset by name, or from a file that changes one.

    Raises:
        SpecError: If no preset has this name, or for any error in a file.
    """
    given: object = source
    if not isinstance(given, str) or not given:
        place = kind.catalog
        raise SpecError(place, Problem("", "the name of a preset, or a file", shown(given)))
    return _preset(source, (), kind)


AT = "@"
"""Separator of the name of a preset and a month, year or release."""


def is_preset(name: object) -> bool:
    """Return True for the name of a preset, possibly with a month or year."""
    return isinstance(name, str) and name.partition(AT)[0] in PRESETS


@cache
def _preset(source: str, chain: tuple[str, ...], kind: PresetKind) -> Preset:
    if source in chain:
        wanted = "a base that does not lead back to this file"
        raise SpecError(source, Problem("base", wanted, " -> ".join((*chain, source))))
    place, at, asked = (source, "", "") if _is_file(source) else source.partition(AT)
    name, raw = catalog.load(kind.catalog, place)
    file = decode(kind.file, raw, place)
    # Presets of the catalog stand on their own; a user's file changes one, by default the common options.
    shipped = name in kind.names
    if not shipped and (problems := list(_beyond(file))):
        raise SpecError(source, problems)
    below = file.base or ("" if shipped else kind.base)
    current = _preset(below, (*chain, source), kind) if below else None
    since = file.since or (current.since if current else "")
    month = _month(kind, name, since, asked) if at else ""
    base = _preset(f"{below}{at}{asked}", (*chain, source), kind) if current and at else current
    earlier = _earlier(file.changes, month, kind.order)
    entries = {**(base.entries if base else {}), **file.fields, **earlier}
    content = [_without_about(raw), base.digest] if base else _without_about(raw)
    return Preset(
        name=f"{name}{at}{asked}",
        family=name if base is None or shipped else base.family,
        base=base.name if base else "",
        title=file.title,
        framework=file.framework or (base.framework if base else ""),
        version=f"as of {month}" if month else file.version or (base.version if base else ""),
        source=file.source,
        entries=entries,
        limits=(*(base.limits if base else ()), *file.limits),
        practice=(*(base.practice if base else ()), *file.practice),
        uneven=_offered(file.uneven or (base.uneven if base else ()), entries),
        since=since,
        changes=(*(base.changes if base else ()), *file.changes),
        month=month,
        digest=digest_of([content, month] if month else content),
        kind=kind,
    )


def _month(kind: PresetKind, name: str, since: str, asked: str) -> str:
    """Return the month, or the release, of the requested releases of a preset."""
    place = f"{name}{AT}{asked}"
    if not since:
        dated = ", ".join(one for one in kind.names if _preset(one, (), kind).since)
        problem = Problem("", f"{name}, which has no dates", place, f"presets with dates: {dated}")
        raise SpecError(place, problem)
    if not kind.order(asked):
        wanted = f"{name}{AT} and {kind.release}, such as {name}{AT}{since}"
        raise SpecError(place, Problem("", wanted, place))
    month = month_of(asked) or asked
    if kind.order(month) < kind.order(since):
        wanted = f"{kind.release} from {since} on, the first that {name} describes"
        hint = f"{OLDEST} is Megatron-LM of 2020 to 2022" if name.startswith(FRAMEWORK) else ""
        raise SpecError(place, Problem("", wanted, asked, hint))
    return month


def _earlier(
    changes: Sequence[Change], month: str, order: Callable[[str], Any]
) -> dict[str, Entry]:
    """Return the entries that the releases of a month had instead of the current ones; none for an empty month."""
    found: dict[str, Entry] = {}
    # From the latest change back, so that of several changes of a field the next one after the month counts.
    for one in sorted(changes, key=lambda one: order(one.before), reverse=True):
        if month and order(month) < order(one.before):
            found |= one.fields
    return found


def _offered(layouts: Sequence[Uneven], entries: Mapping[str, Entry]) -> tuple[Uneven, ...]:
    """Return the layouts that the framework supports."""
    known = entries["pp_layout"].runs if "pp_layout" in entries else ()
    return tuple(one for one in layouts if not known or one.pp_layout in known)


def _without_about(raw: object) -> object:
    """Return the document of a preset without its aliases, which do not affect results."""
    return {k: v for k, v in raw.items() if k != "about"} if isinstance(raw, Mapping) else raw


def _beyond(file: PresetFile) -> Iterator[Problem]:
    """Yield statements on the framework itself in a file that changes a preset; only the base may make them."""
    why = "support and limits of the framework are stated by the base preset"
    if file.limits:
        yield Problem(
            "limits", "nothing in a user-defined preset", f"{len(file.limits)} of them", why
        )
    for name, entry in file.fields.items():
        if entry.runs:
            place = f"fields.{name}.runs"
            yield Problem(place, "nothing in a user-defined preset", "a list", why)


def agreed(
    edition: str | None, stated: str | None, file: str = "preset", usual: str = COMMON
) -> tuple[str, Preset]:
    """Return the edition and the preset of an execution; each may be derived from the other.

    If no edition is stated, it is the one that the preset needs: published, or corrected for a framework. If no preset
    is stated, it is the published forms for edition published, else the `usual` one. `file` is named in messages.

    Raises:
        SpecError: If no preset has this name, and for a framework in the published edition.
    """
    if stated is None:
        edition = edition or PUBLISHED
        return edition, find_preset(PUBLISHED_FORMS if edition == PUBLISHED else usual)
    preset = find_preset(stated)
    needed = PUBLISHED if preset.published else CORRECTED
    if edition == PUBLISHED != needed:
        wanted = f"{CORRECTED}, which preset={stated} needs"
        problem = Problem("edition", wanted, PUBLISHED, "the published edition has no presets")
        raise SpecError(file, problem)
    return edition or needed, preset


FRAMEWORK = "megatron-lm"
"""Default preset on processors that the framework supports."""

OLDEST = "megatron-lm-2021"
"""Preset of the oldest releases of the default framework."""

ON_FEW = "torchtitan"
"""Default preset on fewer than :data:`FEW` processors, where sharding parameters (FSDP) is the common choice."""

FEW = 16
"""Number of processors from which the default is :data:`FRAMEWORK`: two nodes of 8."""

RUNS_ON = ("NVIDIA", "AMD")
"""Makers of processors that both frameworks support."""


def usual_preset(
    family: str,
    asked: Mapping[str, Any],
    options: Iterable[Mapping[str, Any]] = (),
    model: Model | None = None,
) -> str:
    """Return the default preset of edition ``corrected``.

    Every command uses it for a plan, a search, and an execution that leaves out fields of the published tool. An
    execution that states all of them names no framework; there ``common`` fills in the others and refuses nothing.

    Args:
        family: Maker and generation of the processors, from the system file.
        asked: Requested execution fields. Their ``num_procs``, or else the product of their degrees, decides: below
            :data:`FEW` the preset is :data:`ON_FEW`, if it supports all requested fields.
        options: Further requested fields; each mapping is checked separately.
        model: The model to run. :data:`ON_FEW` recomputes operators of a block by default, which is not modeled for
            experts and for blocks that are not an attention and then an MLP.

    >>> [usual_preset("NVIDIA Hopper", {"num_procs": count}) for count in (8, 64)]
    ['torchtitan', 'megatron-lm']
    >>> usual_preset("NVIDIA Hopper", {"num_procs": 8, "fp8_recipe": "blockwise"})
    'megatron-lm'
    >>> usual_preset("Google TPU", {"num_procs": 8})
    'common'
    """
    if family and not family.startswith(RUNS_ON):
        return COMMON
    few = find_preset(ON_FEW)
    # Otherwise the limits of ON_FEW would refuse the operators that it recomputes by default.
    modeled = model is None or (model.recomputes_operators and not model.mixes)
    is_few = modeled and 0 < _processors(asked) < FEW
    return ON_FEW if is_few and all(map(few.runs, (asked, *options))) else FRAMEWORK


def _processors(asked: Mapping[str, Any]) -> int:
    """Return the number of processors of an execution; 0 if it states neither that nor its replicas."""
    if "num_procs" in asked:
        return asked["num_procs"] if isinstance(asked["num_procs"], int) else 0
    degrees = [asked.get(axis.degree, 1) for axis in MESH_AXES]
    stated = "data_par" in asked and all(isinstance(one, int) for one in degrees)
    return math.prod(degrees) if stated else 0


def _is_file(stated: object) -> bool:
    """Return True if a stated preset is a file."""
    return isinstance(stated, str) and document_suffix(stated) in SUFFIXES


def filled(
    stated: Mapping[str, Any],
    edition: str | None = None,
    preset: str | None = None,
    file: str = "preset",
    usual: str = COMMON,
    model: Model | None = None,
) -> tuple[Mapping[str, Any], Preset | None]:
    """Return fields of an execution (or columns of similar executions) completed by their preset, and that preset.

    Malformed fields are returned unchanged, without a preset: the decoder reports them.

    Args:
        stated: The stated fields.
        edition, preset: Edition and preset that replace the stated ones.
        file: Source of the fields, for messages.
        usual: Preset of edition ``corrected`` if none is named.
        model: Model that the executions run; a dense one if left out.

    Raises:
        SpecError: As in :func:`agreed`.
    """
    named = stated.get("edition") if edition is None else edition
    framework = stated.get("preset") if preset is None else preset
    known = preset is not None or framework is None or is_preset(framework) or _is_file(framework)
    if not known or named not in (None, *EDITION_NAMES):
        return stated, None
    chosen, found = agreed(named, framework, file, usual)
    if problems := list(found.too_new(stated)):
        raise SpecError(file, problems)
    return found.completed({**stated, "edition": chosen}, model), found


_MANY = 3
"""Number of missing fields up to which each is reported."""

_EITHER = Problem("num_procs", "num_procs or data_par; the other follows", "neither")


def causes(
    problems: Sequence[Problem],
    stated: Mapping[str, Any],
    whole: Mapping[str, Any],
    entries: Mapping[str, Any],
) -> list[Problem]:
    """Return the problems of an execution, without follow-up problems.

    Args:
        problems: Problems from the decoder.
        stated, whole: The stated fields, and all fields after the preset filled in its values.
        entries: Fields that the preset can fill in.
    """
    found = [one for one in problems if one.field in stated or one.field not in (*entries, *whole)]
    if entries and not {"num_procs", "data_par"} & stated.keys():
        found.append(_EITHER)
    elif "data_par" in whole and "data_par" not in stated and not found:
        # data_par was derived from num_procs and the other degrees, so a wrong value means that they do not divide.
        parts = ("context_par",) if whole.get("context_par", 1) != 1 else ()
        names = ("tensor_par", *parts, "pipeline_par")
        degrees = " * ".join(shown(whole.get(name)) for name in names)
        wanted = f"a multiple of {' * '.join(names)} = {degrees}, since data_par is left out"
        found.append(Problem("num_procs", wanted, shown(stated.get("num_procs"))))
    usual = find_preset(COMMON).entries
    absent = [one.field for one in found if one.field in usual and one.field not in stated]
    if not entries and "edition" not in stated and len(absent) > _MANY:
        left = [one for one in found if one.field not in absent]
        wanted = f"{CORRECTED}, or a base such as megatron-lm, to fill in missing fields"
        missing = f"nothing, and no {', '.join(name for name in absent if name != 'num_procs')}"
        return [*left, Problem("edition", wanted, missing)]
    return found or list(problems)


def lacking(preset: Preset, value_of: Callable[[str], Any]) -> Iterator[Problem]:
    """Yield a problem for each value of an execution that a framework does not support.

    Args:
        value_of: Function that returns the value of an execution or model field.
    """
    for name in preset.entries:
        if problem := preset.problem(name, value_of(name)):
            yield problem


_SHOWN = 4
"""Number of fields of a violated limit that a message shows with values that are off, too."""


def refused(preset: Preset, value_of: Callable[[str], Any]) -> Iterator[tuple[Limit, Problem]]:
    """Yield the limits of a framework that an execution violates; `value_of` as in :func:`lacking`."""
    for limit in preset.limits:
        if not limit.that.value(value_of):
            values = {name: value_of(name) for name in limit.that.names}
            # Of many fields, those that are off distract from the combination.
            stated = {name: one for name, one in values.items() if one or len(values) <= _SHOWN}
            given = ", ".join(f"{name}={plain(one)}" for name, one in stated.items())
            wanted = f"a combination that {preset.name} runs"
            yield limit, Problem(limit.that.names[0], wanted, given, limit.why)


def _words_of(recipes: Sequence[Any]) -> str:
    """Return the precisions of recipes in the words of ``--dtype``."""
    from calculon.declarations.spellings.precisions import PRECISIONS  # only for messages

    words = [word for word, fields in PRECISIONS.items() if fields.get("fp8_recipe") in recipes]
    return f"dtype {', '.join(words)}" if words else "no dtype of 8 bits"
