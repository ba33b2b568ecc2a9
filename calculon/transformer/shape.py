"""The sizes that the layers of a block share."""

from dataclasses import dataclass

import numpy as np

from calculon.edition import Edition
from calculon.plan.choice import Choice, Sizes
from calculon.spec.model import Model
from calculon.units import Count, Elements


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockShape:
    """A block of a model under one choice, for a column of sizes.

    ``tokens`` is per microbatch; ``activation`` is the elements of a full activation and ``residual`` of one in the
    residual region, which sequence parallelism splits.
    """

    model: Model
    choice: Choice
    edition: Edition
    tensor_par: Count
    microbatch_size: Count
    tokens: Count
    activation: Elements
    residual: Elements

    @classmethod
    def of(cls, model: Model, choice: Choice, sizes: Sizes, edition: Edition) -> "BlockShape":
        """Derive the shared sizes."""
        tokens = sizes.microbatch_size * model.seq_size
        activation = tokens * model.hidden
        residual = activation
        if choice.sequence_parallel:
            residual = np.floor(tokens / sizes.tensor_par) * model.hidden
        return cls(
            model=model,
            choice=choice,
            edition=edition,
            tensor_par=sizes.tensor_par,
            microbatch_size=sizes.microbatch_size,
            tokens=tokens,
            activation=activation,
            residual=residual,
        )

    def split(self, width: float) -> Elements:
        """Return the share of a width that one tensor-parallel rank holds."""
        return np.floor(width / self.tensor_par)
