"""Result for one deployment and workload: times, rates, memory, and limits of the workload."""

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from calculon import inputs
from calculon.base.display import Tabular, columns_of, draw_result
from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.record_arrays import only_values
from calculon.declarations.decode import decode
from calculon.declarations.fields import spec_fields
from calculon.declarations.files import document_suffix, read_document
from calculon.declarations.model import Model
from calculon.declarations.result_selection import WORKLOAD, split
from calculon.declarations.serving_classes import ServedClass
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.estimate.argument_order import takes_either_order
from calculon.estimate.served_errors import FigureRange, served_ranges
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.serving.caches.cache import check_length, check_served, copies_of_heads
from calculon.serving.default_deployment import (
    default_types,
    deployment_of,
    solver_of,
    with_released_types,
)
from calculon.serving.engine_settings import SettingRecord, compared_settings
from calculon.serving.hardware_gains import HardwareGain, hardware_gains
from calculon.serving.passes.drafts import draft_of, speculation_of, split_problems
from calculon.serving.passes.row_times import PassTimes
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.engine_presets import facts_of
from calculon.serving.records.load import SATURATED, Workload
from calculon.serving.records.number_types import WIDE_TYPES, NumberTypes
from calculon.serving.records.pool import Pool
from calculon.serving.records.read_records import (
    DeploymentSource,
    WorkloadSource,
    deployment_in_words,
    read_deployment,
    read_workload,
)
from calculon.serving.replay.replay_record import ReplayRecord
from calculon.serving.served_record import (
    FigureRecord,
    LimitRecord,
    PassRecord,
    PassRecords,
    ServedRecord,
)
from calculon.serving.states.served_points import Limit, Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure

    from calculon.serving.replay.replayed import Replay
    from calculon.serving.replay.traces import Trace

TraceSource: TypeAlias = "str | os.PathLike[str] | Trace | None"


@dataclass(frozen=True)
class Served(Tabular):
    """Result of serving: figures of a deployment under a workload.

    Attributes:
        model, system, deployment, workload: The records.
        point: Operating point of a replica: its batch, figures, passes and limits.
        tried: Deployments of a search of which this is the best; 0 if the deployment was stated.
        replayed: Latencies of a replay that pages and files show, if any (:meth:`with_replay`).
    """

    model: Model
    system: System
    deployment: Deployment
    workload: Workload
    point: Point
    tried: int = 0
    replayed: ReplayRecord | None = None

    @property
    def batch(self) -> int:
        """Sequences that a replica decodes concurrently."""
        return self.point.batch

    @property
    def cut(self) -> str:
        """Reason that limits the batch."""
        return self.point.cut

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Limits of the workload."""
        return self.point.limits

    def infeasible(self, before: str, *, more: bool = True) -> Infeasible:
        """Return the error of a deployment that misses limits.

        Args:
            before: Start of the message.
            more: True to add a hint on the processors that the rate needs.
        """
        missed = [one.in_words for one in self.limits if not one.met]
        hint = self._more_processors() if more else ()
        if len(missed) == 1:
            return Infeasible("limits", f"{before} {missed[0]}", details=hint)
        lines = (*(f"- {one}" for one in missed), *hint)
        return Infeasible("limits", f"{before} {len(missed)} limits:", details=lines)

    def _more_processors(self) -> tuple[str, ...]:
        """Return a hint on the processors that a rate beyond the capacity needs; empty without one."""
        w = self.workload
        loads = [one.found / one.most for one in self.limits if one.of_capacity and one.most > 0]
        if w.rate is None or not (1 < (load := max(loads, default=0)) < math.inf):
            return ()
        count = float(f"{self.deployment.num_procs * math.ceil(load):.3g}")
        search = f"{self.model.name} any {self.system.name} --rate {w.rate:g}"
        return (
            f"Hint: this rate needs roughly {count:,.0f} processors: calculon serve-optimal {search}",
        )

    @property
    def run_time(self) -> float | None:
        """Seconds of a finite run; None for an endless one."""
        return self.point.run_time

    @property
    def decode(self) -> PassTimes:
        """Pass that decodes the batch."""
        return self.point.decode

    @property
    def prefill(self) -> PassTimes:
        """Pass of one whole prompt."""
        return self.point.prefill

    def __getitem__(self, name: str) -> float:
        """Return a figure by name; KeyError if there is none."""
        value = self.stats[name]
        return math.nan if value is None else value

    @property
    def stats(self) -> dict[str, float | None]:
        """Figures by name."""
        return only_values(self.point.figures)

    @property
    def served_class(self) -> ServedClass:
        """Class of deployments that published rows are compared with."""
        return class_of(
            self.model,
            self.deployment,
            self.system,
            self["concurrency"],
            self["max_concurrency"],
        )

    @property
    def ranges(self) -> dict[str, FigureRange]:
        """90 % prediction intervals of figures by name, from published rows; similar deployments have more weight."""
        return served_ranges(self.served_class, self.stats, self.rooflines)

    @cached_property
    def rooflines(self) -> dict[str, float]:
        """Fastest values of figures that the peaks of the machine allow, by name.

        A token reads all weights and caches of its pass from memory; a prompt also takes the arithmetic of its prefill.
        Sources: Williams et al., *Roofline*, CACM 52(4), 2009; Pope et al., arXiv 2211.05102, section 2.
        """
        d, bandwidth = self.deployment, self.system.mem1.bandwidth
        types = NumberTypes.of(self.system, d.weights_dtype, d.of_experts, d.head_dtype, d.kv_dtype)
        peak = max(self.system.product_engine(one).peak for one in types.engines)
        reads = [
            float((one.total("weights") + one.total("cache"))[0]) / bandwidth
            for one in (self.decode, self.prefill)
        ]
        token = reads[0] / self["spec_tokens"]
        arithmetic = float(self.prefill.total("flops")[0]) / peak
        rate = self["output_rate"] * self["tpot"] / token if token else math.inf
        found = {"ttft": max(reads[1], arithmetic), "tpot": token, "output_rate": rate}
        # An overloaded deployment has no finite time per token.
        return {name: one for name, one in found.items() if math.isfinite(one)}

    @property
    def arithmetic(self) -> str:
        """Wide type that narrower weights are multiplied in, as the machine has no engine for theirs; else empty."""
        d = self.deployment
        stored = d.weights_dtype, d.of_experts if self.model.mixes else d.weights_dtype
        types = NumberTypes.of(self.system, *stored, d.head_dtype, d.kv_dtype)
        pairs = zip(stored, types.engines[:2], strict=True)
        wide = (one for kept, one in pairs if kept not in WIDE_TYPES and one in WIDE_TYPES)
        return next(wide, "")

    @property
    def worth(self) -> str:
        """Figure that better hardware is judged by: the output rate, or interactivity if the load fixes the rate."""
        return "output_rate" if self.workload.kind == SATURATED else "interactivity"

    @cached_property
    def helps(self) -> tuple[HardwareGain, ...]:
        """Gains from better parts of the machine, largest first."""

        def figure(system: System) -> float:
            found = only_values(
                solver_of(self.model, system, self.deployment, self.workload).solve_single().figures
            )[self.worth]
            return float(found or 0.0)

        return hardware_gains(self.system, figure)

    @overload
    def plot(self, kind: str = "batch", *, interactive: Literal[False] = False) -> "Figure": ...

    @overload
    def plot(self, kind: str = "batch", *, interactive: Literal[True]) -> "InteractiveFigure": ...

    def plot(
        self, kind: str = "batch", *, interactive: bool = False
    ) -> "Figure | InteractiveFigure":
        """Draw times and rates over the batch, like ``calculon plot batch``.

        Args:
            kind: Only ``batch`` is available.
            interactive: Return a Plotly figure, as on the web page (extra ``web``).

        Raises:
            SpecError: For a kind other than ``batch``, and if the plotting library is missing.
        """
        return draw_result(self, kind, interactive=interactive)

    def replay(self, trace: TraceSource = None, **options: Any) -> "Replay":
        """Replay the scheduler of a replica, pass by pass, and return the latencies of all requests.

        Args:
            trace: Requests, or a file of them (:func:`~calculon.serving.replay.traces.read_trace`); by default
                lengths and arrivals are drawn at random as the workload states them.
            **options: Fields of :class:`~calculon.serving.replay.requests.ReplayOptions`.

        Raises:
            SpecError: For wrong options, a wrong trace, and deployments whose scheduler is not replayed.
            Infeasible: If a request does not fit into the KV cache.

        Examples:
            >>> served = serve("llama3-8B", 1, "h100_80g_sxm", prompt=1000, output=200, rate=4)
            >>> replay = served.replay(requests=300)
            >>> replay.record.ttft.p99 >= replay.record.ttft.median
            True
        """
        from calculon.serving.replay.replayed import ReplicaReplay  # takes time to import
        from calculon.serving.replay.requests import ReplayOptions
        from calculon.serving.replay.traces import read_trace

        asked = decode(ReplayOptions, options, "replay")
        if isinstance(trace, (str, os.PathLike)):
            trace = read_trace(os.fsdecode(trace))
        solver = solver_of(self.model, self.system, self.deployment, self.workload)
        return ReplicaReplay(solver, self.batch, asked).run(trace)

    def with_replay(self, trace: TraceSource = None, **options: Any) -> "Served":
        """Return the result with the latencies of :meth:`replay` on its page and in its file."""
        return replace(self, replayed=self.replay(trace, **options).record)

    def table(self) -> dict[str, list[Any]]:
        """Return one row: fields, batch and figures of the deployment, model and system."""
        row = flat(self.deployment.to_dict()) | {"batch": self.batch} | self.stats
        row |= {"model": self.model.name, "system": self.system.name}
        return columns_of([row], STATED)

    def __repr__(self) -> str:
        named = (SERVING_FIGURES[name] for name in ("ttft", "tpot", "output_rate"))
        figures = ", ".join(f"{one.name} {self[one.name]:.6g} {one.unit.symbol}" for one in named)
        missed = [one.name for one in self.limits if not one.met]
        text = f"{self.model.name} on {self.deployment.num_procs:,} x {self.system.name}"
        text += f", {self.deployment.in_words}, batch {self.batch:,}, {figures}"
        return f"<Served: {text}{', misses ' + ' and '.join(missed) if missed else ''}>"

    @cached_property
    def settings(self) -> tuple[SettingRecord, ...]:
        """Figures with the engine's own defaults, and with the best limits of its scheduler."""
        records = self.model, self.system, self.deployment, self.workload
        return compared_settings(*records, self.point, searched=self.tried > 0)

    @cached_property
    def record(self) -> ServedRecord:
        """Record of the result for files and pages: names of model and machine, figures, and the first passes."""
        return self._record({one.part: one.elasticity for one in self.helps})

    @cached_property
    def brief(self) -> ServedRecord:
        """Record without the gains of faster hardware, which take longer than the rest."""
        return self._record({})

    def _record(self, helps: dict[str, float]) -> ServedRecord:
        speculation = speculation_of(self.model, self.deployment)
        return ServedRecord(
            model=self.model.name,
            seq_size=self.model.seq_size,
            system=self.system.name,
            provenance=self.system.provenance.to_dict(),
            deployment=self.deployment,
            tried=self.tried,
            arithmetic=self.arithmetic,
            workload=self.workload,
            batch=self.batch,
            cut=self.cut,
            speculation=speculation if speculation.tokens else None,
            figures=FigureRecord(**self.stats),
            run_time=self.run_time,
            price=self.point.price,
            power=self.point.power,
            served_class=self.served_class,
            rooflines=self.rooflines,
            ranges=self.ranges,
            limits=tuple(map(LimitRecord.of, self.limits)),
            worth=self.worth,
            helps=helps,
            passes=PassRecords(
                decode=PassRecord.of(self.decode), prefill=PassRecord.of(self.prefill)
            ),
            settings=self.settings,
            replay=self.replayed,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return self.record.to_dict()


STATED = tuple(one.key for one in spec_fields(Deployment) if one.key != "prefill")
"""Fields of a deployment; those of processors that only prefill follow by path."""


def class_of(
    model: Model, deployment: Deployment, system: System, concurrency: float, most: float
) -> ServedClass:
    """Return the class of a deployment that decodes `concurrency` sequences per replica, of at most `most`."""
    return ServedClass.of(
        model,
        deployment.engine,
        system.provenance.family,
        concurrency,
        most,
        apart=deployment.prefill is not None,
    )


def flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with the fields of nested records by path: ``prefill.num_procs``."""
    result: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            result |= {f"{name}.{inner}": item for inner, item in flat(value).items()}
        else:
            result[name] = value
    return result


@takes_either_order
def serve(
    model: Source | Model,
    deployment: DeploymentSource | int,
    system: Source | System,
    workload: WorkloadSource | None = None,
    *,
    changes: Mapping[str, Any] | None = None,
    **options: Any,
) -> Served:
    """Estimate a stated deployment; arguments, result and errors as of :func:`calculon.serve`.

    A number of processors means its default deployment (:func:`deployment_of`), without a search.
    """
    return question(model, deployment, system, workload, changes, options).solve()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedQuestion:
    """Deployment of a model on a machine under a workload, as records."""

    model: Model
    system: System
    deployment: Deployment
    workload: Workload

    def solve(self) -> Served:
        """Estimate the deployment; raise Infeasible if a sequence does not fit."""
        records = self.model, self.system, self.deployment, self.workload
        return Served(*records, solver_of(*records).solve_single())


def question(
    model: Source | Model,
    deployment: DeploymentSource | int,
    system: Source | System,
    workload: WorkloadSource | None,
    changes: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> ServedQuestion:
    """Return the records of a stated deployment; arguments and errors as of :func:`serve`."""
    asked_model, asked_system = inputs.model(model), inputs.system(system)
    check_served(asked_model)
    load = read_workload(_workload_source(deployment, workload, options), options)
    check_length(asked_model, load)
    source: Any = deployment
    # bool is an Integral too, but True is not a number of processors
    if not isinstance(deployment, bool) and isinstance(source, Integral):
        asked = deployment_of(asked_model, asked_system, int(source), load, changes)
    elif (fields := deployment_in_words(source)) is not None:
        fields = {**default_types(asked_model), **fields, **(changes or {})}
        asked = deployment_of(asked_model, asked_system, fields.pop("num_procs"), load, fields)
    else:
        asked = _deployment_from(asked_model, asked_system, source, load, changes)
    for one in (asked, asked.prefill_deployment):
        if one is not None:
            check_split(asked_model, one)
    return ServedQuestion(model=asked_model, system=asked_system, deployment=asked, workload=load)


def _deployment_from(
    model: Model,
    system: System,
    source: DeploymentSource,
    workload: Workload,
    changes: Mapping[str, Any] | None,
) -> Deployment:
    """Return the deployment of a source, which may be a script that starts an engine."""
    facts = facts_of(model, system)
    if not _may_start_engine(source):
        return read_deployment(source, changes, facts)
    from calculon.launch.launch_files import (  # rarely needed
        is_launch_file,
        warn_of_lost_settings,
        warn_of_other_checkpoint,
    )
    from calculon.serving.engine_scripts import launched_server, server_of

    stated = changes or {}
    procs = stated.get("num_procs")
    server = server_of(model, system, workload, released=True)
    launch = launched_server(source, server, procs if type(procs) is int else None)
    path = str(source)
    if launch is None:
        if is_launch_file(path):
            hint = "calculon llm reads it as an execution"
            wanted = "a deployment: how a model is served"
            raise SpecError(path, Problem("", wanted, "a script that launches training", hint))
        return read_deployment(source, changes, facts)
    warn_of_lost_settings(path, launch)
    changed = {name: value for name, value in stated.items() if name != "num_procs"}
    warn_of_other_checkpoint(path, launch, model)
    fields = with_released_types(model, {"about": path, **launch.deployment})
    return read_deployment(fields, changed, facts)


def _workload_source(
    deployment: DeploymentSource | int, workload: WorkloadSource | None, options: Mapping[str, Any]
) -> WorkloadSource | None:
    """Return the source of a workload; if prompt or output is missing, the file of the deployment if it is a result."""
    asked = workload is not None or all(options.get(name) for name in ("prompt", "output"))
    if asked or not isinstance(deployment, (str, os.PathLike)):
        return workload
    path = split(os.fsdecode(deployment))[0]
    if document_suffix(path) != ".json" or not os.path.isfile(path):  # noqa: PTH113 (a text that can be no path has none)
        return workload
    raw = read_document(path)
    return deployment if isinstance(raw, Mapping) and WORKLOAD in raw else workload


def _may_start_engine(source: object) -> bool:
    """Return True if a source of a deployment may be a script, or text that may be a command."""
    if not isinstance(source, (str, os.PathLike)):
        return False
    path = os.fsdecode(source)
    if os.path.isfile(path):  # noqa: PTH113 (a text that can be no path has none)
        return not path.endswith(".json")
    return " " in path


def check_split(model: Model, deployment: Deployment) -> None:
    """Check that a model can be split as a deployment states.

    Raises:
        SpecError: If it cannot.
    """
    problems = list(_wrong_split(model, deployment))
    if deployment.prefill is not None:
        problems += [
            replace(one, field=f"prefill.{one.field}")
            for one in _wrong_split(model, deployment.prefill)
        ]
    # drafts run on the ranks of the last stage, so they have to split like the model
    problems += split_problems(draft_of(model, deployment), deployment)
    if problems:
        raise SpecError(deployment.name, problems)


def _wrong_split(model: Model, deployment: Pool) -> Iterator[Problem]:
    """Yield the reasons why the replicas of a pool cannot be split as stated."""
    if model.attn_heads % deployment.attention_par:
        name = "tensor_par" if deployment.attn_data_par == 1 else "tensor_par / attn_data_par"
        wanted = f"a divisor of attn_heads={model.attn_heads} of {model.name}"
        yield Problem(name, wanted, str(deployment.attention_par))
    if deployment.pipeline_par > model.num_blocks:
        wanted = f"at most num_blocks={model.num_blocks} of {model.name}"
        yield Problem("pipeline_par", wanted, str(deployment.pipeline_par))
    yield from _unshared_caches(model, deployment)
    yield from _misplaced_experts(model, deployment)


def _unshared_caches(model: Model, deployment: Pool) -> Iterator[Problem]:
    """Yield a problem if ranks cannot share a KV cache token by token because too few of them hold copies of it."""
    ranks, parts = deployment.attention_par, deployment.context_par
    # only ranks with copies of the same keys and values can divide their tokens
    copies = copies_of_heads(model, ranks)
    if copies % parts:
        hint = f"{copies} of the {ranks} ranks that share attention hold copies of the same keys and values"
        yield Problem("context_par", f"a divisor of {copies}", str(parts), hint)


def _exchange_of_none(deployment: Deployment, hint: str) -> Iterator[Problem]:
    """Yield the fields about the exchange with experts that a deployment states although the model has no experts."""
    for name in ("routing", "overlap", "dispatch_dtype"):
        plain = Deployment.__dataclass_fields__[name].default
        if (found := getattr(deployment, name)) not in (plain, "balanced"):
            yield Problem(name, str(plain), found, hint)


def _misplaced_experts(model: Model, deployment: Pool) -> Iterator[Problem]:
    """Yield the reasons why the experts of a model cannot be split as stated, or that it has none."""
    groups, copies = deployment.expert_par, deployment.redundant_experts
    if not model.mixes:
        hint = f"{model.name} has no experts"
        for name, plain in (("expert_par", 1), ("redundant_experts", 0)):
            if (found := getattr(deployment, name)) != plain:
                yield Problem(name, str(plain), str(found), hint)
        if isinstance(deployment, Deployment):
            yield from _exchange_of_none(deployment, hint)
        if deployment.attn_data_par > 1:
            more = f"{hint}: use replicas instead, which also have separate requests"
            yield Problem("attn_data_par", "1", str(deployment.attn_data_par), more)
    elif (model.num_experts + copies) % groups:
        if copies:
            all_of_it = f"num_experts + redundant_experts = {model.num_experts + copies}"
        else:
            all_of_it = f"num_experts={model.num_experts}"
        yield Problem("expert_par", f"a divisor of {all_of_it} of {model.name}", str(groups))
    elif copies > model.num_experts:
        wanted = f"at most num_experts={model.num_experts} of {model.name}"
        yield Problem("redundant_experts", wanted, str(copies))
    if model.mixes and model.inner_width % (parts := deployment.tensor_par // groups):
        name = "expert_feedforward" if model.expert_feedforward else "feedforward"
        wanted = f"a divisor of {name}={model.inner_width} of {model.name}"
        yield Problem("tensor_par / expert_par" if groups > 1 else "tensor_par", wanted, str(parts))
