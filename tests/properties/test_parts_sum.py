"""Wholes are the sums of their parts in the published edition; ``test_laws.py`` has them of the corrected one."""

import math

import numpy as np
import pytest

import calculon
from calculon.declarations.statistics import KINDS, PARTS_OF_TIME
from tests.draws import draws
from tests.properties.table import holds
from tests.properties.test_twin import published


def _close(found, parts):
    return found == pytest.approx(math.fsum(parts), rel=1e-12, abs=1e-300)


def test_the_parts_of_time_add_up_to_the_total():
    def wrong(table):
        found = table.found
        times = np.stack([found[name] for name in PARTS_OF_TIME])
        rounding = np.spacing(np.abs([*times, found["total_time"]])).sum(axis=0)
        product = found["compute_efficiency"] * found["system_efficiency"]
        batches = np.array([row["batch_size"] for row in table.rows])
        right = (
            np.isclose(times.sum(axis=0), found["total_time"], rtol=1e-12, atol=0)
            & (times.min(axis=0) >= -rounding)
            & np.isclose(found["sample_rate"] * found["total_time"], batches)
            & np.isclose(product, found["total_efficiency"])
        )
        return np.where(found.feasible, ~right, np.nan)

    holds(wrong, published(), least=80)


def test_the_layers_add_up_to_the_block():
    for table in published()[: draws(12)]:
        for row in np.array(table.rows)[table.found.feasible][:1]:
            _check_layers(calculon.estimate(table.model, row, table.system, layers=True))


def _check_layers(result):
    stats, layers, execution = result.stats, result.layers, result.execution

    def total(member):
        return [layer[member] for layer in layers]

    passes = {"fw": "fw_tp"}
    if execution.training:
        passes |= {"agrad": "bw_tp", "wgrad": None, "optim": None}
    for name, traffic in passes.items():
        assert _close(stats[f"block_{name}_flops"], total(f"{name}_flops"))
        assert _close(stats[f"block_{name}_mem_accessed"], total(f"{name}_mem_accessed"))
        assert _close(stats[f"block_{name}_time"], total(f"{name}_processing_time"))
        for kind in KINDS if traffic else ():
            times = f"{kind}block_{name}_tp_time"
            member = f"{kind}block_{traffic}_comm"
            assert _close(stats[f"{kind}block_{traffic}_size"], total(f"{member}_size"))
            assert _close(stats[times], total(f"{member}_time"))
            assert _close(stats[f"{times}_exposed"], total(f"{member}_time_exposed"))
    assert _close(stats["block_weight_space"], total("weight"))
    if execution.training:
        assert _close(stats["block_weight_grad_space"], total("weight_grad"))
        assert _close(stats["block_act_grad_space"], total("activation_grad"))
        assert _close(stats["block_optimizer_space"], total("optimizer"))
        for kind in KINDS:
            for end in ("size", "time"):
                member = f"{kind}block_recomm_{end}"
                assert _close(stats[member], total(member))


def test_what_the_tiers_hold_adds_up_to_their_need():
    def wrong(table):
        found = {name: np.nan_to_num(table.found[name]) for name in table.found.names}
        offloaded = [
            np.array([row[f"{name}_offload"] for row in table.rows])
            for name in ("weight", "activations", "optimizer")
        ]
        full = np.array([row["activation_recompute"] == "full" for row in table.rows])
        stages = np.array([row["pipeline_par"] for row in table.rows])
        act, checkpoint = found["act_space"], found["act_checkpoint_size"]
        state = found["weight_grad_space"] + found["optimizer_space"]
        blocks = -(-table.model["num_blocks"] // stages)
        beyond = found["block_weight_grad_space"] * blocks + found["optimizer_space"]
        kept = (
            found["weight_space_with_offload"],
            found["act_space_with_offload"] + full * found["act_checkpoint_size_with_offload"],
            found["weight_grad_space_with_offload"] + found["optimizer_space_with_offload"],
        )
        there = found["weight_space"], act + checkpoint, state
        moved = found["weight_space"], np.where(full, checkpoint, act), beyond
        tier1 = found["act_grad_space"] + sum(map(np.where, offloaded, kept, there))
        tier2 = sum(np.where(off, size, 0) for off, size in zip(offloaded, moved, strict=True))
        right = np.isclose(tier1, found["proc_mem_tier1_cap_req"], rtol=1e-12, atol=0)
        right &= np.isclose(tier2, found["proc_mem_tier2_cap_req"], rtol=1e-12, atol=0)
        return np.where(table.found.feasible, ~right, np.nan)

    holds(wrong, published(), least=80)
