"""Result of fitting one family of kernels: a part of a system file, and its errors."""

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from calculon.base.units import Array


class Processor(NamedTuple):
    """A processor of the measured tables.

    Attributes:
        multiprocessors: Number of multiprocessors.
        bandwidth: Memory bandwidth in B/s.
        alike: Processors with the same chip, whose kernels are used if none was measured on this one.
        sibling: Processor of the same architecture with many more measured kernels. Its laws hold here too, with rates
            that are scaled to the kernels measured here.
    """

    multiprocessors: int
    bandwidth: float
    alike: tuple[str, ...] = ()
    sibling: str = ""


PROCESSORS: Mapping[str, Processor] = {
    "A100-SXM4-80GB": Processor(108, 2039e9, ("A100-PCIe-80GB",)),
    "A100-PCIe-80GB": Processor(108, 1935e9),
    "H100-SXM5-80GB": Processor(132, 3350e9),
    "H200-SXM5-141GB": Processor(132, 4800e9, ("H100-SXM5-80GB",)),
    "B200-SXM-180GB": Processor(148, 8000e9),
    "GB200": Processor(152, 8000e9, ("B200-SXM-180GB",), "B200-SXM-180GB"),
    "B300-SXM-288GB": Processor(148, 8000e9, ("B200-SXM-180GB",), "B200-SXM-180GB"),
    "GB300": Processor(152, 8000e9, ("B200-SXM-180GB",), "B200-SXM-180GB"),
    "L40S": Processor(142, 864e9),
}
"""Processors by their names in the tables.

Source: NVIDIA's datasheets and architecture whitepapers; multiprocessors of GB200, GB300 (152) and B300 (148) as CUDA
reports them.
"""


HELD_OUT = 0.3
"""Share of the shapes that are held out of every fit."""


class FittedPart(NamedTuple):
    """A part of a system file, fitted to the measured kernels of one family.

    Attributes:
        fragment: Values to merge into the system file.
        sources, assumed: Source of each path of the fragment, and assumptions without a measurement, as under ``about``
            of a system file.
        rows: Measured rows: `group` (such as ``"product, m from 1,024"``), `measured` and `predicted` seconds, and
            `held_out`.
    """

    fragment: dict[str, Any]
    sources: dict[str, str]
    assumed: list[str]
    rows: pd.DataFrame


def held_out(shapes: pd.DataFrame) -> Array:
    """Return a mask of held-out rows, by a hash of their shape, so that equal shapes agree on every processor.

    >>> held_out(pd.DataFrame({"n": [4096, 4096, 8192], "k": [1024, 1024, 512]})).tolist()
    [False, False, True]
    """
    return np.array([_hash(row) < HELD_OUT for row in shapes.itertuples(index=False)], dtype=bool)


def _hash(shape: Sequence[Hashable]) -> float:
    """Return a number in [0, 1) that depends only on a shape."""
    text = " ".join(map(str, shape))
    return int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:8], 16) / 2**32
