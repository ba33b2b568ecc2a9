"""The page of a deployment that serves: the answer, what limits it, memory, its passes, and what was assumed."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from calculon.base.units import duration, significant
from calculon.declarations.serving_figures import ALL_ENGINES
from calculon.documents.page import SIDE_BY_SIDE
from calculon.documents.page_title import page_title
from calculon.documents.serving_drafts import draft_notes, draft_words
from calculon.documents.serving_prefixes import (
    has_prefixes,
    length_note,
    prefix_notes,
    prefix_section,
)
from calculon.render.grids import grid, indented, side_by_side
from calculon.render.text_tables import Column, Table
from calculon.render.texts import counted, gibibytes, heading, percent

Document = Mapping[str, Any]

CAUSES = {
    "weights": "reading weights",
    "cache": "reading the cache",
    "activations": "reading and writing activations",
    "arithmetic": "arithmetic",
    "network": "reductions and exchanges over the network",
    "floors": "floors of kernels",
    "host": "the host between passes",
}
"""Words for what the time of passes is due to."""

CUTS = {
    "memory": "as many as fit into memory",
    "max_batch": "as many as max_batch allows",
    "token_budget": "as many as token_budget has room for beside prompts",
    "users": "one for each user",
    "rate": "as many as it takes to keep up",
    "requests": "all requests of the run",
    "tpot": "as many as keep the limit of TPOT",
    "ttft": "as many as keep the limit of TTFT",
    "prefill": "as many as the other processors prefill",
}
"""Words for what bounds the sequences of a replica."""

BOUNDS = {"floor": "floor", "arithmetic": "arithmetic", "memory": "memory", "network": "network"}
"""Parts of the time of a row, of which the longest bounds it."""

_LATENT = 1e-12


_MOST_PARTS = 3
"""Parts of the machine that are told."""

_LEAST_HELP = 5e-3
"""Elasticity from which a part helps."""

_BETTER = {
    "latency of small messages": "shorter latency of small messages",
    "floors of kernels": "shorter floors of kernels",
    "time of the host": "shorter time of the host",
}
"""Words for parts of which less is better."""


class ServingPage:
    """The page of a deployment; it lays itself out for the width at hand.

    Parameters
    ----------
    served : mapping
        The result as plain data (:meth:`calculon.serving.serve.Served.to_dict`).
    """

    def __init__(self, served: Document):
        self.served = served
        self.figures: Mapping[str, Any] = served["figures"]
        self.deployment: Mapping[str, Any] = served["deployment"]
        self.workload: Mapping[str, Any] = served["workload"]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from (*self._question(), Text(), *self._answer(), Text(), *self._causes(), Text())
        passes = [Group(*self._pass(name)) for name in ("decode", "prefill")]
        prefixes = (Text(), *prefix_section(self.served)) if has_prefixes(self.served) else ()
        if options.max_width >= SIDE_BY_SIDE:
            yield side_by_side(Group(*self._memory()), Group(*self._queue(), *prefixes))
            yield from (Text(), side_by_side(*passes))
        else:
            yield from (*self._memory(), Text(), *self._queue(), *prefixes)
            for one in passes:
                yield from (Text(), one)
        yield from (Text(), *self._helps(), Text(), *self._assumed())

    def _question(self) -> Iterator[RenderableType]:
        d, w = self.deployment, self.workload
        title = f"{self.served['model']} served by {d['num_procs']:,} x {self.served['system']}"
        yield from page_title(title, "", self.served.get("provenance", {}))
        rows = {
            "deployment": deployment_words(d),
            "requests": requests_words(w),
            "batch": f"{counted(self.served['batch'], 'sequence')} in each replica: {self._cut()}",
        }
        if drafts := draft_words(self.served):
            rows["drafts"] = drafts
        table = grid("text", "text")
        for label, words in rows.items():
            table.add_row(Text(label, "dim"), Text(words))
        yield indented(table)

    def _cut(self) -> str:
        """Say what bounds the sequences of a replica."""
        cut = self.served["cut"]
        if cut in ("tpot", "ttft") and self.served["batch"] == 1:
            met = {one["name"]: one["met"] for one in self.served["limits"]}
            if not met.get(cut, True):
                return f"even one misses the limit of {cut.upper()}"
        thinks = cut == "users" and self.workload["think"]
        return "as many as users wait for at a time" if thinks else CUTS[cut]

    def _answer(self) -> Iterator[RenderableType]:
        """Tell the figures that decide, and whether they keep the limits."""
        f, table = self.figures, grid("left", "right", "text")
        at = f"{100 * self.workload['percentile']:g} %"
        behind = "rate" in self.workload
        rows = [
            (
                "time to first token",
                duration_of(f["ttft"]),
                _joined(
                    f"{duration_of(f['ttft_p'])} at {at}" if behind else "",
                    self._published("ttft", duration_of),
                ),
            ),
            (
                "time per token",
                duration_of(f["tpot"]),
                _joined(
                    f"{duration_of(f['tpot_p'])} at {at}" if behind else "",
                    self._published("tpot", duration_of),
                ),
            ),
            (
                "tokens/s of a user",
                rate(f["interactivity"]),
                f"longest gap {duration_of(f['itl_max'])}",
            ),
            (
                "generated tokens/s",
                rate(f["output_rate"]),
                _joined(
                    self._published("output_rate", rate),
                    f"{rate(f['output_rate_per_proc'])} for each processor",
                ),
            ),
            ("requests/s", rate(f["request_rate"]), f"{rate(f['capacity_rate'])} at most"),
        ]
        if f["usd_per_mtoken"] is not None:
            rows.append(
                ("USD for 1M generated", f"{f['usd_per_mtoken']:.3g}", self.served["price"])
            )
            blended = f"{f['usd_per_mtoken_blended']:.3g}"
            rows.append(("USD for 1M tokens", blended, "prompts and generated together"))
        elif not self.served["price"]:
            rows.append(("USD for 1M generated", "?", "no price is known: --set price=2.5 (USD/h)"))
        if f["joules_per_token"] is not None:
            energy = f"{f['joules_per_token']:.3g}"
            rows.append(("J for a token", energy, "estimate; what it assumes stands below"))
        if self.served["run_time"] is not None:
            count = f"{self.workload['requests']:,} requests"
            told = f"{count}, {rate(f['run_output_rate'])} generated tokens/s"
            rows.append(("whole run", duration_of(self.served["run_time"]), told))
        for label, value, remark in rows:
            table.add_row(label, Text(value, "bold"), Text(remark, "dim"))
        yield indented(table)
        for one in self.served["limits"]:
            does = "Keeps" if one["met"] else "Misses"
            yield indented(Text(f"{does} {one['in_words']}.", "" if one["met"] else "bold"))

    def _published(self, figure: str, words: Callable[[float], str]) -> str:
        """Say what a figure is where the prediction is off as it is of published rows; empty without any."""
        error, value = (
            self.served["published"].get(figure, {}).get(ALL_ENGINES),
            self.figures[figure],
        )
        if error is None or not math.isfinite(value):
            return ""
        return f"({words(error['low'] * value)} to {words(error['high'] * value)})"

    def _evidence(self) -> Iterator[str]:
        """Say which rows the ranges of figures rest on."""
        found = {
            name: each[ALL_ENGINES]
            for name, each in self.served["published"].items()
            if ALL_ENGINES in each
        }
        if not found:
            return
        names = {"ttft": "first token", "tpot": "per token", "output_rate": "tokens/s"}
        rows = ", ".join(f"{one['rows']:,} {names[name]}" for name, one in found.items())
        yield (
            f"Ranges: measured over predicted in 9 of 10 published rows of engines since 2024 ({rows}), each study "
            "alike, nothing fitted to them; other models and processors may be further off: calculon lv --study "
            "serving --edition corrected."
        )

    def _causes(self) -> Iterator[RenderableType]:
        """Tell what the time goes to, in decoding, in prefill, and in both as the replica has them."""
        share = min(1.0, self.figures["prefill_share"])
        passes = self.served["passes"]
        parts = {
            name: {key: value / one["time"] for key, value in one["causes"].items()}
            for name, one in passes.items()
        }
        both = {
            key: (1 - share) * parts["decode"][key] + share * parts["prefill"][key]
            for key in CAUSES
        }
        most = max(both, key=both.__getitem__)
        yield heading("What limits", f"{CAUSES[most]}, {percent(both[most])} of the time")
        columns = (
            Column("cause", "time goes to"),
            Column("both", "all", right=True),
            Column("decode", "decoding", right=True),
            Column("prefill", "prefill", right=True),
        )
        rows = [
            {
                "cause": CAUSES[key],
                "both": percent(both[key]),
                "decode": percent(parts["decode"][key]),
                "prefill": percent(parts["prefill"][key]),
            }
            for key in sorted(CAUSES, key=lambda key: -both[key])
            if max(both[key], parts["decode"][key], parts["prefill"][key]) > _LATENT
        ]
        yield indented(Table(columns, rows))
        if "prefill" not in self.deployment:
            taken = f"Prompts take {percent(share)} of the time of a replica."
            yield indented(Text(taken, "dim"))

    def _memory(self) -> Iterator[RenderableType]:
        """Tell the memory of a rank, and what more would fit."""
        f = self.figures
        whole = f["mem_used"] + f["mem_free"]
        yield heading("Memory", f"GiB of a rank, of {gibibytes(whole, 1)}")
        table = grid("left", "right", "right")
        for name in ("weights", "cache", "activation", "reserve", "free"):
            size = f[f"mem_{name}"]
            style = "dim" if name == "free" else ""
            table.add_row(
                Text(name, style),
                Text(gibibytes(size, 1), style),
                Text(percent(size / whole), "dim"),
            )
        yield indented(table)
        fits = f"{f['max_concurrency']:,.0f} sequences fit; the longest alone has {f['max_context']:,.0f} tokens."
        yield indented(Text(fits, "dim"))
        if (even := f["even_context"]) is not None and math.isfinite(even):
            reads = f"Caches outweigh weights in a pass from {even:,.0f} tokens of context on."
            yield indented(Text(reads, "dim"))

    def _queue(self) -> Iterator[RenderableType]:
        """Tell the load, and the wait."""
        f = self.figures
        yield heading("Load", f"{percent(f['utilisation'])} of what it can answer")
        table = grid("left", "right")
        rows = (
            ("sequences decoded in a replica", f"{f['concurrency']:,.1f}"),
            ("wait before prefill", duration_of(f["queue_time"])),
            *self._pools(),
            (self._alone(), duration_of(f["prefill_time"])),
            ("decode pass", duration_of(f["decode_time"])),
            ("whole request", duration_of(f["request_latency"])),
        )
        for label, value in rows:
            table.add_row(label, value)
        yield indented(table)

    def _alone(self) -> str:
        """Say what prefill alone is: a pass of the whole prompt, which with others comes in chunks if it is long."""
        budget = 0 if "prefill" in self.deployment else self.deployment["token_budget"]
        return (
            "prefill alone, in one pass"
            if 0 < budget < self.workload["prompt"]
            else "prefill alone"
        )

    def _pools(self) -> Iterator[tuple[str, str]]:
        """Yield how busy processors are that only prefill, and those that only decode."""
        f = self.figures
        if f["prefill_busy"] is None:
            return
        yield "processors that prefill are busy", percent(f["prefill_busy"])
        yield "of what the others can decode", percent(f["decode_busy"])
        yield "balanced: prefilling for each decoding", significant(f["balanced_prefill"], 3)
        yield "cache under way", duration_of(f["transfer_time"])

    def _pass(self, name: str) -> Iterator[RenderableType]:
        """Tell the rows of a pass."""
        one = self.served["passes"][name]
        what = {"decode": "Decode pass", "prefill": "Prefill of one prompt"}[name]
        yield heading(what, duration_of(one["time"]))
        columns = (
            Column("name", "row"),
            Column("time", "ms", right=True),
            Column("share", "share", right=True),
            Column("bound", "bound by"),
        )
        rows = [
            {
                "name": row,
                "time": f"{1e3 * own['time']:.3f}",
                "share": percent(own["time"] / one["time"]),
                "bound": "host" if row == "host" else max(BOUNDS, key=own.__getitem__),
            }
            for row, own in one["rows"].items()
            if own["time"] > 0
        ]
        yield indented(Table(columns, rows))
        beyond = self.figures["decode_time"] - one["time"]
        if name == "decode" and beyond > _LATENT:
            said = f"A token takes {duration_of(beyond)} more: hand-overs between stages, and waits for the slowest."
            yield indented(Text(said, "dim"))

    def _helps(self) -> Iterator[RenderableType]:
        """Tell the parts of the machine that are worth the most."""
        figure = {
            "output_rate": "tokens per second",
            "interactivity": "tokens per second of a user",
        }
        yield heading("What would help", f"{figure[self.served['worth']]} for 10 % more")
        table = grid("left", "right")
        for part, elasticity in [*self.served["helps"].items()][:_MOST_PARTS]:
            if elasticity > _LEAST_HELP:
                table.add_row(_BETTER.get(part, part), f"+{100 * (1.1**elasticity - 1):.1f} %")
        yield indented(table)

    def _router(self) -> Iterator[str]:
        """Say how requests at a rate find one of several replicas that prefill."""
        pool = self.deployment.get("prefill", self.deployment)
        if pool["replicas"] > 1 and "rate" in self.workload:
            yield (
                f"One queue for all {pool['replicas']:,} replicas: a request goes to the first that is free. With a "
                "queue for each, as where requests are dealt in turn, it waits longer: as for one replica at its share "
                "of the rate."
            )

    def _assumed(self) -> Iterator[RenderableType]:
        d = self.deployment
        yield heading("Assumed")
        notes = [
            "A steady state of mean values, not a simulation.",
            *self._evidence(),
            f"Admission by {d['admission']}, {d['memory_fraction']:g} of the free memory for the cache, a reserve of "
            f"{d['reserve_gib']:g} GiB; {length_note(self.workload)}.",
            *self._beyond_training(),
            *self._router(),
            *prefix_notes(self.served),
            *draft_notes(self.served),
        ]
        if self.figures["joules_per_token"] is not None:
            notes.append(f"Energy: {self.served['power']}.")
        for note in notes:
            yield indented(Text(note, "dim"))

    def _beyond_training(self) -> Iterator[str]:
        """Say that requests are longer than what the model was trained with, where they are."""
        length, trained = self.workload["prompt"] + self.workload["output"], self.served["seq_size"]
        if 0 < trained < length:
            yield (
                f"Prompt and output have {length:,} tokens, and the model is one of {trained:,} (seq_size): longer "
                "contexts take the time and memory told here, but whether it answers well is not known."
            )


def _joined(*remarks: str) -> str:
    """Join remarks, of which some may be empty."""
    return ", ".join(filter(None, remarks))


def duration_of(seconds: float) -> str:
    """Write a time; without end where requests come faster than they are answered."""
    return "without end" if math.isinf(seconds) else duration(seconds, error=abs(seconds) / 20)


def rate(value: float) -> str:
    """Write a rate with three digits.

    >>> rate(3251.2), rate(20.02), rate(0.5)
    ('3,250', '20.0', '0.500')
    """
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else significant(rounded, 3)


def split_words(d: Document) -> str:
    """Say how a replica is split over processors."""
    split = [f"TP {d['tensor_par']}"]
    split += [f"PP {d['pipeline_par']}"] if d["pipeline_par"] > 1 else []
    split += [f"attention DP {d['attn_data_par']}"] if d["attn_data_par"] > 1 else []
    split += [f"CP {d['context_par']}"] if d["context_par"] > 1 else []
    split += [f"EP {d['expert_par']}"] if d["expert_par"] > 1 else []
    copies = d["redundant_experts"]
    return " ".join(split) + (f" with {counted(copies, 'expert')} twice" if copies else "")


def types_words(d: Document) -> str:
    """Say the types of weights and caches."""
    experts = "" if d["experts_dtype"] == "same" else f", experts {d['experts_dtype']}"
    return f"weights {d['weights_dtype']}{experts}, cache {d['kv_dtype']}"


def deployment_words(d: Document) -> str:
    """Say a deployment in a line."""
    batching = f"{d['batching']} batching"
    if d["batching"] == "continuous":
        budget = d["token_budget"]
        batching += (
            f", passes of {budget:,} tokens" if budget else ", prompts in passes of their own"
        )
    replicas = f"{counted(d['replicas'], 'replica')} of {split_words(d)}"
    if pool := d.get("prefill"):
        batching = "no prompts between"
        replicas += (
            f" decode, {counted(pool['replicas'], 'replica')} of {split_words(pool)} prefill"
        )
    return f"{replicas}; {types_words(d)}; {batching}{exchange_words(d)}"


def exchange_words(d: Document) -> str:
    """Say how tokens choose experts, and what their exchange hides behind, where either is not the default."""
    behind = {"two_batches": "the other half of the batch", "shared_expert": "shared experts"}
    said = [] if d["routing"] == "balanced" else [f"routing {d['routing']}"]
    said += [f"exchange behind {behind[d['overlap']]}"] if d["overlap"] in behind else []
    return "".join(f"; {one}" for one in said)


def _cached(w: Document) -> str:
    """Say what the cache has of prompts."""
    said = f", {percent(w['prefix_hit'])} of the prompt cached" if w["prefix_hit"] else ""
    if "shared_prefix" in w:
        said += f", {w['shared_prefix']:,} in all prompts"
    return f"{said}, {w['turns']:,} turns" if w["turns"] > 1 else said


def _varied(variation: float) -> str:
    """Say how lengths vary."""
    return f" (± {100 * variation:.0f} %)" if variation else ""


def requests_words(w: Document) -> str:
    """Say what is asked: lengths, and how many requests come."""
    prompt = f"{w['prompt']:,} tokens in{_varied(w['prompt_cv'])}"
    output = f"{w['output']:,} out{_varied(w['output_cv'])}"
    return f"{prompt}, {output}{_cached(w)}; {load_words(w)}"


def load_words(w: Document) -> str:
    """Say how many requests come."""
    if "rate" in w:
        return f"{w['rate']:g} requests/s"
    return "as many as it takes" if "users" not in w else f"{counted(w['users'], 'user')}"
