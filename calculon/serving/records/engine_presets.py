"""Presets of inference engines: the defaults of deployment fields that an engine runs without any option.

They are files of ``examples/engines`` in the form of presets of frameworks. ``NAME@RELEASE`` (``vllm@0.9``) is the
engine as of that release. A deployment that states an engine is completed with its defaults; one that names no engine,
or an engine without a preset, keeps the defaults of its fields.
"""

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import GIB
from calculon.declarations.fields import SpecField, declare, optional_defaults, spec_fields
from calculon.declarations.model import Model
from calculon.declarations.preset_file import Change, Entries, PresetFile
from calculon.declarations.presets import Preset, PresetKind, find_preset
from calculon.declarations.serving_classes import PRESET_ENGINES, engine_name, release_order
from calculon.hardware.system import System
from calculon.serving.records.deployment import Deployment

ENGINE = "engine"
"""Field that names the engine of a deployment."""

_FIELDS = {one.key: one for one in spec_fields(Deployment)}

UNKNOWN_MACHINE = {"memory_gib": 80.0, "generation": "NVIDIA Hopper"}
"""Figures of a processor that defaults of engines depend on, if no machine is known: the most common one in use."""


class EngineEntries(Entries):
    """Fields of a deployment that an engine fills in."""

    subject: ClassVar[str] = "a deployment"
    fields: ClassVar[Mapping[str, SpecField]] = _FIELDS
    arguments: ClassVar[Collection[str]] = (ENGINE, "num_procs", "prefill")
    others: ClassVar[Mapping[str, Any]] = optional_defaults(Model) | UNKNOWN_MACHINE


def _not_a_release(text: str, place: str) -> list[Problem]:
    known = release_order(text)
    return [] if known else [Problem(place, "a release, such as 0.11", repr(text))]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChange(Change):
    """Change of an engine: the entries that releases before it had instead of the current ones."""

    fields: EngineEntries = declare("entries of the releases before it")

    def problems(self, path: str) -> list[Problem]:
        """Return a problem for a text that is not a release."""
        return _not_a_release(self.before, f"{path}.before")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFile(PresetFile):
    """Preset of an engine as stated in its file."""

    changes: tuple[EngineChange, ...] = declare("changes of the engine since then", default=())
    fields: EngineEntries = declare("fields of a deployment")

    def problems(self, path: str) -> list[Problem]:
        """Return the problem with the first release."""
        return _not_a_release(self.since, f"{path}.since" if path else "since")


ENGINE_PRESETS = PresetKind(
    catalog=ENGINE,
    names=PRESET_ENGINES,
    base="",
    file=EngineFile,
    entries=EngineEntries,
    defaults={
        one.key: one.default / one.declaration.scale
        if one.declaration.scale != 1.0 and one.default is not None
        else one.default
        for one in _FIELDS.values()
        if one.declaration.optional
    },
    order=release_order,
    release="a release",
)
"""Presets of inference engines."""


def find_engine(engine: str) -> Preset | None:
    """Return the preset of an engine, possibly with a release; None if it has none.

    Raises:
        SpecError: For a release before the first that the preset describes.
    """
    known = engine_name(engine) in PRESET_ENGINES
    return find_preset(engine, ENGINE_PRESETS) if known else None


def facts_of(model: Model | None = None, system: System | None = None) -> SimpleNamespace:
    """Return the fields of a model, and the figures of a machine, that defaults of engines depend on."""
    of_machine = UNKNOWN_MACHINE
    if system is not None:
        memory = float(system.mem1.capacity) / GIB
        of_machine = {"memory_gib": memory, "generation": system.provenance.family}
    of_model = {} if model is None else {n: getattr(model, n) for n in optional_defaults(Model)}
    return SimpleNamespace(**of_model, **of_machine)


def with_engine(
    stated: Mapping[str, Any], facts: SimpleNamespace | None = None, file: str = "deployment"
) -> Mapping[str, Any]:
    """Return fields of a deployment, with missing fields filled in by the engine that they name.

    Args:
        stated: Fields in the form of a file.
        facts: Model and machine (:func:`facts_of`); the most common machine if left out.
        file: Source of the fields, for messages.

    Raises:
        SpecError: For stated values that the engine does not support.
    """
    engine = stated.get(ENGINE)
    preset = find_engine(engine) if isinstance(engine, str) else None
    if preset is None:
        return stated
    if problems := [one for n in stated if (one := preset.problem(n, stated[n])) is not None]:
        raise SpecError(file, problems)
    # Expressions return numpy scalars, which files cannot hold.
    found = {
        name: value.item() if hasattr(value, "item") else value
        for name, value in preset.completed(stated, facts).items()
    }
    return {**found, ENGINE: engine}
