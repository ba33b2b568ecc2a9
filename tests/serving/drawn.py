"""Hypothesis strategies of serving: models that are served, machines with floors, deployments and workloads."""

import math
from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from calculon.base.errors import Infeasible
from calculon.hardware.serving import ENGINE_KERNELS, FASTEST
from calculon.serving.passes.exchange import EXCHANGES, ROUTINGS
from calculon.serving.records.deployment import ADMISSIONS, OVERLAPS
from calculon.serving.records.number_types import CACHE_TYPES, WEIGHT_TYPES
from calculon.serving.serve import Served, serve
from tests.draws import draws
from tests.store import stored
from tests.strategies import Document, divisors, extended_models, extensions, systems

MAX_RANKS = 64
"""Ranks of tensor parallelism up to which deployments are drawn."""

MACHINES = 16
"""Machines in a list from which tests choose."""

SENT = ("same", "bfloat16", "float8")
"""Types in which tokens are sent to their experts."""

FLOORS = ("matrix_floor", "attention_floor", "vector_floor", "routing_floor", "step_host")


@st.composite
def served_models(draw: st.DrawFn) -> Document:
    """Models with attention to all tokens before, or to those of a window, of any other kind."""
    found = draw(extended_models(patterns=False).filter(lambda one: "linear_attention" not in one))
    if found.get("positions"):
        found["positions"] = 16_384  # longer than any request that is drawn
    return {"vocab": draw(st.integers(1, 150_000)), **found, "causal": True}


def machines(*, steps: bool = True, tiles: bool = True) -> st.SearchStrategy[Document]:
    """Machines with constants of serving, of a list that is drawn once: most take longer to draw than to use.

    Without ``steps`` efficiencies do not depend on the size of operations; without ``tiles`` no product is timed by its
    shape.
    """
    numbers = st.integers(0, draws(MACHINES) - 1)
    return numbers.map(lambda number: _plainer(listed_machines()[number], steps, tiles))


def _plainer(machine: Document, steps: bool, tiles: bool) -> Document:
    found = deepcopy(machine)
    if not tiles:
        found["ext"] = {"serving": found["ext"]["serving"]}
    if not steps:
        for engine in (*found["matrix"].values(), *found["vector"].values()):
            engine["gflops_efficiency"] = engine["gflops_efficiency"][-1:]
        for tier in ("mem1", "mem2"):
            found[tier]["MB_efficiency"] = found[tier]["MB_efficiency"][-1:]
    return found


@stored
def listed_machines() -> list[Document]:
    """Draw the machines that tests choose from, which no random test can do while it runs."""
    found: list[Document] = []

    @settings(max_examples=draws(MACHINES), deadline=None)
    @given(systems().flatmap(with_extensions))
    def collect(machine: Document) -> None:
        found.append(machine)

    collect()
    return [found[number % len(found)] for number in range(draws(MACHINES))]


@st.composite
def with_extensions(draw: st.DrawFn, system: Document) -> Document:
    """A machine with rates of kernels, links and constants of serving."""
    return system | {"ext": draw(extensions(system)) | {"serving": draw(constants())}}


@st.composite
def constants(draw: st.DrawFn) -> Document:
    """Floors, decode attention and small reductions of a machine."""
    seconds = st.one_of(st.just(0.0), st.floats(1e-7, 1e-3))
    latency = sorted(draw(st.lists(st.floats(1e-7, 1e-4), min_size=3, max_size=3)))
    return {
        **{name: draw(seconds) for name in FLOORS},
        "decode_attention": {
            "efficiency": draw(st.floats(0.1, 1)),
            "key_tile": draw(st.sampled_from((0, 64, 128))),
            "tail": draw(st.sampled_from((0, 0.5))),
            "multiprocessors": draw(st.integers(1, 150)),
        },
        "small_reduce": {
            "latency": [[n, s] for n, s in zip((2, 4, 8), latency, strict=True)],
            "efficiency": draw(st.floats(0.1, 1)),
        },
    }


@st.composite
def deployments(draw: st.DrawFn, model: Document, **fixed: Any) -> Document:
    """Deployments of a model; some fields may be given."""
    experts = model.get("num_experts", 1)
    width = (model.get("expert_feedforward") or model["feedforward"]) if experts > 1 else 0
    ranks = [t for t in divisors(model["attn_heads"]) if t <= MAX_RANKS and width % t == 0]
    split = draw(st.sampled_from(ranks))
    stages = draw(st.integers(1, min(3, model["num_blocks"])))
    groups = divisors(math.gcd(split, experts))
    apart = draw(st.sampled_from(groups)) if experts > 1 else 1
    copies = experts if apart > 1 and draw(st.booleans()) else 0
    groups_of_attention = draw(st.sampled_from(divisors(split))) if experts > 1 else 1
    ranks = split // groups_of_attention
    heads = model.get("kv_heads") or model["attn_heads"]
    alike = ranks if model.get("kv_lora_rank") else ranks // math.gcd(ranks, heads)
    budget = draw(st.sampled_from((0, 600, 2048, 8192)))
    found = {
        "tensor_par": split,
        "pipeline_par": stages,
        "attn_data_par": groups_of_attention,
        "context_par": draw(st.sampled_from(divisors(alike))),
        "expert_par": apart,
        "redundant_experts": copies,
        "routing": draw(st.sampled_from(sorted(ROUTINGS))) if experts > 1 else "balanced",
        "expert_kernels": draw(st.sampled_from((FASTEST, *ENGINE_KERNELS))),
        "dispatch_dtype": draw(st.sampled_from(SENT)) if experts > 1 else "same",
        "exchange": draw(st.sampled_from(sorted(EXCHANGES))),
        "overlap": draw(st.sampled_from(sorted(OVERLAPS))) if experts > 1 else "none",
        "weights_dtype": draw(st.sampled_from(sorted(WEIGHT_TYPES))),
        "head_dtype": draw(st.sampled_from(("bfloat16", "float8"))),
        "kv_dtype": draw(st.sampled_from(sorted(CACHE_TYPES))),
        "batching": draw(st.sampled_from(("continuous", "continuous", "static"))),
        "token_budget": budget,
        "balanced_prompts": draw(st.booleans()),
        "max_batch": draw(st.integers(1, 300)),
        "admission": draw(st.sampled_from(sorted(ADMISSIONS))),
        "kv_block": draw(st.sampled_from((1, 16, 64))),
        "memory_share": draw(st.sampled_from(("free", "free", "total", "static"))),
        "memory_fraction": draw(st.floats(0.5, 1)),
        "reserve_gib": draw(st.sampled_from((0, 4))),
        "graphs": draw(st.booleans()),
        "shared_heads": draw(st.booleans()),
        **draw(hosts()),
    } | fixed
    each = found["tensor_par"] * found["pipeline_par"]
    return {"num_procs": each * draw(st.integers(1, 3)), **found}


@st.composite
def hosts(draw: st.DrawFn) -> Document:
    """Host time of requests, passes and sequences, and largest graphs; half of the engines state none."""
    if draw(st.booleans()):
        return {}
    seconds = st.sampled_from((0.0, 1e-5, 3e-3))
    own = {"pass_host": draw(seconds)} if draw(st.booleans()) else {}
    own |= {"graph_tokens": draw(st.sampled_from((1, 100, 512)))} if draw(st.booleans()) else {}
    return own | {
        "request_time": draw(st.sampled_from((0.0, 0.05))),
        "sequence_host": draw(seconds),
        "async_host": draw(st.booleans()),
    }


@st.composite
def workloads(draw: st.DrawFn, **fixed: Any) -> Document:
    """Saturating loads; some fields may be given."""
    return {
        "prompt": draw(st.integers(1, 6000)),
        "output": draw(st.integers(2, 3000)),
        "prefix_hit": draw(st.sampled_from((0.0, 0.0, 0.3))),
    } | fixed


@st.composite
def cases(draw: st.DrawFn, **fixed: Any) -> tuple[Document, Document, Document, Document]:
    """A model, a deployment, a machine and a workload."""
    model = draw(served_models())
    return model, draw(deployments(model, **fixed)), draw(machines()), draw(workloads())


def served(
    model: Document, deployment: Document, system: Document, load: Document
) -> Served | None:
    """Return the answer, or None where nothing fits."""
    try:
        return serve(model, deployment, system, load)
    except Infeasible:
        return None
