"""The energy of a generated token: power of processors that prefill, that decode and that wait, over their rate.

Prefill draws what steps of training draw. Passes that decode are bound by memory and draw less; how much less is not
measured here but an assumption, :data:`DECODING_SHARE`.
"""

import numpy as np

from calculon.base.units import Array
from calculon.campaign.energy import Draw, draw
from calculon.declarations.serving_figures import ServingFigures
from calculon.hardware.system import System
from calculon.serving.records.deployments import Deployments

DECODING_SHARE = 0.7
"""Power of a processor that decodes over that in steps of training. An assumption; that token generation draws well
below the TDP where prompts come near it is from Patel et al., *Splitwise*, arXiv 2311.18677, section III."""


def power_of(system: System) -> Draw | None:
    """Return the power of a processor by what it does; None where nothing is known of it."""
    return draw(system.ext.power)


def energy_words(system: System) -> str:
    """Say where the power of a processor is from, and what is assumed; empty where nothing is known of it."""
    power = power_of(system)
    if power is None:
        return ""
    assumed = f"decoding draws {DECODING_SHARE:g} of what steps of training draw"
    between = ";" if power.assumed else "; assumption without a source:"
    return f"{power.words}{between} {assumed}"


def joules_per_token(
    system: System, deployments: Deployments, figures: ServingFigures, output: int
) -> Array:
    """Return the energy of a generated token, of processors and the rest of their nodes; NaN without a power.

    A replica decodes as long as it has a sequence, and prefills in the share of the time that prompts take; in what is
    left it waits. Processors that only prefill wait for prompts.

    Args:
        system: The machine.
        deployments: What is deployed.
        figures: What they give.
        output: Generated tokens of a request.
    """
    power = power_of(system)
    if power is None:
        return np.full_like(figures.output_rate, np.nan)
    pool = deployments.prefilling
    others = 0.0 if pool is None else pool.num_procs
    prompts = np.clip(figures.prefill_share, 0.0, 1.0) if pool is None else 0.0
    decoding = np.minimum(1.0, figures.concurrency) * (1.0 - prompts)
    watts = (deployments.num_procs - others) * _mean(power, prompts, decoding)
    if pool is not None:
        watts = watts + others * _mean(power, np.minimum(1.0, figures.prefill_busy), 0.0)
    if power.node is None:
        watts = watts * (1.0 + power.share)
    else:
        watts = watts + power.node * deployments.num_procs / system.networks[0].size
    return np.asarray(watts / (figures.request_rate * output))


def _mean(power: Draw, prefill: Array | float, decoding: Array | float) -> Array:
    """Return the mean power of a processor by the shares of its time; in what is left it waits."""
    waiting = 1.0 - prefill - decoding
    steps = prefill + DECODING_SHARE * decoding
    return np.asarray(power.stepping * steps + power.waiting * waiting)
