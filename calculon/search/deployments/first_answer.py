"""The best deployment of each kind: aggregated and disaggregated, with the released data types and with others."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from calculon.base.errors import Infeasible
from calculon.base.frozen import dataclass
from calculon.declarations.recipes import FLOAT4, FLOAT8
from calculon.declarations.result_records import DEPLOYMENT
from calculon.hardware.system import System
from calculon.search.deployments.deployment_search import nullable
from calculon.search.deployments.deployment_space import DeploymentSpace
from calculon.search.deployments.deployment_vocabulary import TYPES
from calculon.search.deployments.fewest_processors import fewest
from calculon.search.deployments.serving_search import searched
from calculon.serving.records.number_types import WEIGHT_TYPES
from calculon.serving.serve import Served

RELEASED = "as released"
"""Precision of the weights and caches that a question without other types means."""

WIDE = "BF16"
"""Precision that is wider than the released one of some models."""

AGGREGATED, DISAGGREGATED = "aggregated", "disaggregated"

_SHARES = range(4, 9)
"""Eighths of the processors of aggregated deployments on which disaggregated ones are tried, to find the fewest."""

_NARROWER = {"FP8": ("float8", FLOAT8), "FP4": ("nvfp4", FLOAT4)}
"""Types of weights by precision, and the engine that a machine needs to multiply them natively."""

_NARROW_INPUTS = "mxfp4_mxfp8"
"""Experts in MXFP4 with 8-bit inputs, an option of engines on Blackwell (vLLM, pull request 23696)."""

_WIDER = "bfloat16"

_UNLIKE = 0.75
"""Largest ratio of bytes per weight for which a type counts as narrower: scales alone make no other precision."""


@dataclass(frozen=True)
class Alternative:
    """The best deployment of a kind.

    Attributes:
        kind: :data:`AGGREGATED` or :data:`DISAGGREGATED`.
        precision: :data:`RELEASED`, or the name of other data types.
        served: Its figures; None if no deployment of this kind meets the limits.
    """

    kind: str
    precision: str
    served: Served | None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict, with a deployment in the form of files."""
        found = self.served
        if found is None:
            return {"kind": self.kind, "precision": self.precision, DEPLOYMENT: None}
        return {
            "kind": self.kind,
            "precision": self.precision,
            DEPLOYMENT: found.deployment.to_dict(),
            "batch": found.batch,
            "figures": {name: nullable(value) for name, value in found.stats.items()},
        }


def first_answer(space: DeploymentSpace, chosen: Served | None) -> tuple[Alternative, ...]:
    """Return the best deployment of each kind: the chosen one, then the other released one, then other data types.

    Other data types than the released ones change answers, so their deployments are only compared. Types are compared
    unless the question states any.

    Args:
        space: Deployments without separate prefill pools.
        chosen: The best of them; None if none meets the limits.
    """
    found: list[Alternative] = []
    for precision, types in precisions(space):
        # Wider types need more processors: they are no answer to the fewest.
        if precision == WIDE and not space.counts:
            continue
        own = replace(space, fix={**space.fix, **types})
        together = chosen if precision == RELEASED else best(own)
        found.append(Alternative(AGGREGATED, precision, together))
        counts = own.counts or _fewer(together)
        # Wider types only show what the released ones gain.
        if precision != WIDE:
            apart = best(replace(own, counts=counts, kinds=("matched",))) if counts else None
            found.append(Alternative(DISAGGREGATED, precision, apart))
    return tuple(found)


def alternatives_of(served: Served) -> tuple[Alternative, ...]:
    """Return the best deployments of each kind on the processors of a deployment that a search chose."""
    records = served.model, served.system, served.workload
    space = DeploymentSpace(*records, (served.deployment.num_procs,), {}, {})
    met = all(one.met for one in served.limits)
    return first_answer(space, served if met else None)


def best(space: DeploymentSpace) -> Served | None:
    """Return the best deployment of a space; None if none meets the limits."""
    try:
        found = searched(space) if space.counts else fewest(space).found
    except Infeasible:
        return None
    return found[0] if len(found) else None


def _fewer(served: Served | None) -> tuple[int, ...]:
    """Return counts up to the processors of a deployment."""
    if served is None:
        return ()
    count = served.deployment.num_procs
    return tuple(dict.fromkeys(-(-count * share // max(_SHARES)) for share in _SHARES))


def precisions(space: DeploymentSpace) -> Iterator[tuple[str, Mapping[str, tuple[str, ...]]]]:
    """Yield the precisions to compare, with the types of weights, experts and caches of each."""
    yield RELEASED, {}
    if not {*space.fix, *space.add}.isdisjoint(TYPES):
        return
    weights, experts = space.default("weights_dtype"), space.default("experts_dtype")
    most = weights if not space.model.mixes or experts == "same" else experts
    size = WEIGHT_TYPES[most].bytes
    for name, (narrow, engine) in _NARROWER.items():
        if WEIGHT_TYPES[narrow].bytes <= _UNLIKE * size and has_engine(space.system, engine):
            yield name, _types(narrow, "float8")
    if most == "mxfp4" and has_engine(space.system, FLOAT4):
        yield "MXFP8 inputs", {"experts_dtype": (_NARROW_INPUTS,)}
    if size < _UNLIKE * WEIGHT_TYPES[_WIDER].bytes:
        yield WIDE, _types(_WIDER, _WIDER)


def has_engine(system: System, engine: str) -> bool:
    """Return True if a machine multiplies a data type natively."""
    return engine in {*system.matrix, *(system.ext.matrix or {})}


def _types(weights: str, cache: str) -> Mapping[str, tuple[str, ...]]:
    return {"weights_dtype": (weights,), "experts_dtype": ("same",), "kv_dtype": (cache,)}
