"""Gradients of the weights of latents, which every tensor-parallel rank has whole."""

import numpy as np

from calculon.architecture.latent_attention import replicated_weights
from calculon.base.units import Array
from calculon.cost.block_cost import BlockCost
from calculon.cost.process_groups import CollectiveCost, axis_group
from calculon.declarations.model import Model
from calculon.declarations.named_values import DATATYPE_BYTES
from calculon.plan.stage_layout import LAST


def latent_traffic(
    model: Model, block: BlockCost, cost: CollectiveCost, *, modules: bool
) -> Array | None:
    """Count what adding these gradients up over tensor ranks takes per batch; None without latents.

    With split sequences each rank has the gradient of its own tokens, and the sums of a step are reduced once, in the
    type that replicas reduce; with whole ones all have all of it. `modules` says whether the last stage has modules
    that predict further tokens, each of which has a block.
    Source: Megatron-LM, ``core/distributed/finalize_model_grads.py``, parameters marked *sequence_parallel*.
    """
    schedule = cost.schedule
    if not (model.latent and model.attends and schedule.training):
        return None
    columns = schedule.columns
    widths = np.array([*DATATYPE_BYTES.values()])[columns.datatype]
    reduced = block.gradient_message / block.weight
    message = replicated_weights(model) * widths * reduced
    found = cost("all_reduce", message, axis_group(schedule, cost.system, "tp"))
    split = columns.is_choice("tensor_par_comm_type", "rs_ag") & (schedule.tensor_par > 1)
    blocks = schedule.blocks
    if modules:
        last = blocks if schedule.layout is None else schedule.layout.blocks[LAST]
        blocks = np.maximum(blocks, last + model.mtp_layers)
    return np.where(split, blocks * found, 0.0)
