"""Record of a pool of processors, and the split of each replica over them.

Replicas are split by tensor, pipeline, expert and decode context parallelism, and by attention data parallelism.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.fields import check_record, declare, spec_fields
from calculon.declarations.plan_words import replica_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Processors, and the split of each replica over some of them."""

    unknown_keys: ClassVar[str] = "error"

    num_procs: int = declare("processors of all replicas", at_least=1, control="Processors used")
    tensor_par: int = declare(
        "ranks of a stage, which split every matrix product; surplus ranks hold copies of key/value heads",
        at_least=1,
        control="Tensor parallel (TP)",
        default=1,
    )
    pipeline_par: int = declare(
        "pipeline stages", at_least=1, control="Pipeline parallel (PP)", default=1
    )
    attn_data_par: int = declare(
        "groups of the tensor_par ranks with separate requests: each group has all weights except routed experts, "
        "split over its ranks (attention data parallelism)",
        at_least=1,
        control="Attention DP",
        default=1,
        source="SGLang, --enable-dp-attention with --tp and --dp; TensorRT-LLM, enable_attention_dp",
    )
    expert_par: int = declare(
        "groups of the tensor_par ranks with different experts; the ranks of a group split each of its experts",
        at_least=1,
        control="Expert parallel (EP)",
        default=1,
    )
    redundant_experts: int = declare(
        "additional copies of the busiest experts, over all groups of expert_par",
        at_least=0,
        default=0,
        source="DeepSeek, EPLB; SGLang, --ep-num-redundant-experts",
    )
    context_par: int = declare(
        "ranks that split the tokens of a KV cache instead of holding copies of it (decode context parallelism)",
        at_least=1,
        default=1,
        source="vLLM, --decode-context-parallel-size",
    )

    def __post_init__(self) -> None:
        """Check that fields are consistent.

        Raises:
            SpecError: If ranks do not form whole replicas.
        """
        check_record(self)
        if problems := list(self.contradictions()):
            raise SpecError("deployment", problems)

    def contradictions(self) -> Iterator[Problem]:
        """Yield contradictions between fields."""
        if self.own_procs % self.replica_procs:
            wanted = f"a multiple of tensor_par * pipeline_par = {self.replica_procs}"
            yield Problem("num_procs", wanted, str(self.own_procs), "every replica is complete")
        for name in ("attn_data_par", "expert_par"):
            if self.tensor_par % getattr(self, name):
                wanted = f"a divisor of tensor_par={self.tensor_par}"
                hint = "tensor_par counts all ranks of a stage"
                yield Problem(name, wanted, str(getattr(self, name)), hint)
        # the model decides whether ranks hold copies at all; see `check_split` in calculon/serving/serve.py
        if self.attention_par % self.context_par:
            wanted = f"a divisor of tensor_par / attn_data_par = {self.attention_par}"
            yield Problem("context_par", wanted, str(self.context_par))
        if self.redundant_experts and self.expert_par == 1:
            hint = "every rank has all experts; copies have an effect only with expert_par"
            yield Problem("redundant_experts", "0", str(self.redundant_experts), hint)

    @property
    def own_procs(self) -> int:
        """Processors of the replicas of this pool."""
        return self.num_procs

    @property
    def attention_par(self) -> int:
        """Ranks that share attention and everything else except routed experts."""
        return self.tensor_par // self.attn_data_par

    @property
    def replica_procs(self) -> int:
        """Processors of a replica."""
        return self.tensor_par * self.pipeline_par

    @property
    def replicas(self) -> int:
        """Number of independent engines."""
        return self.own_procs // self.replica_procs

    @property
    def split_in_words(self) -> str:
        """Number of replicas, and the split of each."""
        replicas = "replica" if self.replicas == 1 else "replicas"
        return f"{self.replicas:,} {replicas} of {replica_words(Pool.to_dict(self))}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields in the form of a file."""
        return {one.key: getattr(self, one.name) for one in spec_fields(Pool)}
