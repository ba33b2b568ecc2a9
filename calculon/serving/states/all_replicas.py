"""Figures of a deployment that follow from those of a replica: rates, and money."""

from typing import NamedTuple

import numpy as np

from calculon.base.units import Array, Count, Seconds
from calculon.campaign.money import Quote, quote
from calculon.hardware.system import System
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.load import Workload

RENTS = ("on_demand", "reserved")
"""Prices of processors that count where the deployment states none: the first that the system has."""


class AllReplicas(NamedTuple):
    """Figures of :class:`~calculon.declarations.serving_figures.ServingFigures` by the number of replicas."""

    output_rate: Array
    run_output_rate: Array
    output_rate_per_proc: Array
    total_rate_per_proc: Array
    request_rate: Array
    capacity_rate: Array
    utilisation: Array
    usd_per_mtoken: Array
    usd_per_mtoken_blended: Array

    @classmethod
    def of(
        cls,
        workload: Workload,
        rate: Array,
        most: Array,
        replicas: Count,
        num_procs: Count,
        price: Quote | None,
        ends: Seconds | None = None,
    ) -> "AllReplicas":
        """Return the figures of all replicas.

        Args:
            workload: What is asked of them.
            rate, most: Requests per second that a replica answers, and the most that it could.
            replicas, num_procs: Replicas, and their processors together.
            price: Of an hour of a processor.
            ends: Time of a finite run.
        """
        w = workload
        output = rate * w.output * replicas
        per_proc, each = output / num_procs, 1 + w.prompt / w.output
        answered, capacity = rate * replicas, most * replicas
        asked = answered if w.rate is None else np.full_like(answered, w.rate)
        dollars = np.full_like(output, np.nan)
        if price is not None:
            dollars = np.asarray(price.usd * num_procs / (3600 * output) * 1e6)
        return cls(
            output_rate=output,
            run_output_rate=output if ends is None else (w.requests or 0) * w.output / ends,
            output_rate_per_proc=per_proc,
            total_rate_per_proc=per_proc * each,
            request_rate=answered,
            capacity_rate=capacity,
            utilisation=asked / capacity,
            usd_per_mtoken=dollars,
            usd_per_mtoken_blended=dollars / each,
        )


def price_of(system: System, deployment: Deployment) -> Quote | None:
    """Return the price of an hour of a processor: as the deployment says, or the rent of the system."""
    price = system.ext.price
    if deployment.price is not None:
        return quote(price, given=deployment.price)
    rents = [one for one in RENTS if price is not None and one in price.kinds]
    return quote(price, rents[0]) if rents else None
