"""Small spaces with all of their executions evaluated once: what every search is compared with.

Some spaces are stated, one for each kind of executions that the search has code of its own for; others are drawn.
"""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from random import Random
from typing import Any

import numpy as np

import calculon
from calculon import inputs
from calculon.declarations.named_values import PP_SCHEDULES
from calculon.declarations.presets import find_preset
from calculon.editions import EDITIONS
from calculon.search.best_first import groups, tiles
from calculon.search.candidates import REPLICATED
from calculon.search.space import Space
from calculon.search.tile import Tile
from tests import strategies
from tests.draws import FACTOR, SEED, draws
from tests.helpers import document
from tests.properties.table import collected
from tests.search.brute import Case, Row, random_case
from tests.store import stored

DRAWN = draws(4)
"""How many spaces are drawn of each edition."""

BEST_FIRST = importlib.import_module("calculon.search.best_first")
"""The module, since the package exports the function."""

ROOMS = (0.5, 0.7, 0.9)
"""Shares of the executions of stated spaces for which there is memory."""

NO_OFFLOADS: Row = dict.fromkeys(
    ("weight_offload", "activations_offload", "optimizer_offload"), (False,)
)
PLAIN: Row = {
    **NO_OFFLOADS,
    "tensor_par": (1,),
    "pipeline_par": (1, 2),
    "pipeline_interleaving": (1, 2),
    "microbatch_size": (1, 2),
    "activation_recompute": ("full", "none"),
    "tensor_par_comm_type": ("ar",),
    "tensor_par_overlap": ("none",),
    "seq_par_ag_redo": (False,),
    "tensor_par_net": (0,),
    "pipeline_par_net": (0,),
    "data_par_net": (0,),
}
"""What is left of the published loops."""

DENSE = calculon.Model(
    hidden=1024,
    feedforward=4096,
    seq_size=256,
    attn_heads=8,
    attn_size=128,
    kv_heads=4,
    num_blocks=4,
    activation="swiglu",
    vocab=4001,
)
LONG = replace(DENSE, seq_size=16384)
MIXTURE = replace(
    DENSE,
    kv_heads=0,
    num_experts=8,
    experts_per_token=2,
    expert_feedforward=512,
    shared_feedforward=512,
)
LATENT = calculon.Model(
    hidden=1536,
    feedforward=3840,
    seq_size=64,
    attn_heads=8,
    attn_size=96,
    num_blocks=4,
    activation="swiglu",
    q_lora_rank=256,
    kv_lora_rank=128,
    qk_nope_head_dim=64,
    qk_rope_head_dim=32,
    v_head_dim=64,
    vocab=4001,
)
PART = replace(DENSE, kv_heads=0, activation="gelu", vocab=0)
WINDOWS = replace(DENSE, num_blocks=8, sliding_window=16, full_attention_every=4)

SPLIT_PARTS: Row = {"tensor_par": (1, 2), "microbatch_size": (1,)}
EXCHANGES: Row = {"ep_overlap": ("1f1b", "two_batch"), "delay_wgrad": (True,)}
WIDENED: dict[str, tuple[calculon.Model, Row, Row]] = {
    "groups of blocks": (
        replace(MIXTURE, num_blocks=6, first_k_dense=1, moe_layer_freq=3, sliding_window=64),
        {"tensor_par": (1, 2)},
        {"zero_stage": ("1",), "pp_layout": ("balanced",)},
    ),
    "leading blocks": (
        replace(MIXTURE, first_k_dense=2),
        {"pipeline_par_net": (0, 1)},
        {"zero_stage": ("3",), "pp_layout": ("balanced",)},
    ),
    "windows": (
        WINDOWS,
        {"tensor_par": (1, 2)},
        {"zero_stage": ("2",), "pp_layout": ("balanced",)},
    ),
    "attention alone": (replace(PART, part="attention", feedforward=3073), SPLIT_PARTS, {}),
    "an MLP alone": (replace(PART, part="mlp", attn_heads=1), SPLIT_PARTS, {}),
    "a product alone": (
        replace(PART, part="linear", attn_heads=1, feedforward=1024),
        SPLIT_PARTS,
        {},
    ),
    "latents": (
        LATENT,
        {"tensor_par": (1, 2, 4), "tensor_par_comm_type": ("ar", "p2p_rs_ag", "rs_ag")},
        {},
    ),
    "latents and heads": (LATENT, {"tensor_par": (2,)}, {"attention_type": ("multiquery",)}),
    "overlapped experts": (
        replace(MIXTURE, num_blocks=8),
        {},
        EXCHANGES | {"expert_par": (4,), "moe_shared_overlap": (True,)},
    ),
    "overlapped experts of uneven stages": (
        replace(MIXTURE, num_blocks=7),
        {},
        EXCHANGES | {"expert_par": (4,), "pp_layout": ("balanced",)},
    ),
    "schedules": (
        replace(DENSE, num_blocks=8),
        {"pipeline_par": (2, 4)},
        {"pp_schedule": PP_SCHEDULES[1:]},
    ),
    "schedules and transfers": (
        replace(DENSE, num_blocks=8),
        {"pipeline_par": (2, 4), "activation_recompute": ("none",), "microbatch_size": (1,)},
        {
            "pp_schedule": PP_SCHEDULES[1:],
            "p2p_overlap": (True,),
            "overlap_param_gather": (True,),
            "zero_stage": ("1", "3"),
        },
    ),
    "schedules and experts": (
        replace(MIXTURE, num_blocks=8),
        {"pipeline_par": (2, 4), "microbatch_size": (1,)},
        {"pp_schedule": PP_SCHEDULES[1:], "expert_par": (4,), "ep_overlap": ("1f1b",)},
    ),
}
"""Models, published loops, and values that are added."""

FEW: Row = {
    "activation_recompute": ("none",),
    "recompute_modules": ("none",),
    "mesh_order": ("tp-dp-pp",),
    "pp_layout": ("uniform",),
    "tensor_par": (1,),
    "tensor_par_comm_type": ("ar",),
    "seq_par_ag_redo": (False,),
    "tp_async": (False,),
    "p2p_overlap": (False,),
    "overlap_param_gather": (False,),
    "ep_overlap": ("none",),
    "pipeline_par": (1,),
    "pipeline_interleaving": (1, 2),
    "microbatch_size": (1, 2),
    "optimizer_sharding": (True,),
    "zero_stage": ("1",),
}
SPLIT = FEW | {"tensor_par": (2,), "tensor_par_comm_type": ("rs_ag",), "seq_par_ag_redo": (True,)}
SPREAD = SPLIT | {
    "data_par": (2, 4),
    "expert_par": (1, 4),
    "overlap_param_gather": (True, False),
    "p2p_overlap": (False, True),
    "ep_overlap": ("none", "1f1b"),
}
del SPREAD["pipeline_par"]

SEQUENCES: dict[str, tuple[str, Row]] = {
    "exchanges of sequences": (
        "megatron-lm",
        SPLIT
        | {
            "context_par": (1, 2, 4),
            "cp_comm": ("p2p", "all_gather", "a2a"),
            "pipeline_par": (1, 2),
        },
    ),
    "heads over some ranks": (
        "megatron-lm",
        {"context_par": (2, 4), "cp_comm": ("p2p", "a2a_p2p"), "cp_a2a_size": (0, 2)},
    ),
    "stages of ZeRO": (
        "common",
        {
            "context_par": (1, 2, 4, 8),
            "zero_stage": ("0", "1", "fsdp"),
            "optimizer_sharding": (True, False),
        },
    ),
    "recipes": (
        "megatron-lm",
        {
            "context_par": (1, 2),
            "fp8_recipe": ("none", "tensorwise", "blockwise"),
            "fp8_param_gather": (False, True),
        },
    ),
    "schedules of parts of sequences": (
        "common",
        {
            "context_par": (1, 2),
            "pipeline_par": (4,),
            "microbatch_size": (1,),
            "pp_schedule": ("1f1b", "zb_h1", "zb_h2", "zbv", "dualpipe", "dualpipev"),
        },
    ),
}
"""Frameworks, and the values that searches of long sequences are held to beside the few."""

ALL_TO_ALL: Row = {"moe_dispatcher": ("alltoall",)}
PLACES: Row = ALL_TO_ALL | {
    "pipeline_par": (2, 4),
    "stage_blocks": ("", "2-1-1m-0", "3-1m-0-0", "1-1-1-1-0-0-0m-0"),
}
EXPERTS: dict[str, tuple[Row, Row]] = {
    "degrees of experts": (
        {},
        ALL_TO_ALL
        | {
            "tensor_par": (2, 4),
            "tensor_par_comm_type": ("ar", "rs_ag"),
            "seq_par_ag_redo": (False, True),
            "tp_async": (False, True),
            "expert_par": (1, 2, 4, 8),
            "expert_tensor_par": (0, 1, 2),
            "overlap_param_gather": (True,),
        },
    ),
    "experts without tensor parallelism": (
        {},
        {
            "tensor_par": (1,),
            "tensor_par_comm_type": ("ar",),
            "seq_par_ag_redo": (False,),
            "data_par": (2, 4, 8),
            "expert_par": (1, 2, 4, 8),
            "optimizer_sharding": (True, False),
            "zero_stage": ("0", "1"),
        },
    ),
    "replicas beyond stages": (
        {},
        ALL_TO_ALL
        | {
            "mesh_order": ("tp-pp-dp",),
            "expert_par": (1, 2, 4, 8),
            "expert_tensor_par": (0, 1),
        },
    ),
    "dispatchers": (
        {},
        {"moe_dispatcher": ("alltoall", "allgather"), "moe_imbalance_percent": (100, 150)},
    ),
    "modules": (
        {},
        ALL_TO_ALL
        | {
            "recompute_modules": ("none", "moe_act", "norm+moe_act", "moe"),
            "overlap_param_gather": (True,),
        },
    ),
    "overlaps of experts": ({}, ALL_TO_ALL | {"moe_shared_overlap": (False, True)}),
    "blocks of two kinds": ({"first_k_dense": 1}, {"expert_tensor_par": (0, 1)}),
    "predicted tokens": ({"mtp_layers": 1}, {"expert_par": (1, 2)}),
    "places of their modules": ({"mtp_layers": 1}, PLACES),
    "places in two kinds": ({"mtp_layers": 2, "first_k_dense": 1}, PLACES),
}
"""Changes of the mixture of experts, and the values that searches of it are held to."""

UNEVEN: dict[str, tuple[int, int, int, Row, bool]] = {
    "four blocks": (4, 8, 16, {"tensor_par": (2,), "data_par": (2, 4)}, False),
    "seven blocks": (7, 16, 8, {"tensor_par": (2, 4), "data_par": (2,)}, False),
    "any batch": (7, 16, 15, {"tensor_par": (2,), "data_par": (2,)}, True),
    "six blocks": (6, 24, 12, {"tensor_par": (2,), "data_par": (1, 3)}, False),
}
"""Blocks, processors, batch, degrees, and whether batches may be smaller, under each framework.

Seven blocks divide over no stages, six not over four, unless ends count as blocks.
"""


def stated() -> dict[str, Case]:
    """Return a space for each kind of executions."""
    roomy = _machine()
    found = {}
    for name, (model, loops, add) in WIDENED.items():
        options = {"fix": PLAIN | loops, "add": add, "edition": "corrected"}
        found[name] = Case(model, roomy, 8, 16, "bfloat16", **options)
    for name, (framework, values) in SEQUENCES.items():
        held = FEW | {"cp_comm": ("p2p",)} | values
        found[name] = _under(framework, held, (LONG, roomy, 8, 16, "bfloat16"))
    for name, (changes, values) in EXPERTS.items():
        asked = replace(MIXTURE, **changes), roomy, 8, 16, "bfloat16"
        found[name] = _under("megatron-lm", SPREAD | values, asked)
    for framework in ("megatron-lm", "torchtitan", "deepspeed"):
        for name, (blocks, procs, batch, degrees, any_batch) in UNEVEN.items():
            model = replace(inputs.model("llama3-8B"), num_blocks=blocks, hidden=512)
            asked = replace(model, feedforward=1024), roomy, procs, batch, "bfloat16"
            case = _under(framework, degrees, asked, any_batch=any_batch)
            found[f"{name} under {framework}"] = case
    for number, (name, case) in enumerate(found.items()):
        found[name] = _filled(case, ROOMS[number % len(ROOMS)])
    return found


def _machine() -> calculon.System:
    """Return a system whose memory is never too small, all of which an execution may use."""
    raw = document("systems", "h100_80g_sxm")
    raw["mem1"]["GiB"] = 1e9
    raw["ext"]["memory"]["withheld_GiB"] = 0
    return inputs.system(raw)


def _under(framework: str, held: Row, asked: tuple[Any, ...], **options: Any) -> Case:
    """Return the space of a framework; its executions are those with every value that the framework tries."""
    preset = find_preset(framework)
    options |= {"fused": (False,), "edition": "corrected", "preset": framework}
    values = {
        field: values
        for field, values in Case(*asked, fix=held, **options).space.switches.items()
        if field not in ("fused_activation", "pp_layout")
    }
    values |= {field: preset.tried(field) for field in REPLICATED}
    return Case(*asked, fix=values | held, held=held, **options)


def _filled(case: Case, *shares: float | None) -> Case:
    """Return a case with memory, by tier, for a share of the executions, and for one of them exactly; for none if 0."""
    system = case.system
    for found, name, share in zip(case.needs, ("mem1", "mem2"), shares, strict=False):
        tier, needs = getattr(system, name), np.sort(found[~np.isnan(found)])
        if share is not None and tier.capacity and len(needs):
            capacity = needs[int(share * (len(needs) - 1))] if share else needs[0] / 2
            system = replace(system, **{name: replace(tier, capacity=float(capacity) or 1.0)})
    return case.on(system)


def drawn() -> dict[str, Case]:
    """Return random spaces of several models and systems; of each edition one without feasible executions."""
    found: dict[str, Case] = {}
    systems = collected(strategies.systems(), 2 * DRAWN)
    for number, system in enumerate(systems):
        edition = ("sc23", "corrected")[number % 2]
        random = Random(f"{edition} {number} {SEED}")
        shares = [random.choice((None, None, 0.2, 0.5, 0.8)) for _ in range(2)]
        case = random_case(random, system, edition)
        found[f"random {number}"] = _filled(case, *(shares if number > 1 else (0.0, None)))
    return found


@stored
def pool() -> dict[str, Case]:
    """Return all spaces by name, with their executions evaluated."""
    found = stated() | drawn()
    for case in found.values():
        vars(case).update(table=case.table, preferred=case.preferred)
        vars(case).pop("space", None)
        vars(case).pop("every", None)
    return found


def on_pool(part: int = 0, parts: int = 1) -> Callable[[Any], Callable[[], None]]:
    """Run a test on one of so many parts of the spaces; on all of them under ``--large``.

    The test gets the case, and random draws of its own.
    """

    def made(test: Callable[[Case, Random], None]) -> Callable[[], None]:
        @wraps(test)
        def run() -> None:
            for number, (name, case) in enumerate(pool().items()):
                if FACTOR > 1 or number % parts == part:
                    try:
                        test(case, Random(f"{test.__name__} {number} {SEED}"))
                    except BaseException as error:
                        error.add_note(f"in the space of {name}")
                        raise

        del run.__wrapped__  # type: ignore[attr-defined]
        return run

    return made


def several_parts(case: Case) -> bool:
    """Return whether sequences are split in several ways: executions of units then do not follow each other."""
    return len(case.space.switches["context_par"]) > 1


def all_tiles(space: Space) -> Iterator[Tile]:
    """Yield all tiles of a space."""
    for group in groups(space):
        yield from tiles(space, BEST_FIRST.CostTables(space, group), group)


def searched(space: Space) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the numbers of all feasible executions of a space, ascending, and their statistics by name, of tiles."""
    known = EDITIONS[space.edition].columns
    numbers, found = [np.zeros(0, int)], {column.name: [np.zeros(0)] for column in known}
    for tile in all_tiles(space):
        for rows in tile.rows(np.nonzero(tile.fits)) if tile.feasible else ():
            shape = rows.numbers.shape
            allowed = np.broadcast_to(rows.allowed, shape)
            numbers.append(rows.numbers[allowed])
            for column in known:
                values = np.broadcast_to(column.of(rows.batch), shape)
                found[column.name].append(values[allowed])
    joined = np.concatenate(numbers)
    order = np.argsort(joined)
    return joined[order], {name: np.concatenate(v)[order] for name, v in found.items()}
