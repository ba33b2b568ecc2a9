"""A pool of processors with replicas of a model, and how each replica is split."""

from collections.abc import Iterator
from typing import ClassVar

from calculon.errors import Problem, SpecError
from calculon.frozen import dataclass
from calculon.spec.fields import check_record, declare


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Processors, and how each replica is split over some of them."""

    unknown_keys: ClassVar[str] = "error"

    num_procs: int = declare("processors of all replicas", at_least=1)
    tensor_par: int = declare(
        "ranks that share every product; key/value heads are copied where there are more ranks",
        at_least=1,
        default=1,
    )
    pipeline_par: int = declare("stages that share the blocks", at_least=1, default=1)
    expert_par: int = declare(
        "groups of the ranks of tensor_par that have different experts; each group shares the width of its own",
        at_least=1,
        default=1,
    )

    def __post_init__(self) -> None:
        """Check what the fields say together.

        Raises
        ------
        SpecError
            Where ranks do not make whole replicas.
        """
        check_record(self)
        if problems := list(self.contradictions()):
            raise SpecError("deployment", problems)

    def contradictions(self) -> Iterator[Problem]:
        """Yield what fields contradict each other."""
        if self.own_procs % self.replica_procs:
            wanted = f"a multiple of tensor_par * pipeline_par = {self.replica_procs}"
            yield Problem("num_procs", wanted, str(self.own_procs), "replicas are whole")
        if self.tensor_par % self.expert_par:
            yield Problem(
                "expert_par", f"a divisor of tensor_par={self.tensor_par}", str(self.expert_par)
            )

    @property
    def own_procs(self) -> int:
        """Processors of the replicas of this pool."""
        return self.num_procs

    @property
    def replica_procs(self) -> int:
        """Processors of a replica."""
        return self.tensor_par * self.pipeline_par

    @property
    def replicas(self) -> int:
        """Independent engines."""
        return self.own_procs // self.replica_procs
