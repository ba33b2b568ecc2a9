"""The figures of a machine that sliders set: which ones, in which words, and over which values."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from calculon.base.frozen import dataclass
from calculon.documents.sensitivity_page import stated
from calculon.explore.page_state import MACHINE, MICRO
from calculon.hardware.figures import OF_SERVING, OF_WHOLE_RUNS, Figure
from calculon.hardware.system import System

CAPACITY = "mem1.GiB"
"""The figure that decides which plans fit."""

FURTHEST = (0.25, 8.0)
"""The ends of a slider, as multiples of the value in the file."""

_MANTISSAS = (
    *(1 + i / 10 for i in range(10)),
    *(2 + i / 5 for i in range(15)),
    *(5 + i / 2 for i in range(10)),
)
"""Round numbers of a decade: 10, 11 ... 20, 22 ... 50, 55 ... 95; each 4 to 10 % above the one before."""


@dataclass(frozen=True, slots=True)
class Field:
    """An input of a figure: its name in an address, its number, and the unit of the number."""

    name: str
    number: str
    unit: str


def field_of(figure: Figure, value: float) -> Field:
    """Return the input of a value of a figure: times are set in microseconds, others in the unit of the file."""
    name = MACHINE + figure.path
    if figure.unit == "s":
        return Field(name + MICRO, number(value * 1e6), "us")
    return Field(name, number(value), figure.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A figure of a machine with a slider.

    Attributes:
        figure: The figure, with its value in the file.
        label: Its name on the page.
        value: Its value now.
        stops: The values of the slider, in rising order; that of the file is among them.
    """

    figure: Figure
    label: str
    value: float
    stops: tuple[float, ...]

    @property
    def path(self) -> str:
        """The path of the figure in its file."""
        return self.figure.path

    @property
    def changed(self) -> bool:
        """Whether it has another value than in the file."""
        return self.value != self.figure.value

    @property
    def place(self) -> int:
        """The number of the stop that is nearest to its value."""
        nearest = min(self.stops, key=lambda stop: abs(math.log(stop / max(self.value, 1e-300))))
        return self.stops.index(nearest)

    @property
    def mark(self) -> int:
        """The number of the stop of the value in the file."""
        return self.stops.index(self.figure.value)

    @property
    def field(self) -> Field:
        """The input of its value."""
        return field_of(self.figure, self.value)

    @property
    def numbers(self) -> list[str]:
        """The values of the slider as the input takes them."""
        return [field_of(self.figure, stop).number for stop in self.stops]

    @property
    def text(self) -> str:
        """Its value now, with its unit."""
        return stated(self.value, self.figure.unit)

    @property
    def text_in_file(self) -> str:
        """Its value in the file, with its unit."""
        return stated(self.figure.value, self.figure.unit)


def number(value: float) -> str:
    """Write a value in the unit of the file, as an input takes it.

    >>> number(80.0), number(1e-05), number(72)
    ('80', '1e-05', '72')
    """
    return f"{value:.12g}"


Figures = Mapping[str, Figure]
"""The figures of a machine as its file has it, by path."""


def knobs(
    system: System, known: Figures, changes: Mapping[str, float], arithmetic: str
) -> list[Knob]:
    """Return the sliders of a machine.

    Args:
        system: The machine as its file has it.
        known: Its figures by path.
        changes: New values of its figures by path.
        arithmetic: Type of the products of the plan that is shown: the engine for it is the one that counts.
    """
    return [
        Knob(
            figure=known[path],
            label=label,
            value=changes.get(path, known[path].value),
            stops=stops(known[path]),
        )
        for path, label in _labels(system, arithmetic)
        if path in known and known[path].value
    ]


def _labels(system: System, arithmetic: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the name of each figure that may have a slider, in the order of the page."""
    yield CAPACITY, "Memory capacity"
    yield "mem1.GBps", "Memory bandwidth"
    yield _rate_path(system, arithmetic), _rate_label(arithmetic)
    for number in range(len(system.networks)):
        name = network_name(number, len(system.networks))
        if number == 0:
            yield "networks[0].size", f"{name}: processors"
        yield f"networks[{number}].bandwidth", f"{name}: bandwidth"
        if not _states_latencies(system, number):
            yield f"networks[{number}].latency", f"{name}: latency"
    yield "mem2.GiB", "Host memory: capacity"
    yield "mem2.GBps", "Host memory: bandwidth"


def labels(system: System) -> dict[str, str]:
    """Return the names of figures that people buy machines by, by path."""
    rates = {_rate_path(system, one): _rate_label(one) for one in system.matrix}
    rates |= {f"vector.{one}.tflops": f"Vector rate, {one}" for one in system.vector}
    return dict(_labels(system, next(iter(system.matrix)))) | rates


_PARTS = {
    "mem1": "Memory",
    "mem2": "Host memory",
    "matrix": "Matrix engine",
    "vector": "Vector engine",
    "ep_library": "Expert library",
    "gflops_efficiency": "efficiency",
    "MB_efficiency": "efficiency",
    "tflops": "peak rate",
    "size": "processors",
    "GiB": "capacity",
    "GBps": "bandwidth",
}
"""Words of parts of paths, where they are not the parts themselves."""

_LEFT_OUT = ("ext", "kernels", "any", "operations")
"""Parts of paths that say nothing to readers."""

_PATH = re.compile(r"(ext|matrix|vector|mem[12]|networks\[\d+\])\.")


def figure_words(path: str, networks: int = 2) -> str:
    """Return the path of a figure of a machine in words; nothing of what is no such path.

    >>> figure_words("ext.kernels.product.bfloat16.sustained"), figure_words("networks[1].processor_usage")
    ('Product, bfloat16: sustained', 'Outer network: processor usage')
    >>> figure_words("matrix.float8.gflops_efficiency[2][1]")
    'Matrix engine, float8: efficiency, point 3'
    """
    if not _PATH.match(path):
        return ""
    words = [_part_words(part, networks) for part in path.split(".") if part not in _LEFT_OUT]
    *place, last = words
    found = f"{', '.join(place)}: {last}" if place else last
    extended = " (extended)" if path.startswith("ext.networks") else ""  # networks have some, too
    return found[:1].upper() + found[1:] + extended


def _part_words(part: str, networks: int) -> str:
    """Return a part of a path in words."""
    name, *numbers = re.split(r"\[(\d+)\]", part)
    if name == "networks":
        return network_name(int(numbers[0]), networks)
    words = _PARTS.get(name, re.sub("_[GM]iB$", "", name).replace("_", " "))
    return f"{words}, point {int(numbers[0]) + 1}" if numbers else words


def figure_labels(system: System, known: Iterable[str]) -> dict[str, str]:
    """Return a label for each of some paths of figures: that of its slider, if it may have one."""
    own, networks = labels(system), len(system.networks)
    return {path: figure_words(path, networks) for path in known} | own


def _rate_path(system: System, arithmetic: str) -> str:
    part = "matrix" if arithmetic in system.matrix else "ext.matrix"
    return f"{part}.{arithmetic}.tflops"


def _rate_label(arithmetic: str) -> str:
    return f"Matrix rate, {arithmetic}"


def network_name(number: int, count: int) -> str:
    """Return what a network is called: the innermost one joins the processors of a node or of a rack.

    >>> network_name(0, 2), network_name(1, 2), network_name(1, 3), network_name(0, 1)
    ('Inner network', 'Outer network', 'Network 1', 'Network')
    """
    if count == 1:
        return "Network"
    if number == 0:
        return "Inner network"
    return "Outer network" if count == 2 else f"Network {number}"


def _states_latencies(system: System, number: int) -> bool:
    """Whether the collectives of a network have latencies of their own, beside which its own counts for nothing."""
    links = system.ext.networks
    return number < len(links) and bool(links[number].operations)


def stops(figure: Figure) -> tuple[float, ...]:
    """Return the values of a slider: round ones between :data:`FURTHEST`, and the value in the file.

    Sizes of networks are powers of 2, but for that of the file.
    """
    low, high = (figure.value * end for end in FURTHEST)
    if figure.kind is int:
        powers = range(math.ceil(math.log2(max(low, 1))), math.floor(math.log2(high)) + 1)
        found: set[float] = {2**power for power in powers}
    else:
        decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
        every = (
            float(f"{mantissa * 10.0**decade:.3g}") for decade in decades for mantissa in _MANTISSAS
        )
        found = {value for value in every if low <= value <= high}
    possible = (value for value in found if figure.problem(value) is None)
    return tuple(sorted({*possible, figure.value}))


def others(known: Figures, changes: Mapping[str, float], shown: list[Knob]) -> list[Figure]:
    """Return the figures without a slider on which steps of training depend; those that are changed first."""
    sliders = {one.path for one in shown}
    every = [
        one
        for path, one in known.items()
        if path in changes
        or (path not in sliders and not path.startswith((*OF_WHOLE_RUNS, *OF_SERVING)))
    ]
    return sorted(
        (one for one in every if one.path not in sliders), key=lambda one: one.path not in changes
    )


def found_by(figures: list[Figure], words: str, names: Mapping[str, str]) -> list[Figure]:
    """Return the figures whose path, name, label in `names`, or unit has all words of a filter."""
    wanted = words.lower().split()
    return [
        one
        for one in figures
        if all(
            word in f"{one.path} {one.name} {names[one.path]} {one.unit}".lower() for word in wanted
        )
    ]


def unlike_file(known: Figures, changes: Mapping[str, float]) -> dict[str, float]:
    """Return the changes of a machine without values that its file has, too."""
    return {
        path: value
        for path, value in changes.items()
        if path not in known or value != known[path].value
    }


def changes_in_words(
    system: System, known: Figures, changes: Mapping[str, float]
) -> list[tuple[str, str, str]]:
    """Return what differs from the file of a machine: path, what it is, and both values in words."""
    names = figure_labels(system, known)
    told = []
    for path in sorted(changes):
        figure = known.get(path)
        if figure is None:  # a number of a table, say
            told.append((path, path, number(changes[path])))
            continue
        before, after = (stated(one, figure.unit) for one in (figure.value, changes[path]))
        told.append((path, names.get(path, path), f"{before} → {after}"))
    return told
