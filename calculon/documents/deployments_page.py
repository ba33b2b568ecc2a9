"""Page of a search for deployments: a table of the best, and the chart of a Pareto front."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from calculon.base.frozen import dataclass
from calculon.base.records import Column as Figure
from calculon.documents.alternatives_section import alternatives_section
from calculon.documents.page_title import machine_of, titled
from calculon.documents.serving_drafts import draft_mark
from calculon.documents.serving_page import (
    NO_LIMIT,
    NOT_VALIDATED,
    duration_of,
    pool_words,
    rate,
    requests_words,
)
from calculon.estimate.served_errors import short_basis
from calculon.render.digits import Digits
from calculon.render.document import Block, Document, Section, dim, labeled
from calculon.render.frontier import Frontier
from calculon.render.text_tables import EARLY, Column, Table
from calculon.render.texts import counted, quantity
from calculon.search.deployments.deployment_search import DeploymentSearch
from calculon.search.deployments.deployment_space import DeploymentSpace
from calculon.search.deployments.deployment_vocabulary import TYPES, stated_default
from calculon.search.deployments.first_answer import Alternative
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.load import SATURATED, Workload

MOST = 40
"""Maximum number of deployments in the table."""

MEANING = (
    "TP, PP: tensor and pipeline parallelism of a replica; budget: maximum tokens per pass, 0 for prompts in separate "
    "passes; batch: sequences that a replica decodes concurrently; user: generated tokens per second of a user, from "
    "the mean TPOT; processor: generated tokens per second of a processor"
)
"""Legend of the columns."""

OF_TYPES = "weights, cache: their data types"

OF_LIMITS = "{tail}: time within which {share:g} % of requests stay, as in the limits"

_IN_COLUMNS = ("token_budget", "draft", "draft_tokens")
"""Fields that always have a column."""

OF_EXPERTS = (
    "attention DP: groups of ranks with their own requests; EP: groups with different experts"
)


@dataclass(frozen=True, slots=True)
class _Winner:
    """A deployment, its batch, and its figures; figures that are not finite are None."""

    deployment: Deployment
    batch: int
    figures: Mapping[str, Any]


def deployments_page(
    result: DeploymentSearch, alternatives: Sequence[Alternative] = (), missed: str = ""
) -> Document:
    """Return the page of a search for deployments.

    Args:
        result: The search.
        alternatives: The best deployments of other kinds.
        missed: What fewer processors would miss, if the search is for the fewest.
    """
    return _DeploymentsPage(result, alternatives, missed).document()


class _DeploymentsPage:
    def __init__(self, result: DeploymentSearch, alternatives: Sequence[Alternative], missed: str):
        self.alternatives, self.missed = alternatives, missed
        self.found, self.space, self.workload = result, result.space, result.space.workload
        self.objectives = [one.statistic for one in result.objectives]

    @cached_property
    def winners(self) -> list[_Winner]:
        """The deployments, best first."""
        columns = {name: column.tolist() for name, column in self.found.columns.items()}
        return [
            _Winner(
                deployment,
                columns["batch"][rank],
                {name: _finite(column[rank]) for name, column in columns.items()},
            )
            for rank, deployment in enumerate(self.found.deployments)
        ]

    def document(self) -> Document:
        """Return the question, and the best deployments if there are any."""
        space = self.space
        procs = ", ".join(f"{one:,}" for one in space.counts[:8])
        procs += ", ..." if len(space.counts) > 8 else ""
        title = f"Deployments of {space.model.name} on {procs} x {space.system.name}"
        parts = self._best() if self.winners else ()
        machine = machine_of(space.system)
        return titled(title, "", machine, lead=(labeled(self._question()),), parts=parts)

    def _question(self) -> dict[str, str]:
        space, counts = self.space, self.found.counts
        return {
            "requests": requests_words(self.workload),
            "limits": limits_words(self.workload),
            "tried": f"{counted(counts.total, 'deployment')}, each with its batch; "
            f"{counts.feasible:,} of {counts.solved:,} solved meet the limits",
            "splits": space.bounds,
            "types": tried_types(space),
            "left out": left_out_words(space.left_out),
            "price": self._price_words(),
            "fewest": self._fewest_words(),
        }

    def _fewest_words(self) -> str:
        """Return the fewest processors, and what fewer would miss; empty if the search is not for the fewest."""
        if not self.missed:
            return ""
        return f"{counted(self.winners[0].deployment.num_procs, 'processor')}; {self.missed}"

    def _best(self) -> Iterator[Block]:
        """Yield the table of the best deployments, the chart of a Pareto front, and the legend."""
        front = len(self.objectives) > 1
        asked = [f"{one.statistic.name}:{one.sense}" for one in self.found.objectives]
        first = self.found.objectives[0]
        best = f"{'lowest' if first.sense == 'min' else 'highest'} {first.statistic.name}"
        remark = f"no other is better in all of {', '.join(asked)}" if front else best
        shown = self.winners[:MOST]
        differ, same = self._settings()
        blocks: list[Block] = [Table(tuple(self._columns(differ)), [*self._rows(shown, differ)])]
        if same:
            words = ", ".join(f"{_title(name)} {value}" for name, value in same.items())
            blocks.append(f"{'All have' if len(self.winners) > 1 else 'It has'} {words}")
        if more := len(self.winners) - len(shown):
            blocks.append(dim(f"({more:,} more; write all to an output file)"))
        yield Section("Frontier" if front else "Best", tuple(blocks), remark, opened=True)
        if front and (picture := self._picture(shown)).worth_drawing:
            yield Section("", (picture,))
        if (kinds := alternatives_section(self.alternatives)) is not None:
            yield kinds
        notes = (self._ranges(), "; ".join(self._meanings(differ)), self._between())
        yield Section("", tuple(map(dim, filter(None, notes))))

    def _ranges(self) -> str:
        """Return the ranges of the best deployment, its class, and the published rows they are based on."""
        ranges = self.found.ranges(0)
        if not ranges:
            return ""
        procs = self.winners[0].deployment.num_procs
        said = []
        for name, one in ranges.items():
            if not one.validates:
                said.append(f"{_OF_RANGES[name]} {NOT_VALIDATED}")
                continue
            digits, each = Digits(one.spread), procs if name == "output_rate" else 1
            # The page shows throughput per processor, and the range is of the whole deployment.
            write = digits.rate if name == "output_rate" else digits.duration
            low, high = (write(end / each, one.value / each) for end in (one.low, one.high))
            said.append(f"{_OF_RANGES[name]} {low} to {high}")
        rows = short_basis(self.found.class_of(0), ranges)
        first = "90 % ranges of #0" if len(self.winners) > 1 else "90 % ranges"
        return f"{first}: {', '.join(said)}. {rows[0].upper()}{rows[1:]}"

    def _price_words(self) -> str:
        """Return a note that no price is known; empty if it is."""
        if not self.winners or self._priced:
            return ""
        return f"unknown for {self.space.system.name} (--fix price=2.5: USD per processor-hour)"

    @property
    def _priced(self) -> bool:
        return any(one.figures["usd_per_mtoken"] is not None for one in self.winners)

    @property
    def _tail(self) -> str:
        """Percentile of the times in the table; empty if they are means."""
        w = self.workload
        return f"p{100 * w.percentile:g}" if w.rate is not None else ""

    def _settings(self) -> tuple[list[str], dict[str, str]]:
        """Return the searched fields that differ between deployments, and the common values of the others."""
        differ, same = list[str](), dict[str, str]()
        for name in self.space.asked:
            if name in _IN_COLUMNS:
                continue
            # Equal values move to the line below the table.
            values = {_value(one.deployment.to_dict().get(name)) for one in self.winners}
            if len(values) > 1:
                differ.append(name)
            elif value := values.pop():
                same[name] = value
        return differ, same

    def _columns(self, differ: Sequence[str]) -> Iterator[Column]:
        ranked = {one.name for one in self.objectives}
        behind = self._tail and f" {self._tail}"
        # Both columns repeat information of other columns, so narrow terminals hide them first, before texts fold.
        usd, user = (
            # A ranked column is never hidden.
            0 if name in ranked else EARLY + place
            for place, name in enumerate(("usd_per_mtoken", "interactivity"))
        )
        yield Column("rank", "#", right=True)
        if len(self.space.counts) > 1:
            yield Column("procs", "count", right=True)
        yield Column("replicas", "replicas")
        if any(one.deployment.prefill is not None for one in self.winners):
            yield Column("prefill", "prefill by")
        yield Column("budget", "budget", right=True, drop=1)
        for name in differ:
            yield Column(name, _title(name))
        if any(draft_mark(one.deployment) for one in self.winners):
            yield Column("drafts", "drafts", fold=True)
        yield Column("batch", "batch", right=True, drop=2)
        yield Column("ttft", f"TTFT{behind}", right=True)
        yield Column("tpot", f"TPOT{behind}", right=True)
        yield Column("user", "user", right=True, drop=user)
        yield Column("processor", "processor", right=True)
        if self._priced:
            yield Column("usd", "USD/M", right=True, drop=usd)
        for one in self._others():
            yield Column(one.name, one.name, right=True)

    def _others(self) -> Iterator[Figure]:
        """Return the ranked figures that have no fixed column."""
        hidden = {f"{name}_p" for name in ("ttft", "tpot")} if self._tail else set(_MEANS)
        return (one for one in self.objectives if one.name not in {*_TOLD, *hidden})

    def _between(self) -> str:
        """Return a hint at untried processor counts that may suffice for a given load; empty if there are none."""
        best = self.winners[0].deployment
        most, each = best.num_procs, best.replica_procs
        fewer = [one for one in self.space.counts if one < most]
        # At a fixed load the smallest deployment wins, so that an untried smaller one may be better still.
        sized = self.workload.kind != SATURATED
        if len(self.objectives) > 1 or not (sized and fewer) or most - max(fewer) <= each:
            return ""
        last = max(fewer)
        return f"Counts between {last:,} and {most:,} were not tried and may be sufficient: {last}:{most}:{each}."

    def _meanings(self, differ: Sequence[str]) -> Iterator[str]:
        """Yield the legend of the abbreviations in the table."""
        yield MEANING
        splits = [one.deployment for one in self.winners]
        if any(one.expert_par > 1 or one.attn_data_par > 1 for one in splits):
            yield OF_EXPERTS
        if {"weights_dtype", "kv_dtype"} & {*differ}:
            yield OF_TYPES
        if self._tail:
            share = 100 * self.workload.percentile
            yield OF_LIMITS.format(tail=self._tail, share=share)

    def _rows(self, shown: Sequence[_Winner], differ: Sequence[str]) -> Iterator[dict[str, Any]]:
        behind = "_p" if self._tail else ""
        for rank, one in enumerate(shown):
            d, f = one.deployment, one.figures
            own = {other.name: quantity(f[other.name], other.unit) for other in self._others()}
            fields = d.to_dict()
            own |= {name: _value(fields.get(name)) for name in differ}
            yield own | {
                "rank": str(rank),
                "procs": f"{d.num_procs:,}",
                "replicas": pool_words(d),
                "prefill": "" if d.prefill is None else pool_words(d.prefill),
                "budget": f"{d.token_budget:,}",
                "drafts": draft_mark(d),
                "batch": f"{one.batch:,}",
                "ttft": duration_of(f[f"ttft{behind}"]),
                "tpot": duration_of(f[f"tpot{behind}"]),
                "user": rate(f["interactivity"]),
                "processor": rate(f["output_rate_per_proc"]),
                "usd": "" if f["usd_per_mtoken"] is None else rate(f["usd_per_mtoken"]),
            }

    def _picture(self, shown: Sequence[_Winner]) -> Frontier:
        """Return the chart of a front over its first two objectives; points have the ranks of the deployments."""
        x, y = (one.name for one in self.objectives[:2])
        figures = (one.figures for one in shown)
        points = [(str(rank), one[x], one[y]) for rank, one in enumerate(figures)]
        return Frontier.of(self.objectives, points)


_OF_RANGES = {"ttft": "mean TTFT", "tpot": "mean TPOT", "output_rate": "processor"}
"""Labels of figures with ranges."""

_MEANS = ("ttft", "ttft_p", "tpot", "tpot_p")
"""Times whose percentiles equal their means without random arrivals."""

_TOLD = ("interactivity", "output_rate_per_proc", "usd_per_mtoken")
"""Figures that always have a column, in addition to times."""


def _title(name: str) -> str:
    """Return the title of a field."""
    return TYPES.get(name, name)


def _value(value: Any) -> str:
    """Write the value of a field as in a file; empty for None."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def left_out_words(left_out: Mapping[str, Sequence[Any]]) -> str:
    """Return the requested values that no deployment can have; empty if there are none."""
    if not left_out:
        return ""
    named = [
        "prefill pools" if name == "prefill" else f"{name} {', '.join(map(_value, values))}"
        for name, values in left_out.items()
    ]
    return f"{'; '.join(named)}: not possible for any deployment on these processors"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def tried_types(space: DeploymentSpace) -> str:
    """Return the data types that were tried."""
    tried = {name: space.tried(name) for name in ("weights_dtype", "experts_dtype", "kv_dtype")}
    if tried["experts_dtype"] == ("same",):
        del tried["experts_dtype"]
    said = "; ".join(f"{_title(name)} {', '.join(values)}" for name, values in tried.items())
    released = [name for name, values in tried.items() if values != (stated_default(name),)]
    return (
        said if released else f"{said} (narrower ones only on request: --add weights_dtype=float8)"
    )


def limits_words(workload: Workload) -> str:
    """Return the limits of a workload."""
    names = {"ttft_limit": "TTFT", "tpot_limit": "TPOT"}
    said = [
        f"{words} of {duration_of(limit)}"
        for name, words in names.items()
        if (limit := getattr(workload, name)) is not None
    ]
    if not said:
        return NO_LIMIT
    share = f" for {100 * workload.percentile:g} % of requests" if workload.rate is not None else ""
    return f"{' and '.join(said)}{share}"
