"""Scaling laws: loss of a language model from its parameters and tokens, by two published laws that disagree.

Both have the form ``L = E + A/N^α + B/D^β`` with all parameters N of a dense model, embedding included (the counting of
Hoffmann et al.; Pearce and Song, arXiv:2406.12907, discuss how Kaplan et al. differ). For a mixture of experts N is the
number of active parameters, which the laws were not fitted to. Losses are in nats per token of their data (MassiveText)
and tokenizer (32,000 words); losses on other data differ.
"""

import math

import numpy as np

from calculon.base.errors import Infeasible
from calculon.base.frozen import dataclass
from calculon.base.units import Array, scaled

Values = float | Array

FLOP_PER_PARAMETER_AND_TOKEN = 6.0
"""FLOP of a training step. Source: Kaplan et al., arXiv:2001.08361, section 2.1."""

COUNTED = "all parameters, embedding included; for a mixture of experts the active parameters"
"""Parameters that the laws count, in words."""


@dataclass(frozen=True, slots=True)
class ScalingLaw:
    """The loss of a model of N parameters after D tokens: ``L = E + A/N^α + B/D^β``.

    Attributes:
        name: Short name.
        irreducible: E, the loss of an infinite model after infinite tokens.
        of_parameters, parameter_power: A and α.
        of_tokens, token_power: B and β.
        source: Source of the coefficients.
    """

    name: str
    irreducible: float
    of_parameters: float
    parameter_power: float
    of_tokens: float
    token_power: float
    source: str

    def loss(self, parameters: Values, tokens: Values) -> Array:
        """Return the loss after a number of tokens."""
        rest = np.asarray(tokens, float) ** -self.token_power
        return np.asarray(self.least_loss(parameters) + self.of_tokens * rest)

    def least_loss(self, parameters: Values) -> Array:
        """Return the limit of the loss for infinite tokens."""
        rest = np.asarray(parameters, float) ** -self.parameter_power
        return np.asarray(self.irreducible + self.of_parameters * rest)

    def tokens(self, parameters: Values, loss: Values) -> Array:
        """Return the tokens after which a model reaches a loss; infinite if it never does."""
        left = np.asarray(loss, float) - self.least_loss(parameters)
        reached = left > 0
        # 1.0 replaces negative differences, whose power would be NaN; the mask below overwrites them
        needed = (self.of_tokens / np.where(reached, left, 1.0)) ** (1.0 / self.token_power)
        return np.asarray(np.where(reached, needed, np.inf))

    def optimum(self, compute: Values) -> tuple[Array, Array]:
        """Return the parameters and tokens with the least loss for a compute budget in FLOP, by ``C = 6 N D``.

        Source: Hoffmann et al., arXiv:2203.15556, equation 4: ``N = G (C/6)^(β/(α+β))`` with
        ``G = (αA/(βB))^(1/(α+β))``.
        """
        a, b = self.parameter_power, self.token_power
        scale = (a * self.of_parameters / (b * self.of_tokens)) ** (1.0 / (a + b))
        products = np.asarray(compute, float) / FLOP_PER_PARAMETER_AND_TOKEN
        parameters = scale * products ** (b / (a + b))
        return np.asarray(parameters), np.asarray(products / parameters)


HOFFMANN = ScalingLaw(
    name="hoffmann",
    irreducible=1.69,
    of_parameters=406.4,
    parameter_power=0.34,
    of_tokens=410.7,
    token_power=0.28,
    source="Hoffmann et al., arXiv:2203.15556, approach 3, 2022, as printed",
)

BESIROGLU = ScalingLaw(
    name="besiroglu",
    irreducible=1.8172,
    of_parameters=482.01,
    parameter_power=0.3478,
    of_tokens=2085.43,
    token_power=0.3658,
    source="refit of the same runs: Besiroglu et al., arXiv:2404.10102, 2024",
)

LAWS = {law.name: law for law in (HOFFMANN, BESIROGLU)}
"""Both laws by name."""

COUNTS = BESIROGLU
"""The law that sets the tokens of a run with a target loss: the refit, because the fit of 2022 does not describe its
own runs (arXiv:2404.10102)."""


def tokens_of_loss(loss: float, parameters: float) -> dict[str, float]:
    """Return the tokens after which a model reaches a loss, by each law; infinite if a law rules it out.

    Raises:
        Infeasible: If the loss is never reached by the law in use, :data:`COUNTS`.
    """
    result = {name: float(law.tokens(parameters, loss)) for name, law in LAWS.items()}
    if math.isfinite(result[COUNTS.name]):
        return result
    others = (
        f"; {scaled(tokens)} tokens would reach it according to {LAWS[name].source}"
        for name, tokens in result.items()
        if math.isfinite(tokens)
    )
    # below the irreducible loss no model helps; above it a larger model would, and the message differs
    irreducible = loss <= COUNTS.irreducible
    least = COUNTS.irreducible if irreducible else float(COUNTS.least_loss(parameters))
    why = "is irreducible" if irreducible else "is the limit for infinite tokens"
    text = (
        f"{scaled(parameters)} parameters never reach a loss of {loss:g}: {least:.3f} {why} ({COUNTS.source})"
        f"{next(others, '')}"
    )
    raise Infeasible("irreducible_loss", text)


def losses(parameters: float, tokens: float) -> dict[str, float]:
    """Return the loss of a model after a number of tokens, by each law."""
    return {name: float(law.loss(parameters, tokens)) for name, law in LAWS.items()}
