"""Page of a serving deployment: latency and throughput, limits, memory, load, passes and assumptions."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict

from calculon.base.units import GIB, duration, significant
from calculon.declarations.plan_words import replica_words
from calculon.declarations.serving_classes import ENGINES, RELEASE, engine_name
from calculon.documents.page import SIDE_BY_SIDE
from calculon.documents.page_title import titled
from calculon.documents.replay_section import replay_section
from calculon.documents.serving_drafts import draft_notes, draft_words
from calculon.documents.serving_prefixes import length_note, prefix_notes, prefix_section
from calculon.estimate.served_errors import WIDEST, basis, short_basis
from calculon.render.digits import WITHOUT_INTERVAL, Digits
from calculon.render.document import (
    Block,
    Document,
    Facts,
    Grid,
    Section,
    SideBySide,
    Styled,
    bold,
    dim,
    labeled,
)
from calculon.render.text_tables import Column, Table
from calculon.render.texts import counted, gibibytes, percent
from calculon.serving.engine_settings import UNTUNED, SettingRecord
from calculon.serving.passes.exchange import MEASURED_ROUTING
from calculon.serving.passes.row_times import CAUSES
from calculon.serving.records.deployment import OF_FREE, OF_TOTAL, Deployment
from calculon.serving.records.load import Workload
from calculon.serving.records.pool import Pool
from calculon.serving.replay.replay_record import ReplayRecord
from calculon.serving.served_record import LimitRecord, PassRecord, ServedRecord

CUTS = {
    "memory": "as many as fit in memory",
    "max_batch": "as many as max_batch allows",
    "token_budget": "as many as token_budget allows while prompts arrive",
    "users": "one per user",
    "rate": "as many as needed to keep up",
    "requests": "all requests of the run",
    "tpot": "as many as the TPOT limit allows",
    "ttft": "as many as the TTFT limit allows",
    "prefill": "as many as the prefill workers supply",
}
"""Reasons why the batch of a replica is limited."""

BOUNDS = {"floor": "floor", "arithmetic": "arithmetic", "memory": "memory", "network": "network"}
"""Components of the time of a row; the longest is its bottleneck."""

PASSES = {"decode": "Decode pass", "prefill": "Prefill of one prompt"}
"""Titles of the sections of passes."""

NO_LIMIT = "no latency limit (--ttft, --tpot)"
"""Words for a workload that bounds neither the time to the first token nor the time per token."""

NOT_VALIDATED = "not validated"
"""Mark of a figure whose published rows differ too much for a useful range."""

_LATENT = 1e-12
"""Share of a cause, or seconds of a delay, below which it is a rounding error."""

_MAX_PARTS = 3
"""Maximum number of machine parts on the page."""

_MIN_HELP = 5e-3
"""Smallest elasticity of a machine part on the page."""

_BETTER = {
    "bandwidth of memory": "memory bandwidth",
    "capacity of memory": "memory capacity",
    "rate of arithmetic": "arithmetic rate",
    "bandwidth of the network": "network bandwidth",
    "latency of small messages": "shorter small-message latency",
    "floors of kernels": "shorter kernel floors",
    "time of the host": "shorter host time",
}
"""Labels of machine parts, whose names are keys of results."""


def serving_page(
    served: ServedRecord, note: str = "", alternatives: Section | None = None
) -> Document:
    """Return the page of a deployment.

    Args:
        served: The deployment.
        note: Explanation of a name that matches several systems.
        alternatives: The best deployments of other kinds, which follow the answer.
    """
    return _ServingPage(served).document(note, alternatives)


def rates_of(served: ServedRecord) -> list[tuple[str, str, str]]:
    """Return latencies and rates of a deployment: name, value, and a remark with the range."""
    return [*_ServingPage(served)._rates()]


def replay_page(found: ReplayRecord) -> Document:
    """Return the page of a replay on its own."""
    return Document("Replay", "", (), (replay_section(found, duration_of, rate),))


class _ServingPage:
    def __init__(self, served: ServedRecord):
        self.served = served
        self.figures = served.figures
        self.deployment, self.workload = served.deployment, served.workload

    def document(self, note: str, alternatives: Section | None) -> Document:
        """Return the complete page."""
        served, procs = self.served, self.deployment.num_procs
        question = {
            "deployment": deployment_words(self.deployment, served.arithmetic),
            "chosen": self._chosen(),
            "requests": limited_words(self.workload),
            "batch": f"{counted(served.batch, 'sequence')} per replica: {self._limit()}",
            "drafts": draft_words(served),
        }
        load = (self._load(), *prefix_section(served))
        parts = (
            self._answer(),
            *([] if served.replay is None else [replay_section(served.replay, duration_of, rate)]),
            *((alternatives,) if alternatives is not None else ()),
            *self._settings(),
            self._causes(),
            SideBySide(((self._memory(),), load), SIDE_BY_SIDE),
            SideBySide(((self._pass("decode"),), (self._pass("prefill"),)), SIDE_BY_SIDE),
            self._helps(),
            Section("Assumed", tuple(map(dim, self._notes()))),
        )
        title = f"{served.model} served by {procs:,} x {served.system}"
        machine = {**served.provenance, "note": note}
        return titled(title, "", machine, lead=(labeled(question),), parts=parts)

    def _chosen(self) -> str:
        """Return the search that found the deployment; empty for a stated one."""
        tried = self.served.tried
        if not tried:
            return ""
        near = not all(one.met for one in self.served.limits)
        best = f"best of {tried:,} by tokens/s, then TPOT"
        words = f"nearest of {tried:,} to the limits" if near else best
        return f"{words} (calculon serve-optimal)"

    def _limit(self) -> str:
        """Return the reason why the batch of a replica is limited."""
        cut = self.served.cut
        if cut in ("tpot", "ttft") and self.served.batch == 1:
            met = {one.name: one.met for one in self.served.limits}
            if not met.get(cut, True):
                return f"even one misses the {cut.upper()} limit"
        thinks = cut == "users" and self.workload.think
        return "as many as users wait for at a time" if thinks else CUTS[cut]

    def _answer(self) -> Section:
        """Return latency, throughput and costs, and the limits that they meet or miss."""
        limits = (
            f"Meets {self._kept(one)}{self._doubt(one)}."
            if one.met
            else bold(f"Misses {one.in_words}.")
            for one in self.served.limits
        )
        facts = Facts((*self._rates(), *self._costs()))
        return Section("", (facts, *limits, *self._basis()))

    def _kept(self, limit: LimitRecord) -> str:
        """Return a limit with the measured figure, in the figure's digits."""
        if limit.name not in ("ttft", "tpot"):
            return limit.in_words
        # Limits are written as given, measured values with their own digits.
        most = f"{limit.most:g} s" if limit.most >= 1 else f"{1e3 * limit.most:g} ms"
        return f"{limit.name.upper()}: {self._duration(limit.name)(limit.found)}, limit {most}"

    def _doubt(self, limit: LimitRecord) -> str:
        """Return a caveat if the range of a figure crosses a limit that it keeps; else empty."""
        one = self.served.ranges.get(limit.name)
        if one is None or limit.found * one.ratio_high <= limit.most:
            return ""
        if not one.validates:
            return f", {NOT_VALIDATED}"
        worst = self._digits(limit.name).duration(limit.found * one.ratio_high, limit.found)
        return f", but its range goes to {worst}"

    def _rates(self) -> Iterator[tuple[str, str, str]]:
        """Yield latencies and rates."""
        f = self.figures
        for name, words in {"ttft": "time to first token", "tpot": "time per token"}.items():
            write = self._duration(name)
            at = f"{write(f[f'{name}_p'])} at {100 * self.workload.percentile:g} %"
            remarks = (
                at if self.workload.rate is not None else "",
                self._range(name, self._digits(name).duration),
            )
            yield words, write(f[name]), _joined(*remarks)
        gap = f"longest gap {self._duration('tpot')(f['itl_max'])}"
        yield "tokens/s per user", self._digits("tpot").rate(f["interactivity"]), gap
        write = self._digits("output_rate").rate
        each = f"{write(f['output_rate_per_proc'])} per processor"
        remark = _joined(self._range("output_rate", write), each)
        yield "generated tokens/s", write(f["output_rate"]), remark
        for one in self.served.settings:
            engine = f"{engine_words(one.engine)}: " if one.name == UNTUNED else ""
            yield f"{one.name} tokens/s", write(one.output_rate), f"{engine}{_limits_of(one)}"
        yield "requests/s", write(f["request_rate"]), f"{write(f['capacity_rate'])} at most"

    def _costs(self) -> Iterator[tuple[str, str, str]]:
        """Yield price, energy and the total time of all requests, as far as they are known."""
        f, price, write = self.figures, self.served.price, self._digits("output_rate").small
        if f["usd_per_mtoken"] is not None:
            yield "USD per 1M generated", write(f["usd_per_mtoken"]), price
            blended = write(f["usd_per_mtoken_blended"])
            yield "USD per 1M tokens", blended, "prompts and generated together"
        elif not price:
            # A question mark with a hint, because most users want the price.
            yield "USD per 1M generated", "?", "no price is known: --set price=2.5 (USD/h)"
        if self.served.run_time is not None:
            count = f"{self.workload.requests:,} requests"
            text = f"{count}, {rate(f['run_output_rate'])} generated tokens/s"
            yield "whole run", duration_of(self.served.run_time), text

    def _digits(self, figure: str) -> Digits:
        """Return the digits that the range of a figure allows."""
        one = self.served.ranges.get(figure)
        # Without useful published rows, digits are those of unmeasured figures.
        return Digits(one.spread if one is not None and one.validates else WITHOUT_INTERVAL)

    def _duration(self, figure: str) -> Callable[[float], str]:
        """Return a function that writes times in the digits of a figure."""
        digits = self._digits(figure)
        return lambda seconds: ENDLESS if math.isinf(seconds) else digits.duration(seconds)

    def _range(self, figure: str, write: Callable[[float, float], str]) -> str:
        """Return the range of a figure from published rows, in the figure's digits; empty without one."""
        one = self.served.ranges.get(figure)
        if one is None:
            return ""
        if not one.validates:
            return NOT_VALIDATED
        return f"({write(one.low, one.value)} to {write(one.high, one.value)})"

    def _basis(self) -> Iterator[Styled]:
        """Yield the class of the deployment, and the published rows that the ranges are based on."""
        served = self.served
        if served.served_class is not None and served.ranges:
            yield dim(f"Ranges of 90 %: {short_basis(served.served_class, served.ranges)}")

    def _evidence(self) -> Iterator[str]:
        """Yield a note on the origin of the ranges."""
        if self.served.served_class is not None and self.served.ranges:
            yield basis(self.served.served_class, self.served.ranges)
            if not all(one.validates for one in self.served.ranges.values()):
                yield f"{NOT_VALIDATED.capitalize()}: published rows differ by a factor above {WIDEST:g}."
            yield (
                "Ranges are based on published measurements (calculon lv --study serving --edition corrected). Rows "
                "with a similar model, engine, hardware and load count more; all rows of one publisher, model, engine "
                "and processor have the same weight; rows that host times were fitted to are left out."
            )

    def _settings(self) -> Iterator[Section]:
        """Yield the figures with the engine's own defaults next to those with the best limits of its scheduler."""
        if not self.served.settings:
            return
        columns = (
            Column("name", "settings"),
            Column("limits", "limits"),
            Column("batch", "sequences", right=True),
            Column("ttft", "to first token", right=True),
            Column("tpot", "per token", right=True),
            Column("rate", "tokens/s", right=True),
        )
        rows = [
            {
                "name": one.name,
                "limits": _limits_of(one),
                "batch": f"{one.batch:,}",
                "ttft": self._duration("ttft")(one.ttft),
                "tpot": self._duration("tpot")(one.tpot),
                "rate": self._digits("output_rate").rate(one.output_rate),
            }
            for one in self.served.settings
        ]
        untuned, achievable = (one.output_rate for one in self.served.settings)
        remark = f"defaults reach {percent(untuned / achievable)} of the achievable tokens/s"
        title = f"{engine_words(self.served.settings[0].engine)}, untuned and achievable"
        yield Section(title, (Table(columns, rows),), remark, opened=True)

    def _causes(self) -> Section:
        """Return the causes of time in decode, in prefill, and in the replica's mix of both."""
        # Under overload the share exceeds 1: the replica then does nothing but prefill.
        share = min(1.0, self.figures["prefill_share"])
        passes = self.served.passes
        decode, prefill = (
            {key: seconds / one.time for key, seconds in asdict(one.causes).items()}
            for one in (passes.decode, passes.prefill)
        )
        both = {key: (1 - share) * decode[key] + share * prefill[key] for key in CAUSES}
        ordered = sorted(CAUSES, key=lambda key: -both[key])
        columns = (
            Column("cause", "time spent on"),
            Column("both", "all", right=True),
            Column("decode", "decoding", right=True),
            Column("prefill", "prefill", right=True),
        )
        rows = [
            {
                "cause": CAUSES[key],
                "both": percent(both[key]),
                "decode": percent(decode[key]),
                "prefill": percent(prefill[key]),
            }
            for key in ordered
            if max(both[key], decode[key], prefill[key]) > _LATENT
        ]
        blocks: list[Block] = [Table(columns, rows)]
        if self.deployment.prefill is None:
            blocks.append(dim(f"Prefill takes {percent(share)} of a replica's time."))
        remark = f"{CAUSES[ordered[0]]}, {percent(both[ordered[0]])} of the time"
        return Section("What limits", tuple(blocks), remark, opened=True)

    def _memory(self) -> Section:
        """Return the memory of a rank, and the number of sequences and tokens that fit."""
        f = self.figures
        whole = f["mem_used"] + f["mem_free"]
        rows = []
        for name in ("weights", "cache", "activation", "reserve", "free"):
            size, style = f[f"mem_{name}"], "dim" if name == "free" else ""
            pieces = Styled(name, style), Styled(gibibytes(size, 1), style)
            rows.append((*pieces, dim(percent(size / whole))))
        fits = f"{f['max_concurrency']:,.0f} sequences fit; a single one can have up to {f['max_context']:,.0f} tokens."
        blocks: list[Block] = [Grid(("left", "right", "right"), tuple(rows)), dim(fits)]
        if (even := f["even_context"]) is not None and math.isfinite(even):
            reads = (
                f"Beyond {even:,.0f} tokens of context, a pass reads more KV cache than weights."
            )
            blocks.append(dim(reads))
        remark = f"GiB per rank, of {gibibytes(whole, 1)}"
        return Section("Memory", tuple(blocks), remark, opened=True)

    def _load(self) -> Section:
        """Return the load, and the waiting times."""
        f = self.figures
        rows = (
            ("sequences decoding per replica", f"{f['concurrency']:,.1f}"),
            ("wait before prefill", duration_of(f["queue_time"])),
            *self._pools(),
            (self._prefill_label(), duration_of(f["prefill_time"])),
            ("decode pass", duration_of(f["decode_time"])),
            ("whole request", duration_of(f["request_latency"])),
            *self._energy(),
        )
        remark = f"{percent(f['utilization'])} of capacity"
        return Section("Load", (Grid(("left", "right"), rows),), remark, opened=True)

    def _energy(self) -> Iterator[tuple[str, str]]:
        """Yield the energy of a token, an estimate from assumed power."""
        if (joules := self.figures["joules_per_token"]) is not None:
            yield "J per generated token", self._digits("output_rate").small(joules)

    def _prefill_label(self) -> str:
        """Return the label of the prefill time of a lone request; under load, chunked prefill splits a long prompt."""
        budget = self.deployment.token_budget if self.deployment.prefill is None else 0
        return (
            "prefill alone, in one pass" if 0 < budget < self.workload.prompt else "prefill alone"
        )

    def _pools(self) -> Iterator[tuple[str, str]]:
        """Yield the utilization of prefill workers and of decode workers."""
        f = self.figures
        if f["prefill_busy"] is None:
            return
        yield "prefill workers busy", percent(f["prefill_busy"])
        yield "decode workers, of capacity", percent(f["decode_busy"])
        yield "prefill per decode worker, balanced", significant(f["balanced_prefill"], 3)
        yield "KV cache transfer", duration_of(f["transfer_time"])

    def _pass(self, name: str) -> Section:
        """Return the rows of a pass."""
        one: PassRecord = getattr(self.served.passes, name)
        columns = (
            Column("name", "row"),
            Column("time", "ms", right=True),
            Column("share", "share", right=True),
            Column("bound", "bound by"),
        )
        rows = [
            {
                "name": row,
                "time": f"{1e3 * own.time:.3f}",
                "share": percent(own.time / one.time),
                "bound": "host" if row == "host" else max(BOUNDS, key=asdict(own).__getitem__),
            }
            for row, own in one.rows.items()
            if own.time > 0
        ]
        blocks: list[Block] = [Table(columns, rows)]
        # Passes are timed on one stage; hand-overs and the slowest rank add to the time of a token.
        beyond = self.figures["decode_time"] - one.time
        if name == "decode" and beyond > _LATENT:
            said = f"Each token takes another {duration_of(beyond)} for stage-to-stage transfers and the slowest rank."
            blocks.append(dim(said))
        return Section(PASSES[name], tuple(blocks), duration_of(one.time), opened=True)

    def _helps(self) -> Section:
        """Return the machine parts whose improvement raises the rate most."""
        figure = {
            "output_rate": "tokens per second",
            "interactivity": "tokens per second per user",
        }
        rows = tuple(
            (_BETTER.get(part, part), f"+{100 * (1.1**elasticity - 1):.1f} %")
            for part, elasticity in [*self.served.helps.items()][:_MAX_PARTS]
            if elasticity > _MIN_HELP
        )
        remark = f"gain in {figure[self.served.worth]} from 10 % better hardware"
        return Section("What would help", (Grid(("left", "right"), rows),), remark)

    def _router(self) -> Iterator[str]:
        """Yield a note on the queue shared by several replicas."""
        pool = self.deployment.prefill or self.deployment
        if pool.replicas > 1 and self.workload.rate is not None:
            yield (
                f"All {pool.replicas:,} replicas share a queue: a request goes to the first free one. With separate "
                "queues (round-robin routing), requests wait longer, as for a single replica at its share of the rate."
            )

    def _notes(self) -> Iterator[str]:
        """Yield the assumptions of the estimate."""
        d = self.deployment
        yield "Steady state of mean values, not a simulation."
        yield from self._evidence()
        yield (
            f"Admission: {d.admission}; {_memory_words(d)}, {d.reserve / GIB:g} GiB in reserve; "
            f"{length_note(self.workload)}."
        )
        yield from self._router()
        yield from prefix_notes(self.served)
        yield from draft_notes(self.served)
        if self.figures["joules_per_token"] is not None:
            yield f"Energy: {self.served.power}."


def engine_words(engine: str) -> str:
    """Return the name of an engine, with its release if stated.

    >>> engine_words("vllm@0.9"), engine_words("sglang")
    ('vLLM 0.9', 'SGLang')
    """
    return " ".join(filter(None, (ENGINES[engine_name(engine)], engine.partition(RELEASE)[2])))


def _memory_words(d: Deployment) -> str:
    """Return the share of the memory that the KV cache may use."""
    if d.memory_share == OF_FREE:
        return f"{d.memory_fraction:g} of the free memory for the KV cache"
    held = "weights, activations" if d.memory_share == OF_TOTAL else "weights"
    return f"{d.memory_fraction:g} of all memory for {held} and the KV cache"


def _limits_of(setting: SettingRecord) -> str:
    """Return the limits of a scheduler in words."""
    most = f"at most {setting.max_batch:,}" if setting.max_batch else "as many as fit"
    budget = setting.token_budget
    return f"{most}, {f'passes of {budget:,} tokens' if budget else 'separate prefill'}"


def _joined(*remarks: str) -> str:
    """Join the remarks that are not empty."""
    return ", ".join(filter(None, remarks))


ENDLESS = "unbounded"
"""Waiting time if requests arrive faster than they are answered."""


def duration_of(seconds: float) -> str:
    """Write a time; ``unbounded`` if requests arrive faster than they are answered."""
    return ENDLESS if math.isinf(seconds) else duration(seconds, error=abs(seconds) / 20)


def rate(value: float) -> str:
    """Write a rate with three digits.

    >>> rate(3251.2), rate(20.02), rate(0.5)
    ('3,250', '20.0', '0.500')
    """
    # Round first: 99.96 has three digits as 100, not as 100.0.
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else significant(rounded, 3)


def split_words(d: Pool) -> str:
    """Return the split of a replica across processors."""
    copies = d.redundant_experts
    return replica_words(d.to_dict()) + (
        f" with {counted(copies, 'expert')} twice" if copies else ""
    )


def pool_words(d: Pool) -> str:
    """Return the replicas of a deployment or a pool, and the split of each."""
    return f"{d.replicas:,} x {split_words(d)}"


def types_words(d: Deployment, arithmetic: str = "") -> str:
    """Return the data types of weights and KV cache; `arithmetic` is the wider type that they are multiplied in."""
    experts = "" if d.experts_dtype == "same" else f", experts {d.experts_dtype}"
    wider = f" (multiplied in {arithmetic})" if arithmetic else ""
    return f"weights {d.weights_dtype}{experts}{wider}, cache {d.kv_dtype}"


def deployment_words(d: Deployment, arithmetic: str = "") -> str:
    """Return a deployment in one line; `arithmetic` as in :func:`types_words`."""
    batching = f"{d.batching} batching"
    if d.batching == "continuous":
        budget = d.token_budget
        batching += f", passes of {budget:,} tokens" if budget else ", prompts in separate passes"
    replicas = f"{counted(d.replicas, 'replica')} of {split_words(d)}"
    if pool := d.prefill:
        batching = "no prefill in between"
        replicas += f" decode, {counted(pool.replicas, 'replica')} of {split_words(pool)} prefill"
    return f"{replicas}; {types_words(d, arithmetic)}; {batching}{exchange_words(d)}"


def exchange_words(d: Deployment) -> str:
    """Return the routing of tokens to experts, and the work that hides its all-to-all; empty for the defaults."""
    behind = {"two_batches": "the other half of the batch", "shared_expert": "shared experts"}
    said = [] if d.routing == MEASURED_ROUTING else [f"routing {d.routing}"]
    said += [f"all-to-all hidden behind {behind[d.overlap]}"] if d.overlap in behind else []
    return "".join(f"; {one}" for one in said)


def _cached(w: Workload) -> str:
    """Return the cached share of prompts."""
    said = f", {percent(w.prefix_hit)} of the prompt cached" if w.prefix_hit else ""
    if w.shared_prefix is not None:
        said += f", {w.shared_prefix:,} shared by all prompts"
    return f"{said}, {w.turns:,} turns" if w.turns > 1 else said


def _varied(variation: float) -> str:
    """Return the variation of lengths."""
    return f" (± {100 * variation:.0f} %)" if variation else ""


def requests_words(w: Workload) -> str:
    """Return the lengths and the number of requests."""
    prompt = f"{w.prompt:,} tokens in{_varied(w.prompt_cv)}"
    output = f"{w.output:,} out{_varied(w.output_cv)}"
    return f"{prompt}, {output}{_cached(w)}; {load_words(w)}"


def limited_words(w: Workload) -> str:
    """Return the lengths and number of requests, and say so if no latency limit bounds the batch."""
    unlimited = w.ttft_limit is None and w.tpot_limit is None
    return f"{requests_words(w)}; {NO_LIMIT}" if unlimited else requests_words(w)


def load_words(w: Workload) -> str:
    """Return the request rate, or the number of users."""
    if w.rate is not None:
        return f"{w.rate:,g} requests/s"
    return "saturating load" if w.users is None else f"{counted(w.users, 'user')}"
