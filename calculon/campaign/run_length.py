"""The length of a run, in tokens."""

from calculon.base.errors import Problem, SpecError
from calculon.campaign.record import Campaign
from calculon.campaign.scaling_laws import COUNTS, tokens_of_loss


def tokens_of_run(asked: Campaign, parameters: float, tokens_per_step: int) -> float:
    """Return the tokens of a run; 0 where its phases state theirs.

    Raises:
        SpecError: Where nothing says how long it is.
        Infeasible: For a loss that so many parameters never reach.
    """
    if asked.tokens is not None:
        return asked.tokens.of(parameters)
    if asked.loss is not None:
        return tokens_of_loss(asked.loss, parameters)[COUNTS.name]
    if asked.steps is not None:
        return float(asked.steps * tokens_per_step)
    if not asked.phases:
        wanted = "the length of the run: tokens, steps or loss"
        hint = "add --tokens 15T, or tokens: 15T to the campaign"
        raise SpecError(asked.name, Problem("tokens", wanted, "nothing", hint))
    return 0.0
