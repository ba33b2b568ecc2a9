"""Money, energy and nodes of a whole run as plain data, with sources."""

import math
from typing import Any

from calculon.base.units import KILO
from calculon.campaign.energy import carbon as carbon_dioxide
from calculon.campaign.energy import water
from calculon.campaign.job_failures import HOUR, rate_among_published, small_job_warning
from calculon.campaign.money import break_even_hours, contract_year
from calculon.campaign.prices import Carbon
from calculon.campaign.spares import fewest_spares
from calculon.campaign.whole_run import WholeRun


def money_details(whole_run: WholeRun) -> dict[str, Any] | None:
    """Return the cost of a run in US dollars, by purpose; None if no price is known."""
    found = whole_run.money
    if found is None:
        return None
    price = found.quote
    return {
        "processors": float(found.processors),
        "storage": float(found.storage),
        "experiments": float(found.experiments),
        "run": float(found.run),
        "total": float(found.total),
        "price": {
            "usd": float(price.usd),
            "kind": price.kind,
            "source": price.source,
            "date": price.date,
        },
        "reserved_from_hours": _reserved_from(whole_run),
    }


def _reserved_from(run: WholeRun) -> float | None:
    """Return the hours per year from which reserved processors are cheaper; None if a price is unknown."""
    stated = run.job.system.ext.price
    if run.campaign.fleet.price is not None or stated is None:
        return None
    if stated.on_demand is None or stated.reserved is None:
        return None
    return float(break_even_hours(stated.on_demand.usd, contract_year(stated.reserved.usd)))


_ENERGY = ("stepping", "waiting", "spares", "nodes", "facility")


def energy_details(run: WholeRun) -> dict[str, Any] | None:
    """Return the energy of a run in MWh, by consumer; None if no power is known.

    ``model_card`` follows the convention of model cards, TDP times hours, for comparison.
    """
    found, fleet = run.energy, run.campaign.fleet
    if found is None:
        return None
    machines = found.total - found.facility
    litres = None if fleet.wue is None else float(water(machines, fleet.wue))
    market = fleet.g_co2_per_kwh_market
    power = found.power_draw
    return {
        **{name: float(getattr(found, name)) / KILO for name in _ENERGY},
        "total": float(found.total) / KILO,
        "model_card": float(found.card) / KILO,
        "power": {
            "tdp": float(power.tdp),
            "estimate": power.estimate,
            "source": power.source,
            "date": power.date,
            "in_words": power.words,
        },
        "pue": fleet.pue,
        "carbon": carbon_details(fleet.g_co2_per_kwh),
        "t_co2_market": None if market is None else float(carbon_dioxide(run.mwh * KILO, market)),
        "water_litres": litres,
    }


def carbon_details(carbon: Carbon | None) -> dict[str, Any] | None:
    """Return the carbon intensity of the electricity, and its source."""
    if carbon is None:
        return None
    known = carbon.grid
    grid = {"name": known.name, "source": known.source, "date": known.date}
    return {"g_co2_per_kwh": float(carbon), **grid}


def warnings_of(run: WholeRun) -> list[str]:
    """Return warnings about uncertain inputs of a run."""
    mtbf = run.campaign.reliability.mtbf_processor / HOUR
    if math.isinf(mtbf):
        return []
    stated = "reliability.mtbf_processor" not in {path for path, *_ in run.campaign.defaults}
    found = (
        "" if stated else rate_among_published(mtbf),
        small_job_warning(int(run.job.num_procs)),
    )
    return [one for one in found if one]


def node_details(run: WholeRun) -> dict[str, Any]:
    """Return the nodes of a job, its spare nodes, and the mean number of nodes in repair."""
    return {
        "processors": run.job.node,
        "job": int(run.job.nodes),
        "spares": int(run.spare_nodes),
        "spares_stated": run.campaign.reliability.spares is not None,
        "spares_enough": int(fewest_spares(run.in_repair)),
        "in_repair": float(run.in_repair),
    }
