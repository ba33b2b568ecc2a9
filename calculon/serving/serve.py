"""The answer for one deployment and workload: times, rates, memory, and which limits hold."""

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, overload

from calculon import inputs
from calculon.base.display import Displayed, draw_result
from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.records import only_values
from calculon.declarations.files import document_suffix, read_document
from calculon.declarations.model import Model
from calculon.declarations.result_selection import WORKLOAD, split
from calculon.declarations.serving_classes import ServedClass
from calculon.estimate.served_errors import FigureRange, served_ranges
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.serving.caches.cache import check_length, check_served, copies_of_heads
from calculon.serving.passes.drafts import draft_of, speculation_of, unsplit
from calculon.serving.passes.row_times import PassTimes
from calculon.serving.plain_deployment import deployment_of, loaded
from calculon.serving.records.asked import (
    DeploymentSource,
    WorkloadSource,
    read_deployment,
    read_workload,
)
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.load import SATURATED, Workload
from calculon.serving.records.pool import Pool
from calculon.serving.served_record import (
    FigureRecord,
    LimitRecord,
    PassRecord,
    PassRecords,
    ServedRecord,
)
from calculon.serving.states.served_points import Limit, Point
from calculon.serving.what_helps import Help, helps

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure


@dataclass(frozen=True)
class Served(Displayed):
    """What a deployment gives.

    Attributes:
        model, system, deployment, workload: The records.
        point: Where a replica works: its batch, figures, passes and limits.
    """

    model: Model
    system: System
    deployment: Deployment
    workload: Workload
    point: Point

    @property
    def batch(self) -> int:
        """Sequences that a replica decodes at a time."""
        return self.point.batch

    @property
    def cut(self) -> str:
        """What bounds them."""
        return self.point.cut

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits of the workload."""
        return self.point.limits

    @property
    def run_time(self) -> float | None:
        """Seconds of a finite run; None where it never ends."""
        return self.point.run_time

    @property
    def decode(self) -> PassTimes:
        """The pass that decodes the batch."""
        return self.point.decode

    @property
    def prefill(self) -> PassTimes:
        """The pass of one whole prompt."""
        return self.point.prefill

    def __getitem__(self, name: str) -> float:
        """Return a figure by name; KeyError if there is none."""
        value = self.stats[name]
        return math.nan if value is None else value

    @property
    def stats(self) -> dict[str, float | None]:
        """The figures by name."""
        return only_values(self.point.figures)

    @property
    def served_class(self) -> ServedClass:
        """The class by which published rows are compared with it."""
        return class_of(
            self.model,
            self.deployment,
            self.system,
            self["concurrency"],
            self["max_concurrency"],
        )

    @property
    def ranges(self) -> dict[str, FigureRange]:
        """Ranges of figures by name, each with 90 % of measured values: by published rows, like ones counting more."""
        return served_ranges(self.served_class, self.stats)

    @property
    def worth(self) -> str:
        """The figure by which parts of the machine are worth something: a rate, or where that is given a time."""
        return "output_rate" if self.workload.kind == SATURATED else "interactivity"

    @cached_property
    def helps(self) -> tuple[Help, ...]:
        """What better parts of the machine are worth, the best first."""

        def figure(system: System) -> float:
            found = only_values(
                loaded(self.model, system, self.deployment, self.workload).answer().figures
            )[self.worth]
            return float(found or 0.0)

        return helps(self.system, figure)

    @overload
    def plot(self, kind: str = "batch", *, interactive: Literal[False] = False) -> "Figure": ...

    @overload
    def plot(self, kind: str = "batch", *, interactive: Literal[True]) -> "InteractiveFigure": ...

    def plot(
        self, kind: str = "batch", *, interactive: bool = False
    ) -> "Figure | InteractiveFigure":
        """Draw times and rates over the batch, as ``calculon plot batch`` does.

        Args:
            interactive: As the page in a browser draws it (extra ``web``): a plotly Figure.

        Raises:
            SpecError: For another kind than ``batch``, and where the library is missing.
        """
        return draw_result(self, kind, interactive=interactive)

    def to_frame(self) -> "pd.DataFrame":
        """Return fields, batch and figures of the deployment as a DataFrame of one row."""
        import pandas as pd  # only for people who want frames

        fields = flat(self.deployment.to_dict())
        row = fields | {"batch": self.batch} | {name: self[name] for name in self.stats}
        return pd.DataFrame([row | {"model": self.model.name, "system": self.system.name}])

    def __repr__(self) -> str:
        figures = ", ".join(f"{name} {self[name]:.6g}" for name in ("ttft", "tpot", "output_rate"))
        missed = [one.name for one in self.limits if not one.met]
        text = f"{self.model.name} on {self.deployment.num_procs:,} x {self.system.name}"
        text += f", {self.deployment.in_words}, batch {self.batch:,}, {figures}"
        return f"<Served: {text}{', misses ' + ' and '.join(missed) if missed else ''}>"

    @cached_property
    def record(self) -> ServedRecord:
        """Everything that files and pages have: names of model and machine, and the first passes."""
        speculation = speculation_of(self.model, self.deployment)
        return ServedRecord(
            model=self.model.name,
            seq_size=self.model.seq_size,
            system=self.system.name,
            provenance=self.system.provenance.to_dict(),
            deployment=self.deployment,
            workload=self.workload,
            batch=self.batch,
            cut=self.cut,
            speculation=speculation if speculation.tokens else None,
            figures=FigureRecord(**self.stats),
            run_time=self.run_time,
            price=self.point.price,
            power=self.point.power,
            served_class=self.served_class,
            ranges=self.ranges,
            limits=tuple(map(LimitRecord.of, self.limits)),
            worth=self.worth,
            helps={one.part: one.elasticity for one in self.helps},
            passes=PassRecords(
                decode=PassRecord.of(self.decode), prefill=PassRecord.of(self.prefill)
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return self.record.to_dict()


def class_of(
    model: Model, deployment: Deployment, system: System, concurrency: float, most: float
) -> ServedClass:
    """Return the class of a deployment that generates sequences of `most` that there may be in a replica."""
    return ServedClass.of(
        model,
        deployment.engine,
        system.provenance.family,
        concurrency,
        most,
        apart=deployment.prefill is not None,
    )


def flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with those of records inside by path: ``prefill.num_procs``."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{inner}": own for inner, own in flat(value).items()}
        else:
            found[name] = value
    return found


def serve(
    model: Source | Model,
    deployment: DeploymentSource | int,
    system: Source | System,
    workload: WorkloadSource | None = None,
    *,
    changes: Mapping[str, Any] | None = None,
    **options: Any,
) -> Served:
    """Estimate a deployment that serves a model.

    Args:
        model, system: As in :func:`calculon.estimate`.
        deployment: A name of the catalog, a file, the fields of one, or a record; a script that starts vLLM, SGLang or
            TensorRT-LLM, or the command itself, of which what is not modelled is a warning; or a number of processors,
            of which each node is a replica (:func:`deployment_of`).
        workload: Likewise, or the document of a result of this function, which has one. Where `deployment` is such a
            file and prompt and output are not both said, its workload counts.
        changes: Fields of the deployment that count instead of its own.
        **options: Fields of the workload, likewise: ``prompt=2000``.

    Returns:
        The figures in the steady state. Of a load that is neither a rate nor users, the largest batch that keeps the
        limits counts; where none does, that of one sequence, and the limits say what is missed.

    Raises:
        SpecError: For everything wrong with the inputs.
        Infeasible: Where the model or a single sequence does not fit.

    Examples:
        >>> found = serve("llama3-8B", 1, "h100_80g_sxm", prompt=1000, output=200)
        >>> found["tpot"] >= found["decode_time"]
        True
    """
    asked_model, asked_system = inputs.model(model), inputs.system(system)
    check_served(asked_model)
    load = read_workload(_workload_beside(deployment, workload, options), options)
    check_length(asked_model, load)
    source: Any = deployment
    if not isinstance(deployment, bool) and isinstance(source, Integral):
        asked = deployment_of(asked_model, asked_system, int(source), load, changes)
    else:
        asked = _asked(asked_model, asked_system, source, load, changes)
    for one in (asked, asked.prefilling):
        if one is not None:
            check_split(asked_model, one)
    point = loaded(asked_model, asked_system, asked, load).answer()
    return Served(asked_model, asked_system, asked, load, point)


def _asked(
    model: Model,
    system: System,
    source: DeploymentSource,
    workload: Workload,
    changes: Mapping[str, Any] | None,
) -> Deployment:
    """Return the deployment that a source says, which may be a script that starts an engine."""
    if not _may_start_engine(source):
        return read_deployment(source, changes)
    from calculon.launch.launch_files import is_launch_file, tell_lost  # rarely needed
    from calculon.serving.engine_scripts import launched_server, server_of

    stated = changes or {}
    procs = stated.get("num_procs")
    server = server_of(model, system, workload)
    launch = launched_server(source, server, procs if type(procs) is int else None)
    path = str(source)
    if launch is None:
        if is_launch_file(path):
            hint = "calculon llm takes it as an execution"
            wanted = "a deployment: how a model is served"
            raise SpecError(path, Problem("", wanted, "a launcher of training", hint))
        return read_deployment(source, changes)
    tell_lost(path, launch)
    own = {name: value for name, value in stated.items() if name != "num_procs"}
    return read_deployment({"about": path, **launch.deployment}, own)


def _workload_beside(
    deployment: DeploymentSource | int, workload: WorkloadSource | None, options: Mapping[str, Any]
) -> WorkloadSource | None:
    """Return the source of a workload: where too little is asked, the file of the deployment if it is a result."""
    asked = workload is not None or all(options.get(name) for name in ("prompt", "output"))
    if asked or not isinstance(deployment, (str, os.PathLike)):
        return workload
    path = split(os.fsdecode(deployment))[0]
    if document_suffix(path) != ".json" or not os.path.isfile(path):  # noqa: PTH113 (a text that can be no path has none)
        return workload
    raw = read_document(path)
    return deployment if isinstance(raw, Mapping) and WORKLOAD in raw else workload


def _may_start_engine(source: object) -> bool:
    """Return whether a source of a deployment is a file that may be a script, or a text that may be a command."""
    if not isinstance(source, (str, os.PathLike)):
        return False
    path = os.fsdecode(source)
    if os.path.isfile(path):  # noqa: PTH113 (a text that can be no path has none)
        return not path.endswith(".json")
    return " " in path


def check_split(model: Model, deployment: Deployment) -> None:
    """Raise SpecError where a model cannot be split as a deployment says."""
    problems = list(_wrong_split(model, deployment))
    if deployment.prefill is not None:
        problems += [
            replace(one, field=f"prefill.{one.field}")
            for one in _wrong_split(model, deployment.prefill)
        ]
    problems += unsplit(draft_of(model, deployment), deployment)
    if problems:
        raise SpecError(deployment.name, problems)


def _wrong_split(model: Model, deployment: Pool) -> Iterator[Problem]:
    """Yield why the replicas of a pool cannot be split as it says."""
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
    """Yield why ranks cannot share a cache token by token: too few have copies of it."""
    ranks, parts = deployment.attention_par, deployment.context_par
    alike = copies_of_heads(model, ranks)
    if alike % parts:
        hint = f"of {ranks} ranks that share attention, {alike} have copies of the same keys and values"
        yield Problem("context_par", f"a divisor of {alike}", str(parts), hint)


def _exchange_of_none(deployment: Deployment, hint: str) -> Iterator[Problem]:
    """Yield what a deployment says of the exchange with experts where a model has none."""
    for name in ("routing", "overlap", "dispatch_dtype"):
        plain = Deployment.__dataclass_fields__[name].default
        if (found := getattr(deployment, name)) != plain:
            yield Problem(name, str(plain), found, hint)


def _misplaced_experts(model: Model, deployment: Pool) -> Iterator[Problem]:
    """Yield why the experts of a model cannot be split as a deployment says, or that it has none."""
    groups, copies = deployment.expert_par, deployment.redundant_experts
    if not model.mixes:
        hint = f"{model.name} has no experts"
        for name, plain in (("expert_par", 1), ("redundant_experts", 0)):
            if (found := getattr(deployment, name)) != plain:
                yield Problem(name, str(plain), str(found), hint)
        if isinstance(deployment, Deployment):
            yield from _exchange_of_none(deployment, hint)
        if deployment.attn_data_par > 1:
            more = f"{hint}: replicas have requests of their own, too"
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
