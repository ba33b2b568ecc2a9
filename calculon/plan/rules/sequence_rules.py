"""Rules of context parallelism and packed sequences: division over ranks, and the exchange of keys and values."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from calculon.architecture.shape import document_lengths, sequence_lengths
from calculon.base.errors import Problem
from calculon.base.units import Array, Count
from calculon.declarations.module_sets import modules_of
from calculon.declarations.named_values import BETWEEN_PARTS, HEAD_EXCHANGES, RINGS
from calculon.plan.columns import Columns, field_of
from calculon.plan.mesh import data_network, data_ranks
from calculon.plan.rules.rule import Request, Requests, Rule, expected

# Division of sequences over ranks (context parallelism), and exchange of their keys and values.


def _is_one_of(plan: Columns, name: str, values: tuple[str, ...]) -> Array:
    result: Array = np.logical_or.reduce([plan.is_choice(name, value) for value in values])
    return result


def _needs(name: str, forms: tuple[str, ...], plain: str) -> Rule:
    """Create the rule that a field of the exchange has its default if it has no effect."""
    default = field_of(name).default

    def stated(plan: Columns) -> Array:
        values = getattr(plan, name)
        return ~plan.is_choice(name, default) if isinstance(default, str) else values != default

    def holds(r: Requests) -> Array:
        means = (r.plan.context_par > 1) & _is_one_of(r.plan, "cp_comm", forms)
        return ~stated(r.plan) | means

    def explain(one: Request) -> Problem:
        e = one.execution
        why = f"cp_comm is {e.cp_comm}" if e.context_par > 1 else "context_par is 1"
        hint = f"it requires context_par above 1 and cp_comm {', '.join(forms)}"
        return Problem(name, f"{plain}, since {why}", str(getattr(e, name)).lower(), hint)

    return Rule(f"{name}_needs_exchange", holds, explain, (name,))


def _parts(r: Requests) -> Count:
    """Return the number of equal parts of a sequence: two per rank for zigzag (one from each end), or one."""
    zigzag = r.plan.is_choice("cp_balance", "zigzag")
    return np.asarray(np.where(zigzag, 2, 1) * r.plan.context_par, np.int64)


def _splits_sequence(r: Requests) -> Array:
    whole = np.mod(sequence_lengths(r.model, r.plan.seq_length), _parts(r)) == 0
    return whole | (r.plan.context_par == 1)


def _explain_sequence(one: Request) -> Problem:
    e = one.execution
    length = e.seq_length or one.model.seq_size
    field = "seq_length" if e.seq_length else "the model's seq_size"
    if e.cp_balance != "zigzag":
        return Problem("context_par", f"a divisor of {field}={length}", str(e.context_par))
    wanted = f"such that 2 x context_par divides {field}={length}"
    hint = "cp_balance: zigzag gives each rank two parts of a sequence"
    return Problem("context_par", wanted, str(e.context_par), hint)


def _exchanging(plan: Columns) -> Count:
    """Return the number of ranks that exchange heads with each other; 1 without an exchange."""
    inner = np.where(plan.is_choice("cp_comm", "a2a_p2p"), plan.cp_a2a_size, plan.context_par)
    return np.where(_is_one_of(plan, "cp_comm", HEAD_EXCHANGES), np.maximum(inner, 1), 1)


def _key_heads(r: Requests) -> Count:
    return np.where(r.plan.is_choice("attention_type", "multiquery"), 1, r.model.key_value_heads)


def _attending(holds: Callable[[Requests], Array]) -> Callable[[Requests], Array]:
    """Apply a rule to models with softmax attention only."""
    return lambda r: holds(r) if r.model.has_softmax else np.array(True)


def _heads_divide(r: Requests) -> Array:
    ranks = r.plan.tensor_par * _exchanging(r.plan)
    return (r.model.attn_heads % ranks == 0) | (_exchanging(r.plan) == 1)


def _key_heads_divide(r: Requests) -> Array:
    ranks, heads = r.plan.tensor_par * _exchanging(r.plan), _key_heads(r)
    copied = r.plan.cp_kv_replicate & (ranks % heads == 0)
    return (heads % ranks == 0) | copied | (_exchanging(r.plan) == 1)


def _explain_heads(one: Request) -> Problem:
    e = one.execution
    inner = _inner_name(one)
    wanted = f"such that tensor_par x {inner} divides the model's attn_heads={one.model.attn_heads}"
    hint = f"cp_comm: {e.cp_comm} gives each rank a share of the heads"
    return Problem(inner, wanted, str(getattr(e, inner)), hint)


def _explain_key_heads(one: Request) -> Problem:
    e, inner = one.execution, _inner_name(one)
    heads = 1 if e.attention_type == "multiquery" else one.model.key_value_heads
    ways = "divides, or is a multiple of," if e.cp_kv_replicate else "divides"
    wanted = f"such that tensor_par x {inner} {ways} the {heads} key and value heads"
    hint = "" if e.cp_kv_replicate else "cp_kv_replicate: true copies them"
    return Problem(inner, wanted, str(getattr(e, inner)), hint)


def _inner_name(one: Request) -> str:
    return "cp_a2a_size" if one.execution.cp_comm == "a2a_p2p" else "context_par"


def _copies(r: Requests) -> Array:
    """Return a mask of executions that copy heads only if there are fewer heads than ranks."""
    fewer = r.plan.tensor_par * _exchanging(r.plan) > _key_heads(r)
    return ~r.plan.cp_kv_replicate | fewer


def _inner_divides(r: Requests) -> Array:
    size = r.plan.cp_a2a_size
    # NumPy computes both sides of `&`: the maximum avoids a remainder of division by 0.
    divides = (size > 0) & (r.plan.context_par % np.maximum(size, 1) == 0)
    return ~r.plan.is_choice("cp_comm", "a2a_p2p") | divides


def _skips_some(r: Requests) -> Array:
    """Return a mask of executions that skip parts of sequences only if attention windows allow it."""
    window, sequence = r.model.sliding_window, sequence_lengths(r.model, r.plan.seq_length)
    length = document_lengths(sequence, r.plan.packed_percent)
    ends = (window > 0) & (window < length) & ~r.plan.is_choice("cp_balance", "striped")
    return ~r.plan.cp_skip | ends


def _explain_skip(one: Request) -> Problem:
    wanted = "false, since every part has keys that some query attends to"
    if one.execution.cp_balance == "striped":
        return Problem("cp_skip", wanted, "true", "cp_balance: striped puts neighbors on all ranks")
    length, window = one.execution.seq_length or one.model.seq_size, one.model.sliding_window
    hint = "the model has no sliding_window"
    if window:
        hint = (
            f"the model's sliding_window={window} covers whole documents of at most {length} tokens"
        )
    return Problem("cp_skip", wanted, "true", hint)


@cache
def _remade() -> Array:
    """Return a mask over the values of ``recompute_modules``, by code, that recompute queries, keys or values."""
    values = field_of("recompute_modules").declaration.choices
    return np.array([value == "ops" or "mla_up_proj" in modules_of(value) for value in values])


def _keeps_exchanged(r: Requests) -> Array:
    return (_exchanging(r.plan) == 1) | ~_remade()[r.plan.recompute_modules]


def _large_enough(r: Requests) -> Array:
    """Return a mask of executions whose stated network connects all ranks with equal weights."""
    # Another rule refuses networks that do not exist; here the index only has to be valid.
    network = np.minimum(data_network(r.plan), len(r.system.networks) - 1)
    stated = r.plan.is_choice("mesh_order", "stated") & (r.plan.context_par > 1)
    return ~stated | (data_ranks(r.plan) <= r.system.fabric.size[network])


def _explain_network(one: Request) -> str:
    e = one.execution
    number = e.context_par_net if e.data_par == 1 else max(e.data_par_net, e.context_par_net)
    size, ranks = one.system.networks[number].size, e.context_par * e.data_par
    return (
        f"network {number} of {one.system.name} is too small: it connects {size} processors, and context_par="
        f"{e.context_par} x data_par={e.data_par}, which have the same weights, needs {ranks} ({ranks - size} too many)"
    )


_FIELDS = ("context_par",)

CONTEXT_NETWORK_RULES: tuple[Rule, ...] = (
    Rule("cp_network_size", _large_enough, _explain_network, _FIELDS, counted=True),
)
"""Requirement that networks are large enough for the gradient reduction."""

CONTEXT_RULES: tuple[Rule, ...] = (
    Rule(
        "cp_comm_needs_parts",
        lambda r: r.plan.is_choice("cp_comm", "p2p") | (r.plan.context_par > 1),
        expected(
            "cp_comm",
            "p2p, since context_par is 1: nothing is exchanged",
            "set context_par, or leave cp_comm out",
        ),
        ("cp_comm",),
    ),
    _needs("cp_a2a_size", ("a2a_p2p",), "0"),
    _needs("cp_kv_replicate", HEAD_EXCHANGES, "false"),
    _needs("cp_balance", BETWEEN_PARTS, "zigzag"),
    _needs("cp_skip", RINGS, "false"),
    Rule("cp_sequence", _splits_sequence, _explain_sequence, _FIELDS),
    Rule(
        "cp_a2a_inner",
        _inner_divides,
        expected(
            "cp_a2a_size",
            "a divisor of context_par={e.context_par}",
            "cp_comm: a2a_p2p exchanges heads over cp_a2a_size ranks, and uses rings between these groups",
        ),
        ("cp_comm",),
    ),
    Rule("cp_heads", _attending(_heads_divide), _explain_heads, _FIELDS),
    Rule("cp_kv_heads", _attending(_key_heads_divide), _explain_key_heads, _FIELDS),
    Rule(
        "cp_kv_copies",
        _attending(_copies),
        expected("cp_kv_replicate", "false, since there are key and value heads for every rank"),
        ("cp_kv_replicate",),
    ),
    Rule(
        "cp_kept_heads",
        _attending(_keeps_exchanged),
        expected(
            "recompute_modules",
            "without ops and mla_up_proj with cp_comm: {e.cp_comm}: queries, keys and values are kept as exchanged",
        ),
        ("cp_comm",),
    ),
    Rule(
        "cp_fused_attention",
        _attending(
            lambda r: (
                (r.plan.context_par == 1)
                | r.plan.is_choice("attn_impl", "flash")
                | r.plan.is_choice("cp_comm", "a2a")
            )
        ),
        expected(
            "attn_impl",
            "flash, since cp_comm: {e.cp_comm} combines results for parts of the keys with the sums of fused attention",
            "cp_comm: a2a gives each rank whole sequences",
        ),
        _FIELDS,
    ),
    Rule("cp_skip_window", _skips_some, _explain_skip, ("cp_skip",)),
)
"""Requirements of context parallelism, in the order of checking.

Sources: two parts of each rank: Megatron-LM, ``megatron/training/arguments.py``, ``seq_length`` by ``2 *
context_parallel_size``; heads: Megatron-LM, ``core/transformer/transformer_config.py``, and Jacobs et al., *DeepSpeed
Ulysses*, arXiv 2309.14509, section 3.1; sums: Liu et al., *Ring Attention*, arXiv 2310.01889, section 3.
"""


# Packed sequences: the attention kernel must know the document boundaries, and documents may be unequal.

_WHOLE = 100
"""Length of the only document of a sequence, in percent of the sequence."""


def _several(r: Requests) -> Any:
    return r.plan.packed_percent < _WHOLE


def _largest(packed_percent: Any, parts: Any) -> Any:
    """Return the largest possible imbalance in percent: each sequence of the slowest rank is a single document.

    If ranks hold parts of sequences and documents stay whole (`parts` above 1), the slowest rank may have the last
    part, which sees ``(2 c - 1) / c`` times the mean (Megatron-LM, ``--cp-comm-type all_gather``).
    """
    return _WHOLE * _WHOLE * (2 * parts - 1) // (parts * packed_percent)


def _whole_parts(r: Requests) -> Array:
    """Return the number of parts of whole documents: rings split each document, and head exchanges gather it."""
    gathers = r.plan.is_choice("cp_comm", "all_gather")
    return np.where(gathers, np.asarray(r.plan.context_par, np.int64), 1)


def _explain_largest(one: Request) -> Problem:
    e = one.execution
    parts = e.context_par if e.cp_comm == "all_gather" else 1
    factor = f" x (2 x {parts} - 1) / {parts}" if parts > 1 else ""
    wanted = (
        f"at most 100 x 100 / packed_percent{factor} = {_largest(e.packed_percent, parts)}, for a slowest rank with "
        "one document per sequence"
    )
    return Problem("pack_imbalance_percent", wanted, str(e.pack_imbalance_percent))


PACKED_RULES = (
    Rule(
        "packed_needs_attention",
        lambda r: ~_several(r) | np.array(r.model.has_softmax),
        expected("packed_percent", "100, since {model.name} has no attention with softmax"),
        ("packed_percent",),
    ),
    Rule(
        "packed_needs_flash",
        lambda r: ~_several(r) | r.plan.is_choice("attn_impl", "flash"),
        expected(
            "packed_percent",
            "100, unless attn_impl is flash",
            "eager attention computes and stores the scores of whole sequences, between documents too",
        ),
        ("packed_percent",),
    ),
    Rule(
        "pack_imbalance_needs_documents",
        lambda r: _several(r) | (r.plan.pack_imbalance_percent == _WHOLE),
        expected(
            "pack_imbalance_percent",
            "100, unless packed_percent is below 100",
            "sequences with one document each have equal work",
        ),
        ("pack_imbalance_percent",),
    ),
    Rule(
        "pack_imbalance_largest",
        lambda r: r.plan.pack_imbalance_percent <= _largest(r.plan.packed_percent, _whole_parts(r)),
        _explain_largest,
        ("pack_imbalance_percent",),
    ),
)
"""Requirements of packed sequences, in the order of checking."""
