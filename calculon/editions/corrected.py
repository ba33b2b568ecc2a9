"""Edition ``corrected``: the published model with its defects fixed, and with the choices it lacks."""

from calculon.editions.edition import Edition
from calculon.spec.named_values import CORRECTED
from calculon.statistics import CorrectedStats


class Corrected(Edition):
    """What an edition does where it does not say otherwise."""

    name = CORRECTED
    stats = CorrectedStats
