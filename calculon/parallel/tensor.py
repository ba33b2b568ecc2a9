"""Tensor parallelism: which collective runs where, how long it holds the link, what of it is exposed."""

from collections.abc import Mapping, Sequence

import numpy as np

from calculon.edition import Edition
from calculon.hardware.engine import Engine
from calculon.hardware.system import System
from calculon.layers import Layer
from calculon.layers.layer import PHASES
from calculon.plan.choice import Choice, Sizes
from calculon.records import record
from calculon.statistics import KINDS
from calculon.units import Array, Bytes, BytesPerSecond, Seconds

PASSES = ("fw", "agrad", "recomm")
"""Passes with tensor-parallel traffic; ``recomm`` repeats the forward collective in the backward pass."""

OPERATIONS: Mapping[tuple[str, str, bool], str | None] = {
    ("gather", "fw", True): "all_gather",
    ("gather", "fw", False): None,
    ("gather", "agrad", True): "reduce_scatter",
    ("gather", "agrad", False): "all_reduce",
    ("reduce", "fw", True): "reduce_scatter",
    ("reduce", "fw", False): "all_reduce",
    ("reduce", "agrad", True): "all_gather",
    ("reduce", "agrad", False): None,
}
"""Collective of a side in a pass, split or not. Source: Korthikanti 2022, section 4.2.2."""

_REDUCING = ("reduce_scatter", "all_reduce")


@record
class Traffic:
    """Tensor-parallel traffic of the layers that have a collective.

    All arrays have shape ``(passes, kinds, collective layers, blocks)`` with :data:`PASSES` and :data:`KINDS`;
    ``processing`` has shape ``(passes, collective layers, blocks)`` and holds only overlapped layers (else 0).
    """

    size: Bytes
    tile: Bytes
    link: Seconds
    exposed: Seconds
    bandwidth_needed: BytesPerSecond
    processing: Seconds


def tensor_traffic(
    layers: Sequence[Layer],
    arithmetic: Seconds,
    memory: Seconds,
    system: System,
    choice: Choice,
    sizes: Sizes,
    edition: Edition,
) -> Traffic:
    """Traffic of the collective layers of a block.

    Parameters
    ----------
    layers : sequence of Layer
        Those with a collective; either all of them are overlapped or none.
    arithmetic, memory : array, shape (phases, layers, blocks)
        Arithmetic and tier-1 memory time of these layers, by phase of :data:`~calculon.layers.layer.PHASES`.
    """
    overlapped = choice.tensor_par_overlap != "none"
    size, link = _messages(layers, arithmetic, memory, system, choice, sizes, edition)
    if not overlapped:
        none = np.zeros_like(link)
        return Traffic(
            size=size,
            tile=size,
            link=link,
            exposed=link,
            bandwidth_needed=none,
            processing=none[:, 0],
        )
    usage = system.fabric.processor_usage[sizes.tensor_par_net]
    processing = np.zeros_like(link[:, 0])
    exposed = np.zeros_like(link)
    for i in range(len(PASSES)):
        times = edition.overlapped_times(
            arithmetic[i],
            memory[i],
            link[i],
            sizes.tensor_par,
            usage,
            system.combine,
            pipelined=choice.tensor_par_overlap == "pipe",
        )
        processing[i], exposed[i] = times.processing, times.exposed
    tile = size / sizes.tensor_par
    slowed = arithmetic / (1.0 - usage) / sizes.tensor_par
    needed = np.zeros_like(link)
    needed[:2] = tile[:2] / slowed[:2, None]
    return Traffic(
        size=size,
        tile=tile,
        link=link,
        exposed=exposed,
        bandwidth_needed=needed,
        processing=processing,
    )


def _messages(
    layers: Sequence[Layer],
    arithmetic: Seconds,
    memory: Seconds,
    system: System,
    choice: Choice,
    sizes: Sizes,
    edition: Edition,
) -> tuple[Bytes, Seconds]:
    """Return message size and link time, both of shape (passes, kinds, layers, blocks)."""
    shape = (len(PASSES), len(KINDS), len(layers), sizes.tensor_par.size)
    size, link = np.zeros(shape), np.zeros(shape)
    parallel = sizes.tensor_par > 1
    reduction_engine = system.vector[choice.datatype]
    for j, layer in enumerate(layers):
        collective = layer.collective
        assert collective is not None
        for i, name in enumerate(PASSES):
            again = name == "recomm"
            if again and not getattr(choice, layer.flags.recommunicate):
                continue
            done: dict[str, tuple[Array, Array]] = {}
            for k, kind in enumerate(KINDS):
                split = choice.splits_collectives(edge=kind == "edge")
                operation = OPERATIONS[collective.side, "fw" if again else name, split]
                if operation is None:
                    continue
                if operation not in done:
                    network = system.fabric.time(
                        sizes.tensor_par_net, operation, collective.message, sizes.tensor_par
                    )
                    if not collective.overlapped:
                        phase = 0 if again else i
                        work = system.combine(arithmetic[phase, j], memory[phase, j])
                        network = edition.link_time(network, work, recommunication=again)
                    elif operation in _REDUCING and not again:
                        network = network + _reduction_time(
                            reduction_engine, collective.message, choice, sizes
                        )
                    done[operation] = (
                        np.where(parallel, collective.message, 0.0),
                        np.where(parallel, network, 0.0),
                    )
                size[i, k, j], link[i, k, j] = done[operation]
    return size, link


def _reduction_time(
    engine: Engine, message: Bytes | float, choice: Choice, sizes: Sizes
) -> Seconds:
    """Arithmetic time of adding up the parts of a reduced message, one FLOP per element and peer."""
    elements = message / choice.dtype_bytes
    return engine.time(elements * (sizes.tensor_par - 1) / sizes.tensor_par)


assert PASSES[:2] == PHASES[:2]
