"""How well the machine is used."""

from calculon.cost.block_cost import BlockCost
from calculon.cost.optimizer_step import OptimizerCost
from calculon.editions.edition import Edition
from calculon.plan.schedule import Schedule
from calculon.statistics import Efficiency
from calculon.units import Flops, Seconds


def efficiency(
    block: BlockCost,
    optimizer: OptimizerCost,
    schedule: Schedule,
    busy: Seconds,
    total: Seconds,
    edition: Edition,
    ends: Flops | float,
) -> Efficiency:
    """Compare the time that useful arithmetic would take at peak rate with time spent (section 5.10).

    Parameters
    ----------
    busy : array
        Forward and backward computation and the optimizer step.
    total : array
        The whole iteration.
    ends : array or float
        Useful FLOP per batch of embedding and head.
    """
    useful = edition.useful_flops(
        block.fw.flops,
        block.agrad.flops + block.wgrad.flops,
        optimizer.step.flops,
        schedule.microbatches,
    )
    perfect = (schedule.mean_blocks * schedule.microbatches * useful + ends) / block.matrix_peak
    return Efficiency(
        useful_flops=useful,
        compute_efficiency=perfect / busy,
        system_efficiency=busy / total,
        total_efficiency=perfect / total,
        sample_rate=schedule.batch_size / total,
    )
