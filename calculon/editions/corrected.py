"""Edition ``corrected``: the published model with its defects fixed, and with the choices it lacks."""

from calculon.declarations.named_values import CORRECTED
from calculon.declarations.statistics import CorrectedStats
from calculon.editions.edition import Edition


class Corrected(Edition):
    """What an edition does where it does not say otherwise."""

    name = CORRECTED
    stats = CorrectedStats
