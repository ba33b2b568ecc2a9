"""Record of a campaign (a whole training run): its fields, defaults, and the sources of the defaults."""

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
from calculon.campaign.ramps import BatchRamp, LengthStep
from calculon.campaign.scenarios import OVERHEADS, SCENARIOS, TYPICAL, VALUES
from calculon.declarations.fields import declare, spec_fields

HOUR, DAY = 3600.0, 86400.0

_LLAMA_3 = "Llama 3 405B, arXiv:2407.21783, section 3.3.4, 2024"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Failure rates of a fleet, and the cost of a failure."""

    scenario: str = declare(
        "published rates and times, unless stated: "
        + "; ".join(f"{name}: {words}" for name, words in SCENARIOS.items()),
        choices=tuple(SCENARIOS),
        default=TYPICAL,
    )
    mtbf_processor: MeanTime = declare(
        "mean processor-hours to an unexpected interruption of the job, or never",
        unit="h",
        scale=HOUR,
        default=MeanTime(50_677 * HOUR),
        source=f"419 interruptions in 54 days on 16,384 H100: {_LLAMA_3}",
    )
    mtbf_common: MeanTime | None = declare(
        "mean hours between interruptions of the whole fleet (file system, power, planned); none if absent",
        unit="h",
        scale=HOUR,
        default=None,
    )
    detect: TimeSpan = declare(
        "time from a failure until all ranks have stopped",
        unit="s",
        default=TimeSpan(60),
        source="assumption; NCCL times out after 600 s by default",
    )
    restart: TimeSpan = declare(
        "time to schedule, start processes, initialize and warm up, without loading the checkpoint",
        unit="s",
        default=TimeSpan(300),
        source="assumption",
    )
    spares: int | None = declare(
        "spare nodes; if absent the number with the fewest paid processor-hours",
        unit="nodes",
        at_least=0,
        default=None,
    )
    repair: TimeSpan = declare(
        "hours until a failed node has been repaired",
        unit="h",
        scale=HOUR,
        default=TimeSpan(24 * HOUR),
        source="assumption",
    )
    hardware_share: float = declare(
        "share of interruptions after which a node needs repair",
        at_least=0,
        at_most=1,
        default=0.78,
        source=f"about 78 % of unexpected interruptions: {_LLAMA_3}",
    )
    elastic: bool = declare(
        "without a spare node, continue with one replica less instead of waiting", default=False
    )
    silent: float = declare(
        "silent data corruptions per processor-hour", unit="1/h", at_least=0, default=0.0
    )
    silent_detect: TimeSpan = declare(
        "hours until a silent corruption is found",
        unit="h",
        scale=HOUR,
        default=TimeSpan(24 * HOUR),
        source="assumption; has an effect only if silent is stated",
    )
    slow_share: float = declare("share of nodes that are slow", at_least=0, below=1, default=0.0)
    slow_factor: float = declare(
        "step time of slow nodes over healthy ones", at_least=1, default=1.0
    )
    slow_detect: TimeSpan = declare(
        "hours until a slow node is replaced",
        unit="h",
        scale=HOUR,
        default=TimeSpan(24 * HOUR),
        source="assumption; has an effect only if slow_share is stated",
    )
    jitter: float = declare(
        "random variation of step times between ranks: standard deviation over mean; already part of measured steps",
        at_least=0,
        below=1,
        default=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """When and where the state of a run is saved, and the time that it takes."""

    interval: Interval | None = declare(
        "time between checkpoints; if absent (like interval_steps) the interval with the shortest run",
        unit="s",
        default=None,
    )
    interval_steps: int | None = declare(
        "steps between checkpoints, instead of interval", at_least=1, default=None
    )
    bytes_per_param: float | None = declare(
        "checkpoint bytes per parameter; if absent weights, master weights and optimizer moments",
        unit="B",
        above=0,
        default=None,
    )
    bandwidth: float | None = declare(
        "bandwidth limit of the storage for all nodes together; if absent only the nodes limit it",
        unit="GB/s",
        scale=GIGA,
        above=0,
        default=None,
    )
    bandwidth_per_node: float = declare(
        "bandwidth between a node and the storage",
        unit="GB/s",
        scale=GIGA,
        above=0,
        default=1.2 * GIGA,
        source="2.3 TB in 40 s from 48 nodes: BLOOM, BigScience chronicles of tr11-176B, 2022",
    )
    mode: str = declare(
        "whether steps wait until the checkpoint is on storage (sync), or only until it is in host memory (async)",
        choices=("async", "sync"),
        default="async",
        source="assumption: common since 2024 (torch.distributed.checkpoint, Megatron-LM --async-save)",
    )
    pause: TimeSpan = declare(
        "time that a save blocks training in addition to the copy: planning, a barrier",
        unit="s",
        default=TimeSpan(6.3),
        source="asynchronous save of a 7B model: PyTorch blog, June 2024 (recalled)",
    )
    levels: int = declare(
        "2: also in-memory copies on another node, which survive the loss of one node",
        at_least=1,
        at_most=2,
        default=1,
    )
    memory_interval: Interval | None = declare(
        "time between in-memory copies, with two levels; if absent the best", unit="s", default=None
    )
    memory_lost: float = declare(
        "share of interruptions that in-memory copies do not survive, with two levels",
        above=0,
        below=1,
        default=0.05,
        source="assumption; has an effect only with two levels",
    )
    load_time: TimeSpan | None = declare(
        "time to load a checkpoint; if absent its size over the bandwidth of the storage",
        unit="s",
        default=None,
    )
    kept: int = declare("number of checkpoints kept", at_least=1, default=3, source="assumption")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Price, power and location of the processors; absent fields are taken from the system (``ext``)."""

    price: float | None = declare(
        "US dollars per processor-hour; if absent ext.price of the system",
        unit="USD/h",
        at_least=0,
        default=None,
    )
    price_kind: str | None = declare(
        "kind of price of the system to use; if absent the first of these that it states",
        choices=("on_demand", "reserved", "spot", "own"),
        default=None,
    )
    storage: float | None = declare(
        "US dollars per TB of checkpoints and month; no cost if absent here and in ext.price",
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
        "power usage effectiveness: energy of the data center over energy of its machines",
        at_least=1,
        default=None,
    )
    g_co2_per_kwh: Carbon | None = declare(
        "carbon intensity of the local grid: a number, or the name of a grid (france, us-va)",
        unit="g/kWh",
        default=None,
    )
    g_co2_per_kwh_market: float | None = declare(
        "carbon intensity of the contracts (market-based), reported in addition",
        unit="g/kWh",
        at_least=0,
        default=None,
    )
    usd_per_kwh: float | None = declare(
        "price of electricity, for owned processors",
        unit="USD/kWh",
        at_least=0,
        default=None,
    )
    wue: float | None = declare("water usage effectiveness", unit="L/kWh", at_least=0, default=None)


PARTS = ("reliability", "checkpoints", "fleet")
"""Campaign fields that are records themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of a run with its own sequence length, batch and execution."""

    name: str = declare("label of the phase on pages", default="")
    tokens: TokenGoal | None = declare("tokens of the phase", default=None)
    share: float | None = declare(
        "share of the tokens of the run, instead of tokens", above=0, at_most=1, default=None
    )
    seq_size: Length | None = declare(
        "sequence length; if absent as in the execution", unit="tokens", default=None
    )
    batch: BatchGoal | None = declare(
        "global batch in sequences, or tokens (4M); if absent as in the execution", default=None
    )
    execution: PhaseExecution | None = declare(
        "an execution of the catalog, a file, its fields, or search, with options {search: {preset, fix, add}}; if "
        "absent the execution of the command",
        default=None,
    )
    document_mean: float | None = declare(
        "mean length of the documents packed into a sequence, which do not attend to each other",
        unit="tokens",
        above=0,
        default=None,
    )
    rollout: Rollout | None = declare(
        "generation before each step, for reinforcement learning", default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """A whole training run.

    Ramps count tokens from the start of the run; they do not apply to a phase that states its own batch or length.
    """

    unknown_keys: ClassVar[str] = "error"
    silent_keys: ClassVar[tuple[str, ...]] = ("about",)

    tokens: TokenGoal | None = declare(
        "tokens of the run (15T), or tokens per parameter (chinchilla, 100x)",
        unit="tokens",
        default=None,
    )
    loss: float | None = declare(
        "loss to reach, instead of tokens: by two published scaling laws", above=0, default=None
    )
    steps: int | None = declare("steps of the run, instead of tokens", at_least=1, default=None)
    phases: tuple[Phase, ...] = declare("parts of the run in order; one if absent", default=())
    batch_ramp: BatchRamp | None = declare(
        "smaller batches at the start: a list of {from: tokens, batch}, or {start, step, tokens}",
        default=None,
    )
    seq_ramp: tuple[LengthStep, ...] = declare(
        "shorter sequences at the start: a list of {from: tokens, seq_size}", default=()
    )
    evaluate_every: int = declare("steps between evaluations; 0: none", at_least=0, default=0)
    evaluate_time: TimeSpan = declare("time of an evaluation", unit="s", default=TimeSpan(0))
    spikes: float = declare(
        "loss spikes per 1e12 tokens, each followed by a rollback", at_least=0, default=0.0
    )
    rollback_steps: int = declare(
        "steps repeated after a loss spike; as many batches are skipped", at_least=0, default=100
    )
    experiments: float = declare(
        "compute of ablations and failed starts over the compute of the run, reported separately",
        at_least=0,
        default=0.0,
    )
    overhead_factor: float = declare(
        "time of the run over its steps, failures and checkpoints: data loading, validation and downtime that no other "
        "field covers; published runs took 1.01 to 1.46",
        at_least=1,
        default=1.0,
        source=f"nothing is assumed; published runs with known settings took {OVERHEADS} "
        "(validation/whole_runs.md)",
    )
    reliability: Reliability = declare("failures", default=Reliability())
    checkpoints: Checkpoints = declare("checkpoints", default=Checkpoints())
    fleet: Fleet = declare("money and power", default=Fleet())
    deadline: Interval | None = declare(
        "maximum days of the run", unit="d", scale=DAY, default=None, label="deadline"
    )
    budget_usd: Money | None = declare(
        "maximum cost of the run in US dollars", unit="USD", default=None, label="budget"
    )
    budget_mwh: float | None = declare(
        "maximum energy of the run", unit="MWh", above=0, default=None, label="energy budget"
    )
    name: str = field(default="campaign", compare=False)
    document: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check that the fields are consistent with each other.

        Raises:
            SpecError: If the length of the run is stated more than once or not at all, if shares of phases do not sum
                to 1, or if two checkpoint intervals are stated.
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

    def _phase_problems(self, length_stated: bool) -> Iterator[Problem]:
        """Yield the problems of the phases, given whether the run states its length."""
        for i, phase in enumerate(self.phases):
            if (phase.tokens is None) == (phase.share is None):
                found = "neither" if phase.tokens is None else "both"
                yield Problem(f"phases[{i}].tokens", "one of tokens and share", found)
        shares = [one.share for one in self.phases if one.share is not None]
        # decimal shares such as 0.1 do not sum to 1 exactly
        if self.phases and len(shares) == len(self.phases) and abs(sum(shares) - 1) > 1e-6:
            yield Problem("phases", "shares that sum to 1", f"{sum(shares):g}")
        if shares and not length_stated:
            yield Problem(
                "tokens", "the tokens of the run, because phases state shares of them", "nothing"
            )
        if length_stated and self.phases and len(shares) < len(self.phases):
            hint = "give every phase a share, or state no tokens of the run"
            yield Problem("phases", "shares of the tokens of the run", "tokens of a phase", hint)

    @property
    def final_batch_and_length(self) -> tuple[str | None, int | None]:
        """Global batch as text and sequence length of the last steps; None if the campaign does not state them."""
        last = self.phases[-1] if self.phases else Phase()
        batch, length = last.batch, last.seq_size
        # a ramp ends with its last entry; a linear ramp ends with the batch of the execution, which is not known here
        if batch is None and self.batch_ramp is not None and self.batch_ramp.steps:
            batch = self.batch_ramp.steps[-1].batch
        if length is None and self.seq_ramp:
            length = self.seq_ramp[-1].seq_size
        return None if batch is None else batch.text, None if length is None else int(length)

    @property
    def stated(self) -> frozenset[str]:
        """Paths of the fields that the document states, including fields of its parts."""
        parts = ((key, part) for key, part in self.document.items() if isinstance(part, Mapping))
        inside = (f"{key}.{one}" for key, part in parts for one in part)
        return frozenset((*map(str, self.document), *inside))

    @property
    def defaults(self) -> list[tuple[str, Any, str, str]]:
        """Defaults in use that have a source: path, value in the unit of the field, unit, source."""
        result: list[tuple[str, Any, str, str]] = []
        stated = self.stated
        if "overhead_factor" not in stated:
            own = {one.key: one.declaration for one in spec_fields(Campaign)}["overhead_factor"]
            result.append(("overhead_factor", self.overhead_factor, own.unit, own.source))
        for name in PARTS:
            part: Any = getattr(self, name)
            kind: Any = type(part)
            for one in spec_fields(kind):
                path, declared = f"{name}.{one.key}", one.declaration
                chosen = (
                    VALUES[self.reliability.scenario].get(one.key) if name == PARTS[0] else None
                )
                source = declared.source if chosen is None else chosen.source
                if source and path not in stated:
                    value = getattr(part, one.name)
                    value = value if isinstance(value, str) else value / declared.scale
                    result.append((path, value, declared.unit, source))
        return result
