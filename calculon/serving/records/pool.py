"""A pool of processors with replicas of a model, and how each replica is split."""

from collections.abc import Iterator
from typing import Any, ClassVar

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.fields import check_record, declare, spec_fields
from calculon.declarations.plan_words import replica_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Processors, and how each replica is split over some of them."""

    unknown_keys: ClassVar[str] = "error"

    num_procs: int = declare("processors of all replicas", at_least=1, control="Processors used")
    tensor_par: int = declare(
        "ranks of a stage, which share every product; key/value heads are copied where there are more ranks",
        at_least=1,
        control="Tensor parallel (TP)",
        default=1,
    )
    pipeline_par: int = declare(
        "stages that share the blocks", at_least=1, control="Pipeline parallel (PP)", default=1
    )
    attn_data_par: int = declare(
        "groups of the ranks of tensor_par that have requests of their own: each has all but the routed experts, split "
        "over its own ranks (attention data parallelism)",
        at_least=1,
        control="Attention data parallel",
        default=1,
        source="SGLang, --enable-dp-attention with --tp and --dp; TensorRT-LLM, enable_attention_dp",
    )
    expert_par: int = declare(
        "groups of the ranks of tensor_par that have different experts; each group shares the width of its own",
        at_least=1,
        control="Expert parallel (EP)",
        default=1,
    )
    redundant_experts: int = declare(
        "copies of the experts with the most tokens, in all groups of expert_par together",
        at_least=0,
        default=0,
        source="DeepSeek, EPLB; SGLang, --ep-num-redundant-experts",
    )
    context_par: int = declare(
        "ranks that share keys and values of which they had copies: each has a part of the tokens of every sequence "
        "(decode context parallelism)",
        at_least=1,
        default=1,
        source="vLLM, --decode-context-parallel-size",
    )

    def __post_init__(self) -> None:
        """Check what the fields say together.

        Raises:
            SpecError: Where ranks do not make whole replicas.
        """
        check_record(self)
        if problems := list(self.contradictions()):
            raise SpecError("deployment", problems)

    def contradictions(self) -> Iterator[Problem]:
        """Yield what fields contradict each other."""
        if self.own_procs % self.replica_procs:
            wanted = f"a multiple of tensor_par * pipeline_par = {self.replica_procs}"
            yield Problem("num_procs", wanted, str(self.own_procs), "replicas are whole")
        for name in ("attn_data_par", "expert_par"):
            if self.tensor_par % getattr(self, name):
                wanted = f"a divisor of tensor_par={self.tensor_par}"
                hint = "tensor_par counts all ranks of a stage"
                yield Problem(name, wanted, str(getattr(self, name)), hint)
        if self.attention_par % self.context_par:
            wanted = f"a divisor of tensor_par / attn_data_par = {self.attention_par}"
            yield Problem("context_par", wanted, str(self.context_par))
        if self.redundant_experts and self.expert_par == 1:
            hint = "every rank has all experts; copies serve to spread them: expert_par"
            yield Problem("redundant_experts", "0", str(self.redundant_experts), hint)

    @property
    def own_procs(self) -> int:
        """Processors of the replicas of this pool."""
        return self.num_procs

    @property
    def attention_par(self) -> int:
        """Ranks that share attention, and everything but routed experts."""
        return self.tensor_par // self.attn_data_par

    @property
    def replica_procs(self) -> int:
        """Processors of a replica."""
        return self.tensor_par * self.pipeline_par

    @property
    def replicas(self) -> int:
        """Independent engines."""
        return self.own_procs // self.replica_procs

    @property
    def split_in_words(self) -> str:
        """Replicas and the split of each."""
        replicas = "replica" if self.replicas == 1 else "replicas"
        return f"{self.replicas:,} {replicas} of {replica_words(Pool.to_dict(self))}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as in a file."""
        return {one.key: getattr(self, one.name) for one in spec_fields(Pool)}
