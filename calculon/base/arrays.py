"""Sums over arrays that do not depend on batching, shared zeros, and cached properties."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from calculon.base.units import Array

if TYPE_CHECKING:
    from functools import cached_property

    __all__ = [
        "cached_property",
        "forget",
        "is_cached",
        "is_nonzero",
        "is_shared_zeros",
        "ordered_sum",
        "over_passes",
        "rate",
        "shared_zeros",
    ]
else:

    class cached_property:
        """Property that is computed on first access.

        Equivalent to ``functools.cached_property`` from Python 3.12 on, without the lock that makes it slow in 3.11.
        """

        def __init__(self, function: Callable[[Any], Any]):
            self.function, self.__doc__ = function, function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.name] = self.function(instance)
            return value


def is_cached(instance: object, name: str) -> bool:
    """Return True if a cached property of an object has been computed, or assigned."""
    return name in vars(instance)


def forget(instance: object, *names: str) -> None:
    """Free the memory of attributes of an object; cached properties are computed again on the next access."""
    for name in names:
        vars(instance).pop(name, None)


@cache
def shared_zeros(*shape: int) -> Array:
    """Return shared read-only zeros of shape ``(*shape, 1)``, for executions that have none of a quantity.

    The same array is returned each time, so that joining and gathering rows costs nothing.
    """
    zeros: Array = np.zeros((*shape, 1))
    zeros.setflags(write=False)
    return zeros


def is_shared_zeros(values: Array) -> bool:
    """Return True for the shared zeros of :func:`shared_zeros`."""
    return values.shape[-1:] == (1,) and values is shared_zeros(*values.shape[:-1])


LAYER_AXIS = -2


def ordered_sum(values: Array) -> Array:
    """Sum over layers, the second-to-last axis, from first to last, independent of the memory layout.

    ``np.sum`` may add pairwise depending on the memory layout, so that one execution would differ from the same row of
    a table. The sum of no layers is 0.
    """
    total: Array
    if not values.shape[LAYER_AXIS]:
        return np.zeros((*values.shape[:LAYER_AXIS], values.shape[-1]))
    if values.shape[-1] == 1:  # same order of additions, faster for a single row
        total = np.add.accumulate(values, axis=LAYER_AXIS)[..., -1, :]
        return total
    total = values[..., 0, :].copy()
    for layer in range(1, values.shape[LAYER_AXIS]):
        total += values[..., layer, :]
    return total


def rate(amount: Array, time: Array) -> Array:
    """Return an amount per time: 0 if the amount is 0, NaN (*null* in files) if only the time is 0."""
    amount, time = np.broadcast_arrays(amount, time)
    # Where the time is 0, `np.divide` leaves the values of `out`.
    found = np.where(amount > 0, np.nan, 0.0)
    return np.divide(amount, time, out=found, where=time != 0)


def is_nonzero(figure: "float | Array") -> bool:
    """Return True if a system parameter is nonzero, on any machine if it is a column of machines."""
    return bool(figure.any()) if isinstance(figure, np.ndarray) else figure != 0


def over_passes(*shares: "float | Array", axes: int = 2) -> Array:
    """Return a parameter of each pass, to broadcast with arrays of shape (passes, ..., rows); see :func:`is_nonzero`.

    `axes` is the number of further axes of these arrays.
    """
    several = any(isinstance(share, np.ndarray) for share in shares)
    found = np.stack(np.broadcast_arrays(*shares)) if several else np.array(shares)
    return found.reshape(len(shares), *(1,) * (axes + 1 - found.ndim), *found.shape[1:])
