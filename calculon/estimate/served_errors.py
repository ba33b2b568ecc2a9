r"""Ranges of figures of served models, by how far published rows were from the model.

The rows are those of ``validation/served.csv``, which ``scripts/render`` writes from the studies of served models under
``validation/serving``: measured over predicted values, each row with its class
(:class:`~calculon.declarations.serving_classes.ServedClass`) and its source. Nothing was fitted to them.

The logarithm of a ratio is taken to be a mean, plus the error that all rows of a source have in common, plus the error
of the row. For a class, rows like it count more (:data:`GAINS`), and each source counts alike, whatever rows it has. Of
the sources' weights `w` and means `m`, with the effective number of sources :math:`K = (\sum w)^2 / \sum w^2`, a row of
one more source has the variance

.. math:: \frac{K}{K - 1} \left(1 + \frac 1 K\right) \overline{(m - \bar m)^2} + \overline{(r - m)^2}

between and within sources. The range is that of a Student t distribution, whose degrees of freedom follow from those of
the parts: with few sources it is wide. A class that no row has is one more draw among classes: its range holds those of
all classes with rows, and is widened by the error that a class has, in quadrature.

Source: Higgins, Thompson and Spiegelhalter, *A re-evaluation of random-effects meta-analysis*, J. R. Stat. Soc. A 172
(2009), section 4 (prediction for a new study); Kish, *Survey Sampling* (1965), section 11.7 (effective number);
Satterthwaite, *An approximate distribution of estimates of variance components*, Biometrics Bulletin 2 (1946).
"""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations import catalog
from calculon.declarations.fields import declare
from calculon.declarations.result_numbers import number
from calculon.declarations.serving_classes import (
    ANY_ENGINE,
    CLASS_FIELDS,
    ENGINES,
    SINGLE,
    ServedClass,
)
from calculon.declarations.statistics import LEVEL
from calculon.estimate.source_errors import equal_weights
from calculon.estimate.memory_error import MemoryErrors

FILE = "validation/served.csv"
"""The file, below the root of the catalog."""

FIGURES = {"ttft": "time to first token", "tpot": "time per token", "output_rate": "tokens/s"}
"""Figures that published rows have, with their names."""

GAINS = {"kind": 3.0, "engine": 3.0, "generation": 1.0, "load": 1.0}
"""How much more a row counts that has the kind of model, the engine, the generation or the load in common.

As for training steps (:data:`calculon.estimate.run_table.GAINS`): software, and whether experts exchange rows, make
more of a difference than anything else. They were not tuned.
"""

FEWEST_SOURCES = 2
"""Sources below which nothing is known of the variance between sources."""

_LEAST_VARIANCE = 1e-12

_MOST_FREEDOM = 50.0
"""Degrees of freedom from which the ends of a range are those of a normal distribution to 2 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """A published figure of a served model.

    Attributes:
        figure: One of :data:`FIGURES`.
        of_class: Its class; the engine is known.
        source, study: Who published it, and its study under ``validation/``.
        ratio: The measured over the predicted value.
    """

    figure: str
    of_class: ServedClass
    source: str
    study: str
    ratio: float

    def to_dict(self) -> dict[str, Any]:
        """Return the cells of the file."""
        return {
            "figure": self.figure,
            **asdict(self.of_class),
            "source": self.source,
            "study": self.study,
            "ratio": f"{self.ratio:.4g}",
        }


COLUMNS = ("figure", *CLASS_FIELDS, "source", "study", "ratio")
"""Columns of the file."""


class Ends(NamedTuple):
    """Lower and upper end of a range of logarithms of measured over predicted values."""

    low: float
    high: float


@dataclass(frozen=True)
class Evidence:
    """Published rows of one figure; of the time to first token either of single streams, or of loaded replicas."""

    rows: tuple[PublishedRow, ...]

    def ends(self, of_class: ServedClass) -> Ends | None:
        """Return the range of a class; None with fewer than :data:`FEWEST_SOURCES` sources."""
        if of_class not in self._ranges:
            self._ranges[of_class] = self._ends(of_class)
        return self._ranges[of_class]

    def _ends(self, of_class: ServedClass) -> Ends | None:
        if len(set(self._sources.tolist())) < FEWEST_SOURCES:
            return None
        if self.has(of_class).any():
            return self._spread(of_class)
        return self._outside

    def has(self, of_class: ServedClass) -> Array:
        """Return which rows have a class; those of any engine where it states none."""
        found: Array = np.all([self._alike(of_class, name) for name in self._stated(of_class)], 0)
        return found

    def without(self, source: str) -> "Evidence":
        """Return the rows of all other sources."""
        return Evidence(tuple(row for row in self.rows if row.source != source))

    def count(self, chosen: Array) -> "Count":
        """Return how many rows some are, and of how many sources."""
        return Count(int(chosen.sum()), len(set(self._sources[chosen].tolist())))

    def sharing(self, of_class: ServedClass) -> tuple[str, "Count"]:
        """Return what rows have in common with a class, in words, and these: the engine, else the kind of model."""
        by_engine = self._alike(of_class, "engine")
        if of_class.engine != ANY_ENGINE and by_engine.any():
            return f"run {ENGINES[of_class.engine]}", self.count(by_engine)
        by_kind = self._alike(of_class, "kind")
        return f"are of {of_class.kind} models", self.count(by_kind)

    @cached_property
    def _outside(self) -> Ends:
        """The range of a class that no row has."""
        known = dict.fromkeys(row.of_class for row in self.rows)
        any_engine = dict.fromkeys(_with(one, "engine", ANY_ENGINE) for one in known)
        ranges = [self._spread(one) for one in (*known, *any_engine)]
        low, high = min(one.low for one in ranges), max(one.high for one in ranges)
        error = 0.0
        if (several := len(self._class_means)) > 1:
            variance = float(np.var(self._class_means, ddof=1)) * (1 + 1 / several)
            error = _student_ends(0.0, [(variance, several - 1)]).high
        middle, half = (low + high) / 2, math.hypot((high - low) / 2, error)
        return Ends(middle - half, middle + half)

    def _spread(self, of_class: ServedClass) -> Ends:
        """Return the range of rows as they count for a class."""
        gains = [GAINS[name] * self._alike(of_class, name) for name in self._stated(of_class)]
        weights = self._weights * (1 + np.sum(gains, 0))
        of_source = np.bincount(self._sources, weights)
        means = np.bincount(self._sources, weights * self._logs) / of_source
        mean = float(np.average(means, weights=of_source))
        sources = _effective(of_source)
        between = float(np.average((means - mean) ** 2, weights=of_source))
        between *= sources / (sources - 1) * (1 + 1 / sources)
        within = np.average((self._logs - means[self._sources]) ** 2, weights=weights)
        parts = [(between, sources - 1), (float(within), max(1.0, _effective(weights) - 1))]
        return _student_ends(mean, parts)

    @staticmethod
    def _stated(of_class: ServedClass) -> list[str]:
        """Return the fields of a class that say something: without an engine, rows of all engines are alike in it."""
        return [one for one in CLASS_FIELDS if getattr(of_class, one) != ANY_ENGINE]

    def _alike(self, of_class: ServedClass, name: str) -> Array:
        """Return which rows have a field of a class in common."""
        return np.array(self._fields[name]) == getattr(of_class, name)

    @cached_property
    def _ranges(self) -> dict[ServedClass, Ends | None]:
        return {}

    @cached_property
    def _fields(self) -> dict[str, list[str]]:
        return {name: [getattr(row.of_class, name) for row in self.rows] for name in CLASS_FIELDS}

    @cached_property
    def _logs(self) -> Array:
        return np.log([row.ratio for row in self.rows])

    @cached_property
    def _sources(self) -> Array:
        codes: dict[str, int] = {}
        return np.array([codes.setdefault(row.source, len(codes)) for row in self.rows], int)

    @cached_property
    def _weights(self) -> Array:
        """Weights by which sources count alike, and in each its studies and their rows."""
        return equal_weights([row.source for row in self.rows], [row.study for row in self.rows])

    @cached_property
    def _class_means(self) -> list[float]:
        """Means of the classes, each source in a class alike."""
        cells: dict[ServedClass, dict[str, list[float]]] = {}
        for row, value in zip(self.rows, self._logs.tolist(), strict=True):
            cells.setdefault(row.of_class, {}).setdefault(row.source, []).append(value)
        return [float(np.mean([np.mean(one) for one in of.values()])) for of in cells.values()]


class Count(NamedTuple):
    """Published rows, and the sources that they are of."""

    rows: int
    sources: int


def _with(of_class: ServedClass, name: str, value: str) -> ServedClass:
    return ServedClass(**{**asdict(of_class), name: value})


def _effective(weights: Array) -> float:
    """Return the effective number of weights, by Kish."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def _student_ends(mean: float, parts: Sequence[tuple[float, float]]) -> Ends:
    """Return the range of a value whose variance has parts, each with its degrees of freedom.

    These are rounded, and at most :data:`_MOST_FREEDOM`, so that few tables of the distribution are made.
    """
    variance = max(sum(part for part, _ in parts), _LEAST_VARIANCE)
    freedom = variance**2 / max(sum(part**2 / df for part, df in parts), _LEAST_VARIANCE**2)
    student = MemoryErrors(
        mean=mean,
        scale=float(np.sqrt(variance)),
        freedom=round(min(max(1.0, freedom), _MOST_FREEDOM), 1),
        runs=0,
        sources=0,
    )
    low, high = (float(np.log(student.room(p))) for p in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Ends(low, high)


def queued(figure: str, of_class: ServedClass) -> tuple[str, bool]:
    """Return which rows belong together: a single stream waits for no other request before its first token."""
    return figure, figure == "ttft" and of_class.load != SINGLE


def evidence(rows: Iterable[PublishedRow]) -> dict[tuple[str, bool], Evidence]:
    """Return rows that belong together, by :func:`queued`."""
    found: dict[tuple[str, bool], list[PublishedRow]] = {}
    for row in rows:
        found.setdefault(queued(row.figure, row.of_class), []).append(row)
    return {key: Evidence(tuple(own)) for key, own in found.items()}


@cache
def published_rows() -> tuple[PublishedRow, ...]:
    """Return the rows of the file; none where it is not there."""
    try:
        with (catalog.root() / FILE).open(encoding="utf-8", newline="") as file:
            cells = list(csv.DictReader(file))
    except FileNotFoundError:
        return ()
    return tuple(
        PublishedRow(
            figure=one["figure"],
            of_class=_class_of(tuple(one[name] for name in CLASS_FIELDS)),
            source=one["source"],
            study=one["study"],
            ratio=float(one["ratio"]),
        )
        for one in cells
    )


@cache
def _class_of(values: tuple[str, ...]) -> ServedClass:
    return ServedClass(**dict(zip(CLASS_FIELDS, values, strict=True)))


@cache
def _published() -> dict[tuple[str, bool], Evidence]:
    return evidence(published_rows())


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRange:
    """Range of a figure of a deployment that holds 90 % of measured values, and what it rests on."""

    unknown_keys: ClassVar[str] = "ignored"

    low: float = number("lower end, in the unit of the figure")
    high: float = number("upper end")
    ratio_low: float = number("lower end of measured over predicted values")
    ratio_high: float = number("upper end of these")
    rows: int = declare("published rows of the figure")
    class_rows: int = declare("those of the class of the deployment")
    class_sources: int = declare("sources of these")
    sharing: str = declare("what further rows have in common with it")
    sharing_rows: int = declare("rows that have")
    sharing_sources: int = declare("sources of these")

    @property
    def value(self) -> float:
        """The predicted value."""
        return self.low / self.ratio_low

    @property
    def spread(self) -> float:
        """Half the width of the range, over the predicted value."""
        return (self.ratio_high - self.ratio_low) / 2


def served_ranges(
    of_class: ServedClass, figures: Mapping[str, float | None]
) -> dict[str, FigureRange]:
    """Return the range of each figure of a deployment that published rows have, by name.

    Figures that are unknown or infinite have none.
    """
    found = {}
    for name in FIGURES:
        value = figures.get(name)
        known = _published().get(queued(name, of_class))
        ends = None if known is None else known.ends(of_class)
        if known is None or ends is None or value is None or not np.isfinite(value):
            continue
        own = known.count(known.has(of_class))
        words, shared = known.sharing(of_class)
        low, high = (float(np.exp(end)) for end in ends)
        found[name] = FigureRange(
            low=low * value,
            high=high * value,
            ratio_low=low,
            ratio_high=high,
            rows=len(known.rows),
            class_rows=own.rows,
            class_sources=own.sources,
            sharing=words,
            sharing_rows=shared.rows,
            sharing_sources=shared.sources,
        )
    return found


def basis(of_class: ServedClass, ranges: Mapping[str, FigureRange]) -> str:
    """Return the class of a deployment and the published rows that its ranges rest on, in one sentence."""
    said: list[str] = []
    for name, one in ranges.items():
        queue = " under load" if queued(name, of_class)[1] else ""
        published = "" if said else "published rows "
        further = _sources(one.class_sources)
        if not one.class_rows:
            further = f"{one.sharing_rows:,} rows of {_sources(one.sharing_sources)} {one.sharing}"
        count = f"{one.class_rows:,} of {one.rows:,}"
        said.append(f"{count} {published}of {FIGURES[name]}{queue} ({further})")
    words = of_class.in_words
    return f"{words[0].upper()}{words[1:]}: of this class are {', '.join(said)}."


def _sources(count: int) -> str:
    return f"{count:,} source{'s' * (count != 1)}"
