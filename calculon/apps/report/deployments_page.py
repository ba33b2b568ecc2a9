"""The deployments that a search found: a table of the best, and of a frontier its picture."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from calculon.apps.report.frontier import Axis, Frontier
from calculon.apps.report.grids import grid, indented
from calculon.apps.report.serving_drafts import draft_mark
from calculon.apps.report.serving_page import (
    duration_of,
    rate,
    requests_words,
    split_words,
    types_words,
)
from calculon.apps.report.text_tables import Column, Table
from calculon.apps.report.texts import counted, heading, quantity
from calculon.records import Column as Figure

Document = Mapping[str, Any]

MOST = 40
"""Deployments that are told."""

_LEAST_POINTS = 3
"""Points that are worth a picture."""

_PLANE = 2
"""Objectives of a front that a picture shows as it is."""

MEANING = (
    "TP, PP: tensor and pipeline parallelism of a replica; budget: most tokens of a pass, 0 for prompts in passes of "
    "their own; batch: sequences that a replica decodes at a time; user, processor: generated tokens per second"
)
"""The meaning of the short words."""


OF_EXPERTS = "attention DP: groups of its ranks that have requests of their own; EP: groups that have different experts"


class DeploymentsPage:
    """The result of a search for deployments; it lays itself out for the width at hand.

    Parameters
    ----------
    document : mapping
        The result as plain data (:meth:`calculon.search.deployments.deployments_found.DeploymentSearch.to_dict`).
    objectives : sequence of Column
        Figures that it is ranked by.
    """

    def __init__(self, document: Document, objectives: Sequence[Figure]):
        self.document, self.objectives = document, objectives
        self.winners: Sequence[Document] = document["winners"]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._question()
        if not self.winners:
            return
        yield Text()
        front = len(self.objectives) > 1
        what = "Frontier" if front else "Best"
        asked = self.document["objectives"]
        remark = "no other is better in all of " + ", ".join(asked) if front else f"by {asked[0]}"
        yield heading(what, remark)
        shown = self.winners[:MOST]
        yield indented(Table(tuple(self._columns()), [*self._rows(shown)]))
        if more := len(self.winners) - len(shown):
            yield indented(Text(f"({more:,} more: name an output file for all)", "dim"))
        if front and len(shown) >= _LEAST_POINTS:
            yield from (Text(), indented(self._picture(shown)))
        yield from (Text(), indented(Text(MEANING + self._of_experts(), "dim")))
        if hint := self._between():
            yield indented(Text(hint, "dim"))

    def _question(self) -> Iterator[RenderableType]:
        found, counts = self.document, self.document["counts"]
        procs = ", ".join(f"{one:,}" for one in found["num_procs"][:8])
        procs += ", ..." if len(found["num_procs"]) > 8 else ""
        yield Text(
            f"Deployments of {found['model']} on {procs} x {found['system']}", "bold underline"
        )
        table = grid("text", "text")
        rows = {
            "requests": requests_words(found["workload"]),
            "limits": limits_words(found["workload"]),
            "tried": f"{counted(counts['total'], 'deployment')}, each with its batch; "
            f"{counts['feasible']:,} of {counts['solved']:,} solved keep the limits",
            "splits": found["bounds"],
            "types": tried_types(found["types"]),
        }
        for label, words in rows.items():
            table.add_row(Text(label, "dim"), Text(words))
        yield indented(table)

    def _columns(self) -> Iterator[Column]:
        yield Column("rank", "#", right=True)
        yield Column("procs", "count", right=True)
        yield Column("replicas", "replicas", right=True, drop=3)
        yield Column("split", "of each")
        if any("prefill" in one["deployment"] for one in self.winners):
            yield Column("prefill", "prefill by")
        yield Column("budget", "budget", right=True, drop=4)
        if any(len(tried) > 1 for tried in self.document["types"].values()):
            yield Column("types", "types", fold=True)
        if any(draft_mark(one["deployment"]) for one in self.winners):
            yield Column("drafts", "drafts", fold=True)
        yield Column("batch", "batch", right=True)
        yield Column("ttft", "TTFT", right=True)
        yield Column("tpot", "TPOT", right=True)
        yield Column("user", "user", right=True, drop=1)
        yield Column("processor", "processor", right=True)
        if any(one["figures"]["usd_per_mtoken"] is not None for one in self.winners):
            yield Column("usd", "USD/M", right=True)
        for one in self._others():
            yield Column(one.name, one.name, right=True)

    def _others(self) -> Iterator[Figure]:
        return (one for one in self.objectives if one.name not in _TOLD)

    def _between(self) -> str:
        """Say which counts that were not tried may do with less than the best, where the load says what is needed."""
        document, best = self.document, self.winners[0]["deployment"]
        most, each = best["num_procs"], best["tensor_par"] * best["pipeline_par"]
        fewer = [one for one in document["num_procs"] if one < most]
        sized = "rate" in document["workload"] or "users" in document["workload"]
        if len(self.objectives) > 1 or not (sized and fewer) or most - max(fewer) <= each:
            return ""
        last = max(fewer)
        return f"Counts between {last:,} and {most:,} were not tried, and may do: {last}:{most}:{each}."

    def _of_experts(self) -> str:
        """Return the meaning of the words for experts, where there are any."""
        splits = [one["deployment"] for one in self.winners]
        spread = any(one["expert_par"] > 1 or one["attn_data_par"] > 1 for one in splits)
        return f"; {OF_EXPERTS}" if spread else ""

    def _rows(self, shown: Sequence[Document]) -> Iterator[dict[str, Any]]:
        behind = "rate" in self.document["workload"]
        for rank, one in enumerate(shown):
            d, f = one["deployment"], one["figures"]
            own = {other.name: quantity(f[other.name], other.unit) for other in self._others()}
            yield own | {
                "rank": str(rank),
                "procs": f"{d['num_procs']:,}",
                "replicas": f"{one['replicas']:,}",
                "split": split_words(d),
                "prefill": _prefill_words(d.get("prefill")),
                "budget": f"{d['token_budget']:,}",
                "types": types_words(d),
                "drafts": draft_mark(d),
                "batch": f"{one['batch']:,}",
                "ttft": duration_of(f["ttft_p" if behind else "ttft"]),
                "tpot": duration_of(f["tpot_p" if behind else "tpot"]),
                "user": rate(f["interactivity"]),
                "processor": rate(f["output_rate_per_proc"]),
                "usd": "" if f["usd_per_mtoken"] is None else rate(f["usd_per_mtoken"]),
            }

    def _picture(self, shown: Sequence[Document]) -> Frontier:
        """Return the first two objectives of a front, its points with the numbers of their rows."""
        x, y = self.objectives[:2]
        points = [
            (str(rank), one["figures"][x.name], one["figures"][y.name])
            for rank, one in enumerate(shown)
        ]
        _, across, up = zip(*points, strict=True)
        axes = Axis.of(x.name, x.unit, across), Axis.of(y.name, y.unit, up)
        return Frontier(*axes, points, steps=len(self.objectives) == _PLANE)


_TOLD = (
    "ttft",
    "ttft_p",
    "tpot",
    "tpot_p",
    "interactivity",
    "output_rate_per_proc",
    "usd_per_mtoken",
)
"""Figures that have a column in any case."""


def _prefill_words(pool: Document | None) -> str:
    """Say the pool that prefills; those that decode do without one."""
    if pool is None:
        return ""
    replicas = pool["num_procs"] // (pool["tensor_par"] * pool["pipeline_par"])
    return f"{replicas:,} x {split_words(pool)}"


def tried_types(types: Mapping[str, Sequence[str]]) -> str:
    """Say which types of numbers were tried."""
    weights, cache = types["weights_dtype"], types["kv_dtype"]
    said = f"weights {', '.join(weights)}; cache {', '.join(cache)}"
    narrow = any(one not in ("bfloat16", "float16") for one in (*weights, *cache))
    hint = "" if narrow else " (narrower ones are not assumed: --add weights_dtype=float8)"
    return f"{said}{hint}"


def limits_words(workload: Document) -> str:
    """Say the limits of a workload."""
    names = {"ttft_limit": "TTFT", "tpot_limit": "TPOT"}
    said = [
        f"{words} of {duration_of(workload[name])}"
        for name, words in names.items()
        if workload.get(name) is not None
    ]
    if not said:
        return "none but memory"
    share = f" for {100 * workload['percentile']:g} % of the requests" if "rate" in workload else ""
    return f"{' and '.join(said)}{share}"
