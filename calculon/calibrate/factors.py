"""Parameters of a system that are fitted to training steps: by name, the change of its document."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, get_args

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.calibrate.steps import rounded
from calculon.hardware.kernels.kernel import ProductKind
from calculon.hardware.system import System

WIDEST = 20.0
"""Largest factor by which an efficiency may change, either way."""

DIGITS = 6
"""Significant digits of a fitted value."""

FULL_PRECISION = "float32"
"""The type whose products do not run on tensor cores."""

_OF_BANDWIDTH = {"efficiency", "backward", "memory_efficiency"}
"""Members of the laws ``stream`` and ``tiles`` that are shares of the bandwidth of tier 1."""

_EXACT = 12  # significant digits of a scaled efficiency


@dataclass(frozen=True, slots=True)
class Factor:
    """A parameter of a system that the times of whole steps determine.

    Attributes:
        change: Puts a value into a document of which no part is shared.
        seconds: It is a time; else it multiplies efficiencies, of which none gets above 1.
        extension: Its values are under ``ext``, which edition ``sc23`` ignores.
    """

    name: str
    change: Callable[[dict[str, Any], float], None]
    seconds: bool = False
    extension: bool = False


def _curve(pairs: list[Any], factor: float) -> list[list[float]]:
    """Return the pairs of an efficiency curve with efficiencies times a factor, still falling."""
    return [[size, _capped(value * factor)] for size, value in pairs]


def _capped(efficiency: float) -> float:
    return min(1.0, rounded(efficiency, _EXACT))


def _scale(one: dict[str, Any], key: str, factor: float) -> None:
    one[key] = _curve(one[key], factor)


def _mem1(document: dict[str, Any], factor: float) -> None:
    """Scale the shares of the bandwidth of tier 1: its curve, those of all traffic, of kernels and of products."""
    _scale(document["mem1"], "MB_efficiency", factor)
    extension = document.get("ext", {})
    stated = (extension.get("gemm", {}), *extension.get("kernels", {}).values())
    for rate in (extension.get("traffic", {}), *(one for kind in stated for one in kind.values())):
        for key in _OF_BANDWIDTH & set(rate):
            rate[key] = _capped(rate[key] * factor)


def _products(document: dict[str, Any], factor: float, *, apart: str = "") -> None:
    """Scale the rates of matrix products of all types, or of all but one."""
    extension = document.get("ext", {})
    for engines in (document["matrix"], extension.get("matrix", {})):
        for name, engine in engines.items():
            if name != apart:
                _scale(engine, "gflops_efficiency", factor)
    for name, gemm in extension.get("gemm", {}).items():
        if name != apart:
            gemm["max_efficiency"] = _capped(gemm["max_efficiency"] * factor)
    for kind in get_args(ProductKind):
        _rates(document, kind, factor, apart=apart)


def _rates(document: dict[str, Any], kind: str, factor: float, *, apart: str = "") -> None:
    """Scale the rates that ``ext.kernels`` states for a kind of kernel."""
    for name, rate in document.get("ext", {}).get("kernels", {}).get(kind, {}).items():
        if name == apart:
            continue
        if "kernels" in rate:
            for one in rate["kernels"].values():
                for which in ("forward", "backward"):
                    pairs = one[which]["shares"]
                    one[which]["shares"] = [
                        [width, _capped(share * factor)] for width, share in pairs
                    ]
        elif "law" in rate:
            rate["max_efficiency"] = _capped(rate["max_efficiency"] * factor)
        elif "curve" in rate:
            _scale(rate, "curve", factor)
        elif rate["values"] == "share":
            rate["table"] = [[*sizes, _capped(share * factor)] for *sizes, share in rate["table"]]
        else:
            rate["table"] = [
                [*sizes, rounded(seconds / factor, _EXACT)] for *sizes, seconds in rate["table"]
            ]


def _vector(document: dict[str, Any], factor: float) -> None:
    for engine in document["vector"].values():
        _scale(engine, "gflops_efficiency", factor)


def _attention(document: dict[str, Any], factor: float) -> None:
    for kernel in document["ext"].get("attention", {}).values():
        _scale(kernel, "efficiency", factor)
    _rates(document, "attention", factor)


def _launch(document: dict[str, Any], seconds: float, *, key: str) -> None:
    document.setdefault("ext", {}).setdefault("launch", {"kernel": 0.0})[key] = seconds


def _network(document: dict[str, Any], factor: float, *, number: int) -> None:
    network = document["networks"][number]
    network["efficiency"] = _capped(network["efficiency"] * factor)


FACTORS = (
    Factor("mem1", _mem1),
    Factor("matrix", _products),
    Factor("tensor_cores", partial(_products, apart=FULL_PRECISION)),
    Factor("vector", _vector),
    Factor("attention", _attention, extension=True),
    Factor("launch.kernel", partial(_launch, key="kernel"), seconds=True, extension=True),
    Factor("launch.step", partial(_launch, key="step"), seconds=True, extension=True),
)
"""All parameters but those of the networks, of which each system has its own number."""


def factors(system: System) -> Iterator[Factor]:
    """Yield the parameters of a system."""
    for one in FACTORS:
        if one.name != "attention" or any(kind == "attention" for kind, _ in system.ext.rates):
            yield one
    for i in range(len(system.networks)):
        yield Factor(f"networks[{i}]", partial(_network, number=i))


def chosen(names: Sequence[str], system: System) -> list[Factor]:
    """Return the parameters of some names.

    Raises:
        SpecError: For an unknown name, with a list of those known, and for one that is there twice.
    """
    known = {one.name: one for one in factors(system)}
    for name in names:
        if name not in known:
            wanted = f"parameters of {system.name}: {', '.join(known)}"
            raise SpecError("--fit", Problem("", wanted, f"'{name}'", nearest(name, list(known))))
        if names.count(name) > 1:
            raise SpecError("--fit", Problem("", "each parameter once", f"{name} twice"))
    if not names:
        wanted = f"names of parameters, with commas: {', '.join(known)}"
        raise SpecError("--fit", Problem("", wanted, "none"))
    return [known[name] for name in names]


def parameters(found: Sequence[Factor], values: Sequence[float]) -> Mapping[str, float]:
    """Return values by name, rounded as in the file."""
    return {one.name: rounded(v, DIGITS) for one, v in zip(found, values, strict=True)}
