"""Classes of served models (model, engine, hardware, load), used to compare published rows with a deployment."""

import re
from typing import Any, ClassVar

from calculon.base.frozen import dataclass
from calculon.declarations.fields import NamedValues, declare
from calculon.declarations.model import Model

DENSE, MOE, LATENT = "dense", "MoE", "latent attention"
"""Kinds of models."""

KINDS = {
    DENSE: "all models not listed below",
    MOE: "models with several experts",
    LATENT: "models with multi-head latent attention, with or without experts",
}
"""Kinds of models, each with its rule."""

ANY_ENGINE = "any"
"""Engine of a deployment that does not state one."""

ENGINES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "nim": "NIM",
    "llama.cpp": "llama.cpp",
}
"""Names of engines with published rows; launch scripts identify their engine by the same keys."""

PRESET_ENGINES = ("vllm", "sglang", "tensorrt-llm")
"""Engines with a preset of their defaults in ``examples/engines``."""

RELEASE = "@"
"""Separator of the name of an engine and its release."""

_RELEASES = re.compile(r"\d+(\.\d+)*")


class Engines(NamedValues):
    """Names of engines; those with a preset may have a release: ``vllm@0.11``."""

    __slots__ = ()
    pattern: ClassVar[str] = rf"^({'|'.join(PRESET_ENGINES)}){RELEASE}{_RELEASES.pattern}$"

    @property
    def wanted(self) -> str:
        """Allowed values, for a message."""
        return f"{super().wanted}, or {PRESET_ENGINES[0]}{RELEASE}RELEASE"

    def __contains__(self, value: object) -> bool:
        """Return True for one of the names, and for an engine with its release."""
        released = isinstance(value, str) and re.match(self.pattern, value) is not None
        return super().__contains__(value) or released

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a value."""
        return {"anyOf": [{"enum": [*self]}, {"type": "string", "pattern": self.pattern}]}


ENGINE_CHOICES = Engines((ANY_ENGINE, *ENGINES))
"""Values of the field ``engine`` of a deployment."""


def engine_name(engine: str) -> str:
    """Return the name of an engine without its release.

    >>> engine_name("vllm@0.11"), engine_name("any")
    ('vllm', 'any')
    """
    return engine.partition(RELEASE)[0]


def release_order(text: str) -> tuple[int, ...]:
    """Return a release as numbers, which grow in time; empty for any other text.

    >>> release_order("0.9") < release_order("0.11"), release_order("new")
    (True, ())
    """
    return tuple(map(int, text.split("."))) if _RELEASES.fullmatch(text) else ()


SINGLE, LATENCY, FULL = "single stream", "latency-bound", "saturated"
"""Loads, by the number of sequences that a replica generates concurrently."""

FULL_SHARE = 0.5
"""Share of the batch limit above which a replica is saturated."""

LOADS = {
    SINGLE: "at most one sequence at a time in a replica",
    LATENCY: f"more, and less than {FULL_SHARE:g} of what memory and max_batch allow",
    FULL: f"at least {FULL_SHARE:g} of what memory and max_batch allow",
}
"""Loads, each with its rule: ``concurrency`` against ``max_concurrency``."""

_ROUNDING = 1e-9  # a concurrency of 1 is computed, so it may exceed 1 by rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedClass:
    """Class of a published row or of a deployment."""

    unknown_keys: ClassVar[str] = "ignored"

    kind: str = declare("kind of model", choices=tuple(KINDS))
    engine: str = declare("engine", choices=(ANY_ENGINE, *ENGINES))
    generation: str = declare("generation of processors, as in system files; empty: unknown")
    load: str = declare("load of a replica", choices=tuple(LOADS))
    apart: bool = declare("whether some processors only prefill", default=False)

    @classmethod
    def of(
        cls,
        model: Model,
        engine: str,
        generation: str,
        concurrency: float,
        most: float,
        *,
        apart: bool = False,
    ) -> "ServedClass":
        """Return the class of a served model.

        Args:
            model: The model.
            engine: One of :data:`ENGINES`, possibly with a release, or :data:`ANY_ENGINE`.
            generation: ``about.family`` of the system.
            concurrency: Mean number of sequences that a replica generates concurrently.
            most: Largest number that memory and ``max_batch`` allow.
            apart: True if some processors only prefill.
        """
        kind = LATENT if model.latent else MOE if model.mixes else DENSE
        load = FULL if concurrency >= FULL_SHARE * most else LATENCY
        if concurrency <= 1 + _ROUNDING:
            load = SINGLE
        return cls(
            kind=kind, engine=engine_name(engine), generation=generation, load=load, apart=apart
        )

    @property
    def in_words(self) -> str:
        """The class in words: ``MoE models under vLLM on NVIDIA Hopper, saturated``."""
        engine = ENGINES.get(self.engine, "any engine")
        machine = self.generation or "processors of an unknown generation"
        apart = ", prefill on other processors" if self.apart else ""
        return f"{self.kind} models under {engine} on {machine}, {self.load}{apart}"


CLASS_FIELDS = ("kind", "engine", "generation", "load", "apart")
"""Fields by which classes of published rows differ, in file order."""
