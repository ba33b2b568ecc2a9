"""Figures of serving deployments (TTFT, TPOT, throughput, KV cache, cost), each declared once with its unit."""

from typing import Annotated, ClassVar

from calculon.base.records import Column, columns, part, record, stat
from calculon.base.units import (
    Array,
    Bytes,
    BytesPerSecond,
    Count,
    Fraction,
    Seconds,
    TokensPerSecond,
    Unit,
)

RequestsPerSecond = Annotated[Array, Unit("requests/s")]
DollarsPerMillion = Annotated[Array, Unit("USD/Mtoken")]
JoulesPerToken = Annotated[Array, Unit("J/token")]
Tokens = Annotated[Array, Unit("tokens")]


@record
class ServingMemory:
    """Memory of a rank; the sum is ``mem_used``."""

    NAMES: ClassVar = "mem_{field}"

    weights: Bytes = stat("weights of a rank, in the stage with the most")
    reserve: Bytes = stat("context, libraries, graphs and workspaces of a rank")
    activation: Bytes = stat("largest live tensors of a pass, and logits")
    cache: Bytes = stat("KV cache of the concurrent sequences")


@record
class PrefixFigures:
    """Prefix caching: cached parts of prompts between requests, and their location."""

    NAMES: ClassVar = "{field}"

    hit_rate: Fraction = stat("share of prompt tokens found in a cache")
    hit_offloaded: Fraction = stat("share of prompt tokens loaded from host memory or disk")
    kept_prefixes: Count = stat(
        "cached prefixes that fit in the memory of a replica in addition to the concurrent requests",
        nullable=True,
    )
    offloaded_prefixes: Count = stat(
        "cached prefixes that fit in host memory or on disk, if they are offloaded", nullable=True
    )
    waiting_prefixes: Count = stat(
        "conversations of a replica that wait for their next turn", nullable=True
    )
    hit_time: Seconds = stat("time to fetch an offloaded prefix", nullable=True)
    recompute_time: Seconds = stat("time to recompute a cached prefix", nullable=True)
    hit_break_even: BytesPerSecond = stat(
        "bandwidth of host memory or disk per processor above which fetching a prefix is faster than recomputing it",
        nullable=True,
    )


@record
class SpeculationFigures:
    """Benefit of speculative decoding."""

    NAMES: ClassVar = "spec_{field}"

    tokens: Tokens = stat("tokens per sequence and decode pass; 1 without speculation")
    speedup: Fraction = stat(
        "time per token without drafts over time with drafts, at the present batch", nullable=True
    )
    break_even: Count = stat(
        "largest feasible batch at which drafts speed up decoding; 0: none",
        nullable=True,
    )


@record
class ServingFigures:
    """Figures of a deployment, one entry per deployment and load."""

    ttft: Seconds = stat("mean time to first token: queue and prefill")
    ttft_p: Seconds = stat("time to first token at the percentile of the workload")
    tpot: Seconds = stat("mean time per token after the first")
    tpot_p: Seconds = stat("time per token at the percentile of the workload")
    itl_max: Seconds = stat(
        "longest time between two tokens (with speculation: between two passes): a pass that also processes the last "
        "prefill chunk of another prompt, if there is one"
    )
    request_latency: Seconds = stat("time from arrival to the last token")
    interactivity: TokensPerSecond = stat("tokens per second for one user: 1 / tpot")
    output_rate: TokensPerSecond = stat("generated tokens of all replicas")
    output_rate_per_proc: TokensPerSecond = stat("generated tokens per processor")
    total_rate_per_proc: TokensPerSecond = stat("prompt and generated tokens per processor")
    run_output_rate: TokensPerSecond = stat(
        "generated tokens of all replicas over a finite run; equals output_rate for an endless one"
    )
    request_rate: RequestsPerSecond = stat("answered requests of all replicas")
    capacity_rate: RequestsPerSecond = stat("largest request rate of all replicas")
    concurrency: Count = stat("mean number of sequences that a replica generates concurrently")
    max_concurrency: Count = stat(
        "largest number of sequences of a replica, by memory and the largest batch"
    )
    max_context: Tokens = stat("longest sequence that fits alone")
    even_context: Tokens = stat(
        "context at which a decode pass reads as many bytes of KV cache as of weights",
        nullable=True,
    )
    utilization: Fraction = stat("request rate over the largest possible one")
    prefill_share: Fraction = stat("share of the time spent on prefill")
    queue_time: Seconds = stat("mean wait before prefill")
    prefill_time: Seconds = stat("prefill of a request on an idle replica")
    transfer_time: Seconds = stat(
        "time to transfer the KV cache of a prompt to the decode processors, beyond its prefill"
    )
    prefill_busy: Fraction = stat(
        "utilization of prefill-only processors, if there are any",
        nullable=True,
    )
    decode_busy: Fraction = stat(
        "request rate over the largest that the decode processors support", nullable=True
    )
    balanced_prefill: Count = stat(
        "prefill replicas per decode replica for balanced load", nullable=True
    )
    decode_time: Seconds = stat("time of a decode pass of all concurrent sequences, with drafts")
    usd_per_mtoken: DollarsPerMillion = stat(
        "US dollars per million generated tokens, if a price is known", nullable=True
    )
    usd_per_mtoken_blended: DollarsPerMillion = stat(
        "US dollars per million tokens, prompt and generated together, if a price is known",
        nullable=True,
    )
    joules_per_token: JoulesPerToken = stat(
        "energy per generated token, of processors and the rest of their nodes, if a power is known: an estimate that "
        "assumes the power of decoding",
        nullable=True,
    )
    mem_used: Bytes = stat("memory used by a rank")
    mem_free: Bytes = stat("free memory of a rank")
    memory: ServingMemory = part()
    prefixes: PrefixFigures = part()
    speculation: SpeculationFigures = part()


SERVING_FIGURES: dict[str, Column] = {one.name: one for one in columns(ServingFigures)}
"""Figures of deployments by name."""
