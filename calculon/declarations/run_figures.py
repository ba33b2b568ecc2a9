"""Figures of training runs (days, goodput, cost, energy), each declared once with its unit."""

from typing import Annotated, ClassVar

from calculon.base.records import Column, columns, part, record, stat
from calculon.base.units import Array, Bytes, Count, Fraction, Seconds, Unit

Days = Annotated[Array, Unit("d")]
Hours = Annotated[Array, Unit("h")]
Dollars = Annotated[Array, Unit("USD")]
MegawattHours = Annotated[Array, Unit("MWh")]
Tonnes = Annotated[Array, Unit("t")]
TokensPerDollar = Annotated[Array, Unit("tokens/USD")]


@record
class DaysByUse:
    """Days of a run by use; their sum is ``days``."""

    NAMES: ClassVar = "{field}_days"

    useful: Days = stat("productive training steps, at the predicted step time")
    evaluation: Days = stat("evaluations")
    saving: Days = stat("steps delayed by checkpointing")
    lost: Days = stat("work lost to failures since the last checkpoint")
    restart: Days = stat(
        "from failures to the next step: detection, restart, loading of the checkpoint"
    )
    waiting: Days = stat("waiting for node repairs when no spare is left")
    repeated: Days = stat("steps repeated because of loss spikes and silent data corruption")
    slowed: Days = stat("slowdown of steps by slow nodes and variation between ranks")
    other: Days = stat("time beyond steps, failures and checkpoints, from the stated overhead")


@record
class CampaignFigures:
    """Figures of a training run, one entry per execution."""

    days: Days = stat("expected days of the run, from first to last step")
    days_p10: Days = stat("days of the run, 10th percentile over random failures")
    days_p50: Days = stat("days of the run, median over random failures")
    days_p90: Days = stat("days of the run, 90th percentile over random failures")
    processor_hours: Hours = stat("paid processor-hours, including spares")
    goodput: Fraction = stat("time of productive steps over the time of the run")
    failures: Count = stat("expected interruptions")
    mtbf_hours: Hours = stat("hours between interruptions of the job")
    checkpoint_interval: Seconds = stat("step time between checkpoints")
    checkpoint_time: Seconds = stat("time that steps wait for a checkpoint")
    checkpoint_size: Bytes = stat("size of a checkpoint")
    spare_nodes: Count = stat("spare nodes")
    mfu_effective: Fraction = stat(
        "6 FLOP per active parameter and token, over the peak of the paid processor-hours"
    )
    usd: Dollars = stat("cost in US dollars, if a price is known", nullable=True)
    tokens_per_usd: TokensPerDollar = stat("tokens per US dollar", nullable=True)
    mwh: MegawattHours = stat("energy, if the power of a processor is known", nullable=True)
    t_co2: Tonnes = stat("carbon dioxide, if the emissions of electricity are known", nullable=True)
    by_use: DaysByUse = part()


RUN_FIGURES: dict[str, Column] = {one.name: one for one in columns(CampaignFigures)}
"""Figures of training runs by name."""

DAYS_BETWEEN = ("days_low", "days_high")
"""Ends of the interval of ``days`` in tables, from the interval of the step time."""

TIMED_FIGURES = frozenset(
    {"processor_hours"}
    | {n for n, f in RUN_FIGURES.items() if f.unit.symbol in ("d", "USD", "tokens/USD", "MWh", "t")}
)
"""Figures proportional to the step time, with the same uncertainty."""
