"""Prediction ranges of serving figures, from the errors of published measurements.

The rows are in ``validation/served.csv``, which ``scripts/render`` writes from the studies of served models under
``validation/serving``: measured over predicted values, each row with its class
(:class:`~calculon.declarations.serving_classes.ServedClass`) and its source. Rows
that a fit of the figure used are left out.

A range is the prediction interval of a new campaign, computed as for training steps
(:class:`~calculon.estimate.source_errors.SourceErrors`). A campaign is all rows of one publisher with one model, engine
and processor: these rows share their settings and the errors of the model's kernels, whereas two campaigns of one
publisher differ as much as campaigns of two publishers (``validation/serving/README.md`` has the coverage for both).
Campaigns have equal weights, rows that share parts of the class count more (:data:`FACTORS`), and with few campaigns
the range is wide. Kinds of models differ systematically, so the range of a kind without rows contains the ranges of all
kinds with rows, and is widened in quadrature by the error of one more class.
"""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
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
from calculon.estimate.source_errors import SourceErrors, equal_weights
from calculon.estimate.student import quantile
from calculon.estimate.user_evidence import OwnFigure, current_evidence, narrowed

FILE = "validation/served.csv"
"""File of rows, relative to the root of the catalog."""

FIGURES = {"ttft": "time to first token", "tpot": "time per token", "output_rate": "tokens/s"}
"""Figures with published rows, and their names."""

FACTORS = {"kind": 8.0, "engine": 1.25, "generation": 1.25, "load": 1.25, "apart": 1.25}
"""Weight of a row that shares each part of the class with a deployment, relative to a row that does not.

As for training steps (:data:`calculon.estimate.run_table.FACTORS`): MoE models have their own kernels and load
imbalance. The factors were not tuned to rows of served models.
"""

WIDEST = 10.0
"""Ratio of the ends of a range from which published rows validate no figure: the first digit is unknown."""

FEWEST_CAMPAIGNS = 2
"""Number of campaigns below which the error of a new one is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """Published figure of a served model.

    Attributes:
        figure: One of :data:`FIGURES`.
        of_class: Class of the row; the engine is known.
        model, system: Names of the model and of the system.
        source, study: Publisher, and the study under ``validation/``.
        ratio: Measured over predicted value.
    """

    figure: str
    of_class: ServedClass
    model: str
    system: str
    source: str
    study: str
    ratio: float

    @property
    def campaign(self) -> tuple[str, ...]:
        """Publisher, model, engine, system, and whether prefill is apart: equal ones are measured alike."""
        apart = "apart" * self.of_class.apart
        return self.source, self.model, self.of_class.engine, self.system, apart

    def to_dict(self) -> dict[str, Any]:
        """Return the cells of a line of the file."""
        return {
            "figure": self.figure,
            **{name: getattr(self.of_class, name) for name in CLASS_FIELDS},
            "apart": "yes" if self.of_class.apart else "",
            "model": self.model,
            "system": self.system,
            "source": self.source,
            "study": self.study,
            "ratio": f"{self.ratio:.4g}",
        }


COLUMNS = ("figure", *CLASS_FIELDS, "model", "system", "source", "study", "ratio")
"""Columns of the file."""


class Ends(NamedTuple):
    """Lower and upper end of a range of logarithms of measured over predicted values."""

    low: float
    high: float

    def widened(self, error: float) -> "Ends":
        """Return the range with an additional error on both sides, in quadrature."""
        middle, half = (self.low + self.high) / 2, math.hypot((self.high - self.low) / 2, error)
        return Ends(middle - half, middle + half)


@dataclass(frozen=True)
class Evidence:
    """Published rows of one figure; for the time to first token, separately for single streams and loaded replicas."""

    rows: tuple[PublishedRow, ...]

    def ends(self, of_class: ServedClass) -> Ends | None:
        """Return the range of a class; None with fewer than :data:`FEWEST_CAMPAIGNS` campaigns."""
        if of_class not in self._ranges:
            self._ranges[of_class] = self._ends(of_class)
        return self._ranges[of_class]

    def _ends(self, of_class: ServedClass) -> Ends | None:
        if len(set(self._campaigns.tolist())) < FEWEST_CAMPAIGNS:
            return None
        known = self._alike(of_class, "kind").any()
        return self._interval(of_class) if known else self._outside

    def with_own(self, of_class: ServedClass, own: Sequence[OwnFigure]) -> Ends | None:
        """Return the range of a class that includes figures that a user measured; as :meth:`ends` without any.

        The user is one more source, whose error the figures show (:func:`~calculon.estimate.user_evidence.narrowed`);
        figures of other classes have less weight, as published rows have (:data:`FACTORS`).
        """
        ends = self.ends(of_class)
        if ends is None or not own:
            return ends
        alike = [
            math.prod(
                1.0 if getattr(one.of_class, name) == getattr(of_class, name) else 1 / FACTORS[name]
                for name in CLASS_FIELDS
            )
            for one in own
        ]
        ratios = np.log([one.ratio for one in own])
        middle = (ends.low + ends.high) / 2
        both = (ends.low, middle, ends.high)
        low, _, high = narrowed(
            both, self._errors, self._context(of_class), ratios, np.array(alike)
        )
        return Ends(low, high)

    def has(self, of_class: ServedClass) -> Array:
        """Return a mask of the rows of a class; rows of any engine if the class states none."""
        alike = [self._alike(of_class, name) for name in self._stated(of_class)]
        result: Array = np.all(alike, 0)
        return result

    def count(self, chosen: Array) -> "Count":
        """Return the numbers of selected rows and of their sources."""
        return Count(int(chosen.sum()), len(set(self._sources[chosen].tolist())))

    def sharing(self, of_class: ServedClass) -> tuple[str, "Count"]:
        """Return the rows of the kind of model of a class, or else of its engine, as a sentence and counts."""
        by_kind = self._alike(of_class, "kind")
        if of_class.engine == ANY_ENGINE or by_kind.any():
            return f"are of {of_class.kind} models", self.count(by_kind)
        return f"run {ENGINES[of_class.engine]}", self.count(self._alike(of_class, "engine"))

    @cached_property
    def _outside(self) -> Ends:
        """Range of a kind of model without rows."""
        known = dict.fromkeys(row.of_class for row in self.rows)
        # Deployments may leave the engine open; their classes contain the rows of all engines.
        any_engine = dict.fromkeys(replace(one, engine=ANY_ENGINE) for one in known)
        ranges = [self._interval(one) for one in (*known, *any_engine)]
        every = Ends(min(one.low for one in ranges), max(one.high for one in ranges))
        return every.widened(self._class_error)

    @cached_property
    def _class_error(self) -> float:
        """90 % error of one more class, from the differences between classes with rows; 0 for a single class."""
        if (several := len(self._class_means)) < 2:
            return 0.0
        # Error of one more value of a sample: the mean of the sample is uncertain, too.
        scale = float(np.std(self._class_means, ddof=1)) * math.sqrt(1 + 1 / several)
        return quantile((1 + LEVEL) / 2, several - 1.0) * scale

    def _interval(self, of_class: ServedClass) -> Ends:
        """Return the interval of a new campaign, with the weights of rows for a class."""
        low, _, high = self._errors.limits(self._context(of_class))
        return Ends(low, high)

    def _context(self, of_class: ServedClass) -> Array:
        """Return the codes of a class; no row has code -1, so unknown values are shared with none."""
        return np.array([self._codes[n].get(getattr(of_class, n), -1) for n in CLASS_FIELDS])

    @staticmethod
    def _stated(of_class: ServedClass) -> list[str]:
        """Return the fields that a class states; a class without an engine matches rows of all engines."""
        return [one for one in CLASS_FIELDS if getattr(of_class, one) != ANY_ENGINE]

    def _alike(self, of_class: ServedClass, name: str) -> Array:
        """Return a mask of the rows that share a field with a class."""
        return np.array(self._fields[name]) == getattr(of_class, name)

    @cached_property
    def _ranges(self) -> dict[ServedClass, Ends | None]:
        return {}

    @cached_property
    def _fields(self) -> dict[str, list[Any]]:
        return {name: [getattr(row.of_class, name) for row in self.rows] for name in CLASS_FIELDS}

    @cached_property
    def _codes(self) -> dict[str, dict[Any, int]]:
        """Codes of the values of each field of a class."""
        return {
            name: {one: code for code, one in enumerate(dict.fromkeys(values))}
            for name, values in self._fields.items()
        }

    @cached_property
    def _sources(self) -> Array:
        return np.unique([row.source for row in self.rows], return_inverse=True)[1]

    @cached_property
    def _campaigns(self) -> Array:
        names = ["\n".join(row.campaign) for row in self.rows]
        return np.unique(names, return_inverse=True)[1]

    @cached_property
    def _errors(self) -> SourceErrors:
        campaigns = self._campaigns.tolist()
        context = [[self._codes[name][one] for one in self._fields[name]] for name in CLASS_FIELDS]
        return SourceErrors(
            # Logarithms: twice and half the predicted time are errors of equal size.
            ratios=np.log([row.ratio for row in self.rows]),
            source=self._campaigns,
            weight=equal_weights(campaigns, campaigns),
            context=np.array(context, int),
            factors=tuple(FACTORS[name] for name in CLASS_FIELDS),
            evidence=np.ones(len(self.rows), bool),
        )

    @cached_property
    def _class_means(self) -> list[float]:
        """Means of the classes, with equal weights of the campaigns in a class."""
        cells: dict[ServedClass, dict[tuple[str, ...], list[float]]] = {}
        for row, value in zip(self.rows, self._errors.ratios.tolist(), strict=True):
            cells.setdefault(row.of_class, {}).setdefault(row.campaign, []).append(value)
        return [float(np.mean([np.mean(one) for one in of.values()])) for of in cells.values()]


class Count(NamedTuple):
    """Numbers of published rows and of their sources."""

    rows: int
    sources: int


def queued(figure: str, of_class: ServedClass) -> tuple[str, bool]:
    """Return the key of comparable rows: a single stream has no queueing before its first token."""
    return figure, figure == "ttft" and of_class.load != SINGLE


def evidence(rows: Iterable[PublishedRow]) -> dict[tuple[str, bool], Evidence]:
    """Return rows grouped by :func:`queued`."""
    found: dict[tuple[str, bool], list[PublishedRow]] = {}
    for row in rows:
        found.setdefault(queued(row.figure, row.of_class), []).append(row)
    return {key: Evidence(tuple(own)) for key, own in found.items()}


@cache
def published_rows() -> tuple[PublishedRow, ...]:
    """Return the rows of the file; empty if it does not exist."""
    try:
        with (catalog.root() / FILE).open(encoding="utf-8", newline="") as file:
            cells = list(csv.DictReader(file))
    except FileNotFoundError:
        return ()
    return tuple(
        PublishedRow(
            figure=one["figure"],
            of_class=_class_of(*(one[name] for name in CLASS_FIELDS)),
            model=one["model"],
            system=one["system"],
            source=one["source"],
            study=one["study"],
            ratio=float(one["ratio"]),
        )
        for one in cells
    )


@cache
def _class_of(kind: str, engine: str, generation: str, load: str, apart: str) -> ServedClass:
    return ServedClass(
        kind=kind, engine=engine, generation=generation, load=load, apart=apart == "yes"
    )


@cache
def _published() -> dict[tuple[str, bool], Evidence]:
    return evidence(published_rows())


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRange:
    """Range of a figure of a deployment that contains 90 % of measured values, with its evidence."""

    unknown_keys: ClassVar[str] = "ignored"

    low: float = number("lower end, in the unit of the figure")
    high: float = number("upper end")
    ratio_low: float = number("lower end of measured over predicted values")
    ratio_high: float = number("upper end of measured over predicted values")
    rows: int = declare("published rows of the figure")
    class_rows: int = declare("published rows of the class of the deployment")
    class_sources: int = declare("sources of the rows of the class")
    sharing: str = declare("property that further rows share with the deployment")
    sharing_rows: int = declare("rows that share it")
    sharing_sources: int = declare("sources of the rows that share it")

    @property
    def value(self) -> float:
        """The predicted value."""
        return self.low / self.ratio_low

    @property
    def validates(self) -> bool:
        """True if the range is narrow enough to say something about the figure."""
        return self.ratio_high <= WIDEST * self.ratio_low

    @property
    def spread(self) -> float:
        """Half the width of the range divided by the predicted value."""
        return (self.ratio_high - self.ratio_low) / 2


def served_ranges(
    of_class: ServedClass,
    figures: Mapping[str, float | None],
    rooflines: Mapping[str, float] | None = None,
) -> dict[str, FigureRange]:
    """Return the range of each figure of a deployment for which published rows exist, by name.

    Unknown and infinite figures have no range. No range contains values faster than the roofline.

    Args:
        of_class: Class of the deployment.
        figures: Figures by name.
        rooflines: Fastest possible values by figure: shortest times, and the highest rate.
    """
    result, limits = {}, rooflines or {}
    evidence = current_evidence()
    measured = () if evidence is None else evidence.figures
    for name in FIGURES:
        value = figures.get(name)
        known = _published().get(queued(name, of_class))
        own = [
            one for one in measured if queued(one.figure, one.of_class) == queued(name, of_class)
        ]
        ends = None if known is None else known.with_own(of_class, own)
        if known is None or ends is None or value is None or not np.isfinite(value):
            continue
        alike = known.count(known.has(of_class))
        words, shared = known.sharing(of_class)
        low, high = (float(np.exp(end)) for end in ends)
        # The fast end is cut at the roofline.
        if name in limits and value > 0:
            # A predicted value stays in its range, even if kernels are measured to beat the stated peak.
            ratio = limits[name] / value
            low, high = (
                (low, min(high, max(ratio, 1.0)))
                if name == "output_rate"
                else (max(low, min(ratio, 1.0)), high)
            )
        result[name] = FigureRange(
            low=low * value,
            high=high * value,
            ratio_low=low,
            ratio_high=high,
            rows=len(known.rows),
            class_rows=alike.rows,
            class_sources=alike.sources,
            sharing=words,
            sharing_rows=shared.rows,
            sharing_sources=shared.sources,
        )
    return result


def basis(of_class: ServedClass, ranges: Mapping[str, FigureRange]) -> str:
    """Return the class of a deployment and the published rows behind its ranges, in one sentence."""
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
    return f"{words[0].upper()}{words[1:]}: {', '.join(said)}{_own_words()}."


def _own_words() -> str:
    """Return the measurements of the user in words; empty without any."""
    own = current_evidence()
    return f"; {len(own.figures):,} figures of your own ({own.name})" if own and own.figures else ""


def short_basis(of_class: ServedClass, ranges: Mapping[str, FigureRange]) -> str:
    """Return the class of a deployment and the number of its published rows in a few words."""
    counts = [one.class_rows for one in ranges.values()]
    least, most = min(counts), max(counts)
    rows = f"{most:,}" if least == most else f"{least:,} to {most:,}"
    return f"{rows} published rows of {of_class.in_words}{_own_words()}."


def _sources(count: int) -> str:
    return f"{count:,} source{'s' * (count != 1)}"
