"""The figures of a deployment that serves: each declared once, with its unit."""

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
    """Memory of a rank; its sum is ``mem_used``."""

    NAMES: ClassVar = "mem_{field}"

    weights: Bytes = stat("weights of a rank, those of the stage with the most")
    reserve: Bytes = stat("context, libraries, graphs and workspaces of a rank")
    activation: Bytes = stat("the largest live tensors of a pass, and logits")
    cache: Bytes = stat("keys and values of the sequences at hand")


@record
class PrefixFigures:
    """What of prompts is cached between requests, and where."""

    NAMES: ClassVar = "{field}"

    hit_rate: Fraction = stat("share of the tokens of prompts that a cache still has")
    hit_offloaded: Fraction = stat("share of the tokens of prompts that come from tier 2")
    kept_prefixes: Count = stat(
        "cached prefixes of requests for which tier 1 of a replica has room beside those at hand",
        nullable=True,
    )
    offloaded_prefixes: Count = stat(
        "cached prefixes for which tier 2 has room, where there is one", nullable=True
    )
    waiting_prefixes: Count = stat(
        "conversations of a replica that wait for their next turn", nullable=True
    )
    hit_time: Seconds = stat("time to fetch a cached prefix from tier 2", nullable=True)
    recompute_time: Seconds = stat("time to compute a cached prefix again", nullable=True)
    hit_break_even: BytesPerSecond = stat(
        "bandwidth of tier 2 for each processor from which a prefix is fetched sooner than computed again",
        nullable=True,
    )


@record
class SpeculationFigures:
    """What drafts are worth."""

    NAMES: ClassVar = "spec_{field}"

    tokens: Tokens = stat("tokens of a sequence that a pass yields; 1 without speculation")
    speedup: Fraction = stat(
        "time per token without drafts over that with them, of the batch at hand", nullable=True
    )
    break_even: Count = stat(
        "largest batch of those that fit whose decode passes make tokens faster with drafts; 0: none",
        nullable=True,
    )


@record
class ServingFigures:
    """What a deployment gives, one entry for each deployment and load."""

    ttft: Seconds = stat("time from arrival to the first token: queue and prefill, on average")
    ttft_p: Seconds = stat("the same at the percentile of the workload")
    tpot: Seconds = stat("time per token after the first, on average")
    tpot_p: Seconds = stat("the same at the percentile of the workload")
    itl_max: Seconds = stat(
        "longest time between two tokens, or of speculation between those of two passes: of one that also takes the "
        "last chunk of another prompt, where there is one"
    )
    request_latency: Seconds = stat("time from arrival to the last token")
    interactivity: TokensPerSecond = stat("tokens that a user sees in a second: 1 / tpot")
    output_rate: TokensPerSecond = stat("generated tokens of all replicas")
    output_rate_per_proc: TokensPerSecond = stat("generated tokens for each processor")
    total_rate_per_proc: TokensPerSecond = stat("prompt and generated tokens for each processor")
    run_output_rate: TokensPerSecond = stat(
        "generated tokens of all replicas over a finite run; output_rate where it never ends"
    )
    request_rate: RequestsPerSecond = stat("answered requests of all replicas")
    capacity_rate: RequestsPerSecond = stat("most requests that all replicas can answer")
    concurrency: Count = stat("sequences that a replica generates at a time, on average")
    max_concurrency: Count = stat("most sequences of a replica: by memory, or max_batch")
    max_context: Tokens = stat("longest sequence that fits alone")
    even_context: Tokens = stat(
        "context at which a decode pass reads as many bytes of caches as of weights", nullable=True
    )
    utilisation: Fraction = stat("requests over the most that there can be")
    prefill_share: Fraction = stat("share of the time that prompts take")
    queue_time: Seconds = stat("mean wait before prefill")
    prefill_time: Seconds = stat("prefill of a request with nothing else")
    transfer_time: Seconds = stat(
        "time for which the cache of a prompt is under way to the processors that decode, beyond its prefill"
    )
    prefill_busy: Fraction = stat(
        "share of the time that processors are busy which only prefill, where there are any",
        nullable=True,
    )
    decode_busy: Fraction = stat(
        "requests over the most that the other processors can decode", nullable=True
    )
    balanced_prefill: Count = stat(
        "replicas that prefill for each that decodes, so that neither waits", nullable=True
    )
    decode_time: Seconds = stat("a pass that decodes all sequences at hand, with its drafts")
    usd_per_mtoken: DollarsPerMillion = stat(
        "US dollars for a million generated tokens, where there is a price", nullable=True
    )
    usd_per_mtoken_blended: DollarsPerMillion = stat(
        "US dollars for a million tokens of prompts and generated ones together, where there is a price",
        nullable=True,
    )
    joules_per_token: JoulesPerToken = stat(
        "energy of a generated token, of processors and the rest of their nodes, where a power is known: an estimate, "
        "which assumes what decoding draws",
        nullable=True,
    )
    mem_used: Bytes = stat("memory that a rank uses")
    mem_free: Bytes = stat("memory that a rank has left")
    memory: ServingMemory = part()
    prefixes: PrefixFigures = part()
    speculation: SpeculationFigures = part()


SERVING_FIGURES: dict[str, Column] = {one.name: one for one in columns(ServingFigures)}
"""The figures of deployments by name."""
