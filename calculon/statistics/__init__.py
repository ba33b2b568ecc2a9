"""The statistics of an execution, each declared once: the published 96, and figures that people quote."""

from calculon.statistics.figures import ALL_PARTS_OF_TIME, Buffers, CorrectedStats, Figures
from calculon.statistics.published import (
    KINDS,
    PARTS_OF_TIME,
    BlockSpace,
    Capacity,
    Communication,
    Efficiency,
    Messages,
    OffloadBandwidth,
    OffloadedSpace,
    OverlapBandwidth,
    Space,
    Stats,
    TensorMessages,
    Times,
    Work,
)

__all__ = [
    "ALL_PARTS_OF_TIME",
    "KINDS",
    "PARTS_OF_TIME",
    "BlockSpace",
    "Buffers",
    "Capacity",
    "Communication",
    "CorrectedStats",
    "Efficiency",
    "Figures",
    "Messages",
    "OffloadBandwidth",
    "OffloadedSpace",
    "OverlapBandwidth",
    "Space",
    "Stats",
    "TensorMessages",
    "Times",
    "Work",
]
