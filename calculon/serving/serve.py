"""The answer for one deployment and workload: times, rates, memory, and which limits hold."""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from calculon import inputs
from calculon.display import Displayed, drawn
from calculon.errors import Problem, SpecError
from calculon.frozen import dataclass
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.records import only_values
from calculon.serving.asked import DeploymentSource, WorkloadSource, read_deployment, read_workload
from calculon.serving.cache import check_served
from calculon.serving.deployment import Deployment
from calculon.serving.deployments import Deployments
from calculon.serving.drafts import draft_of, unsplit
from calculon.serving.load import SATURATED, Workload
from calculon.serving.operating_point import Load
from calculon.serving.replica import Replica
from calculon.serving.row_times import PassTimes
from calculon.serving.served_points import Limit, Point
from calculon.serving.what_helps import Help, helps
from calculon.spec.model import Model

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Served(Displayed):
    """What a deployment gives.

    Attributes
    ----------
    model, system, deployment, workload
        The records.
    point : Point
        Where a replica works: its batch, figures, passes and limits.
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

    def plot(self, kind: str = "batch") -> "Figure":
        """Draw times and rates over the batch, as ``calculon plot batch`` does.

        Raises
        ------
        SpecError
            For another kind than ``batch``, and where matplotlib is missing.
        """
        return drawn(self, kind)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "model": self.model.name,
            "system": self.system.name,
            "deployment": self.deployment.to_dict() | {"replicas": self.deployment.replicas},
            "workload": self.workload.to_dict(),
            "method": "steady state",
            "batch": self.batch,
            "cut": self.cut,
            "figures": self.stats,
            "run_time": self.run_time,
            "price": self.point.price,
            "limits": [
                {
                    "name": one.name,
                    "most": one.most,
                    "found": one.found,
                    "met": one.met,
                    "in_words": one.in_words,
                }
                for one in self.limits
            ],
            "worth": self.worth,
            "helps": {one.part: one.elasticity for one in self.helps},
            "passes": {"decode": self.decode.to_dict(), "prefill": self.prefill.to_dict()},
        }


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

    Parameters
    ----------
    model, system
        As in :func:`calculon.estimate`.
    deployment : str, path, mapping, Deployment or int
        A name of the catalog, a file, the fields of one, or a record; or a number of processors, of which each node is
        a replica (:func:`deployment_of`).
    workload : str, path, mapping or Workload, optional
        Likewise.
    changes : mapping, optional
        Fields of the deployment that count instead of its own.
    **options
        Fields of the workload, likewise: ``prompt=2000``.

    Returns
    -------
    Served
        The figures in the steady state. Of a load that is neither a rate nor users, the largest batch that keeps the
        limits counts; where none does, that of one sequence, and the limits say what is missed.

    Raises
    ------
    SpecError
        For everything wrong with the inputs.
    Infeasible
        Where the model or a single sequence does not fit.

    Examples
    --------
    >>> found = serve("llama3-8B", 1, "h100_80g_sxm", prompt=1000, output=200)
    >>> found["tpot"] >= found["decode_time"]
    True
    """
    asked_model, asked_system = inputs.model(model), inputs.system(system)
    check_served(asked_model)
    load = read_workload(workload, options)
    if isinstance(deployment, int):
        asked = deployment_of(asked_model, asked_system, deployment, load, changes)
    else:
        asked = read_deployment(deployment, changes)
    _check(asked_model, asked)
    point = loaded(asked_model, asked_system, asked, load).answer()
    return Served(asked_model, asked_system, asked, load, point)


def loaded(model: Model, system: System, deployment: Deployment, workload: Workload) -> Load:
    """Return a single deployment with its load."""
    return Load(Replica(model, system, Deployments.of(deployment), workload))


def deployment_of(
    model: Model,
    system: System,
    procs: int,
    workload: Workload,
    changes: Mapping[str, Any] | None = None,
) -> Deployment:
    """Return a plain deployment on so many processors: tensor parallelism over a node, and replicas.

    Tensor parallelism is as wide as a node allows, and divides processors and attention heads. Where a sequence does
    not fit, stages are added, as few as it takes.

    Raises
    ------
    SpecError
        For no processors, and as :func:`~calculon.serving.asked.read_deployment`.
    """
    if procs < 1:
        raise SpecError(
            "deployment", Problem("", "a deployment, or 1 processor at least", str(procs))
        )
    given = dict(changes or {})
    each = procs // int(given.get("pipeline_par", 1))
    widest = [
        t for t in range(1, min(each, system.networks[0].size) + 1)
        if each % t == 0 and model.attn_heads % t == 0
    ] or [1]  # fmt: skip
    plain = {"num_procs": procs, "tensor_par": widest[-1]} | given
    split = int(plain["tensor_par"])
    stages = [p for p in range(1, procs // split + 1) if procs % (split * p) == 0] or [1]
    found = read_deployment(plain)
    for stage in stages:
        found = read_deployment({"pipeline_par": stage} | plain)
        if "pipeline_par" in given or loaded(model, system, found, workload).room[0] > 0:
            break
    return found


def _check(model: Model, deployment: Deployment) -> None:
    """Raise SpecError where a model cannot be split as a deployment says."""
    problems = []
    if model.attn_heads % deployment.tensor_par:
        wanted = f"a divisor of attn_heads={model.attn_heads} of {model.name}"
        problems.append(Problem("tensor_par", wanted, str(deployment.tensor_par)))
    if deployment.pipeline_par > model.num_blocks:
        wanted = f"at most num_blocks={model.num_blocks} of {model.name}"
        problems.append(Problem("pipeline_par", wanted, str(deployment.pipeline_par)))
    if deployment.expert_par > 1 and not model.mixes:
        hint = "the model has no experts"
        problems.append(Problem("expert_par", "1", str(deployment.expert_par), hint))
    elif deployment.expert_par > 1 and model.num_experts % deployment.expert_par:
        wanted = f"a divisor of num_experts={model.num_experts} of {model.name}"
        problems.append(Problem("expert_par", wanted, str(deployment.expert_par)))
    problems += unsplit(draft_of(model, deployment), deployment)
    if problems:
        raise SpecError(deployment.name, problems)
