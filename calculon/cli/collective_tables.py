"""Output of ``calculon collective`` (all-reduce, all-to-all, ...): a page for one size, or tables and curves."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import GIGA, Array, Bytes, Seconds, duration, scaled, significant
from calculon.cli.sizes import size_text
from calculon.documents.charts.collective_chart import collective
from calculon.hardware.collectives.algorithm_times import (
    ProtocolRate,
    algorithm_bandwidth,
    bus_bandwidth,
    bus_factor,
    candidates,
    fastest,
    paced,
    port_share,
    schedule_of,
    time_of,
)
from calculon.hardware.collectives.algorithms import ALGORITHMS
from calculon.hardware.collectives.placement import Group
from calculon.hardware.system import System
from calculon.render.chart import Chart
from calculon.render.document import Block, Section, labeled
from calculon.render.text_tables import EARLY, Column, Table
from calculon.render.texts import bandwidth, counted

_FINE = 400
"""Number of sizes on a curve."""


@dataclass(frozen=True, slots=True)
class CollectiveQuery:
    """A collective to estimate: operation, group, algorithm (empty: the fastest) and message size."""

    system: System
    operation: str
    group: Group
    name: str
    size: int

    @property
    def ranks(self) -> int:
        """Members of the group."""
        return int(self.group.ranks)

    @property
    def title(self) -> str:
        """The operation, the number of ranks and the system."""
        return f"{self.operation} among {counted(self.ranks, 'rank')} of {self.system.name}"

    def answer(self, sizes: Bytes) -> tuple[dict[str, Seconds], Array, Seconds]:
        """Return the time of each algorithm, and for each size the chosen algorithm and its time."""
        found = {
            name: time_of(self.system, self.operation, self.group, name, sizes)
            for name in candidates(self.system, self.operation, self.group)
        }
        if self.name:
            return found, np.full(sizes.shape, self.name), found[self.name]
        return found, *fastest(self.operation, found)

    def pace(self, name: str) -> ProtocolRate:
        """Return the fastest protocol of an algorithm at the requested size."""
        found = paced(self.system, self.operation, self.group, name, np.array(float(self.size)))
        return min(found, key=lambda one: float(one[1]))[0]

    def rate(self, name: str, network: int) -> float:
        """Return the port bandwidth of a network for large messages."""
        reached = port_share(self.system, network, self.operation, name, self.group)
        if reached is None:
            return float(self.system.fabric.bandwidth[network])
        return float(self.system.networks[network].bandwidth * reached)

    def shares(self, name: str) -> list[tuple[int, float, float]]:
        """Return index, bytes per message byte, and steps for each network that the group uses."""
        schedule = schedule_of(self.system, self.operation, self.group, name)
        return [
            (i, float(schedule.shares[i]), float(schedule.steps[i]))
            for i, used in enumerate(self.group.used)
            if used
        ]


def _gigabytes(rate: float) -> float | None:
    """Return a rate in GB/s; None for a group of one rank, whose rate is infinite."""
    return rate / GIGA if np.isfinite(rate) else None


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}" if value < 1000 else f"{value:,.0f}"


def _times(key: str, title: str, drop: int = 0) -> Column:
    return Column(key, title, right=True, text=duration, drop=drop)


_BANDWIDTHS = (
    Column("algbw", "algorithm\nGB/s", right=True, text=_rate),
    Column("busbw", "bus\nGB/s", right=True, text=_rate),
)


def sizes_table(query: CollectiveQuery, sizes: Sequence[int]) -> Table:
    """Return a row per size: chosen algorithm, its time and bandwidths, and the times of all algorithms."""
    array = np.array(sizes, dtype=float)
    found, names, best = query.answer(array)
    rates = algorithm_bandwidth(array, best)
    buses = bus_bandwidth(query.operation, array, best, query.ranks)
    rows: list[dict[str, Any]] = [
        {
            "operation": query.operation,
            "bytes": size,
            "members": query.ranks,
            "algorithm": str(names[i]),
            "seconds": float(best[i]),
            "algbw": _gigabytes(rates[i]),
            "busbw": _gigabytes(buses[i]),
            **{f"{name}_seconds": float(times[i]) for name, times in found.items()},
            **_moved(query, str(names[i]), size),
        }
        for i, size in enumerate(sizes)
    ]
    own = (
        Column("operation", for_people=False),
        Column("bytes", "size", right=True, text=size_text),
        Column("members", for_people=False),
        Column("algorithm", "algorithm"),
        _times("seconds", "time"),
        *_BANDWIDTHS,
    )
    others = tuple(_times(f"{name}_seconds", name, drop=1) for name in found)
    moved = tuple(Column(key, for_people=False) for key in _moved(query, str(names[0]), 0))
    return Table((*own, *others, *moved), rows)


def _moved(query: CollectiveQuery, name: str, size: int) -> dict[str, float]:
    """Return the group members on each network, and the bytes that an algorithm sends through each port."""
    cells: dict[str, float] = {}
    for number, share, _ in query.shares(name):
        cells[f"network_{number}_members"] = int(query.group.members[number])
        cells[f"network_{number}_bytes"] = size * share
    return cells


def page(query: CollectiveQuery) -> tuple[Block, ...]:
    """Return the page for one size: time and bandwidth, the networks of the group, and other algorithms."""
    found, names, best = query.answer(np.array([query.size], dtype=float))
    name, seconds, ranks = str(names[0]), float(best[0]), query.ranks
    title = f"{query.title}, {size_text(query.size)}"
    if ranks == 1:
        return title, "  time  0 s: a single rank sends nothing"
    factor = bus_factor(query.operation, ranks)
    rate = query.size / seconds
    figures = {
        "time": duration(seconds),
        "algorithm": f"{name}: {ALGORITHMS[name].words}",
        "algorithm bandwidth": f"{bandwidth(rate)}   size / time",
        "bus bandwidth": f"{bandwidth(factor * rate)}   {significant(factor)} x algorithm bandwidth, as in nccl-tests",
    }
    return (
        title,
        Section("", (labeled(figures),)),
        _tiers(query, name),
        _algorithms(query, found, name),
    )


def _tiers(query: CollectiveQuery, name: str) -> Table:
    """Return the networks of the group with the bytes and steps on each."""
    binary = "i" in size_text(query.size)  # keep the unit (GiB or GB) of SIZE on the command line

    def _bytes(value: float) -> str:
        return scaled(value, "B", binary=binary)

    rows, pace = [], query.pace(name)
    for number, share, steps in query.shares(name):
        joined, below = int(query.group.members[number]), int(query.group.below[number])
        # Ceiling division: the last group may be incomplete.
        instances = -(-query.ranks // (below * joined))
        members = f"{joined:,} {'ranks' if below == 1 else f'x {below:,} ranks'}"
        rows.append(
            {
                "network": number,
                "group": members + (f" in each of {instances:,}" if instances > 1 else ""),
                "rate": query.rate(name, number),
                "bytes": query.size * share,
                "steps": steps,
                "step": pace.step[number] if steps else None,
            }
        )
    columns = (
        Column("network", "network", right=True),
        Column("group", "group"),
        Column("rate", "rate of\na port", right=True, text=bandwidth),
        Column("bytes", "bytes\nper port", right=True, text=_bytes),
        Column("steps", "steps", right=True, text=lambda n: f"{n:,.4g}"),
        Column("step", "latency\nof each", right=True, text=lambda t: duration(t) if t else ""),
    )
    return Table(columns, rows)


def _algorithms(query: CollectiveQuery, found: dict[str, Seconds], taken: str) -> Table:
    """Return time and bandwidths of each algorithm, fastest first."""
    ranks, size = query.ranks, np.array([query.size], dtype=float)
    rows = [
        {
            "algorithm": name,
            "protocol": query.pace(name).protocol,
            "time": float(times[0]),
            "more": float(times[0]) / float(found[taken][0]),
            "algbw": _gigabytes(algorithm_bandwidth(size, times)[0]),
            "busbw": _gigabytes(bus_bandwidth(query.operation, size, times, ranks)[0]),
            "what": ALGORITHMS[name].words,
        }
        for name, times in sorted(found.items(), key=lambda one: float(one[1][0]))
    ]
    columns = (
        Column("algorithm", "algorithm"),
        *((Column("protocol", "protocol"),) if any(row["protocol"] for row in rows) else ()),
        _times("time", "time"),
        Column("more", "of the\nchosen", right=True, text=lambda x: f"{x:.2f} x"),
        *_BANDWIDTHS,
        Column("what", "description", fold=True, drop=EARLY),
    )
    return Table(columns, rows)


def curves(query: CollectiveQuery, first: float, last: float) -> Chart:
    """Return time and bus bandwidth of each algorithm between two sizes."""
    sizes = np.geomspace(first, last, _FINE)
    found, names, _ = query.answer(sizes)
    rates = {
        name: bus_bandwidth(query.operation, sizes, times, query.ranks) / GIGA
        for name, times in found.items()
    }
    title = query.title + (f", {query.name}" if query.name else "")
    return collective(
        title,
        sizes.tolist(),
        {name: times.tolist() for name, times in found.items()},
        {name: rate.tolist() for name, rate in rates.items()},
        names.tolist(),
    )
