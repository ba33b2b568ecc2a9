"""Megatron-LM: combinations of flags that it refuses, or warns of, as a table.

Each row of ``megatron_requirements.csv`` has a condition (``when``, empty: always), what then has to hold (``holds``),
both in words (``rule``), and its source: a file of NVIDIA/Megatron-LM at a commit, or of a year, of the releases around
core 0.16; or ``recalled``. Conditions are expressions over flags, which have underscores in place of dashes;
``flag.word`` is whether a list has a word.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from calculon.base.frozen import dataclass
from calculon.declarations.expression import Expression
from calculon.launch.megatron.megatron_parts import layout_blocks

CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
"""Variable of the environment with the number of hardware queues of a device."""

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
    "compute_capability": 9,  # scripts do not name their machine: Hopper requires more than Blackwell
}
"""Values of flags that are not stated; of all others false."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A row of the table; see the module."""

    when: Expression
    holds: Expression
    rule: str
    source: str

    @property
    def flags(self) -> set[str]:
        """The flags that it requires, or excludes."""
        return {f"--{name.replace('_', '-')}" for name in self.holds.names}


@cache
def requirements() -> tuple[Requirement, ...]:
    """Return the table."""
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
    """Flags of a script by their names with underscores, their defaults, and what follows from them."""

    def __init__(self, settings: Mapping[str, Any], num_procs: int) -> None:
        self.stated = {name.removeprefix("--").replace("-", "_"): v for name, v in settings.items()}
        self.num_procs = num_procs

    def value(self, name: str) -> Any:
        """Return the value of a flag, or of what follows from several."""
        if name in _DERIVED:
            return _DERIVED[name](self)
        flag, _, word = name.partition(".")
        flag, _, place = flag.partition("[")
        found = self.stated.get(flag, _DEFAULTS.get(flag, False))
        if word:
            return word in (found if isinstance(found, list) else str(found).split())
        return found[int(place[:-1])] if place else found

    def written(self, name: str) -> str:
        """Return a flag as a script states it; empty where it does not, and of what follows from flags."""
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
    found = flags.num_procs
    for name in names:
        found //= flags.value(name)
    return found


def _virtual_stages(flags: Flags) -> int:
    """Return the chunks of a stage."""
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
        layout_blocks(str(flags.value("pipeline_model_parallel_layout") or "")) or ()
    ),
    "expert_tensor_parallel_size": lambda flags: flags.stated.get(
        "expert_tensor_parallel_size", flags.value("tensor_model_parallel_size")
    ),
}


def broken(settings: Mapping[str, Any], num_procs: int) -> Iterator[tuple[Requirement, str]]:
    """Yield the rows of the table that a script breaks, and its flags that do so.

    Args:
        settings: Its flags, and variables of its environment.
        num_procs: Processors.
    """
    flags = Flags(settings, num_procs)
    for one in requirements():
        try:
            holds = not one.when.value(flags.value) or bool(one.holds.value(flags.value))
        except (TypeError, ValueError, IndexError, ZeroDivisionError):
            continue  # of values that are no numbers, or of degrees beyond the processors
        if not holds:
            found = dict.fromkeys(map(flags.written, (*one.when.names, *one.holds.names)))
            yield one, ", ".join(filter(None, found))
