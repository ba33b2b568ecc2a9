"""Fit parameters of a system to the times of whole training steps."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, get_args

import numpy as np

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.calibrate.fit_result import Fitted, copied
from calculon.calibrate.logs import Logs, Step
from calculon.calibrate.parts import provenance, quietly_decoded
from calculon.calibrate.readers import Row
from calculon.calibrate.solve import Solution, Unknown, cross_validated, held_out, solve, spreads
from calculon.calibrate.steps import rounded
from calculon.declarations.named_values import PUBLISHED
from calculon.editions import EDITIONS
from calculon.estimate.evaluate import evaluate_rows
from calculon.hardware.kernels.kernel import ProductKind
from calculon.hardware.residuals import TRAINING
from calculon.hardware.system import System
from calculon.plan.plan import Plan

WIDEST = 20.0
"""Largest factor by which an efficiency may change, up or down."""

DIGITS = 6
"""Significant digits of a fitted value."""

FULL_PRECISION = "float32"
"""The type whose products do not run on tensor cores."""

_OF_BANDWIDTH = {"efficiency", "backward", "memory_efficiency"}
"""Fields of the laws ``stream`` and ``tiles`` that are shares of the tier-1 bandwidth."""

_EXACT = 12  # significant digits of a scaled efficiency


@dataclass(frozen=True, slots=True)
class Factor:
    """A system parameter that the times of training steps determine.

    Attributes:
        change: Function that writes a value into a document that shares no objects.
        seconds: True for a time; otherwise the value multiplies efficiencies, capped at 1.
        extension: True if its values are under ``ext``, which edition ``sc23`` ignores.
    """

    name: str
    change: Callable[[dict[str, Any], float], None]
    seconds: bool = False
    extension: bool = False


def _curve(pairs: list[Any], factor: float) -> list[list[float]]:
    """Return an efficiency curve with its efficiencies multiplied by a factor and capped at 1."""
    return [[size, _capped(value * factor)] for size, value in pairs]


def _capped(efficiency: float) -> float:
    return min(1.0, rounded(efficiency, _EXACT))


def _scale(record: dict[str, Any], key: str, factor: float) -> None:
    record[key] = _curve(record[key], factor)


def _mem1(document: dict[str, Any], factor: float) -> None:
    """Scale all shares of the tier-1 bandwidth: the curve of the memory, of all traffic, of kernels and of GEMM."""
    _scale(document["mem1"], "MB_efficiency", factor)
    extension = document.get("ext", {})
    stated = (extension.get("gemm", {}), *extension.get("kernels", {}).values())
    for rate in (extension.get("traffic", {}), *(one for kind in stated for one in kind.values())):
        for key in _OF_BANDWIDTH & set(rate):
            rate[key] = _capped(rate[key] * factor)


def _products(document: dict[str, Any], factor: float, *, excluded: str = "") -> None:
    """Scale the rates of matrix products of all types except `excluded`."""
    extension = document.get("ext", {})
    for engines in (document["matrix"], extension.get("matrix", {})):
        for name, engine in engines.items():
            if name != excluded:
                _scale(engine, "gflops_efficiency", factor)
    for name, gemm in extension.get("gemm", {}).items():
        if name != excluded:
            gemm["max_efficiency"] = _capped(gemm["max_efficiency"] * factor)
    for kind in get_args(ProductKind):
        _rates(document, kind, factor, excluded=excluded)


def _rates(document: dict[str, Any], kind: str, factor: float, *, excluded: str = "") -> None:
    """Scale the rates that ``ext.kernels`` states for a kind of kernel."""
    for name, rate in document.get("ext", {}).get("kernels", {}).get(kind, {}).items():
        if name == excluded:
            continue
        if "kernels" in rate:
            for one in rate["kernels"].values():
                for which in ("forward", "backward"):
                    pairs = one[which]["shares"]
                    one[which]["shares"] = [
                        [width, _capped(share * factor)] for width, share in pairs
                    ]
        elif rate.get("law") == "calls":
            continue  # as fast as other products, whose rate is scaled
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
    Factor("tensor_cores", partial(_products, excluded=FULL_PRECISION)),
    Factor("vector", _vector),
    Factor("attention", _attention, extension=True),
    Factor("launch.kernel", partial(_launch, key="kernel"), seconds=True, extension=True),
    Factor("launch.step", partial(_launch, key="step"), seconds=True, extension=True),
)
"""Parameters of every system; each network adds one."""


def factors(system: System) -> Iterator[Factor]:
    """Yield the parameters of a system."""
    for one in FACTORS:
        if one.name != "attention" or any(kind == "attention" for kind, _ in system.ext.rates):
            yield one
    for i in range(len(system.networks)):
        yield Factor(f"networks[{i}]", partial(_network, number=i))


def chosen(names: Sequence[str], system: System) -> list[Factor]:
    """Return the parameters with the given names.

    Raises:
        SpecError: For an unknown name, with the known ones, and for a repeated name.
    """
    known = {factor.name: factor for factor in factors(system)}
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


def parameters(fitted: Sequence[Factor], values: Sequence[float]) -> Mapping[str, float]:
    """Return the values by name, rounded as in the file."""
    return {factor.name: rounded(v, DIGITS) for factor, v in zip(fitted, values, strict=True)}


FAR = 100.0
"""Ratio of predicted to measured values that only a wrong unit explains."""

KERNELS, LONGEST_KERNEL = (2e-6, 5e-6, 2e-5), 1e-3
"""Launch times from which the search begins, and the longest allowed one, in seconds."""

STEPS = (0.01, 0.2)
"""Start values of the kernel-free time of a step as shares of the median step, which is its upper bound."""


def predicted(steps: Sequence[Step], system: System) -> tuple[Array, Array]:
    """Return the step times in seconds and peak memory in bytes, each in the edition of its execution."""
    seconds, memory = np.empty(len(steps)), np.empty(len(steps))
    same: dict[tuple[Any, str], list[int]] = {}
    for i, step in enumerate(steps):
        same.setdefault((step.model, step.execution.edition), []).append(i)
    for (model, edition), members in same.items():
        plan = Plan.from_records(steps[i].execution for i in members)
        for part, batch in evaluate_rows(model, system, plan, EDITIONS[edition]):
            rows = np.array(members)[part]
            seconds[rows] = batch.times.total_time
            memory[rows] = batch.capacity.proc_mem_tier1_cap_req
    return seconds, memory


@dataclass(frozen=True)
class Training:
    """Measured steps, and the names of the parameters to fit to them."""

    logs: Logs
    names: Sequence[str]


@dataclass(frozen=True)
class _Fit:
    """A system document, the steps, and the parameters to fit."""

    document: Mapping[str, Any]
    file: str
    name: str
    logs: Logs
    factors: Sequence[Factor]

    def changed(self, values: Sequence[float]) -> dict[str, Any]:
        """Return the document with the values in place."""
        document: dict[str, Any] = copied(self.document)
        for factor, value in zip(self.factors, values, strict=True):
            factor.change(document, value)
        return document

    def times(self, rows: Sequence[Row], values: Sequence[float]) -> tuple[Array, Array]:
        """Return the step times in seconds and the peak memory in bytes of rows."""
        steps = [self.logs.steps[row.name] for row in rows]
        return predicted(steps, quietly_decoded(self.changed(values), self.file, self.name))

    def solved(self, rows: Sequence[Row], starts: Sequence[float] | None = None) -> Solution:
        """Return the best values for rows, starting from the usual values or from given ones."""
        self.check_count(rows)
        seconds = np.array([row.seconds for row in rows])
        unknowns = [_unknown(one, float(np.median(seconds))) for one in self.factors]
        if starts is not None:
            given = zip(unknowns, starts, strict=True)
            unknowns = [
                Unknown(one.name, one.low, one.high, (start,), one.scale) for one, start in given
            ]
        return solve(lambda values: self.times(rows, values)[0], seconds, unknowns)

    def check_count(self, rows: Sequence[Row]) -> None:
        """Refuse fewer rows than parameters."""
        if len(rows) < len(self.factors):
            wanted = f"at least {len(self.factors)} fitted steps, one for each parameter of --fit"
            hint = "measure more steps, fit fewer parameters, or hold out none (--hold-out 0)"
            raise SpecError(self.logs.files[0].file, Problem("", wanted, str(len(rows)), hint))

    def check_effects(self, rows: Sequence[Row]) -> None:
        """Refuse parameters that have no effect on any row."""
        neutral = [_range(one)[0] for one in self.factors]
        before = self.times(rows, neutral)[0]
        for i, one in enumerate(self.factors):
            changed = [*neutral[:i], _range(one)[1], *neutral[i + 1 :]]
            if np.allclose(self.times(rows, changed)[0], before, rtol=1e-9, atol=0):
                published = {self.logs.steps[row.name].execution.edition for row in rows}
                known = one.extension and published == {PUBLISHED}
                why = (
                    f"edition {PUBLISHED} ignores ext"
                    if known
                    else "it changes no step time: unused, or hidden by other work"
                )
                wanted = f"a parameter that the steps depend on, not {one.name}"
                raise SpecError("--fit", Problem("", wanted, why))

    def check_determined(self, solution: Solution) -> None:
        """Refuse parameters that the fitted rows do not determine."""
        if undetermined := solution.undetermined([one.name for one in self.factors]):
            task, why = undetermined
            hint = "fit fewer parameters, or add steps that they affect differently; efficiencies are capped at 1"
            raise SpecError("--fit", Problem("", f"steps that {task}", why, hint))


def _unknown(factor: Factor, median: float) -> Unknown:
    if not factor.seconds:
        return Unknown(factor.name, 1 / WIDEST, WIDEST, (1.0,))
    if factor.name.endswith("kernel"):
        return Unknown(factor.name, 0.0, LONGEST_KERNEL, KERNELS, KERNELS[0])
    return Unknown(factor.name, 0.0, median, [share * median for share in STEPS], 0.01 * median)


def _range(factor: Factor) -> tuple[float, float]:
    """Return two values of a parameter that are far enough apart to show any effect."""
    return (0.0, LONGEST_KERNEL) if factor.seconds else (1.0, 0.5)


def fit_training(
    document: Mapping[str, Any], file: str, name: str, training: Training, hold_out: float
) -> tuple[dict[str, Any], Fitted, dict[str, Any], list[str]]:
    """Fit system parameters to measured training steps.

    Args:
        document: System document; it is not changed.
        file, name: Path and name of the system.
        training: Steps, and the names of the parameters.
        hold_out: Share of the groups that are predicted but not fitted.

    Returns:
        The new document, the steps with their times, the provenance of the fit, and notes.

    Raises:
        SpecError: For times in the wrong unit, and for parameters that the steps do not determine.
    """
    logs, system = training.logs, quietly_decoded(document, file, name)
    fit = _Fit(document, file, name, logs, chosen(training.names, system))
    rows = logs.rows
    times, needed = predicted([logs.steps[row.name] for row in rows], system)
    _check_units(rows, times)
    notes = [*logs.notes, *_compared_memory(fit, rows, needed, system)]
    held = held_out(rows, hold_out)
    if hold_out > 0 and not held.any():
        notes.append(f"{TRAINING}: all rows are in one group, so none is held out")
    used = [row for row, out in zip(rows, held, strict=True) if not out]
    fit.check_count(used)
    fit.check_effects(used)
    found = fit.solved(used)
    fit.check_determined(found)
    by_name = parameters(fit.factors, found.values)
    values = list(by_name.values())
    notes += _notes(fit.factors, values)
    if len(used) == len(fit.factors):
        notes.append(
            f"{TRAINING}: as many parameters as fitted steps, so the residuals of the fit are meaningless"
        )
    seconds, memory = fit.times(rows, values)
    measured = np.array([logs.steps[row.name].memory for row in rows])
    fitted = Fitted(TRAINING, "", rows, held, held & False, seconds, None, (measured, memory))
    record = provenance(fitted, by_name, logs.files, 0, _spreads(fit, fitted, values))
    record |= {"parameters_are": "factors of efficiencies; of launch.* seconds"}
    return fit.changed(values), fitted, record, notes


def _spreads(fit: _Fit, fitted: Fitted, start: Sequence[float]) -> Sequence[Mapping[str, Any]]:
    """Return the spreads of measured steps, with each step predicted by a fit without its group."""

    # Refits start from the values of the full fit: leaving out one group moves them little.
    def again(rows: Sequence[Row]) -> Callable[[Sequence[Row]], Array]:
        values = fit.solved(rows, start).values
        return lambda some: fit.times(some, values)[0]

    times, groups = cross_validated(fitted.rows, fitted.held, again)
    editions = {fit.logs.steps[row.name].execution.edition for row in fitted.rows}
    of = {"edition": editions.pop()} if len(editions) == 1 else {}
    return [{**one, **of} for one in spreads(fitted.rows, times, groups, 0.0)]


def _check_units(rows: Sequence[Row], times: Array) -> None:
    """Refuse times that are far from the base system's predictions, before anything is fitted."""
    for row, time in zip(rows, times.tolist(), strict=True):
        if not 1 / FAR < time / row.seconds < FAR:
            wanted = f"a time within {FAR:g} times the {time:.4g} s that the base system predicts"
            hint = "give seconds of one step, not milliseconds or the time of several steps"
            raise row.refuse("seconds", wanted, f"{row.seconds:g} s", hint)


def _compared_memory(fit: _Fit, rows: Sequence[Row], needed: Array, system: System) -> list[str]:
    """Check the unit of peak memory, and note steps that do not fit by the model: it overestimates their memory.

    Raises:
        SpecError: For a measured peak that is far from the estimate.
    """
    for row, need in zip(rows, needed.tolist(), strict=True):
        peak = fit.logs.steps[row.name].memory
        if not math.isnan(peak) and not 1 / FAR < need / peak < FAR:
            wanted = f"bytes within {FAR:g} times the {need:.4g} that the model predicts"
            raise row.refuse("memory_bytes", wanted, f"{peak:g}", "give bytes, not GB")
    large = needed > system.usable[0]
    if not large.any():
        return []
    first = rows[int(large.argmax())]
    return [
        f"{TRAINING}: {int(large.sum())} of {len(rows)} steps need more memory than {system.name} has by the model"
        f" (first: {first.name}, {first.place})"
    ]


def _notes(fitted: Sequence[Factor], values: Sequence[float]) -> list[str]:
    """Describe the fitted values, and note those at a bound of the search."""
    texts, notes = [], []
    for factor, value in zip(fitted, values, strict=True):
        texts.append(
            f"{factor.name} {value:.4g} s" if factor.seconds else f"{factor.name} x {value:.4g}"
        )
        if not factor.seconds and not 1.001 / WIDEST < value < WIDEST / 1.001:
            notes.append(f"{TRAINING}: {factor.name} is at its bound: the cause is something else")
    return [f"{TRAINING}: {', '.join(texts)}; efficiencies are at most 1", *notes]
