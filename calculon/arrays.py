"""Sums and choices over arrays that do not depend on how rows are batched."""

import numpy as np

from calculon.units import Array

LAYER_AXIS = -2


def ordered_sum(values: Array) -> Array:
    """Sum over layers, the axis before the last, from first to last, whatever the shape.

    ``np.sum`` may add pairwise depending on the memory layout, and then one execution would differ from the same row
    in a table.
    """
    total: Array
    if values.shape[-1] == 1:  # the same sum, faster for one block
        total = np.add.accumulate(values, axis=LAYER_AXIS)[..., -1, :]
        return total
    total = values[..., 0, :].copy()
    for layer in range(1, values.shape[LAYER_AXIS]):
        total += values[..., layer, :]
    return total
