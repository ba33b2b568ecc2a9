"""Record of a deployment: the way a model is served, with its parallelism, data types and scheduler."""

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from math import ceil, inf
from typing import Any, ClassVar

from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.base.units import GIB, Array, Count
from calculon.declarations.fields import declare, spec_fields
from calculon.declarations.serving_classes import ANY_ENGINE, ENGINE_CHOICES
from calculon.hardware.serving import ENGINE_KERNELS, FASTEST
from calculon.serving.caches.prefixes import NO_TIER, OFFLOADS
from calculon.serving.passes.exchange import (
    EXCHANGES,
    FASTEST_EXCHANGE,
    MEASURED_ROUTING,
    ROUTINGS,
)
from calculon.serving.records.number_types import CACHE_TYPES, WEIGHT_TYPES
from calculon.serving.records.pool import Pool
from calculon.serving.records.speculation import DRAFTS, MTP, MTP_ACCEPTANCE, NO_DRAFT

ADMISSIONS = {
    "reserve": "the whole prompt and output",
    "mean": "the prompt and half of the output, the average of a sequence",
}
"""KV cache that has to be free before a request is admitted.

Schedulers that admit by the prompt alone (vLLM) also hold the average: beyond that they preempt running requests.
"""

OVERLAPS = {
    "none": "nothing",
    "two_batches": "the other half of the batch, which reads all weights once more",
    "shared_expert": "the shared experts",
}
"""Work that overlaps the exchange of tokens with experts (DeepSeek-V3, arXiv 2412.19437, section 3.4.2)."""

OF_FREE, OF_TOTAL, OF_STATIC = "free", "total", "static"

MEMORY_SHARES = {
    OF_FREE: "the memory left by weights, activations and reserve",
    OF_TOTAL: "all memory, for weights, activations and the KV cache",
    OF_STATIC: "all memory, for weights and the KV cache",
}
"""Memory that engines state a share of."""

_TRTLLM = "TensorRT-LLM, scheduler policy GUARANTEED_NO_EVICT (recalled)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment(Pool):
    """Replicas of a model: split of each replica over processors, data types, and scheduler."""

    silent_keys: ClassVar[tuple[str, ...]] = ("about",)

    prefill: Pool | None = declare(
        "processors that only prefill and send their KV caches on (disaggregated prefill), with the same data types; "
        "num_procs includes them. If absent, every replica prefills and decodes",
        default=None,
        source="Zhong et al., DistServe, arXiv 2401.09670; Patel et al., Splitwise, arXiv 2311.18677",
    )
    engine: str = declare(
        "inference engine, possibly with its release (vllm@0.11), whose defaults fill in fields that are not stated "
        "(calculon catalog engines); its published rows have more weight in prediction intervals",
        choices=ENGINE_CHOICES,
        default=ANY_ENGINE,
    )
    routing: str = declare(
        "distribution of tokens over experts: even (the same number in each pass), balanced (equally likely), or a "
        "power law, with all ranks waiting for the busiest",
        choices=tuple(ROUTINGS),
        default=MEASURED_ROUTING,
        source="aiconfigurator, docs/POWER_LAW_DISTRIBUTION.md: exponents of DeepSeek-R1 (1.01) and Qwen3-235B (1.2)",
    )
    expert_kernels: str = declare(
        "engine whose kernels run layers of experts; fastest: the fastest measured with the type of their weights "
        "(ext.serving.expert_kernels of the system)",
        choices=(FASTEST, *ENGINE_KERNELS),
        default=FASTEST,
        source="aiconfigurator, measured layers of experts by engine (systems/measured/README.md)",
    )
    dispatch_dtype: str = declare(
        "type in which tokens are sent to their experts; same: the type in which experts compute. Results return in 16 "
        "bits",
        choices=("same", "bfloat16", "float8"),
        default="same",
        source="DeepSeek-V3, arXiv 2412.19437, section 3.3.3",
    )
    exchange: str = declare(
        "implementation of the exchange of tokens with experts: "
        + "; ".join(f"{name}: {words}" for name, words in EXCHANGES.items()),
        choices=tuple(EXCHANGES),
        default=FASTEST_EXCHANGE,
        source="vLLM, --all2all-backend; SGLang, --moe-a2a-backend",
    )
    overlap: str = declare(
        "work that overlaps the exchange with experts: "
        + "; ".join(f"{name}: {words}" for name, words in OVERLAPS.items()),
        choices=tuple(OVERLAPS),
        default="none",
    )
    weights_dtype: str = declare(
        "type of the weights of matrix products; int8, int4_g128 and types without an engine compute in 16 bits",
        choices=tuple(WEIGHT_TYPES),
        control="Weights",
        default="bfloat16",
        label="weights",
    )
    experts_dtype: str = declare(
        "type of the weights of routed experts; same: weights_dtype",
        choices=("same", *WEIGHT_TYPES),
        default="same",
        label="experts",
    )
    head_dtype: str = declare(
        "type of the weights of the LM head",
        choices=tuple(WEIGHT_TYPES),
        default="bfloat16",
        label="LM head",
    )
    kv_dtype: str = declare(
        "type of the KV cache",
        choices=tuple(CACHE_TYPES),
        control="KV cache",
        default="bfloat16",
        label="cache",
    )
    batching: str = declare(
        "continuous: a sequence that ends is replaced at once; static: a batch starts together, and the next batch "
        "starts when the longest sequence ends",
        choices=("continuous", "static"),
        default="continuous",
    )
    max_batch: int = declare(
        "maximum sequences of a replica; 0: as many as fit into memory",
        at_least=0,
        control="Largest batch",
        default=0,
    )
    token_budget: int = declare(
        "maximum tokens of a pass, which mixes decoding with chunks of prompts (chunked prefill); 0: prompts are not "
        "chunked and run in separate passes",
        unit="tokens",
        at_least=0,
        control="Token budget",
        words={0: "separate prefill"},
        default=8192,
        source="vLLM V1, --max-num-batched-tokens of an API server on GPUs with at least 70 GB (recalled)",
    )
    balanced_prompts: bool = declare(
        "with attention data parallelism, groups wait until they can take prompts in the same passes; otherwise all "
        "groups wait whenever one of them takes a prompt",
        default=False,
        source="TensorRT-LLM, attention_dp_config, enable_balance; tech blog 10, ADP Balance Strategy",
    )
    admission: str = declare(
        "part of a request that has to fit into the KV cache before it starts: "
        + "; ".join(f"{name}: {words}" for name, words in ADMISSIONS.items()),
        choices=tuple(ADMISSIONS),
        default="reserve",
        source=_TRTLLM,
    )
    kv_block: int = declare(
        "tokens per block of the KV cache; the last block of a sequence is half empty",
        unit="tokens",
        at_least=1,
        default=16,
        source="vLLM, --block-size",
    )
    memory_share: str = declare(
        "what memory_fraction is a share of: "
        + "; ".join(f"{name}: {words}" for name, words in MEMORY_SHARES.items()),
        choices=tuple(MEMORY_SHARES),
        default=OF_FREE,
        source="vLLM, --gpu-memory-utilization (total); SGLang, --mem-fraction-static (static)",
    )
    memory_fraction: float = declare(
        "share of memory_share that the KV cache may use, or all of the memory that the share names",
        above=0,
        at_most=1,
        default=0.9,
        source="TensorRT-LLM, free_gpu_memory_fraction",
    )
    cache_offload: str = declare(
        "destination of cached prefixes that do not fit into memory: "
        + "; ".join(f"{name}: {words}" for name, words in OFFLOADS.items()),
        choices=tuple(OFFLOADS),
        default=NO_TIER,
    )
    reserve: float = declare(
        "memory of a rank for the context, libraries, graphs and workspaces",
        key="reserve_gib",
        unit="GiB",
        scale=GIB,
        at_least=0,
        default=4 * GIB,
        source="assumption",
    )
    graphs: bool = declare(
        "launch kernels as a graph; false: the host launches each kernel, which takes at least as long",
        default=True,
    )
    prefill_graphs: bool = declare(
        "launch passes with prompts as a graph, too; false: the host launches each of their kernels, as in engines "
        "that capture graphs for decoding only",
        default=True,
    )
    graph_tokens: int | None = declare(
        "largest pass of a group of ranks that is launched as a graph, in tokens; if absent graphs hold any pass",
        unit="tokens",
        at_least=1,
        default=None,
        source="vLLM, --max-cudagraph-capture-size; SGLang, --cuda-graph-max-bs",
    )
    request_time: float = declare(
        "fixed time of a request outside of passes, which adds to its time to the first token: HTTP, tokenizer, "
        "queue of the scheduler, first launch",
        unit="s",
        at_least=0,
        default=0.0,
    )
    pass_host: float | None = declare(
        "host time of a pass: scheduling, preparation of inputs, sampling; if absent ext.serving.step_host of the "
        "system",
        unit="s",
        at_least=0,
        default=None,
    )
    sequence_host: float = declare(
        "further host time of a pass for each of its sequences: sampling, detokenization, bookkeeping",
        unit="s",
        at_least=0,
        default=0.0,
    )
    async_host: bool = declare(
        "the host prepares the next pass while the processors run this one, so that only host time beyond the pass "
        "counts; false: passes wait for all of it",
        default=False,
        source="Zheng et al., SGLang v0.4, lmsys.org, 2024; TensorRT-LLM, Overlap Scheduler; vLLM, pull request 27614",
    )
    shared_heads: bool = declare(
        "attention reads a key/value head once for all query heads that share it (grouped-query attention); false: "
        "once per query head, like engines before 2024",
        default=True,
    )
    draft: str = declare(
        "source of drafted tokens for speculative decoding; none: no speculation; mtp: the multi-token prediction "
        "modules of the model (mtp_layers); ngram: matches in the text so far, without a pass; model:NAME: a smaller "
        "model of the catalog or a file",
        choices=DRAFTS,
        default=NO_DRAFT,
        source="Leviathan et al., arXiv 2211.17192; DeepSeek-V3, arXiv 2412.19437, section 5.4.3",
    )
    draft_tokens: int | None = declare(
        "tokens drafted per verification; if absent one per prediction module of the model (mtp)",
        unit="tokens",
        at_least=0,
        default=None,
        with_="draft",
    )
    acceptance: float | None = declare(
        "probability that a drafted token is accepted if the ones before it are; if absent "
        f"{MTP_ACCEPTANCE:g} (mtp with one drafted token), or derived from accepted",
        at_least=0,
        at_most=1,
        default=None,
        source="DeepSeek-V3, arXiv 2412.19437, section 5.4.3: 85 to 90 % of second tokens",
        with_="draft",
    )
    accepted: float | None = declare(
        "mean drafted tokens accepted per verification, instead of acceptance",
        unit="tokens",
        at_least=0,
        default=None,
        with_="draft",
    )
    price: float | None = declare(
        "US dollars per processor-hour; if absent the rent in ext.price of the system",
        unit="USD/h",
        at_least=0,
        default=None,
    )
    name: str = field(default="deployment", compare=False)
    document: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def contradictions(self) -> Iterator[Problem]:
        """Yield contradictions between fields."""
        # the checks of a pool would report misleading problems for a pool without processors
        if self.prefill is not None and self.own_procs < 1:
            wanted = f"more than prefill.num_procs={self.prefill.num_procs}, which it includes"
            yield Problem("num_procs", wanted, str(self.num_procs))
            return
        yield from Pool.contradictions(self)
        if self.prefill is not None and self.cache_offload != NO_TIER:
            hint = "prefixes of a pool that only prefills are assumed to be in its memory"
            yield Problem("cache_offload", NO_TIER, self.cache_offload, hint)
        if self.prefill is not None and self.batching == "static":
            hint = "a static batch is prefilled where it is decoded"
            yield Problem("batching", "continuous, because of prefill", self.batching, hint)
        # the rows of the largest group of ranks; pipeline stages each take a share of the sequences
        rows = ceil(self.max_batch / self.attn_data_par) * (1 + (self.draft_tokens or 0))
        if self.token_budget and rows > self.token_budget * self.pipeline_par:
            drafted = f" * (1 + draft_tokens) = {rows}" if self.draft_tokens else ""
            stages = f" / pipeline_par={self.pipeline_par}" * (self.pipeline_par > 1)
            wanted = f"at least max_batch={self.max_batch}{drafted}{stages}, or 0"
            hint = "a pass has a token of every sequence" + (
                ", and the drafted tokens" * bool(drafted)
            )
            yield Problem("token_budget", wanted, str(self.token_budget), hint)
        yield from self._of_no_draft() if self.draft == NO_DRAFT else self._of_draft()

    def _of_no_draft(self) -> Iterator[Problem]:
        """Yield the fields of speculative decoding that are stated although nothing drafts."""
        for name in OF_DRAFTS:
            if (value := getattr(self, name)) is not None:
                hint = "draft states the source of drafted tokens"
                yield Problem(name, f"none, because draft={NO_DRAFT}", f"{value:g}", hint)

    def _of_draft(self) -> Iterator[Problem]:
        """Yield contradictions and missing fields of speculative decoding."""
        if self.batching == "static":
            hint = "speculative sequences of a static batch get out of step, which is not modeled"
            yield Problem(
                "batching", f"continuous, because draft={self.draft}", self.batching, hint
            )
        if self.draft_tokens is None and self.draft != MTP:
            yield Problem("draft_tokens", f"a number, because draft={self.draft}", "none")
        if self.acceptance is not None and self.accepted is not None:
            yield Problem("acceptance", "one of acceptance and accepted", "both")
        elif self.acceptance is None and self.accepted is None and self.draft != MTP:
            hint = "it depends on the draft and on the text; engines report it"
            wanted = f"a share, or accepted, because draft={self.draft}"
            yield Problem("acceptance", wanted, "neither", hint)
        most = self.draft_tokens
        if self.accepted is not None and most is not None and self.accepted > most:
            yield Problem("accepted", f"at most draft_tokens={most}", f"{self.accepted:g}")

    @property
    def own_procs(self) -> int:
        """Processors that decode, and also prefill unless a separate pool does."""
        return self.num_procs - (0 if self.prefill is None else self.prefill.num_procs)

    @property
    def prefill_deployment(self) -> "Deployment | None":
        """Deployment of the processors that only prefill; None without them."""
        if self.prefill is None:
            return None
        # prefill replicas share data types and engine with the deployment, but have no batch limit and no chunks
        split: dict[str, Any] = {
            one.name: getattr(self.prefill, one.name) for one in spec_fields(Pool)
        }
        alone: dict[str, Any] = {
            "prefill": None,
            "max_batch": 0,
            "token_budget": 0,
        }
        return replace(self, **split, **alone)

    def without_draft(self) -> "Deployment":
        """Return the deployment without speculative decoding."""
        return replace(self, draft=NO_DRAFT, draft_tokens=None, acceptance=None, accepted=None)

    @property
    def in_words(self) -> str:
        """Replicas and the split of each, the prefill pool, and data types other than 16 bits."""
        pool = [] if self.prefill is None else [f"prompts by {self.prefill.split_in_words}"]
        types = {
            "weights": self.weights_dtype,
            "experts": self.of_experts,
            "cache": self.kv_dtype,
        }
        narrow = [f"{what} {name}" for what, name in types.items() if name != "bfloat16"]
        if self.experts_dtype == "same":
            narrow = [one for one in narrow if not one.startswith("experts")]
        return ", ".join((self.split_in_words, *pool, *narrow))

    @property
    def of_experts(self) -> str:
        """Type of the weights of routed experts."""
        return self.weights_dtype if self.experts_dtype == "same" else self.experts_dtype

    def in_graphs(self, prompts: Count, tokens: Count | float = 0.0) -> Array:
        """Return a mask of passes that are launched as graphs.

        Args:
            prompts: Prompts of which a pass takes a chunk.
            tokens: Tokens of a pass of a group of ranks.
        """
        most = inf if self.graph_tokens is None else self.graph_tokens
        return self.graphs & (self.prefill_graphs | (prompts <= 0)) & (tokens <= most)

    @property
    def mixes(self) -> bool:
        """True if passes decode and take chunks of prompts at once (chunked prefill)."""
        return self.batching == "continuous" and self.token_budget > 0 and self.prefill is None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields in the form of a file, without fields that are left open."""
        result: dict[str, Any] = {}
        for one in spec_fields(Deployment):
            value = getattr(self, one.name)
            scaled = one.declaration.scale != 1.0
            if isinstance(value, Pool):
                value = value.to_dict()
            if value is not None:
                result[one.key] = value / one.declaration.scale if scaled else value
        return result


OF_DRAFTS = tuple(one.name for one in spec_fields(Deployment) if one.declaration.with_ == "draft")
"""Fields that apply only with a draft."""
