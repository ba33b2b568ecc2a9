"""The columns that size the layers of a block: choices are scalars, sizes are arrays."""

from collections.abc import Mapping
from dataclasses import field, fields

import numpy as np

from calculon.frozen import dataclass
from calculon.spec.axes import AXIS, FURTHER_AXES, FURTHER_SIZES
from calculon.units import Array, Count


def _one_rank() -> dict[str, Array]:
    """Return degrees and networks of further axes of one rank."""
    degrees: dict[str, Array] = {axis.degree: np.ones(1) for axis in FURTHER_AXES}
    return degrees | {axis.network: np.zeros(1, np.int64) for axis in FURTHER_AXES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Columns that size the layers of a block; all of shape ``(blocks,)``.

    Attributes
    ----------
    tensor_par : array of float
        Tensor-parallel degree.
    microbatch_size : array of float
        Sequences per microbatch.
    tensor_par_net : array of int
        Network of the tensor-parallel groups.
    vocab_pad_multiple : array of float
        Multiple that the vocabulary on each tensor-parallel rank is filled up to.
    seq_length : array of float
        Tokens per sequence; 0 where it is the model's own (:mod:`calculon.architecture.workload`).
    recompute_every : array of float
        Of so many blocks one recomputes.
    tp_hidden_percent : array of float
        Share that cut products hide of what they could hide of their collectives, in percent.
    further : mapping of arrays
        Degrees (float) and networks (int) of further axes, by field; by default one rank.
    """

    tensor_par: Count
    microbatch_size: Count
    tensor_par_net: Array
    vocab_pad_multiple: Count
    seq_length: Count
    recompute_every: Count = field(default_factory=lambda: np.ones(1))
    tp_hidden_percent: Count = field(default_factory=lambda: np.full(1, 100.0))
    further: Mapping[str, Array] = field(default_factory=_one_rank)

    @classmethod
    def of(cls, rows: Array) -> "Sizes":
        """Make sizes of rows of whole numbers, one column for each of :data:`SIZE_FIELDS`."""
        columns = {
            name: rows[:, i] if name.endswith("_net") else rows[:, i].astype(float)
            for i, name in enumerate(SIZE_FIELDS)
        }
        further = {name: columns.pop(name) for name in FURTHER_SIZES}
        return cls(**columns, further=further)

    def row(self, number: int) -> tuple[float, ...]:
        """Return a row, in the order of :data:`SIZE_FIELDS`."""
        columns = (getattr(self, name) for name in _OWN)
        return tuple([float(c[number]) for c in (*columns, *self.further.values())])

    def degree(self, axis: str) -> Count:
        """Return the ranks of a group of one of :data:`~calculon.spec.axes.LAYER_AXES`."""
        return self.tensor_par if axis == "tp" else self.further[AXIS[axis].degree]

    def network(self, axis: str) -> Array:
        """Return the stated network of its groups."""
        return self.tensor_par_net if axis == "tp" else self.further[AXIS[axis].network]


_OWN = tuple(one.name for one in fields(Sizes) if one.name != "further")

SIZE_FIELDS = (*_OWN, *FURTHER_SIZES)
"""Numbers of an execution that size a block, in the order of :class:`Sizes`."""
