"""Machine figures with sliders: selection, labels and values."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from calculon.base.frozen import dataclass
from calculon.documents.sensitivity_page import stated
from calculon.explore.page_state import MACHINE, MICRO
from calculon.hardware.figures import OF_SERVING, OF_WHOLE_RUNS, Figure
from calculon.hardware.system import System

CAPACITY = "mem1.GiB"
"""Path of the memory capacity, which decides which plans fit."""

FURTHEST = (0.25, 8.0)
"""Ends of a slider, as multiples of the value in the file."""

_MANTISSAS = (
    *(1 + i / 10 for i in range(10)),
    *(2 + i / 5 for i in range(15)),
    *(5 + i / 2 for i in range(10)),
)
"""Round numbers of a decade: 10, 11 ... 20, 22 ... 50, 55 ... 95; each 4 to 10 % above the previous one."""


@dataclass(frozen=True, slots=True)
class Field:
    """Input for a figure: its name in the address, its number, and the unit of the number."""

    name: str
    number: str
    unit: str


def field_of(figure: Figure, value: float) -> Field:
    """Return the input for a value of a figure: times in microseconds, others in the unit of the file."""
    name = MACHINE + figure.path
    if figure.unit == "s":
        return Field(name + MICRO, number(value * 1e6), "us")
    return Field(name, number(value), figure.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slider:
    """Machine figure with a slider.

    Attributes:
        figure: The figure, with its value in the file.
        label: Label on the page.
        value: Current value.
        stops: Values of the slider in ascending order, including the value in the file.
    """

    figure: Figure
    label: str
    value: float
    stops: tuple[float, ...]

    @property
    def path(self) -> str:
        """Path of the figure in its file."""
        return self.figure.path

    @property
    def changed(self) -> bool:
        """True if the value differs from the file."""
        return self.value != self.figure.value

    @property
    def index(self) -> int:
        """Index of the stop nearest to the value."""
        # Compare logarithms: stops are spaced geometrically. 1e-300 avoids a division by zero.
        nearest = min(self.stops, key=lambda stop: abs(math.log(stop / max(self.value, 1e-300))))
        return self.stops.index(nearest)

    @property
    def index_in_file(self) -> int:
        """Index of the stop with the value in the file."""
        return self.stops.index(self.figure.value)

    @property
    def field(self) -> Field:
        """Input for the current value."""
        return field_of(self.figure, self.value)

    @property
    def numbers(self) -> list[str]:
        """Slider values as the input expects them."""
        return [field_of(self.figure, stop).number for stop in self.stops]

    @property
    def text(self) -> str:
        """Current value with its unit."""
        return stated(self.value, self.figure.unit)

    @property
    def text_in_file(self) -> str:
        """Value in the file with its unit."""
        return stated(self.figure.value, self.figure.unit)


def number(value: float) -> str:
    """Format a value in the unit of the file for an input.

    >>> number(80.0), number(1e-05), number(72)
    ('80', '1e-05', '72')
    """
    return f"{value:.12g}"


Figures = Mapping[str, Figure]
"""Figures of a machine file by path."""


def sliders(
    system: System, known: Figures, changes: Mapping[str, float], arithmetic: str
) -> list[Slider]:
    """Return the sliders of a machine.

    Args:
        system: The machine as in its file.
        known: Its figures by path.
        changes: New values of figures by path.
        arithmetic: Datatype of the shown plan's products, which selects the matrix engine.
    """
    return [
        Slider(
            figure=known[path],
            label=label,
            value=changes.get(path, known[path].value),
            stops=stops(known[path]),
        )
        for path, label in _labels(system, arithmetic)
        if path in known and known[path].value
    ]


def _labels(system: System, arithmetic: str) -> Iterator[tuple[str, str]]:
    """Yield path and label of each figure that may have a slider, in page order."""
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
    """Return labels, by path, of the figures that matter when buying machines."""
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
"""Labels of path parts that differ from the parts themselves."""

_LEFT_OUT = ("ext", "kernels", "any", "operations")
"""Path parts without meaning for readers."""

_PATH = re.compile(r"(ext|matrix|vector|mem[12]|networks\[\d+\])\.")


def figure_words(path: str, networks: int = 2) -> str:
    """Return the path of a machine figure in words; empty for other texts.

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
    # ``networks`` and ``ext.networks`` have fields with equal names.
    extended = " (extended)" if path.startswith("ext.networks") else ""
    return found[:1].upper() + found[1:] + extended


def _part_words(part: str, networks: int) -> str:
    """Return one part of a path in words."""
    name, *numbers = re.split(r"\[(\d+)\]", part)
    if name == "networks":
        return network_name(int(numbers[0]), networks)
    words = _PARTS.get(name, re.sub("_[GM]iB$", "", name).replace("_", " "))
    return f"{words}, point {int(numbers[0]) + 1}" if numbers else words


def figure_labels(system: System, known: Iterable[str]) -> dict[str, str]:
    """Return a label for each path of a figure: its slider's label if it may have a slider."""
    own, networks = labels(system), len(system.networks)
    return {path: figure_words(path, networks) for path in known} | own


def _rate_path(system: System, arithmetic: str) -> str:
    part = "matrix" if arithmetic in system.matrix else "ext.matrix"
    return f"{part}.{arithmetic}.tflops"


def _rate_label(arithmetic: str) -> str:
    return f"Matrix rate, {arithmetic}"


def network_name(number: int, count: int) -> str:
    """Return the label of a network: the innermost one connects the processors of a node or rack.

    >>> network_name(0, 2), network_name(1, 2), network_name(1, 3), network_name(0, 1)
    ('Inner network', 'Outer network', 'Network 1', 'Network')
    """
    if count == 1:
        return "Network"
    if number == 0:
        return "Inner network"
    return "Outer network" if count == 2 else f"Network {number}"


def _states_latencies(system: System, number: int) -> bool:
    """Return True if a network's collectives state latencies, which replace the network's own."""
    links = system.ext.networks
    return number < len(links) and bool(links[number].operations)


def stops(figure: Figure) -> tuple[float, ...]:
    """Return the slider values: round numbers between :data:`FURTHEST`, and the value in the file.

    Sizes of networks are powers of 2, except the value in the file.
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


def others(known: Figures, changes: Mapping[str, float], shown: list[Slider]) -> list[Figure]:
    """Return the figures without sliders that affect training steps, changed ones first."""
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
    """Return the figures whose path, name, label in `names`, or unit contains all words of a filter."""
    wanted = words.lower().split()
    return [
        one
        for one in figures
        if all(
            word in f"{one.path} {one.name} {names[one.path]} {one.unit}".lower() for word in wanted
        )
    ]


def unlike_file(known: Figures, changes: Mapping[str, float]) -> dict[str, float]:
    """Return the machine changes without values that equal the file's."""
    return {
        path: value
        for path, value in changes.items()
        if path not in known or value != known[path].value
    }


def changes_in_words(
    system: System, known: Figures, changes: Mapping[str, float]
) -> list[tuple[str, str, str]]:
    """Return the differences from the machine file: path, label, and both values in words."""
    names = figure_labels(system, known)
    rows = []
    for path in sorted(changes):
        figure = known.get(path)
        if figure is None:  # for example an entry of a table
            rows.append((path, path, number(changes[path])))
            continue
        before, after = (stated(one, figure.unit) for one in (figure.value, changes[path]))
        rows.append((path, names.get(path, path), f"{before} → {after}"))
    return rows
