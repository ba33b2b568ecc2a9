"""A deployment: the record of how a model is served."""

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from math import ceil
from typing import Any, ClassVar

from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.base.units import GIB, Array, Count
from calculon.declarations.fields import declare, spec_fields
from calculon.declarations.serving_classes import ANY_ENGINE, ENGINES
from calculon.serving.caches.prefixes import NO_TIER, OFFLOADS
from calculon.serving.passes.exchange import ROUTINGS
from calculon.serving.records.number_types import CACHE_TYPES, WEIGHT_TYPES
from calculon.serving.records.pool import Pool
from calculon.serving.records.speculation import DRAFTS, MTP, MTP_ACCEPTANCE, NO_DRAFT

ADMISSIONS = {
    "reserve": "prompt and output whole",
    "mean": "prompt and half of the output, which sequences have on average",
}
"""Cache that a request must find free before it is admitted.

Schedulers that admit by the prompt alone (vLLM) hold what fits on average, too: beyond that they evict what they had.
"""

OVERLAPS = {
    "none": "nothing",
    "two_batches": "the work of the other half of the batch, which reads all weights once more",
    "shared_expert": "the shared experts",
}
"""Work behind which the exchange between tokens and experts hides (DeepSeek-V3, arXiv 2412.19437, section 3.4.2)."""

_TRTLLM = "TensorRT-LLM, scheduler policy GUARANTEED_NO_EVICT (recalled)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment(Pool):
    """Replicas of a model, how each is split over processors, its types of numbers, and its scheduler."""

    silent_keys: ClassVar[tuple[str, ...]] = ("about",)

    prefill: Pool | None = declare(
        "processors of their own that prefill, with the same types of numbers, and hand caches on; num_procs counts "
        "them, too. If absent, replicas prefill and decode",
        default=None,
        source="Zhong et al., DistServe, arXiv 2401.09670; Patel et al., Splitwise, arXiv 2311.18677",
    )
    engine: str = declare(
        "engine that runs it, whose published rows count more for the ranges of figures; no figure depends on it",
        choices=(ANY_ENGINE, *ENGINES),
        default=ANY_ENGINE,
    )
    routing: str = declare(
        "how evenly tokens choose experts: all alike, or by a power law, where all ranks wait for the fullest",
        choices=tuple(ROUTINGS),
        default="balanced",
        source="aiconfigurator, docs/POWER_LAW_DISTRIBUTION.md, of the exponents",
    )
    dispatch_dtype: str = declare(
        "type in which tokens are sent to their experts; same: that of the arithmetic of experts. Results come back in "
        "16 bits",
        choices=("same", "bfloat16", "float8"),
        default="same",
        source="DeepSeek-V3, arXiv 2412.19437, section 3.3.3",
    )
    overlap: str = declare(
        "what the exchange with experts hides behind: "
        + "; ".join(f"{name}: {words}" for name, words in OVERLAPS.items()),
        choices=tuple(OVERLAPS),
        default="none",
    )
    weights_dtype: str = declare(
        "type of the weights of products; int8, int4_g128 and what the engine lacks compute in 16 bits",
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
        "type of cached keys and values",
        choices=tuple(CACHE_TYPES),
        control="Cache",
        default="bfloat16",
        label="cache",
    )
    batching: str = declare(
        "continuous: a sequence that ends makes room for the next; static: all of a batch start together, and the next "
        "batch when the last ends",
        choices=("continuous", "static"),
        default="continuous",
    )
    max_batch: int = declare(
        "most sequences of a replica; 0: as many as fit into memory",
        at_least=0,
        control="Largest batch",
        default=0,
    )
    token_budget: int = declare(
        "most tokens of a pass, which mixes decoding with chunks of prompts; 0: prompts are never cut, and have passes "
        "of their own",
        unit="tokens",
        at_least=0,
        control="Tokens of a pass",
        words={0: "prompts alone"},
        default=8192,
        source="vLLM V1, --max-num-batched-tokens of an API server on GPUs of 70 GB and more (recalled)",
    )
    admission: str = declare(
        "what of a request must find room in the cache before it starts: "
        + "; ".join(f"{name}: {words}" for name, words in ADMISSIONS.items()),
        choices=tuple(ADMISSIONS),
        default="reserve",
        source=_TRTLLM,
    )
    kv_block: int = declare(
        "tokens of a block of the cache; the last of a sequence is half empty",
        unit="tokens",
        at_least=1,
        default=16,
        source="vLLM, --block-size",
    )
    memory_fraction: float = declare(
        "share of the memory that is left beside weights, activations and reserve, for the cache",
        above=0,
        at_most=1,
        default=0.9,
        source="TensorRT-LLM, free_gpu_memory_fraction",
    )
    cache_offload: str = declare(
        "where cached prefixes go that tier 1 has no room for: "
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
        "kernels are launched as a graph; false: the host launches each, which takes at least as long",
        default=True,
    )
    prefill_graphs: bool = declare(
        "passes that take prompts are launched as a graph, too; false: the host launches each of their kernels, as in "
        "engines that capture graphs of decoding alone",
        default=True,
    )
    shared_heads: bool = declare(
        "attention reads a key/value head once for all query heads that share it; false: once for each, as engines "
        "before 2024",
        default=True,
    )
    draft: str = declare(
        "where tokens come from of which a pass verifies several; none: no speculation; mtp: the model's modules that "
        "predict further tokens (mtp_layers); ngram: the text so far, without a pass; model:NAME: a smaller model, of "
        "the catalog or a file",
        choices=DRAFTS,
        default=NO_DRAFT,
        source="Leviathan et al., arXiv 2211.17192; DeepSeek-V3, arXiv 2412.19437, section 5.4.3",
    )
    draft_tokens: int | None = declare(
        "tokens that are drafted before each verification; if absent as many as the model has modules (mtp)",
        unit="tokens",
        at_least=0,
        default=None,
        with_="draft",
    )
    acceptance: float | None = declare(
        "probability that a drafted token is accepted where those before it are; if absent "
        f"{MTP_ACCEPTANCE:g} (mtp that drafts one), or as accepted says",
        at_least=0,
        at_most=1,
        default=None,
        source="DeepSeek-V3, arXiv 2412.19437, section 5.4.3: 85 to 90 % of second tokens",
        with_="draft",
    )
    accepted: float | None = declare(
        "drafted tokens that a verification accepts on average, in place of acceptance",
        unit="tokens",
        at_least=0,
        default=None,
        with_="draft",
    )
    price: float | None = declare(
        "US dollars for an hour of a processor; if absent the rent in ext.price of the system",
        unit="USD/h",
        at_least=0,
        default=None,
    )
    name: str = field(default="deployment", compare=False)
    document: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def contradictions(self) -> Iterator[Problem]:
        """Yield what fields contradict each other."""
        if self.prefill is not None and self.own_procs < 1:
            wanted = f"more than prefill.num_procs={self.prefill.num_procs}, which it counts, too"
            yield Problem("num_procs", wanted, str(self.num_procs))
            return
        yield from Pool.contradictions(self)
        if self.prefill is not None and self.cache_offload != NO_TIER:
            hint = "prefixes of a pool that only prefills are taken to be in its tier 1"
            yield Problem("cache_offload", NO_TIER, self.cache_offload, hint)
        if self.prefill is not None and self.batching == "static":
            hint = "a static batch is prefilled where it is decoded"
            yield Problem("batching", "continuous, since there is prefill", self.batching, hint)
        rows = ceil(self.max_batch / self.attn_data_par) * (1 + (self.draft_tokens or 0))
        if self.token_budget and rows > self.token_budget * self.pipeline_par:
            drafted = f" * (1 + draft_tokens) = {rows}" if self.draft_tokens else ""
            stages = f" / pipeline_par={self.pipeline_par}" * (self.pipeline_par > 1)
            wanted = f"at least max_batch={self.max_batch}{drafted}{stages}, or 0"
            hint = "a pass has a token of every sequence" + (
                ", and what is drafted" * bool(drafted)
            )
            yield Problem("token_budget", wanted, str(self.token_budget), hint)
        yield from self._of_no_draft() if self.draft == NO_DRAFT else self._of_draft()

    def _of_no_draft(self) -> Iterator[Problem]:
        """Yield what is stated of drafted tokens where there are none."""
        for name in OF_DRAFTS:
            if (value := getattr(self, name)) is not None:
                hint = "draft says where tokens come from"
                yield Problem(name, f"none, since draft={NO_DRAFT}", f"{value:g}", hint)

    def _of_draft(self) -> Iterator[Problem]:
        """Yield the contradictions of speculation, and what it needs."""
        if self.batching == "static":
            hint = (
                "sequences of a static batch that verify drafts drift apart, which is not modelled"
            )
            yield Problem("batching", f"continuous, since draft={self.draft}", self.batching, hint)
        if self.draft_tokens is None and self.draft != MTP:
            yield Problem("draft_tokens", f"a number, since draft={self.draft}", "none")
        if self.acceptance is not None and self.accepted is not None:
            yield Problem("acceptance", "one of acceptance and accepted", "both")
        elif self.acceptance is None and self.accepted is None and self.draft != MTP:
            hint = "it depends on the draft and on the text: engines report it"
            wanted = f"a share, or accepted, since draft={self.draft}"
            yield Problem("acceptance", wanted, "neither", hint)
        most = self.draft_tokens
        if self.accepted is not None and most is not None and self.accepted > most:
            yield Problem("accepted", f"at most draft_tokens={most}", f"{self.accepted:g}")

    @property
    def own_procs(self) -> int:
        """Processors that decode, and prefill where no others do."""
        return self.num_procs - (0 if self.prefill is None else self.prefill.num_procs)

    @property
    def prefilling(self) -> "Deployment | None":
        """The deployment of the processors that only prefill."""
        if self.prefill is None:
            return None
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
        """Return the same without speculation."""
        return replace(self, draft=NO_DRAFT, draft_tokens=None, acceptance=None, accepted=None)

    @property
    def in_words(self) -> str:
        """Replicas and the split of each, those that prefill, and the types of numbers that are not of 16 bits."""
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

    def in_graphs(self, prompts: Count) -> Array:
        """Return which passes are launched as graphs, by the prompts of which they take a chunk."""
        return self.graphs & (self.prefill_graphs | (prompts <= 0))

    @property
    def mixes(self) -> bool:
        """Whether passes decode and take chunks of prompts at once."""
        return self.batching == "continuous" and self.token_budget > 0 and self.prefill is None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as in a file, without those that leave something open."""
        found: dict[str, Any] = {}
        for one in spec_fields(Deployment):
            value = getattr(self, one.name)
            scaled = one.declaration.scale != 1.0
            if isinstance(value, Pool):
                value = value.to_dict()
            if value is not None:
                found[one.key] = value / one.declaration.scale if scaled else value
        return found


OF_DRAFTS = tuple(one.name for one in spec_fields(Deployment) if one.declaration.with_ == "draft")
"""Fields that mean nothing without a draft."""
