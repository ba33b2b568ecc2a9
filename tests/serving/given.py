"""Machines, models and passes that tests of serving share."""

from dataclasses import replace

import numpy as np

from calculon import inputs
from calculon.declarations.model import Model
from calculon.hardware.extension import Extension
from calculon.hardware.serving import Serving
from calculon.serving.passes.pass_rows import pass_rows
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.passes.row_times import PassTimes, pass_times
from calculon.serving.records.number_types import NumberTypes
from calculon.serving.serve import Served, serve

H100 = inputs.system("h100_80g_sxm")
LLAMA_70B = inputs.model("llama3-70B")

SMALL = Model(
    hidden=1024,
    feedforward=3584,
    seq_size=2048,
    attn_heads=16,
    attn_size=64,
    num_blocks=4,
    kv_heads=4,
    activation="swiglu",
    norm="rmsnorm",
    rotary=1.0,
    dropout=False,
    vocab=32000,
    name="small",
)

NO_FLOORS = Serving(
    matrix_floor=0.0, attention_floor=0.0, vector_floor=0.0, routing_floor=0.0, step_host=0.0
)
PLAIN = replace(H100, ext=Extension(serving=NO_FLOORS))
"""A machine as published, whose kernels have no floor."""

LOAD = {"prompt": 900, "output": 300}


def small(changes=None, procs=1, system=H100, **load) -> Served:
    """Serve the small model under a load of prompts of 900 tokens and outputs of 300."""
    return serve(SMALL, procs, system, LOAD | load, changes=changes)


def types(system=H100, weights="bfloat16", cache="bfloat16", experts=None, head="bfloat16"):
    """Return types of numbers."""
    return NumberTypes.of(system, weights, experts or weights, head, cache)


def timed(
    model=SMALL, system=H100, *, weights="bfloat16", cache="bfloat16", graphs=True, **sizes
) -> PassTimes:
    """Time passes."""
    columns = PassSizes.of(**{"tensor_par": 1, **sizes})
    rows = pass_rows(model, types(system, weights, cache), columns)
    return pass_times(model, system, rows, columns, graphs=graphs)


def rows_of(
    model=SMALL, system=H100, *, weights="bfloat16", cache="bfloat16", shared_heads=True, **sizes
):
    """Return the rows of passes."""
    columns = PassSizes.of(**{"tensor_par": 1, **sizes})
    return pass_rows(model, types(system, weights, cache), columns, shared_heads=shared_heads)


def total(rows, name, quantity) -> float:
    """Return the sum of a quantity over the rows of a name, in the first pass."""
    found = sum(row.times * row.parts * getattr(row, quantity) for row in rows if row.name == name)
    return float(np.asarray(found).reshape(-1)[0])


def rising(values) -> bool:
    """Whether values never fall, but for rounding."""
    values = np.asarray(values)
    return bool(np.all(np.diff(values) >= -1e-12 * np.abs(values[:-1])))
