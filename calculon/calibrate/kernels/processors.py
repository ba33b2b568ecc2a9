"""Processors that kernels were measured on."""

from collections.abc import Mapping
from typing import NamedTuple


class Processor(NamedTuple):
    """A processor of the measured tables.

    Attributes:
        multiprocessors: How many there are.
        bandwidth: Of its memory, in B/s.
        alike: Processors with the same chip: their kernels count where nothing was measured on this one.
    """

    multiprocessors: int
    bandwidth: float
    alike: tuple[str, ...] = ()


PROCESSORS: Mapping[str, Processor] = {
    "A100-SXM4-80GB": Processor(108, 2039e9, ("A100-PCIe-80GB",)),
    "A100-PCIe-80GB": Processor(108, 1935e9),
    "H100-SXM5-80GB": Processor(132, 3350e9),
    "H200-SXM5-141GB": Processor(132, 4800e9, ("H100-SXM5-80GB",)),
    "B200-SXM-180GB": Processor(148, 8000e9),
    "L40S": Processor(142, 864e9),
}
"""By their names in the tables. Source: NVIDIA's datasheets and architecture whitepapers."""
