"""Rules of expert parallelism: placement of experts on ranks, and overlap of their all-to-all exchange."""

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np

from calculon.architecture.shape import sequence_lengths
from calculon.base.errors import Problem
from calculon.base.units import Array, Count
from calculon.declarations.module_sets import modules_of
from calculon.declarations.named_values import (
    DATATYPE_BYTES,
    EXCHANGED,
    MATMUL_BYTES,
    PAIRED_SCHEDULES,
    exchanged_bytes,
    result_bytes,
)
from calculon.hardware.collectives.dispatch import LIBRARIES, has_ports
from calculon.hardware.collectives.placement import Group
from calculon.plan.columns import DEFAULTS, PLAIN, Columns, field_of
from calculon.plan.mesh import data_ranks, expert_ranks, expert_tensor_par
from calculon.plan.rules.rule import Request, Requests, Rule, expected

DEGREES = ("expert_par", "expert_tensor_par")
"""Fields that place experts on ranks."""


def _of_experts(holds: Callable[[Requests], Array]) -> Callable[[Requests], Array]:
    """Apply a rule to MoE models only; another rule refuses expert fields of other models."""
    return lambda r: holds(r) if r.model.mixes else np.array(True)


def _needs_experts(field: str) -> Rule:
    """Create the rule that a field has its default if blocks have no routed experts."""

    def holds(r: Requests) -> Array:
        return np.array(True) if r.model.mixes else getattr(r.plan, field) == PLAIN[field]

    wanted = f"{DEFAULTS[field]}, since blocks of {{model.name}} do not have several experts"
    return Rule(f"{field}_needs_experts", holds, expected(field, wanted), (field,))


def _divides(r: Requests) -> Array:
    return r.model.num_experts % r.plan.expert_par == 0


def _width(r: Requests) -> Array:
    return r.model.inner_width % expert_tensor_par(r.plan) == 0


def _explain_width(one: Request) -> Problem:
    name = "expert_feedforward" if one.model.expert_feedforward else "feedforward"
    wanted = f"a divisor of the model's {name}={one.model.inner_width}"
    return Problem("expert_tensor_par", wanted, str(_stated_width(one)))


def _stated_width(one: Request) -> int:
    return one.execution.expert_tensor_par or one.execution.tensor_par


def _ranks(one: Request) -> int:
    return one.execution.expert_par * _stated_width(one)


def _whole_groups(r: Requests) -> Array:
    every: Count = np.asarray(r.plan.tensor_par, np.int64) * data_ranks(r.plan)
    return every % expert_ranks(r.plan) == 0


def _explain_groups(one: Request) -> Problem:
    e = one.execution
    width = _stated_width(one)
    parts = " x context_par" if e.context_par > 1 else ""
    wanted = (
        f"such that expert_par x expert_tensor_par = {e.expert_par} x {width} = {e.expert_par * width} divides "
        f"tensor_par{parts} x data_par = {e.tensor_par * e.context_par * e.data_par}"
    )
    return Problem("expert_par", wanted, str(e.expert_par))


def _explain_imbalance(one: Request) -> Problem:
    e = one.execution
    why = f"100 x expert_par = {100 * e.expert_par}: one rank has all rows"
    wanted = f"at most {why}" if e.expert_par > 1 else f"100, since expert_par is {e.expert_par}"
    hint = "" if e.expert_par > 1 else "every rank has all experts"
    return Problem("moe_imbalance_percent", wanted, str(e.moe_imbalance_percent), hint)


def _spread(r: Requests) -> Array:
    """Return a mask of executions that do not split experts exactly like other layers by tensor parallelism."""
    return (r.plan.expert_par > 1) | (expert_tensor_par(r.plan) != r.plan.tensor_par)


def _nested(r: Requests) -> Array:
    """Return a mask of executions whose expert groups in a mesh contain whole other groups, or are inside of one."""
    span, tensor = expert_ranks(r.plan), np.asarray(r.plan.tensor_par, np.int64)
    parts = tensor * r.plan.context_par
    inside = (parts % span == 0) & ((tensor % span == 0) | (span % tensor == 0))
    shards = parts * np.maximum(r.plan.dp_shard // r.plan.context_par, 1)
    contains = (span % parts == 0) & ((span % shards == 0) | (shards % span == 0))
    replicas_next = r.plan.is_choice("mesh_order", "tp-dp-pp")
    return r.plan.is_choice("mesh_order", "stated") | inside | (contains & replicas_next)


def _explain_nested(one: Request) -> Problem:
    e, ranks = one.execution, _ranks(one)
    near = f"a multiple or a divisor of tensor_par={e.tensor_par}"
    if e.context_par > 1:
        near += f", and of tensor_par x context_par={e.tensor_par * e.context_par}"
    if e.mesh_order == "tp-pp-dp":
        near = f"a divisor of tensor_par={e.tensor_par}, since stages are next to tensor groups"
        if e.context_par > 1:
            near = (
                f"a multiple or a divisor of tensor_par={e.tensor_par} that divides tensor_par x context_par="
                f"{e.tensor_par * e.context_par}, since stages are next to these"
            )
    elif e.dp_shard:
        near += f", and of tensor_par x dp_shard={e.tensor_par * e.dp_shard}"
    wanted = f"such that expert_par x expert_tensor_par = {ranks} is {near}"
    return Problem("expert_par", wanted, str(e.expert_par), f"mesh_order is {e.mesh_order}")


def _network_size(r: Requests) -> Array:
    """Return a mask of executions whose stated network is large enough for the ranks that hold all experts."""
    size = r.system.fabric.size[np.minimum(r.plan.expert_par_net, len(r.system.networks) - 1)]
    stated = r.plan.is_choice("mesh_order", "stated") & (r.plan.expert_par > 1)
    return ~stated | (expert_ranks(r.plan) <= size)


def _explain_network(one: Request) -> str:
    e, size = one.execution, one.system.networks[one.execution.expert_par_net].size
    return (
        f"network {e.expert_par_net} of {one.system.name} is too small: it connects {size} processors, and "
        f"expert_par={e.expert_par} x expert_tensor_par={_stated_width(one)} needs {_ranks(one)} "
        f"({_ranks(one) - size} too many)"
    )


def _exchanged_types(field: str) -> Iterator[Rule]:
    """Yield the rules on a type of exchanged rows: rows are exchanged, and the type is narrower than results."""

    def sent(r: Requests) -> Array:
        exchanged = (r.plan.expert_par > 1) & ~r.plan.is_choice("moe_dispatcher", "allgather")
        return r.plan.is_choice(field, "same") | exchanged

    def narrower(r: Requests) -> Array:
        sizes = [exchanged_bytes(name, 0.0) for name in EXCHANGED]
        results = np.array(
            [
                [result_bytes(datatype, product) for product in ("same", *MATMUL_BYTES)]
                for datatype in DATATYPE_BYTES
            ]
        )
        result = results[r.plan.datatype, r.multiplied]
        return np.array(sizes)[getattr(r.plan, field)] < result

    yield Rule(
        f"{field}_needs_exchange",
        sent,
        expected(field, "same, unless expert_par is above 1 and moe_dispatcher is not allgather"),
        (field,),
    )
    yield Rule(
        f"{field}_narrower",
        narrower,
        expected(field, "same, or a type of fewer bytes than results of products have"),
        (field,),
    )


def _library(plan: Columns) -> Array:
    """Return a mask of executions whose expert library sends copies of tokens."""
    return np.logical_or.reduce([plan.is_choice("moe_dispatcher", name) for name in LIBRARIES])


def _with_library(met: Callable[[Columns], Array]) -> Callable[[Requests], Array]:
    """Apply a rule only to executions with an expert library."""
    return _of_experts(lambda r: ~_library(r.plan) | met(r.plan))


def _ports(r: Requests) -> Array:
    """Return a mask of executions whose ranks have a port to each network, as expert libraries require."""
    plan, system = r.plan, r.system
    if all(system.link(i).torus is None for i in range(len(system.networks))):
        return np.array(True)
    ranks = expert_ranks(plan)
    near = Group.in_mesh(system, ranks, np.array(1))
    network = np.minimum(plan.expert_par_net, len(system.networks) - 1)
    stated = Group.on_network(system, network, ranks)
    found = np.where(
        plan.is_choice("mesh_order", "stated"),
        has_ports(system, LIBRARIES[0], stated),
        has_ports(system, LIBRARIES[0], near),
    )
    return ~_library(plan) | found


_LIBRARY_RULES = (
    Rule(
        "library_needs_ranks",
        _with_library(lambda plan: plan.expert_par > 1),
        expected(
            "moe_dispatcher",
            "alltoall or allgather, since expert_par is 1: nothing is sent to other experts",
        ),
        ("moe_dispatcher",),
    ),
    Rule(
        "library_needs_whole_experts",
        _with_library(lambda plan: expert_tensor_par(plan) == 1),
        expected(
            "expert_tensor_par",
            "1 with moe_dispatcher={e.moe_dispatcher}, which is modeled for ranks that have whole experts",
        ),
        ("moe_dispatcher",),
    ),
    Rule(
        "library_does_not_pad",
        _with_library(lambda plan: ~plan.moe_pad_to_capacity),
        expected(
            "moe_pad_to_capacity",
            "false with moe_dispatcher={e.moe_dispatcher}, which sends copies of tokens and no empty rows",
        ),
        ("moe_dispatcher",),
    ),
)
"""Source: Megatron-LM, ``core/transformer/transformer_config.py``, checks of the dispatcher *flex*."""


EXPERT_RULES: tuple[Rule, ...] = (
    *map(_needs_experts, (*DEGREES, "moe_dispatcher", "moe_capacity_percent")),
    Rule(
        "imbalance_largest",
        lambda r: r.plan.moe_imbalance_percent <= 100 * np.asarray(r.plan.expert_par, np.int64),
        _explain_imbalance,
        ("moe_imbalance_percent",),
    ),
    Rule(
        "padding_needs_capacity",
        lambda r: ~r.plan.moe_pad_to_capacity | (r.plan.moe_capacity_percent > 0),
        expected("moe_pad_to_capacity", "false, unless moe_capacity_percent is above 0"),
        ("moe_pad_to_capacity",),
    ),
    Rule(
        "padding_has_no_imbalance",
        lambda r: ~r.plan.moe_pad_to_capacity | (r.plan.moe_imbalance_percent == 100),
        expected(
            "moe_imbalance_percent",
            "100, since moe_pad_to_capacity gives every rank the same number of rows",
        ),
        ("moe_pad_to_capacity",),
    ),
    *_LIBRARY_RULES,
    *(rule for name in ("dispatch_dtype", "combine_dtype") for rule in _exchanged_types(name)),
    Rule(
        "experts_split",
        _of_experts(_divides),
        expected("expert_par", "a divisor of the model's num_experts={model.num_experts}"),
        ("expert_par",),
    ),
    Rule(
        "experts_width_inside",
        _of_experts(lambda r: r.plan.tensor_par % expert_tensor_par(r.plan) == 0),
        expected("expert_tensor_par", "a divisor of tensor_par={e.tensor_par}, or 0 for all of it"),
        ("expert_tensor_par",),
    ),
    Rule("experts_width", _of_experts(_width), _explain_width, ("expert_tensor_par",)),
    Rule("expert_groups", _of_experts(_whole_groups), _explain_groups, DEGREES),
    Rule("expert_mesh", _of_experts(_nested), _explain_nested, DEGREES),
    Rule(
        "experts_split_sequences",
        lambda r: (
            ~_spread(r)
            | (r.plan.tensor_par == 1)
            | r.plan.is_choice("tensor_par_comm_type", "rs_ag")
        ),
        expected(
            "tensor_par_comm_type",
            "rs_ag, since experts are split differently from other layers (tensor_par={e.tensor_par})",
            "each rank dispatches its own tokens",
        ),
        DEGREES,
    ),
)
"""Requirements of the spread of experts, in the order of checking."""

EXPERT_NETWORK_RULES: tuple[Rule, ...] = (
    Rule(
        "library_needs_ports",
        _of_experts(_ports),
        expected(
            "moe_dispatcher",
            "alltoall or allgather on {system.name}: libraries of experts need a port to each network, not a torus",
        ),
        ("moe_dispatcher",),
    ),
    Rule(
        "expert_network_size", _of_experts(_network_size), _explain_network, DEGREES, counted=True
    ),
)
"""Requirements that expert groups fit stated networks."""


# Overlap of the all-to-all exchange of experts.

_FIELDS = ("ep_overlap",)


def _paired(met: Callable[[Columns], Array]) -> Callable[[Requests], Array]:
    """Apply a rule only to executions with overlapping forward and backward passes."""
    return lambda r: ~r.plan.is_choice("ep_overlap", "1f1b") | met(r.plan)


def _exchanges(plan: Columns) -> Array:
    """Return a mask of executions that send rows to experts on other ranks."""
    return (plan.expert_par > 1) & ~plan.is_choice("moe_dispatcher", "allgather")


def _shares(r: Requests) -> Array:
    return ~r.plan.moe_shared_overlap | np.array(r.model.shared_feedforward > 0)


def _halves_split(r: Requests) -> Array:
    tokens = r.plan.microbatch_size // 2 * sequence_lengths(r.model, r.plan.seq_length)
    even = np.mod(tokens, r.plan.tensor_par * r.plan.context_par) == 0
    even = even | r.plan.is_choice("tensor_par_comm_type", "ar")
    return ~r.plan.is_choice("ep_overlap", "two_batch") | even


@cache
def _values_with(module: str) -> Array:
    """Return a mask over the values of ``recompute_modules``, by code, that contain a module."""
    values = field_of("recompute_modules").declaration.choices
    return np.array([module in modules_of(value) for value in values])


def recomputes(module: str, plan: Columns) -> Array:
    """Return a mask of executions that recompute a module."""
    return _values_with(module)[plan.recompute_modules]


def _has_pairs(plan: Columns) -> Array:
    """Return a mask of schedules that overlap forward and backward passes themselves."""
    return np.logical_or.reduce([plan.is_choice("pp_schedule", one) for one in PAIRED_SCHEDULES])


def _several(plan: Columns) -> Array:
    """Return a mask of executions with more forward passes than fill the pipeline of the last stage."""
    microbatches = plan.batch_size // (plan.data_par * plan.microbatch_size)
    ahead = (plan.pipeline_interleaving - 1) * plan.pipeline_par + 1
    return microbatches * plan.pipeline_interleaving > ahead


def _once(plan: Columns) -> Array:
    """Return a mask of executions whose replicas communicate only after the last microbatch."""
    forms = ("auto", "0", "1")
    once = np.logical_or.reduce([plan.is_choice("zero_stage", form) for form in forms])
    return once & plan.no_sync


OVERLAP_RULES: tuple[Rule, ...] = (
    Rule(
        "ep_overlap_needs_exchange",
        lambda r: r.plan.is_choice("ep_overlap", "none") | _exchanges(r.plan),
        expected(
            "ep_overlap",
            "none, unless expert_par is above 1 and moe_dispatcher is not allgather",
            "nothing else is exchanged that other work could hide",
        ),
        _FIELDS,
    ),
    Rule(
        "shared_overlap_needs_exchange",
        lambda r: ~r.plan.moe_shared_overlap | _exchanges(r.plan),
        expected(
            "moe_shared_overlap",
            "false, unless expert_par is above 1 and moe_dispatcher is not allgather",
        ),
        ("moe_shared_overlap",),
    ),
    Rule(
        "shared_overlap_needs_experts",
        _shares,
        expected("moe_shared_overlap", "false, since {model.name} has no shared experts"),
        ("moe_shared_overlap",),
    ),
    Rule(
        "shared_overlap_alone",
        lambda r: ~r.plan.moe_shared_overlap | r.plan.is_choice("ep_overlap", "none"),
        expected(
            "moe_shared_overlap",
            "false with ep_overlap={e.ep_overlap}, which already overlaps shared experts like attention",
        ),
        ("moe_shared_overlap",),
    ),
    Rule(
        "shared_overlap_stores",
        lambda r: ~(r.plan.moe_shared_overlap & recomputes("shared_experts", r.plan)),
        expected(
            "moe_shared_overlap",
            "false with recompute_modules={e.recompute_modules}, which recomputes shared experts",
        ),
        ("moe_shared_overlap",),
    ),
    Rule(
        "shared_overlap_latents",
        lambda r: ~r.plan.moe_shared_overlap | np.array(not r.model.moe_latent),
        expected(
            "moe_shared_overlap",
            "false, since moe_latent={model.moe_latent}: latents are made between router and dispatch",
            "Megatron-LM refuses both together",
        ),
        ("moe_shared_overlap",),
    ),
    Rule(
        "delay_needs_pairs",
        lambda r: ~r.plan.delay_wgrad | r.plan.is_choice("ep_overlap", "1f1b"),
        expected("delay_wgrad", "false, unless ep_overlap is 1f1b"),
        ("delay_wgrad",),
    ),
    Rule(
        "halves_of_microbatch",
        lambda r: ~r.plan.is_choice("ep_overlap", "two_batch") | (r.plan.microbatch_size % 2 == 0),
        expected(
            "ep_overlap",
            "none or 1f1b with microbatch_size={e.microbatch_size}, which has no two halves",
        ),
        _FIELDS,
    ),
    Rule(
        "halves_split",
        _halves_split,
        expected(
            "ep_overlap",
            "none or 1f1b, since tokens of half a microbatch are no multiple of tensor_par={e.tensor_par}",
        ),
        _FIELDS,
    ),
    Rule(
        "pairs_train",
        _paired(lambda plan: plan.training),
        expected("ep_overlap", "none, since inference has no backward passes"),
        _FIELDS,
    ),
    Rule(
        "pairs_datatype",
        _paired(lambda plan: ~plan.is_choice("datatype", "float32")),
        expected("ep_overlap", "none with datatype={e.datatype}: pairs need 16 bits or less"),
        _FIELDS,
    ),
    Rule(
        "pairs_store",
        _paired(
            lambda plan: ~(plan.is_choice("activation_recompute", "full") | recomputes("moe", plan))
        ),
        expected(
            "ep_overlap",
            "none with activation_recompute={e.activation_recompute} and recompute_modules={e.recompute_modules}: "
            "pairs exchange rows once",
        ),
        _FIELDS,
    ),
    Rule(
        "pairs_predict",
        lambda r: ~r.plan.is_choice("ep_overlap", "1f1b") | np.array(r.model.mtp_layers <= 1),
        expected("ep_overlap", "none, since {model.name} has mtp_layers={model.mtp_layers}"),
        _FIELDS,
    ),
    Rule(
        "pairs_schedule",
        _paired(
            lambda plan: np.where(
                plan.is_choice("pp_schedule", "1f1b"),
                (plan.pipeline_par == 1) | (plan.pipeline_interleaving > 1),
                _has_pairs(plan),
            )
        ),
        expected(
            "ep_overlap",
            "none, unless pipeline_par is 1 or pipeline_interleaving above 1, with pp_schedule 1f1b, or pp_schedule is "
            "dualpipe or dualpipev: other schedules run the passes of a pair one after the other",
            "use pipeline_interleaving",
        ),
        _FIELDS,
        counted=True,
    ),
    Rule(
        "schedule_has_pairs",
        lambda r: (
            ~_has_pairs(r.plan) | ~_exchanges(r.plan) | r.plan.is_choice("ep_overlap", "1f1b")
        ),
        expected(
            "ep_overlap",
            "1f1b with pp_schedule={e.pp_schedule}, whose pairs of passes hide the exchange of experts",
        ),
        ("pp_schedule",),
        counted=True,
    ),
    Rule(
        "pairs_stay",
        _paired(lambda plan: ~(plan.weight_offload | plan.activations_offload)),
        expected(
            "ep_overlap", "none with offloaded weights or activations, which move with each pass"
        ),
        _FIELDS,
    ),
    Rule(
        "pairs_synchronize_once",
        _paired(_once),
        expected(
            "ep_overlap",
            "none with zero_stage={e.zero_stage} and no_sync={e.no_sync}: data-parallel traffic overlaps with each "
            "microbatch, as the exchange of experts does",
        ),
        _FIELDS,
    ),
    Rule(
        "pairs_need_microbatches",
        _paired(_several),
        expected(
            "ep_overlap",
            "none, since there are too few microbatches to pair their passes",
            "use a smaller microbatch_size",
        ),
        _FIELDS,
        counted=True,
    ),
)
"""Requirements of overlap with dispatch and combine, in the order of checking.

Source: Megatron-LM, ``core/transformer/transformer_config.py``, checks of ``overlap_moe_expert_parallel_comm``,
``delay_wgrad_compute`` and ``moe_shared_expert_overlap``.
"""
