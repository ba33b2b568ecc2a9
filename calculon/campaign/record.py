"""A campaign: the record of a whole training run, with its defaults and where they are from."""

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, ClassVar

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import GIGA
from calculon.campaign.goals import (
    BatchGoal,
    Interval,
    Length,
    MeanTime,
    Money,
    TimeSpan,
    TokenGoal,
)
from calculon.campaign.phases import PhaseExecution, Rollout
from calculon.campaign.prices import Carbon
from calculon.campaign.ramps import BatchRamp, SequenceRung
from calculon.declarations.fields import declare, spec_fields

HOUR, DAY = 3600.0, 86400.0

_LLAMA_3 = "Llama 3 405B, arXiv:2407.21783, section 3.3.4, 2024"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """How often a fleet fails, and what a failure costs."""

    mtbf_processor: MeanTime = declare(
        "hours of one processor to an unexpected interruption of its job; never: none",
        unit="h",
        scale=HOUR,
        default=MeanTime(50_677 * HOUR),
        source=f"419 interruptions in 54 days on 16,384 H100: {_LLAMA_3}",
    )
    mtbf_common: MeanTime | None = declare(
        "hours between interruptions of the whole fleet, of any size (file system, power, planned); none if absent",
        unit="h",
        scale=HOUR,
        default=None,
    )
    detect: TimeSpan = declare(
        "from a failure until all ranks have stopped",
        unit="s",
        default=TimeSpan(60),
        source="assumption; the time-out of NCCL is 600 s unless it is set",
    )
    restart: TimeSpan = declare(
        "scheduling, start of processes, initialisation and warm-up, without loading the checkpoint",
        unit="s",
        default=TimeSpan(300),
        source="assumption",
    )
    spares: int | None = declare(
        "nodes that stand by; if absent as many as make the processor-hours that are paid the fewest",
        unit="nodes",
        at_least=0,
        default=None,
    )
    repair: TimeSpan = declare(
        "hours until a failed node is back",
        unit="h",
        scale=HOUR,
        default=TimeSpan(24 * HOUR),
        source="assumption",
    )
    hardware_share: float = declare(
        "share of interruptions after which a node is away for repair",
        at_least=0,
        at_most=1,
        default=0.78,
        source=f"about 78 % of unexpected interruptions: {_LLAMA_3}",
    )
    elastic: bool = declare(
        "without a spare node the run goes on with a replica less instead of waiting", default=False
    )
    silent: float = declare(
        "silent corruptions of one processor in an hour", unit="1/h", at_least=0, default=0.0
    )
    silent_detect: TimeSpan = declare(
        "hours until a silent corruption is found",
        unit="h",
        scale=HOUR,
        default=TimeSpan(24 * HOUR),
        source="assumption; of effect only where silent is stated",
    )
    slow_share: float = declare("share of nodes that are slow", at_least=0, below=1, default=0.0)
    slow_factor: float = declare("how much longer slow nodes take", at_least=1, default=1.0)
    slow_detect: TimeSpan = declare(
        "hours until a slow node is replaced",
        unit="h",
        scale=HOUR,
        default=TimeSpan(24 * HOUR),
        source="assumption; of effect only where slow_share is stated",
    )
    jitter: float = declare(
        "variation of the time of a step between ranks: standard deviation over mean; measured runs contain it",
        at_least=0,
        below=1,
        default=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """When the state of a run is saved, where, and how long that takes."""

    interval: Interval | None = declare(
        "time between checkpoints; if absent (and interval_steps, too) the one with the shortest run",
        unit="s",
        default=None,
    )
    interval_steps: int | None = declare(
        "steps between checkpoints, instead of interval", at_least=1, default=None
    )
    bytes_per_param: float | None = declare(
        "bytes that are saved for each parameter; if absent weights, master weights and moments of the optimizer",
        unit="B",
        above=0,
        default=None,
    )
    bandwidth: float | None = declare(
        "rate of the storage for all nodes together; if absent that of its nodes",
        unit="GB/s",
        scale=GIGA,
        above=0,
        default=None,
    )
    bandwidth_per_node: float = declare(
        "rate at which a node reaches the storage",
        unit="GB/s",
        scale=GIGA,
        above=0,
        default=1.2 * GIGA,
        source="2.3 TB in 40 s from 48 nodes: BLOOM, BigScience chronicles of tr11-176B, 2022",
    )
    mode: str = declare(
        "whether steps wait until storage has the checkpoint (sync), or only for its copy in the host (async)",
        choices=("async", "sync"),
        default="async",
        source="assumption: usual since 2024 (torch.distributed.checkpoint, Megatron-LM --async-save)",
    )
    pause: TimeSpan = declare(
        "what a save stops the steps for beside the copy: planning, a barrier",
        unit="s",
        default=TimeSpan(6.3),
        source="asynchronous save of a 7B model: PyTorch blog, June 2024 (recalled)",
    )
    levels: int = declare(
        "2: also copies in the memory of another node, which survive the loss of one",
        at_least=1,
        at_most=2,
        default=1,
    )
    memory_interval: Interval | None = declare(
        "time between copies in memory, of two levels; if absent the best", unit="s", default=None
    )
    memory_lost: float = declare(
        "share of interruptions that copies in memory do not survive, of two levels",
        above=0,
        below=1,
        default=0.05,
        source="assumption; of effect only with two levels",
    )
    load_time: TimeSpan | None = declare(
        "time to load a checkpoint; if absent that of reading it at the rate of the storage",
        unit="s",
        default=None,
    )
    kept: int = declare("checkpoints that are kept", at_least=1, default=3, source="assumption")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What processors cost, what power they draw, and where; as the system says (``ext``) where absent."""

    price: float | None = declare(
        "US dollars for an hour of a processor; if absent ext.price of the system",
        unit="USD/h",
        at_least=0,
        default=None,
    )
    price_kind: str | None = declare(
        "which price of the system counts; if absent the first of these that it states",
        choices=("on_demand", "reserved", "spot", "own"),
        default=None,
    )
    storage: float | None = declare(
        "US dollars for a TB of checkpoints in a month; none if absent here and in ext.price",
        unit="USD",
        at_least=0,
        default=None,
    )
    tdp: float | None = declare(
        "thermal design power of a processor; if absent ext.power of the system",
        unit="W",
        above=0,
        default=None,
    )
    pue: float | None = declare(
        "power usage effectiveness: energy of the data centre over that of its machines",
        at_least=1,
        default=None,
    )
    g_co2_per_kwh: Carbon | None = declare(
        "carbon of the electricity where the machines are: a number, or the name of a grid (france, us-va)",
        unit="g/kWh",
        default=None,
    )
    g_co2_per_kwh_market: float | None = declare(
        "carbon of the electricity by contracts, told beside",
        unit="g/kWh",
        at_least=0,
        default=None,
    )
    usd_per_kwh: float | None = declare(
        "price of electricity, of processors that one owns",
        unit="USD/kWh",
        at_least=0,
        default=None,
    )
    wue: float | None = declare("water usage effectiveness", unit="L/kWh", at_least=0, default=None)


PARTS = ("reliability", "checkpoints", "fleet")
"""Fields of a campaign that have fields of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of a run with its own sequences, batch and execution."""

    name: str = declare("what pages call it", default="")
    tokens: TokenGoal | None = declare("tokens of the phase", default=None)
    share: float | None = declare(
        "share of the tokens of the run, instead of tokens", above=0, at_most=1, default=None
    )
    seq_size: Length | None = declare(
        "tokens of a sequence; if absent as the execution says", unit="tokens", default=None
    )
    batch: BatchGoal | None = declare(
        "global batch in sequences, or tokens (4M); if absent as the execution says", default=None
    )
    execution: PhaseExecution | None = declare(
        "an execution of the catalog, a file, its fields, or search, with options {search: {preset, fix, add}}; if "
        "absent that of the command",
        default=None,
    )
    document_mean: float | None = declare(
        "mean tokens of the documents that fill sequences, which do not attend to each other",
        unit="tokens",
        above=0,
        default=None,
    )
    rollout: Rollout | None = declare(
        "what is generated before each step, of reinforcement learning", default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """A whole training run.

    Its ramps count tokens from the start of the run; a phase that states its batch or length is beside them.
    """

    unknown_keys: ClassVar[str] = "error"
    silent_keys: ClassVar[tuple[str, ...]] = ("about",)

    tokens: TokenGoal | None = declare(
        "tokens of the run (15T), or for each parameter (chinchilla, 100x)",
        unit="tokens",
        default=None,
    )
    loss: float | None = declare(
        "loss to reach, instead of tokens: by both published laws", above=0, default=None
    )
    steps: int | None = declare("steps of the run, instead of tokens", at_least=1, default=None)
    phases: tuple[Phase, ...] = declare(
        "parts of the run, in their order; one if absent", default=()
    )
    batch_ramp: BatchRamp | None = declare(
        "smaller batches at the start: a list of {from: tokens, batch}, or {start, step, tokens}",
        default=None,
    )
    seq_ramp: tuple[SequenceRung, ...] = declare(
        "shorter sequences at the start: a list of {from: tokens, seq_size}", default=()
    )
    evaluate_every: int = declare("steps between evaluations; 0: none", at_least=0, default=0)
    evaluate_time: TimeSpan = declare("time of an evaluation", unit="s", default=TimeSpan(0))
    spikes: float = declare(
        "loss spikes in 1e12 tokens, after each of which the run goes back", at_least=0, default=0.0
    )
    rollback_steps: int = declare(
        "steps that a loss spike takes back; as many are skipped", at_least=0, default=100
    )
    experiments: float = declare(
        "compute of ablations and failed starts as a share of that of the run, told apart",
        at_least=0,
        default=0.0,
    )
    reliability: Reliability = declare("failures", default=Reliability())
    checkpoints: Checkpoints = declare("checkpoints", default=Checkpoints())
    fleet: Fleet = declare("money and power", default=Fleet())
    deadline: Interval | None = declare(
        "days that the run may take", unit="d", scale=DAY, default=None, label="deadline"
    )
    budget_usd: Money | None = declare(
        "US dollars that it may cost", unit="USD", default=None, label="budget"
    )
    budget_mwh: float | None = declare(
        "energy that it may take", unit="MWh", above=0, default=None, label="budget of energy"
    )
    name: str = field(default="campaign", compare=False)
    document: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check what the fields say together.

        Raises:
            SpecError: For several lengths of the run, or none; shares of phases that are not 1 together; two intervals.
        """
        goals = [name for name in ("tokens", "loss", "steps") if getattr(self, name) is not None]
        problems = []
        if len(goals) > 1:
            problems.append(Problem("tokens", "one of tokens, loss and steps", " and ".join(goals)))
        problems += self._phase_problems(bool(goals))
        c = self.checkpoints
        if c.interval is not None and c.interval_steps is not None:
            wanted = "one of interval and interval_steps"
            problems.append(Problem("checkpoints.interval", wanted, "both"))
        if problems:
            raise SpecError("campaign", problems)

    def _phase_problems(self, whole: bool) -> Iterator[Problem]:
        """Yield what phases leave open, where the run states its length or not."""
        for i, phase in enumerate(self.phases):
            if (phase.tokens is None) == (phase.share is None):
                found = "neither" if phase.tokens is None else "both"
                yield Problem(f"phases[{i}].tokens", "one of tokens and share", found)
        shares = [one.share for one in self.phases if one.share is not None]
        if self.phases and len(shares) == len(self.phases) and abs(sum(shares) - 1) > 1e-6:
            yield Problem("phases", "shares that are 1 together", f"{sum(shares):g}")
        if shares and not whole:
            yield Problem(
                "tokens", "the tokens of the run, as phases have shares of them", "nothing"
            )
        if whole and self.phases and len(shares) < len(self.phases):
            hint = "give every phase a share, or state no tokens of the run"
            yield Problem("phases", "shares of the tokens of the run", "tokens of a phase", hint)

    @property
    def at_the_end(self) -> tuple[str | None, int | None]:
        """The global batch in words, and the tokens of a sequence, of the last steps; None of what is left open."""
        last = self.phases[-1] if self.phases else Phase()
        batch, length = last.batch, last.seq_size
        if batch is None and self.batch_ramp is not None and self.batch_ramp.rungs:
            batch = self.batch_ramp.rungs[-1].batch
        if length is None and self.seq_ramp:
            length = self.seq_ramp[-1].seq_size
        return None if batch is None else batch.text, None if length is None else int(length)

    @property
    def stated(self) -> frozenset[str]:
        """The paths of the fields that its document states, of itself and of its parts."""
        parts = ((key, part) for key, part in self.document.items() if isinstance(part, Mapping))
        inside = (f"{key}.{one}" for key, part in parts for one in part)
        return frozenset((*map(str, self.document), *inside))

    @property
    def defaults(self) -> list[tuple[str, Any, str, str]]:
        """The defaults with a source that nobody stated: path, value in the unit of its field, unit, source."""
        found = []
        stated = self.stated
        for name in PARTS:
            part: Any = getattr(self, name)
            kind: Any = type(part)
            for one in spec_fields(kind):
                path, declared = f"{name}.{one.key}", one.declaration
                if declared.source and path not in stated:
                    value = getattr(part, one.name)
                    value = value if isinstance(value, str) else value / declared.scale
                    found.append((path, value, declared.unit, declared.source))
        return found
