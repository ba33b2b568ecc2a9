"""The statistics that the corrected edition has beside the published ones: figures that people quote."""

from dataclasses import fields
from typing import Self

from calculon.records import part, record, stat
from calculon.spec.axes import FURTHER_NAMES
from calculon.statistics.published import PARTS_OF_TIME, Stats
from calculon.units import (
    Bytes,
    Count,
    Flops,
    FlopsPerSecond,
    Fraction,
    Seconds,
    TokensPerSecond,
)


@record
class Figures:
    """Figures that people quote, and the ends of the model; new in the corrected edition."""

    parameters: Count = stat("parameters of the model")
    tokens_per_second: TokensPerSecond = stat("tokens per second")
    tokens_per_second_per_proc: TokensPerSecond = stat("tokens per second and processor")
    model_flops_per_token: Flops = stat(
        "matrix arithmetic of the model per token: no recomputation, full attention, with output head"
    )
    model_flops_per_second_per_proc: FlopsPerSecond = stat(
        "model arithmetic per second and processor (full attention)"
    )
    mfu: Fraction = stat(
        "model FLOP utilisation: model arithmetic (full attention) over the matrix engine's peak"
    )
    mfu_causal: Fraction = stat(
        "model FLOP utilisation that counts only the keys that a token attends to (causal, windows)"
    )
    hfu: Fraction = stat(
        "hardware FLOP utilisation: matrix arithmetic executed, recomputation included, over the peak"
    )
    act_bytes_per_token: Bytes = stat(
        "activations that a block keeps per token on one processor",
        name="block_act_bytes_per_token",
    )
    embedding_time: Seconds = stat("embedding of a batch, forward and backward (first stage)")
    head_time: Seconds = stat("output head and loss of a batch, forward and backward (last stage)")
    host_time: Seconds = stat("work of the host in a step, while no kernel runs")


@record
class Buffers:
    """Memory beside that of model, activations and optimizer; new in the corrected edition."""

    gathered_space: Bytes = stat("weights of other ranks, gathered for the blocks at work")
    comm_buffer_space: Bytes = stat("gradients on their way to be reduced")
    reserved_space: Bytes = stat("memory that is not the model's")


@record
class AxisTimes:
    """Times of the collectives of further axes of parallelism in a batch, by axis; new in the corrected edition."""

    link: Seconds = stat(
        "{axis} collectives on the link", name="{axis}_comm_link_time", axis=FURTHER_NAMES
    )
    exposed: Seconds = stat(
        "{axis} collectives, not hidden", name="{axis}_comm_exposed_time", axis=FURTHER_NAMES
    )


AXIS_PARTS_OF_TIME = tuple(f"{name}_comm_exposed_time" for name in FURTHER_NAMES)

ALL_PARTS_OF_TIME = (*PARTS_OF_TIME, "host_time", *AXIS_PARTS_OF_TIME)
"""The statistics that add up to ``total_time`` in any edition; the published one has no host time."""


@record
class CorrectedStats(Stats):
    """The statistics of the corrected edition: the published 96, then figures that people quote, and more."""

    figures: Figures = part()
    buffers: Buffers = part()
    axes: AxisTimes = part()

    @classmethod
    def of(cls, published: Stats, *, figures: Figures, buffers: Buffers, axes: AxisTimes) -> Self:
        """Add what is new to the published statistics."""
        known = {field.name: getattr(published, field.name) for field in fields(Stats)}
        return cls(**known, figures=figures, buffers=buffers, axes=axes)
