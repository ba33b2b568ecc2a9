"""Candidate values of every loop of a search: the published enumeration, restricted and widened on request."""

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from calculon.base.arrays import is_nonzero
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.axes import DIVIDED, FURTHER_FACTORS, PUBLISHED_DEGREES
from calculon.declarations.model import Model
from calculon.declarations.named_values import ENDS_AS_BLOCKS, PRESETS, PUBLISHED, is_offered
from calculon.declarations.preset_file import NODE, SHARE
from calculon.declarations.presets import Preset, find_preset
from calculon.declarations.statistics import OFFLOADS
from calculon.hardware.system import System
from calculon.plan.columns import DEFAULTS, FIELDS, divisors, encoded, field_of, zigzag_degrees
from calculon.search.rule_dependencies import allowed_values

if TYPE_CHECKING:
    from calculon.campaign.record import Campaign

EXTENSIONS = tuple(
    f.name for f in FIELDS if f.declaration.optional and f.declaration.searched != "argument"
)
"""Fields that the published search lacks; each has its default unless the caller asks for values."""

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
"""Loops over switches that affect neither blocks, optimizer steps nor memory."""

PARTS = "graph_parts"
"""Launch mode with graphs of the operators whose shapes do not depend on the routing to experts."""

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
"""Loops whose combinations do not depend on degrees: each combination is a *variant* of an execution."""

Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """A tensor and pipeline degree with a batch size.

    Attributes:
        tensor_par, pipeline_par, data_par, batch_size: Values of the unit.
        further: Remaining processors: the product of the degrees of further axes that do not divide other axes.
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
        num_procs: Number of processors.
        max_batch_size: Global batch, in sequences: exact under a preset, else an upper limit for the largest multiple
            of each data-parallel degree.
        datatype: Type of weights, activations and matrix arithmetic.
        fused: Candidates of ``fused_activation``, in order.
        tensor_overlap, data_overlap: True to try overlap of tensor- and data-parallel traffic.
        fix: Values that a field is restricted to, by name.
        add: Values that the published enumeration leaves out: an attention type, more batch sizes (multiples of the
            data-parallel degree), more pipeline degrees (with uneven stages), ``activations_offload: (True,)`` with
            full recomputation, and non-default values of fields of the corrected edition.
        edition: Edition of the cost model.
        any_batch: True to run the largest multiple of each data-parallel degree up to the batch, also under a preset.
        preset: Values that are tried for each field by default, and values that the framework supports at all.
        campaign: Training run to evaluate; None to evaluate steps only.
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
        """Restrict candidates to the fixed values of a field."""
        if name not in self.fix:
            return values
        return tuple(value for value in values if value in self.fix[name])

    @cached_property
    def switches(self) -> dict[str, Values]:
        """Candidates of the loops over named values and switches, before rules exclude any."""
        offload = (True, False) if self.system.usable[1] > 0 else (False,)
        # Multi-query attention would contradict the heads that such a model states.
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
        """Return the candidates of a published loop: fixed values, or values of the preset and added values."""
        tried = self.preset.tried(name)
        if name in self.fix or tried is None:
            return self._fixed(name, values)
        least = (False,) if name in REPLICATED else ()  # the only value with a single replica
        return tuple(v for v in values if v in (*tried, *least, *self.add.get(name, ())))

    def _extension(self, name: str) -> Values:
        """Return the candidates of a field that the published search lacks: fixed, or usual and added values."""
        if name in self.fix:
            return self.fix[name]
        uneven = self._uneven_layouts if name == "pp_layout" else ()
        return tuple(dict.fromkeys((*self.usual(name), *uneven, *self.add.get(name, ()))))

    def usual(self, name: str) -> Values:
        """Return the values of an optional field that are tried by default."""
        return self._usual[name]

    @cached_property
    def _usual(self) -> dict[str, Values]:
        """Values of each optional field that the preset tries and the model supports."""
        result: dict[str, Values] = {}
        for name in EXTENSIONS:
            tried = self.preset.tried(name)
            if tried is None:
                known = name in DIVIDED and name in self.preset.entries
                tried = self._divided(name) if known else (DEFAULTS[name],)
            elif "context_par" in field_of(name).declaration.needs and self._whole_sequences:
                tried = (DEFAULTS[name],)
            elif len(tried) > 1:
                family = self.system.provenance.family
                tried = tuple(one for one in tried if is_offered(name, one, family))
                tried = allowed_values(name, tried, self.model, self.system, self.constants)
                if name == "launch_mode":
                    tried = self._worthwhile(tried)
            result[name] = tried
        return result

    def _worthwhile(self, modes: Values) -> Values:
        """Return the launch modes of a preset that pay: graphs of parts as an option are for experts on slow hosts.

        Hosts whose training launches take longer than those of an inference are slow: those with a Grace. On others,
        graphs of parts make no plan of a catalog model more than about 5 % faster. A preset that has graphs by
        default tries them on all hosts.
        """
        slow = is_nonzero(self.system.ext.launch.training)
        option = self.preset.entries["launch_mode"].value == DEFAULTS["launch_mode"]
        return tuple(
            one for one in modes if one != PARTS or not option or (slow and self.model.mixes)
        )

    @property
    def prefers_parts(self) -> bool:
        """True if graphs of parts replace eager launches wherever they are possible: they are never slower.

        Operators whose shapes do not depend on the routing have shorter launches, and the others are launched alike.
        """
        eager = self.switches["moe_pad_to_capacity"] == (False,) or not self.model.mixes
        return eager and PARTS in self.usual("launch_mode") and "launch_mode" not in self.fix

    def _divided(self, name: str) -> tuple[int, ...]:
        """Return the degrees of a further axis that divide the experts, or the longest sequence as in practice."""
        model = self.model
        if name == "expert_par":
            return divisors(model.num_experts) if model.mixes else (1,)
        runs = self.preset.entries[name].runs or divisors(self.num_procs)
        known: dict[str, float] = {
            "num_procs": self.num_procs,
            NODE: self.system.node,
            "num_experts": model.num_experts,
            SHARE: self.num_procs / self.max_batch_size,
            "seq_size": self._longest,
        }
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
        """True if no sequence is split (context parallelism of 1 only)."""
        name = "context_par"
        known = name in self.preset.entries
        usual = self._divided(name) if known else (DEFAULTS[name],)
        return {*self.fix.get(name, (*usual, *self.add.get(name, ())))} == {1}

    @cached_property
    def constants(self) -> dict[str, Array]:
        """Values that all executions share, as columns."""
        own = {"training": True, "preset": self.preset.family}
        return {
            name: np.array(encoded(name, own[name] if name in own else getattr(self, name)))
            for name in ARGUMENTS
        }

    @cached_property
    def asked(self) -> frozenset[str]:
        """Optional fields with a non-default value in some candidate."""
        named = {"preset"} if self.preset.family != DEFAULTS["preset"] else set()
        return frozenset(named) | {n for n in EXTENSIONS if self.switches[n] != (DEFAULTS[n],)}

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Sequence lengths in tokens, ascending."""
        own = self.model.seq_size
        return tuple(sorted({length or own for length in self.switches["seq_length"]}))

    def replicated(self, name: str, ranks: int) -> Values:
        """Return the candidates of a switch that needs several ranks with the same weights.

        Ranks of data and context parallelism have the same weights. A preset applies only if there are several.
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
        """True if networks follow from the numbering of ranks."""
        return "stated" not in self.switches["mesh_order"]

    def networks(self, name: str, degree: int) -> tuple[int, ...]:
        """Return the candidate networks of a degree of parallelism; only the first if there is no choice."""
        count = len(self.system.networks) if degree > 1 and not self.meshed else 1
        return self._fixed(name, tuple(range(count)))

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """All units in the order of the loops; units of one tensor degree are adjacent."""
        return tuple(self._units())

    @property
    def degrees(self) -> dict[str, tuple[int, ...]]:
        """Degrees that divide processors, model and batch, by field; each is checked without the others."""
        of_all = divisors(self.num_procs)
        tensor, pipeline, data = PUBLISHED_DEGREES
        return {
            tensor: tuple(d for d in self._fixed(tensor, of_all) if self._splits(d)),
            pipeline: self._fixed(pipeline, self._pipelines(self.num_procs)),
            data: tuple(d for d in self._fixed(data, of_all) if self._batches(d)),
        }

    @property
    def divides(self) -> bool:
        """True if any split of the processors divides model and batch; faster than enumerating all units."""
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
        """Yield the data-parallel degrees that remain for n processors under each degree of the further axes."""
        degrees = (self.switches[degree] for degree in FURTHER_FACTORS)
        # Different degrees can have equal products, which must not repeat a unit.
        for further in dict.fromkeys(map(prod, product(*degrees))):
            if rest % further == 0:
                yield rest // further

    def _splits(self, tensor_par: int) -> bool:
        """Return True if hidden size and heads divide over tensor-parallel ranks; a rule checks the MLP width."""
        model = self.model
        if model.hidden % tensor_par:
            return False
        heads, groups = model.attn_heads, model.key_value_heads
        return not model.attends or (
            heads % tensor_par == 0 and (groups % tensor_par == 0 or tensor_par % groups == 0)
        )

    def _possible(self, tensor_par: int, pipeline_par: int, data_par: int, further: int) -> bool:
        """Return True if every other loop has a candidate at these degrees."""
        same = data_par * further  # upper limit: further axes may hold different weights
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
        """Return the pipeline degrees for a number of processors per tensor rank, ascending."""
        degrees = [p for p in divisors(rest) if p <= self.model.num_blocks]
        if set(self._uneven_layouts) & set(self.switches["pp_layout"]):
            return tuple(degrees)
        added = self.add.get("pipeline_par", ())
        return tuple(p for p in degrees if self._divides(p) or p in added)

    @property
    def _uneven_layouts(self) -> tuple[str, ...]:
        """Layouts of the framework for pipeline degrees that do not divide the blocks."""
        return tuple(one.pp_layout for one in self.preset.uneven)

    def _divides(self, pipeline_par: int) -> bool:
        """Return True if stages are even, counting embedding and LM head as blocks if any layout does."""
        layouts: Values = ()
        if not self.preset.published:
            fixed = self.fix.get("pp_layout")
            layouts = (*self.usual("pp_layout"), *self.add.get("pp_layout", ()))
            layouts = layouts if fixed is None else fixed
        ends = {0, *(sum(ENDS_AS_BLOCKS.get(name, ())) for name in layouts)}
        return any((self.model.num_blocks + more) % pipeline_par == 0 for more in ends)

    def layouts(self, pipeline_par: int) -> Values:
        """Return the candidates of ``pp_layout`` at a degree: the usual ones if stages are even, else uneven ones."""
        there = self.switches["pp_layout"]
        if "pp_layout" in self.fix or not self._uneven_layouts:
            return there
        usual = self.usual("pp_layout") if self._divides(pipeline_par) else self._uneven_layouts
        return tuple(one for one in there if one in (*usual, *self.add.get("pp_layout", ())))

    def _batches(self, data_par: int) -> tuple[int, ...]:
        """Return batch sizes for a data-parallel degree: the requested batch or its largest multiple, then added ones.

        A run has the batch that its optimizer was tuned for (McCandlish et al. 2018, arXiv:1812.06162). So a search for
        512 does not answer with 510: a step with fewer sequences is shorter but not faster training.
        """
        most = self.max_batch_size
        usual = most if self.exact_batch else data_par * (most // data_par)
        batches = [usual, *(b for b in self.add.get("batch_size", ()) if b <= most)]
        whole = (b for b in batches if b > 0 and b % data_par == 0)
        return self._fixed("batch_size", tuple(dict.fromkeys(whole)))

    @property
    def exact_batch(self) -> bool:
        """True if executions have exactly the requested batch, not its largest multiple."""
        return not (self.any_batch or self.preset.published)
