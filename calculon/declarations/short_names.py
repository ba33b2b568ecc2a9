"""Short names of execution fields (``tp``, ``mbs``) and of statistics (``mem``)."""

from collections.abc import Mapping
from typing import Any

from calculon.declarations.axes import AXES

FIELDS: Mapping[str, str] = {
    **{axis.name: axis.degree for axis in AXES},
    "etp": "expert_tensor_par",
    "mbs": "microbatch_size",
    "gbs": "batch_size",
    "vpp": "pipeline_interleaving",
    "v": "pipeline_interleaving",
    "zero": "zero_stage",
    "recompute": "activation_recompute",
    "sp": "tensor_par_comm_type",
}
"""Execution fields by short name."""

QUESTION_WORDS: Mapping[str, str] = {
    "num_procs": "procs",
    "preset": "preset",
    "batch_size": "batch",
    "seq_length": "seq",
    "datatype": "dtype",
}
"""Words for execution fields in a question: command options, and parameters of a web address."""

STATISTICS: Mapping[str, str] = {
    "time": "total_time",
    "memory": "proc_mem_tier1_cap_req",
    "mem": "proc_mem_tier1_cap_req",
    "GiB": "proc_mem_tier1_cap_req",
    "seq/s": "sample_rate",
    "tokens/s": "tokens_per_second",
    "bubble": "bubble_time",
}
"""Statistics by the words of tables and pages; others, such as ``mfu``, are short already."""

_VALUES: Mapping[str, Mapping[str, Any]] = {
    "sp": {"1": "rs_ag", "true": "rs_ag", "on": "rs_ag", "0": "ar", "false": "ar", "off": "ar"},
    "recompute": {"selective": "attn_only", "off": "none", "0": "none"},
}
"""Alternative values of some short names."""


def field_name(text: str) -> str:
    """Return the field of a short name in either case; return any other text unchanged.

    >>> field_name("TP"), field_name("tensor_par")
    ('tensor_par', 'tensor_par')
    """
    return FIELDS.get(text.lower(), text)


def field_value(name: str, text: str) -> str:
    """Return the field value of a short name's value; return any other text unchanged.

    >>> field_value("sp", "on"), field_value("tp", "8")
    ('rs_ag', '8')
    """
    return str(_VALUES.get(name.lower(), {}).get(text.lower(), text))


def short_of(field: str) -> str:
    """Return the short name of a field or a statistic (the first of several); the name itself if it has none.

    >>> short_of("pipeline_interleaving"), short_of("total_time"), short_of("mfu")
    ('vpp', 'time', 'mfu')
    """
    # Several short names may mean one field (vpp, v); the first is the one that pages show.
    return next((short for short, name in {**FIELDS, **STATISTICS}.items() if name == field), field)
