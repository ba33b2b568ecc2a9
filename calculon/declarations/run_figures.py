"""The figures of whole runs: each declared once, with its unit."""

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
    """Days of a run by what they are spent on; their sum is ``days``."""

    NAMES: ClassVar = "{field}_days"

    useful: Days = stat("steps that count, at the time of the cost model")
    evaluation: Days = stat("evaluations")
    saving: Days = stat("steps that wait for checkpoints")
    lost: Days = stat("work that failures destroy: since the last checkpoint")
    restart: Days = stat(
        "from failures to the next step: detection, restart, loading of the checkpoint"
    )
    waiting: Days = stat("waiting for nodes in repair, with no spare left")
    repeated: Days = stat("steps that loss spikes and silent corruptions take back")
    slowed: Days = stat("steps that slow nodes and variation between ranks make longer")


@record
class CampaignFigures:
    """What a whole run takes, one entry for each execution."""

    days: Days = stat("expected days of the run, from its first step to its last")
    days_p10: Days = stat("days that failures leave in one run of ten")
    days_p50: Days = stat("days that failures leave in one run of two")
    days_p90: Days = stat("days that failures leave in nine runs of ten")
    processor_hours: Hours = stat("processor-hours that are paid: spares, too")
    goodput: Fraction = stat("time of steps that count over the time of the run")
    failures: Count = stat("expected interruptions")
    mtbf_hours: Hours = stat("hours between interruptions of the job")
    checkpoint_interval: Seconds = stat("time of steps between checkpoints")
    checkpoint_time: Seconds = stat("time that steps wait for a checkpoint")
    checkpoint_size: Bytes = stat("bytes of a checkpoint")
    spare_nodes: Count = stat("nodes that stand by")
    mfu_effective: Fraction = stat(
        "6 FLOP for each parameter that a token passes over the peak of the processor-hours that are paid"
    )
    usd: Dollars = stat("US dollars, where there is a price", nullable=True)
    tokens_per_usd: TokensPerDollar = stat("tokens for a US dollar", nullable=True)
    mwh: MegawattHours = stat("energy, where the power of a processor is known", nullable=True)
    t_co2: Tonnes = stat("carbon dioxide, where that of the electricity is known", nullable=True)
    by_use: DaysByUse = part()


RUN_FIGURES: dict[str, Column] = {one.name: one for one in columns(CampaignFigures)}
"""The figures of whole runs by name."""

DAYS_BETWEEN = ("days_low", "days_high")
"""Both ends of the interval of ``days`` in tables: the interval of the time of a step."""

TIMED_FIGURES = frozenset(
    {"processor_hours"}
    | {n for n, f in RUN_FIGURES.items() if f.unit.symbol in ("d", "USD", "tokens/USD", "MWh", "t")}
)
"""Figures that grow or shrink with the time of a step, and are as uncertain as it."""
