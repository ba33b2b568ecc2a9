"""Networks: times of point-to-point transfers and collectives (all-reduce, reduce-scatter, all-gather)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import chain, repeat
from typing import Any, ClassVar

import numpy as np

from calculon.base.arrays import is_nonzero
from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.base.units import GIGA, Array, Bytes, Count, Seconds
from calculon.declarations.fields import Declaration, declare, shown
from calculon.hardware.curve import row_schema
from calculon.hardware.extension import Link

_SCALAR = Declaration(help="bytes moved per byte of the message", above=0)
_OFFSET = Declaration(help="bytes moved per byte of the message and 1/participants", at_least=-2)

RING_STEPS = {"reduce_scatter": 1, "all_gather": 1, "all_reduce": 2}
"""Steps of a ring per member, except one. Source: Patarasuk and Yuan, JPDC 69(2), 2009, section 3."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Traffic of one collective: ``scalar * (1 + offset / participants)`` bytes per message byte."""

    scalar: float
    offset: float


@dataclass(frozen=True, slots=True)
class Operations:
    """The four operations that every network defines."""

    p2p: Operation
    reduce_scatter: Operation
    all_gather: Operation
    all_reduce: Operation

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float) -> Any:
        """Decode ``{"p2p": [1.0, null], "all_reduce": [2.0, -1], ...}``."""
        names = [field.name for field in fields(cls)]
        if not isinstance(raw, Mapping):
            problems.append(
                Problem(path, "an object with the operations " + ", ".join(names), shown(raw))
            )
            return None
        for name in raw:
            if name not in names:
                wanted = "only the operations " + ", ".join(names)
                problems.append(Problem(f"{path}.{name}", wanted, "an unknown operation"))
        found = {n: _operation(n, raw.get(n), f"{path}.{n}", problems) for n in names}
        return cls(**found)  # type: ignore[arg-type]  # a value is None only with a problem

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the raw object."""
        scalar, offset = _SCALAR.schema(float), _OFFSET.schema(float)
        pair, of_p2p = row_schema(scalar, offset), row_schema(scalar, {"const": None})
        names = [field.name for field in fields(cls)]
        return {
            "type": "object",
            "properties": {n: of_p2p if n == "p2p" else pair for n in names},
            "required": names,
            "additionalProperties": False,
        }


def _operation(name: str, raw: object, path: str, problems: list[Problem]) -> Operation | None:
    wanted = "a pair [scalar, null]" if name == "p2p" else "a pair [scalar, offset]"
    if not isinstance(raw, (list, tuple)) or len(raw) != 2:
        found = "nothing (the operation is missing)" if raw is None else shown(raw)
        problems.append(Problem(path, wanted, found))
        return None
    scalar, offset = raw
    before = len(problems)
    if problem := _SCALAR.problem(float, scalar, f"{path}[0]"):
        problems.append(problem)
    if name == "p2p":
        if offset is not None:
            problems.append(Problem(f"{path}[1]", "null", shown(offset), "p2p has no offset"))
    elif problem := _OFFSET.problem(float, offset, f"{path}[1]"):
        problems.append(problem)
    return None if len(problems) > before else Operation(float(scalar), float(offset or 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """One network, from the view of an endpoint."""

    unknown_keys: ClassVar[str] = "error"

    bandwidth: float = declare("bandwidth per endpoint", unit="GB/s", scale=GIGA, above=0)
    efficiency: float = declare("achieved share of the bandwidth", above=0, at_most=1)
    size: int = declare("endpoints of one instance of the network", at_least=0)
    latency: float = declare("latency of one operation", unit="s", at_least=0)
    ops: Operations = declare(
        "bytes moved per message byte: [scalar, offset] is scalar * (1 + offset / participants)"
    )
    must_be_filled: bool = declare(
        "in edition sc23, groups on this network must divide its size, so that no processor is idle; in other "
        "editions processors may be idle and the flag has no effect"
    )
    processor_usage: float = declare(
        "share of the compute engines lost while communicating", at_least=0, below=1
    )


def _usage(network: Network, link: Link) -> float:
    """Return the share of the compute engines that collectives occupy: from the extension, or from the network."""
    return network.processor_usage if link.processor_usage is None else link.processor_usage


class Varied:
    """Parameter of networks in a column of machines, shape (networks, rows); indexed by the network of each row."""

    __slots__ = ("_rows", "_values")

    def __init__(self, values: Array):
        self._values, self._rows = values, np.arange(values.shape[1])

    def __getitem__(self, network: Count) -> Array:
        """Return the values of networks whose numbers broadcast with the rows, the last axis."""
        result: Array = self._values[network, self._rows]
        return result

    def __iter__(self) -> Iterator[Array]:
        """Yield the values of each network, by row."""
        return iter(self._values)


def _column(values: Sequence[float | Array]) -> Any:
    """Return network values as a column; for several machines, the values of each."""
    if any(isinstance(value, np.ndarray) for value in values):
        return Varied(np.stack(np.broadcast_arrays(*values)))
    return np.array(values)


@dataclass(frozen=True, slots=True, eq=False)
class Fabric:
    """All networks of a system as columns, so that an array of network numbers selects from them.

    Every attribute has shape ``(networks,)``; ``ramp`` is None if no network has one. ``launch`` is the minimum time of
    an operation, which is a kernel like any other. ``stated_by_bus`` is true if the link kind is known, or the links
    form a torus: rates are then bus bandwidths as nccl-tests reports them, and include the memory passes of a
    collective. In a column of machines, parameters that differ are :class:`Varied`.
    """

    bandwidth: Array
    latency: Array
    step_latency: Array
    ramp: Array | None
    processor_usage: Array
    size: Array
    must_be_filled: Array
    scalars: dict[str, Array]
    offsets: dict[str, Array]
    stated_by_bus: Array
    launch: float = 0.0

    @classmethod
    def of(
        cls, networks: tuple[Network, ...], links: tuple[Link, ...] = (), launch: float = 0.0
    ) -> "Fabric":
        """Arrange networks as columns; bandwidths are achieved bandwidths."""
        names = [field.name for field in fields(Operations)]
        pairs = list(zip(networks, chain(links, repeat(Link())), strict=False))
        ramps = [link.ramp for _, link in pairs]
        return cls(
            bandwidth=_column([n.bandwidth * n.efficiency for n in networks]),
            latency=_column([n.latency for n in networks]),
            step_latency=_column([link.step(network.latency) for network, link in pairs]),
            ramp=_column(ramps) if any(map(is_nonzero, ramps)) else None,
            processor_usage=_column([_usage(n, link) for n, link in pairs]),
            size=np.array([n.size for n in networks], dtype=np.int64),
            must_be_filled=np.array([n.must_be_filled for n in networks]),
            scalars={o: np.array([getattr(n.ops, o).scalar for n in networks]) for o in names},
            offsets={o: np.array([getattr(n.ops, o).offset for n in networks]) for o in names},
            stated_by_bus=np.array(
                [link.kind is not None or link.torus is not None for _, link in pairs], dtype=bool
            ),
            launch=launch,
        )

    def time(
        self,
        network: Count,
        operation: str,
        size: Bytes,
        participants: Count,
        *,
        per_step: Array | bool = False,
    ) -> Seconds:
        r"""Return the time of one operation on a message of n bytes.

        .. math:: t = \alpha + \frac{s \, c \, (1 + o / n)}{\beta}

        with the operation's scalar `c` and offset `o`. The latency is paid once, also by an empty message. A network
        with a ramp adds the ramp of :meth:`moving`. No operation takes less than its launch.

        Args:
            operation: ``p2p``, ``reduce_scatter``, ``all_gather`` or ``all_reduce``.
            size: Message per participant in bytes: the full array, as in nccl-tests.
            participants: Members of the group (2 for ``p2p``).
            per_step: True if a collective pays the step latency in each step of a ring: `n - 1` steps, or `2 (n - 1)`
                for an all-reduce.

        Source: Isaev et al., SC'23, section 3.3; ``c = 2, o = -1`` is the ring all-reduce of Patarasuk and
        Yuan, JPDC 69(2), 2009, doi:10.1016/j.jpdc.2008.09.002.
        """
        volume = self.volume(network, operation, size, participants)
        latency = self.latency[network]
        if per_step is not False and operation in RING_STEPS:
            steps = RING_STEPS[operation] * (participants - 1)
            latency = np.where(per_step, steps * self.step_latency[network], latency)
        time: Seconds = latency + self.moving(network, volume)
        return np.maximum(time, self.launch) if is_nonzero(self.launch) else time

    def moving(self, network: Count, volume: Bytes) -> Seconds:
        r"""Return the time to move n bytes per endpoint, without the latency; the same for every operation.

        .. math:: t = \frac{v}{\beta} + 2 \sqrt{\rho \, \frac{v}{\beta}}

        The second term applies to networks with a ramp :math:`\rho`. A message in `k` segments, each with an overhead
        `a`, passes a pipeline of `p` stages in :math:`(k + p - 1)(a + v / (k \beta))`. With the best `k` that is
        :math:`(\sqrt{v / \beta} + \sqrt{\rho})^2`, where :math:`\rho = (p - 1) a` is part of the latency. A library
        that chooses protocol, channels and segments by message size comes close to it.

        Source: Johnsson and Ho, *Optimum broadcasting and personalized communication in hypercubes*, IEEE
        Transactions on Computers 38(9), 1989, pages 1249 to 1268: the best packet size of a pipeline.
        """
        wire: Seconds = volume / self.bandwidth[network]
        if self.ramp is not None:  # the volume is negative for a group of one, which sends nothing
            wire = wire + 2 * np.sqrt(self.ramp[network] * np.maximum(wire, 0))
        return wire

    def volume(self, network: Count, operation: str, size: Bytes, participants: Count) -> Bytes:
        """Return the bytes that an operation moves per endpoint; arguments as in :meth:`time`."""
        asymptotic = size * self.scalars[operation][network]
        return asymptotic + 1 / participants * asymptotic * self.offsets[operation][network]
