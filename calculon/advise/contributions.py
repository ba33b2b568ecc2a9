"""What each option of an execution that runs contributes: its time without it, all else as it is."""

from collections.abc import Iterator
from typing import Any

from calculon.advise.moves import NETWORKS, QUESTION, SWITCHES
from calculon.advise.trials import trials
from calculon.advise.variations import Variations
from calculon.base.frozen import dataclass
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.presets import find_preset
from calculon.hardware.system import System
from calculon.plan.columns import DEFAULTS, held
from calculon.plan.plan import NAMES
from calculon.plan.rules.all_rules import REASONS

OF_PRESET, OF_FIELD = "preset", "field"
"""What an option is set back to: the value that the preset has, or, where it has that, to the field's own default."""

_GIVEN = (
    *QUESTION,
    *NETWORKS,
    *("edition", "preset", "training", "tensor_par", "pipeline_par", "data_par", "datatype"),
    *("seq_length", "attention_type", "mesh_order", "coll_algo", "latency_per_step"),
    *("mem_reserved_mib", "mem_fragments_percent", "data_par_slowdown", "stage_stop_us"),
    *("packed_percent", "pack_imbalance_percent", "moe_imbalance_percent"),
)
"""Fields that are the question, or the circumstances; degrees have no default."""

_PLAIN = {
    "activation_recompute": "none",
    "tensor_par_comm_type": "ar",
    "tensor_par_overlap": "none",
    "pipeline_interleaving": 1,
    "microbatch_size": 1,
    "zero_stage": "0",
    **dict.fromkeys(("optimizer_sharding", "seq_par_ag_redo", "data_par_overlap"), False),
    **dict.fromkeys(("weight_offload", "activations_offload", "optimizer_offload"), False),
    "fused_activation": False,
}
"""Values without the option, of published fields, which declare no default, and of ``zero_stage``."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one option contributes to an execution.

    Attributes:
        field: The option.
        value, without: What it is, and what it is set back to.
        of: :data:`OF_PRESET` or :data:`OF_FIELD`.
        gain: The time with it over the time without, less 1: below 0 where it helps; None where nothing runs without.
        memory: Bytes of tier 1 that it adds; below 0 where it frees some. Not-a-number where rules forbid to leave it
            out.
        reason: Why nothing runs without it; empty where it does.
    """

    field: str
    value: Any
    without: Any
    of: str
    gain: float | None
    memory: float
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "field": self.field,
            "value": self.value,
            "without": self.without,
            "of": self.of,
            "gain": self.gain,
            "memory": self.memory if self.memory == self.memory else None,
            "reason": self.reason,
        }


def contributions(model: Model, execution: Execution, system: System) -> tuple[Contribution, ...]:
    """Return what each option contributes that is not as its default, the one that saves most time first.

    Each is set back by itself, with what follows from that. Those without which nothing runs come last.
    """
    back = [*_set_back(execution)]
    variations = Variations(model, execution)
    table = variations.of_rows([{}, *({name: value} for name, value, _ in back)])
    tried = trials(model, system, table)
    time, memory = float(tried.time[0]), float(tried.memory[0, 0])
    found = []
    for row, (name, value, of) in enumerate(back, start=1):
        if getattr(table, name)[row] != held(name, value):
            continue  # which the others leave no other value
        reason = REASONS[tried.codes[row]]
        if reason.startswith(("framework", "invalid")) and of == OF_FIELD:
            continue  # which the framework always has
        found.append(
            Contribution(
                field=name,
                value=getattr(execution, name),
                without=value,
                of=of,
                gain=None if reason else time / float(tried.time[row]) - 1,
                memory=memory - float(tried.memory[0, row]),
                reason=reason,
            )
        )
    return tuple(sorted(found, key=lambda one: (one.gain is None, one.gain or 0.0, one.memory)))


def _set_back(execution: Execution) -> Iterator[tuple[str, Any, str]]:
    """Yield options that are not as their default, with that."""
    fields = {name: getattr(execution, name) for name in NAMES}
    usual = find_preset(execution.preset).usual(fields)
    for name in NAMES:
        if name in _GIVEN or (name in DEFAULTS and execution.edition == PUBLISHED):
            continue
        plain = _PLAIN.get(name, DEFAULTS.get(name))
        if fields["zero_stage"] == "auto" and name == "zero_stage":
            continue  # which says what optimizer_sharding says
        if fields["zero_stage"] != "auto" and name == "optimizer_sharding":
            continue  # which follows
        if name in usual and usual[name] != fields[name]:
            yield name, usual[name], OF_PRESET
        elif plain is not None and plain != fields[name]:
            if name not in usual:
                yield name, plain, OF_PRESET
            elif name in SWITCHES:
                yield name, plain, OF_FIELD
