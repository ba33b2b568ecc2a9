"""The candidates of every loop of a search: the published enumeration, restricted and widened as asked."""

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.axes import DIVIDED, FURTHER_FACTORS, PUBLISHED_DEGREES
from calculon.declarations.model import Model
from calculon.declarations.named_values import ENDS_AS_BLOCKS, PRESETS, PUBLISHED
from calculon.declarations.presets import NODE, Preset, find_preset
from calculon.declarations.statistics import OFFLOADS
from calculon.hardware.system import System
from calculon.plan.columns import DEFAULTS, FIELDS, divisors, field_of, held, zigzag_degrees
from calculon.search.watched import allowed_values

if TYPE_CHECKING:
    from calculon.campaign.record import Campaign

EXTENSIONS = tuple(
    f.name for f in FIELDS if f.declaration.optional and f.declaration.searched != "argument"
)
"""Fields that the published search does not have; each has its default unless a value is asked for."""

ARGUMENTS = tuple(f.name for f in FIELDS if f.declaration.searched == "argument")
"""Fields that all executions of a search share."""

LOOPS = (
    "tensor_par",
    "pipeline_par",
    "batch_size",
    "pipeline_interleaving",
    "activation_recompute",
    "optimizer_sharding",
    "tensor_par_comm_type",
    "seq_par_ag_redo",
    "data_par_overlap",
    "tensor_par_overlap",
    *OFFLOADS,
    "attention_type",
    "fused_activation",
    *EXTENSIONS,
    "microbatch_size",
    "tensor_par_net",
    "pipeline_par_net",
    "data_par_net",
)
"""The loops of the search, outermost first."""

OVERLAPS = ("overlap_param_gather", "p2p_overlap")
"""Loops over switches that neither blocks, optimizer steps, nor memory know of."""

REPLICATED = ("optimizer_sharding", "data_par_overlap")
"""Loops that need data parallelism."""

PUBLISHED_SWITCHES = tuple(
    name for name in LOOPS if field_of(name).named and name not in EXTENSIONS
)
"""Loops of the published search over named values and switches."""

VARIANT = tuple(
    name
    for name in (*PUBLISHED_SWITCHES, *EXTENSIONS)
    if name not in (*OFFLOADS, *OVERLAPS, *REPLICATED)
)
"""The loops whose combinations do not depend on degrees: each combination is a *variant* of an execution."""

Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """One tensor and pipeline degree with one batch size.

    Attributes:
        tensor_par, pipeline_par, data_par, batch_size: What the unit fixes.
        further: What is left of the processors: the product of the degrees of further axes that are no parts of others.
        batch_position: Position of the batch size among the candidates.
        interleavings, microbatches: Candidates of the two loops whose values depend on the unit.
    """

    tensor_par: int
    pipeline_par: int
    data_par: int
    further: int
    batch_size: int
    batch_position: int
    interleavings: tuple[int, ...]
    microbatches: tuple[int, ...]


@dataclass(frozen=True)
class Candidates:
    """All executions of a model on a number of processors of a system.

    Args:
        model, system: The model, and the system that it runs on.
        num_procs: Processors.
        max_batch_size: The batch, in sequences: exactly so many under a preset, else the largest multiple of a
            data-parallel degree up to it.
        datatype: Type of weights, activations and matrix arithmetic.
        fused: Candidates of ``fused_activation``, in order.
        tensor_overlap, data_overlap: Whether overlap of tensor- and data-parallel traffic is tried.
        fix: Values that a field is restricted to, by name.
        add: Values that the published enumeration leaves out: an attention type, more batch sizes (multiples of the
            data-parallel degree), more pipeline degrees (with uneven stages), ``activations_offload: (True,)`` with
            full recomputation, and what only the corrected edition has beside its default.
        edition: Edition of the cost model.
        any_batch: Under a preset too, each data-parallel degree runs its largest multiple up to the batch.
        preset: What is tried of each field where nothing is asked for, and what its framework can run at all.
        campaign: The whole runs that are asked about; none where only steps are.
    """

    model: Model
    system: System
    num_procs: int
    max_batch_size: int
    datatype: str
    fused: tuple[bool, ...] = (True,)
    tensor_overlap: bool = True
    data_overlap: bool = True
    fix: Mapping[str, Values] = field(default_factory=dict)
    add: Mapping[str, Values] = field(default_factory=dict)
    edition: str = PUBLISHED
    any_batch: bool = False
    preset: Preset = field(default_factory=lambda: find_preset(PRESETS[0]))
    campaign: "Campaign | None" = None

    def _fixed(self, name: str, values: Values) -> Values:
        """Restrict candidates to the values that are asked for."""
        if name not in self.fix:
            return values
        return tuple(value for value in values if value in self.fix[name])

    @cached_property
    def switches(self) -> dict[str, Values]:
        """Candidates of the loops with named values or switches, where nothing forbids one."""
        offload = (True, False) if self.system.usable[1] > 0 else (False,)
        alone = self.model.groups_queries or self.model.latent
        more = () if alone else self.add.get("attention_type", ())
        candidates: dict[str, Values] = {
            name: tuple(field_of(name).declaration.choices) or (True, False)
            for name in PUBLISHED_SWITCHES
        }
        candidates |= dict.fromkeys(OFFLOADS, offload)
        candidates["attention_type"] = tuple(dict.fromkeys(("multihead", *more)))
        candidates["fused_activation"] = self.fused
        if not self.tensor_overlap:
            candidates["tensor_par_overlap"] = ("none",)
        if not self.data_overlap:
            candidates["data_par_overlap"] = (False,)
        restricted = {name: self._tried(name, values) for name, values in candidates.items()}
        return restricted | {name: self._extension(name) for name in EXTENSIONS}

    def _tried(self, name: str, values: Values) -> Values:
        """Candidates of a loop of the published search: what is fixed, or what the preset tries and what is added."""
        tried = self.preset.tried(name)
        if name in self.fix or tried is None:
            return self._fixed(name, values)
        least = (False,) if name in REPLICATED else ()  # where there are no replicas
        return tuple(v for v in values if v in (*tried, *least, *self.add.get(name, ())))

    def _extension(self, name: str) -> Values:
        """Candidates of a field that the published search does not have: what is fixed, or tried and added."""
        if name in self.fix:
            return self.fix[name]
        uneven = self._uneven_layouts if name == "pp_layout" else ()
        return tuple(dict.fromkeys((*self.usual(name), *uneven, *self.add.get(name, ()))))

    def usual(self, name: str) -> Values:
        """Return the values of an optional field that are tried where nothing is asked for."""
        return self._usual[name]

    @cached_property
    def _usual(self) -> dict[str, Values]:
        """What the preset tries of each optional field, as far as the model can have it."""
        found: dict[str, Values] = {}
        for name in EXTENSIONS:
            tried = self.preset.tried(name)
            if tried is None:
                known = name in DIVIDED and name in self.preset.entries
                tried = self._divided(name) if known else (DEFAULTS[name],)
            elif "context_par" in field_of(name).declaration.needs and self._whole_sequences:
                tried = (DEFAULTS[name],)
            elif len(tried) > 1:
                tried = allowed_values(name, tried, self.model, self.system, self.constants)
            found[name] = tried
        return found

    def _divided(self, name: str) -> tuple[int, ...]:
        """Degrees of a further axis that divide what they spread: experts, or the longest sequence as is practice."""
        model = self.model
        if name == "expert_par":
            return divisors(model.num_experts) if model.mixes else (1,)
        runs = self.preset.entries[name].runs or divisors(self.num_procs)
        known = {"num_procs": self.num_procs, NODE: self.system.node, "seq_size": self._longest}
        degrees = zigzag_degrees(self._longest, runs) if model.attends else []
        good = (d for d in degrees if self.preset.practised({**known, name: d}, self.fix))
        return tuple(dict.fromkeys((1, *good)))

    @property
    def _longest(self) -> int:
        """Tokens of the longest sequence."""
        own, name = self.model.seq_size, "seq_length"
        asked = self.fix.get(name, (0, *self.add.get(name, ())))
        return max(length or own for length in asked)

    @cached_property
    def _whole_sequences(self) -> bool:
        """Whether no sequence is split."""
        name = "context_par"
        known = name in self.preset.entries
        usual = self._divided(name) if known else (DEFAULTS[name],)
        return {*self.fix.get(name, (*usual, *self.add.get(name, ())))} == {1}

    @cached_property
    def constants(self) -> dict[str, Array]:
        """What all executions share, as columns."""
        own = {"training": True, "preset": self.preset.family}
        return {
            name: np.array(held(name, own[name] if name in own else getattr(self, name)))
            for name in ARGUMENTS
        }

    @cached_property
    def asked(self) -> frozenset[str]:
        """The optional fields that have another value than their default in some candidate."""
        named = {"preset"} if self.preset.family != DEFAULTS["preset"] else set()
        return frozenset(named) | {n for n in EXTENSIONS if self.switches[n] != (DEFAULTS[n],)}

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """The tokens per sequence that there are."""
        own = self.model.seq_size
        return tuple(sorted({length or own for length in self.switches["seq_length"]}))

    def replicated(self, name: str, ranks: int) -> Values:
        """Candidates of a switch that needs several ranks with the same weights; a preset speaks of where there are.

        Those are ranks of data parallelism, and of context parallelism.
        """
        allowed, tried = self.switches[name], self.preset.tried(name)
        if ranks == 1:
            return tuple(value for value in allowed if not value)
        if name in self.fix or tried is None:
            return allowed
        wanted = (*tried, *self.add.get(name, ()))
        return tuple(value for value in allowed if value in wanted) or allowed

    @cached_property
    def meshed(self) -> bool:
        """Whether networks follow from how ranks are numbered."""
        return "stated" not in self.switches["mesh_order"]

    def networks(self, name: str, degree: int) -> tuple[int, ...]:
        """Candidates for the network of a degree of parallelism; the first one where there is nothing to choose."""
        count = len(self.system.networks) if degree > 1 and not self.meshed else 1
        return self._fixed(name, tuple(range(count)))

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """All units in the order of the loops, those of one tensor degree together."""
        return tuple(self._units())

    @property
    def degrees(self) -> dict[str, tuple[int, ...]]:
        """The degrees that divide processors, model and batch alone, without regard to the others, by field."""
        of_all = divisors(self.num_procs)
        tensor, pipeline, data = PUBLISHED_DEGREES
        return {
            tensor: tuple(d for d in self._fixed(tensor, of_all) if self._splits(d)),
            pipeline: self._fixed(pipeline, self._pipelines(self.num_procs)),
            data: tuple(d for d in self._fixed(data, of_all) if self._batches(d)),
        }

    @property
    def divides(self) -> bool:
        """Whether any split of the processors divides model and batch; quicker than finding all units."""
        for tensor_par in self._fixed("tensor_par", divisors(self.num_procs)):
            rest = self.num_procs // tensor_par
            if self._splits(tensor_par) and any(
                self._batches(data_par)
                for pipeline_par in self._fixed("pipeline_par", self._pipelines(rest))
                for data_par in self._replicas(rest // pipeline_par)
            ):
                return True
        return False

    def _units(self) -> Iterator[Unit]:
        model = self.model
        for tensor_par in self._fixed("tensor_par", divisors(self.num_procs)):
            if not self._splits(tensor_par):
                continue
            rest = self.num_procs // tensor_par
            for pipeline_par in self._fixed("pipeline_par", self._pipelines(rest)):
                blocks = -(-model.num_blocks // pipeline_par)
                chunks = divisors(blocks) if pipeline_par > 1 else (1,)
                interleavings = self._fixed("pipeline_interleaving", chunks)
                for data_par in self._replicas(rest // pipeline_par):
                    further = rest // pipeline_par // data_par
                    degrees = tensor_par, pipeline_par, data_par, further
                    if not interleavings or not self._possible(*degrees):
                        continue
                    for position, batch in enumerate(self._batches(data_par)):
                        micro = (
                            size
                            for size in divisors(batch // data_par)
                            if any(size * length % tensor_par == 0 for length in self.lengths)
                        )
                        if sizes := self._fixed("microbatch_size", tuple(micro)):
                            yield Unit(*degrees, batch, position, interleavings, sizes)

    def _replicas(self, rest: int) -> Iterator[int]:
        """Yield the shares of n processors that further axes may leave for data parallelism: a single axis, all."""
        degrees = (self.switches[degree] for degree in FURTHER_FACTORS)
        for further in dict.fromkeys(map(prod, product(*degrees))):
            if rest % further == 0:
                yield rest // further

    def _splits(self, tensor_par: int) -> bool:
        """Whether the widths that the search checks at once divide over tensor-parallel ranks; the MLP's has a rule."""
        model = self.model
        if model.hidden % tensor_par:
            return False
        heads, groups = model.attn_heads, model.key_value_heads
        return not model.attends or (
            heads % tensor_par == 0 and (groups % tensor_par == 0 or tensor_par % groups == 0)
        )

    def _possible(self, tensor_par: int, pipeline_par: int, data_par: int, further: int) -> bool:
        """Whether every other loop has a candidate at these degrees."""
        same = data_par * further  # most ranks with the same weights
        degrees = zip(PUBLISHED_DEGREES, (tensor_par, pipeline_par, data_par), strict=True)
        known = {**dict(degrees), "num_procs": self.num_procs, NODE: self.system.node}
        return self.preset.practised(known, self.fix) and all(
            (
                self._fixed("data_par", (data_par,)),
                self.networks("tensor_par_net", tensor_par),
                self.networks("pipeline_par_net", pipeline_par),
                self.networks("data_par_net", data_par),
                self.replicated("optimizer_sharding", same),
                self.replicated("data_par_overlap", same),
                *self.switches.values(),
            )
        )

    def _pipelines(self, rest: int) -> tuple[int, ...]:
        """Pipeline degrees for a number of processors per tensor rank, ascending."""
        degrees = [p for p in divisors(rest) if p <= self.model.num_blocks]
        if set(self._uneven_layouts) & set(self.switches["pp_layout"]):
            return tuple(degrees)
        added = self.add.get("pipeline_par", ())
        return tuple(p for p in degrees if self._divides(p) or p in added)

    @property
    def _uneven_layouts(self) -> tuple[str, ...]:
        """Layouts of the framework that are tried where a pipeline degree does not divide the blocks."""
        return tuple(one.pp_layout for one in self.preset.uneven)

    def _divides(self, pipeline_par: int) -> bool:
        """Whether stages are even, also with the ends as blocks where that is tried anywhere."""
        layouts: Values = ()
        if not self.preset.published:
            fixed = self.fix.get("pp_layout")
            layouts = (*self.usual("pp_layout"), *self.add.get("pp_layout", ()))
            layouts = layouts if fixed is None else fixed
        ends = {0, *(sum(ENDS_AS_BLOCKS.get(name, ())) for name in layouts)}
        return any((self.model.num_blocks + more) % pipeline_par == 0 for more in ends)

    def layouts(self, pipeline_par: int) -> Values:
        """Candidates of ``pp_layout`` at a degree: what is usual, or where stages are uneven what is tried of those."""
        there = self.switches["pp_layout"]
        if "pp_layout" in self.fix or not self._uneven_layouts:
            return there
        usual = self.usual("pp_layout") if self._divides(pipeline_par) else self._uneven_layouts
        return tuple(one for one in there if one in (*usual, *self.add.get("pp_layout", ())))

    def _batches(self, data_par: int) -> tuple[int, ...]:
        """Batch sizes for a data-parallel degree: the one asked for, or the largest multiple; then what was added.

        A run has the batch that its optimizer was tuned for (McCandlish et al. 2018, arXiv:1812.06162): a search for
        512 does not answer with 510, and a step of fewer sequences is not a faster one.
        """
        most = self.max_batch_size
        usual = most if self.exact_batch else data_par * (most // data_par)
        batches = [usual, *(b for b in self.add.get("batch_size", ()) if b <= most)]
        whole = (b for b in batches if b > 0 and b % data_par == 0)
        return self._fixed("batch_size", tuple(dict.fromkeys(whole)))

    @property
    def exact_batch(self) -> bool:
        """Whether the batch is the one asked for, not the largest multiple up to it."""
        return not (self.any_batch or self.preset.published)
