"""Wholes are the sums of their parts."""

import math

import pytest
from hypothesis import given, settings

import calculon
from calculon.statistics import KINDS, PARTS_OF_TIME
from tests.draws import draws
from tests.strategies import questions


def _estimate(question, **options):
    """Estimate, or skip what cannot be estimated: the strategy is mostly feasible."""
    model, execution, system = question
    try:
        return calculon.estimate(model, execution, system, **options)
    except calculon.CalculonError:
        return None


def _close(found, parts):
    return found == pytest.approx(math.fsum(parts), rel=1e-12, abs=1e-300)


@settings(max_examples=draws(12))
@given(question=questions())
def test_the_parts_of_time_add_up_to_the_total(question):
    if (result := _estimate(question)) is None:
        return
    stats = result.stats
    times = [stats[name] for name in PARTS_OF_TIME]
    assert _close(stats["total_time"], times)
    exact = [math.ulp(abs(time)) for time in (stats["total_time"], *times)]
    assert min(times) >= -sum(exact)
    assert stats["sample_rate"] * stats["total_time"] == pytest.approx(result.execution.batch_size)
    product = stats["compute_efficiency"] * stats["system_efficiency"]
    assert stats["total_efficiency"] == pytest.approx(product)


@settings(max_examples=draws(12))
@given(question=questions())
def test_the_layers_add_up_to_the_block(question):
    if (result := _estimate(question, layers=True)) is None:
        return
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


@settings(max_examples=draws(12))
@given(question=questions())
def test_what_the_tiers_hold_adds_up_to_their_need(question):
    if (result := _estimate(question)) is None:
        return
    stats, execution = result.stats, result.execution
    full = execution.activation_recompute == "full"

    def offloaded(name):
        return stats[name] or 0.0  # null in inference

    tier1, tier2 = [stats["act_grad_space"]], []
    if execution.weight_offload:
        tier1.append(stats["weight_space_with_offload"])
        tier2.append(stats["weight_space"])
    else:
        tier1.append(stats["weight_space"])
    if execution.activations_offload:
        tier1.append(stats["act_space_with_offload"])
        tier1.append(offloaded("act_checkpoint_size_with_offload") if full else 0)
        tier2.append(stats["act_checkpoint_size" if full else "act_space"])
    else:
        tier1 += [stats["act_space"], stats["act_checkpoint_size"]]
    if execution.optimizer_offload:
        tier1 += [stats["weight_grad_space_with_offload"], stats["optimizer_space_with_offload"]]
        blocks = -(-result.model.num_blocks // execution.pipeline_par)
        tier2 += [stats["block_weight_grad_space"] * blocks, stats["optimizer_space"]]
    else:
        tier1 += [stats["weight_grad_space"], stats["optimizer_space"]]
    assert _close(stats["proc_mem_tier1_cap_req"], tier1)
    assert _close(stats["proc_mem_tier2_cap_req"], tier2)
