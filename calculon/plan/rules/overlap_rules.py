"""What may hide the exchange of experts."""

from collections.abc import Callable
from functools import cache

import numpy as np

from calculon.architecture.shape import sequence_lengths
from calculon.base.units import Array
from calculon.declarations.module_sets import modules_of
from calculon.declarations.named_values import PAIRED_SCHEDULES
from calculon.plan.columns import Columns, field_of
from calculon.plan.rules.rule import Requests, Rule, expected

_FIELDS = ("ep_overlap",)


def _paired(met: Callable[[Columns], Array]) -> Callable[[Requests], Array]:
    """Ask only executions whose passes run in pairs."""
    return lambda r: ~r.plan.is_choice("ep_overlap", "1f1b") | met(r.plan)


def _exchanges(plan: Columns) -> Array:
    """Whether rows are sent to experts of other ranks."""
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
    """Return which values of ``recompute_modules``, by their code, have a module."""
    values = field_of("recompute_modules").declaration.choices
    return np.array([module in modules_of(value) for value in values])


def recomputes(module: str, plan: Columns) -> Array:
    """Whether a module is computed again."""
    return _values_with(module)[plan.recompute_modules]


def _has_pairs(plan: Columns) -> Array:
    """Whether the schedule has pairs of passes by itself."""
    return np.logical_or.reduce([plan.is_choice("pp_schedule", one) for one in PAIRED_SCHEDULES])


def _several(plan: Columns) -> Array:
    """Whether there are more passes of chunks than the last stage does before its first backward pass."""
    microbatches = plan.batch_size // (plan.data_par * plan.microbatch_size)
    ahead = (plan.pipeline_interleaving - 1) * plan.pipeline_par + 1
    return microbatches * plan.pipeline_interleaving > ahead


def _once(plan: Columns) -> Array:
    """Whether replicas exchange nothing before the last microbatch."""
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
            "nothing else is exchanged beside other work",
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
            "false with ep_overlap={e.ep_overlap}, beside which shared experts run as attention does",
        ),
        ("moe_shared_overlap",),
    ),
    Rule(
        "shared_overlap_stores",
        lambda r: ~(r.plan.moe_shared_overlap & recomputes("shared_experts", r.plan)),
        expected(
            "moe_shared_overlap",
            "false with recompute_modules={e.recompute_modules}, which computes shared experts again",
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
            "dualpipe or dualpipev: others do the passes of a pair in turn",
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
        "pairs_synchronise_once",
        _paired(_once),
        expected(
            "ep_overlap",
            "none with zero_stage={e.zero_stage} and no_sync={e.no_sync}: replicas exchange something beside each "
            "microbatch, as pairs do",
        ),
        _FIELDS,
    ),
    Rule(
        "pairs_need_microbatches",
        _paired(_several),
        expected(
            "ep_overlap",
            "none, since there are no more microbatches than fill the pipeline",
            "use a smaller microbatch_size",
        ),
        _FIELDS,
        counted=True,
    ),
)
"""Requirements of what runs beside dispatch and combine, in the order of checking.

Source: Megatron-LM, ``core/transformer/transformer_config.py``, checks of ``overlap_moe_expert_parallel_comm``,
``delay_wgrad_compute`` and ``moe_shared_expert_overlap``.
"""
