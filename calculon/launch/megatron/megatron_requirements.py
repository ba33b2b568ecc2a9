"""Megatron-LM: combinations of flags that it refuses or warns about, as a table.

Each row of ``megatron_requirements.csv`` has a condition (``when``, empty for always), a requirement (``holds``), both
in words (``rule``), and its source: a file of NVIDIA/Megatron-LM at a commit, or of a year, for releases around core
0.16; or ``recalled``. Conditions are expressions over flags with underscores in place of dashes; ``flag.word`` is true
if a list contains a word.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from calculon.base.frozen import dataclass
from calculon.declarations.expression import Expression
from calculon.declarations.lists_of_counts import chunks_in_letters

CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
"""Environment variable with the number of hardware queues of a device."""

_DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(("tensor_model_parallel_size", "pipeline_model_parallel_size"), 1),
    **dict.fromkeys(("context_parallel_size", "expert_model_parallel_size"), 1),
    "num_distributed_optimizer_instances": 1,
    **dict.fromkeys(("exp_avg_dtype", "exp_avg_sq_dtype"), "fp32"),
    **dict.fromkeys(("main_grads_dtype", "main_params_dtype"), "fp32"),
    "optimizer": "adam",
    "fp8_recipe": "delayed",
    "ckpt_format": "torch_dist",
    "transformer_impl": "transformer_engine",
    "cuda_graph_impl": "none",
    "cp_comm_type": "p2p",
    "data_parallel_sharding_strategy": "no_shard",
    "position_embedding_type": "learned_absolute",
    "moe_token_dispatcher_type": "allgather",
    "moe_flex_dispatcher_backend": "deepep",
    "moe_router_load_balancing_type": "aux_loss",
    "moe_router_score_function": "softmax",
    "moe_router_topk": 2,
    "num_query_groups": 1,
    "compute_capability": 9,  # scripts do not name their GPU; Hopper is assumed, as it has more requirements
}
"""Values of flags that are not stated; other flags are false."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A row of the table, as described in the module."""

    when: Expression
    holds: Expression
    rule: str
    source: str

    @property
    def flags(self) -> set[str]:
        """Flags that the requirement needs or excludes."""
        return {f"--{name.replace('_', '-')}" for name in self.holds.names}


@cache
def requirements() -> tuple[Requirement, ...]:
    """Return the table of requirements."""
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            Requirement(
                Expression.parse(row["when"] or "True"),
                Expression.parse(row["holds"]),
                row["rule"],
                row["source"],
            )
            for row in csv.DictReader(file)
        )


class Flags:
    """Flags of a script by names with underscores, with defaults and derived values."""

    def __init__(self, settings: Mapping[str, Any], num_procs: int) -> None:
        self.stated = {name.removeprefix("--").replace("-", "_"): v for name, v in settings.items()}
        self.num_procs = num_procs

    def value(self, name: str) -> Any:
        """Return the value of a flag, or a value derived from several flags."""
        if name in _DERIVED:
            return _DERIVED[name](self)
        flag, _, word = name.partition(".")
        flag, _, place = flag.partition("[")
        found = self.stated.get(flag, _DEFAULTS.get(flag, False))
        if word:
            return word in (found if isinstance(found, list) else str(found).split())
        return found[int(place[:-1])] if place else found

    def written(self, name: str) -> str:
        """Return a flag as the script states it; empty if it does not, and for derived values."""
        name = re.split(r"[.\[]", name)[0]
        if name not in self.stated:
            return ""
        value = self.stated[name]
        if name.isupper():
            return f"{name}={value}"
        words = value if isinstance(value, list) else [value] * (value is not True)
        return " ".join((f"--{name.replace('_', '-')}", *map(str, words)))


def _data_parallel(flags: Flags) -> int:
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    result = flags.num_procs
    for name in names:
        result //= flags.value(name)
    return result


def _virtual_stages(flags: Flags) -> int:
    """Return the number of chunks per stage."""
    stages = flags.value("pipeline_model_parallel_size")
    if listed := flags.value("layout_stages"):
        return max(1, int(listed // stages))
    if each := flags.value("num_layers_per_virtual_pipeline_stage"):
        ends = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
        blocks = flags.value("num_layers") + sum(map(flags.value, ends))
        return max(1, int(blocks // stages // each))
    return int(flags.value("num_virtual_stages_per_pipeline_rank") or 1)


_DERIVED: Mapping[str, Callable[[Flags], Any]] = {
    "world_size": lambda flags: flags.num_procs,
    "data_parallel_size": _data_parallel,
    "virtual_stages": _virtual_stages,
    "layout_stages": lambda flags: len(
        chunks_in_letters(str(flags.value("pipeline_model_parallel_layout") or "")) or ()
    ),
    "expert_tensor_parallel_size": lambda flags: flags.stated.get(
        "expert_tensor_parallel_size", flags.value("tensor_model_parallel_size")
    ),
}


def broken(settings: Mapping[str, Any], num_procs: int) -> Iterator[tuple[Requirement, str]]:
    """Yield the requirements that a script violates, with the flags involved.

    Args:
        settings: Flags, and environment variables.
        num_procs: Number of processors.
    """
    flags = Flags(settings, num_procs)
    for requirement in requirements():
        try:
            holds = not requirement.when.value(flags.value) or bool(
                requirement.holds.value(flags.value)
            )
        except (TypeError, ValueError, IndexError, ZeroDivisionError):
            continue  # values that are not numbers, or degrees that exceed the processors
        if not holds:
            found = dict.fromkeys(
                map(flags.written, (*requirement.when.names, *requirement.holds.names))
            )
            yield requirement, ", ".join(filter(None, found))
