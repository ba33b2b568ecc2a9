"""Activation memory and exposed communication of each layer of a block."""

import numpy as np

from calculon.base.arrays import ordered_sum
from calculon.base.units import Array, Bytes, Seconds
from calculon.cost.layer_cost import LayerCost, LayerTable
from calculon.declarations.scope_choices import BlockChoice
from calculon.editions.edition import Edition


def exposed_times(
    table: LayerTable, cost: LayerCost, choice: BlockChoice, edition: Edition
) -> Seconds:
    """Return what is exposed of tensor-parallel collectives: shape (passes, kinds, collective layers, blocks)."""
    exposed = cost.traffic.exposed
    if choice.tensor_par_overlap == "none":
        return exposed
    repeated = table.flagged("recommunicate", choice, edition)[table.collective_rows()]
    again = edition.recommunication_exposed(exposed[0], exposed[2])
    return np.concatenate([exposed[:2], (again * repeated)[None]])


def storage(
    table: LayerTable, choice: BlockChoice, none: Array, edition: Edition, *, narrow: bool
) -> tuple[Bytes, Bytes]:
    """Return the activations that stay from the forward to the backward pass (section 4.3), and copies of weights.

    The former are those of a microbatch. Copies in 8 or 4 bits are kept once for all microbatches of a step, whose
    weights are the same; other conversions are part of the graph of each microbatch. Source: NVIDIA, *Transformer
    Engine*, ``is_first_microbatch``: caching of the FP8 versions of the weights.
    """
    if choice.training and choice.recompute_all:
        return none, none
    kept = stored_activations(table, choice, edition)
    if not (choice.training and narrow):
        return ordered_sum(kept), none
    copied = np.array([[layer.kernel == "cast"] for layer in table.layers])
    return ordered_sum(kept * ~copied), none + ordered_sum(kept * copied)


def stored_activations(table: LayerTable, choice: BlockChoice, edition: Edition) -> Bytes:
    """Return what each layer adds to what stays from the forward to the backward pass: shape (layers, blocks)."""
    if not choice.training:
        return table.activation
    if choice.recompute_all:
        return np.zeros_like(table.activation)
    drops = table.flagged("drops_activation", choice, edition)
    kept = table.activation * ~drops
    if table.shard is not None:
        kept = kept + table.shard * (drops & ~table.flagged("drops_shard", choice, edition))
    made = table.flagged("remakes", choice, edition)
    if made.any():
        kept = np.maximum(kept - table.remade * (made & ~drops), 0.0)
    dropped = table.output_bytes * table.flagged("drops_output", choice, edition)
    return kept - dropped
