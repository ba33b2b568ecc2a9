"""A result of serving as an engine runs it: settings of its workers, files that start them, and the prediction."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from calculon.advise.engine_flags import limited_batch
from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.serving_classes import ANY_ENGINE, engine_name
from calculon.launch.deploy.compose_file import compose_text, no_compose
from calculon.launch.deploy.engine_images import DECODE, IMAGES, PREFILL, SERVE, EngineImage
from calculon.launch.deploy.kubernetes_files import kubernetes_text, no_kubernetes
from calculon.launch.deploy.manifest_text import manifest
from calculon.launch.deploy.operator_files import dynamo_text, llm_d_text, no_llm_d
from calculon.launch.deploy.workers import Site, Worker, check_checkpoint
from calculon.launch.engines.engine_commands import EngineCommand, command_head, engine_command
from calculon.serving.benchmark_scripts import RESULTS, benchmark_text, unlike
from calculon.serving.engine_scripts import deployment_defaults, engine_fields, server_of
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.engine_presets import facts_of
from calculon.serving.records.read_records import read_deployment
from calculon.serving.serve import Served, ServedQuestion

USUAL_ENGINE = "vllm"
"""Engine of deployments that name none."""

FEWEST_TOKENS = 8192
"""Tokens of a pass of separate prefill workers, whose prompts are not chunked, and of decode workers."""

SUPPORTED = "NVIDIA"
"""Family of processors whose images and resource names the files have."""


@dataclass(frozen=True)
class Deployed:
    """A deployment as an engine runs it.

    Attributes:
        engine: Name of the engine.
        site: Workers, image and checkpoint.
        served: The prediction for the engine's settings.
        changes: Fields at our default that the engine runs with a different value: both values.
    """

    engine: str
    site: Site
    served: Served
    changes: Mapping[str, tuple[Any, Any]]

    @property
    def files(self) -> dict[str, str]:
        """Texts of the files by name, without the prediction."""
        weights = self.served["mem_weights"] * self.served.deployment.replica_procs
        result = self.site.scripts()
        result["bench.sh"] = benchmark_text(
            self.engine, self.site.checkpoint, self.served.workload, self._concurrency
        )
        result["dynamo.yaml"] = dynamo_text(self.site)
        if self.site.apart and (router := self.site.router(self.site.hosts)[1]):
            result["router.yaml"] = manifest(router)
        absent = self.absent
        if "compose.yaml" not in absent:
            result["compose.yaml"] = compose_text(self.site)
        if "kubernetes.yaml" not in absent:
            result["kubernetes.yaml"] = kubernetes_text(self.site)
        if "llm-d.yaml" not in absent:
            result["llm-d.yaml"] = llm_d_text(self.site, weights)
        return result

    @property
    def absent(self) -> dict[str, str]:
        """Reasons why files are missing, by name."""
        reasons = {
            "compose.yaml": no_compose(self.site),
            "kubernetes.yaml": no_kubernetes(self.site),
            "llm-d.yaml": no_llm_d(self.site),
        }
        return {name: reason for name, reason in reasons.items() if reason}

    @property
    def unlike(self) -> list[str]:
        """Properties of the workload that the benchmark does not reproduce."""
        return unlike(self.engine, self.served.workload)

    @property
    def result_file(self) -> str:
        """File that the benchmark writes."""
        return RESULTS[self.engine]

    @property
    def _concurrency(self) -> int:
        return self.served.batch * self.served.deployment.replicas


def deployed(served: Served, engine: str, checkpoint: str) -> Deployed:
    """Return a result as an engine runs it, with the prediction for the engine's settings.

    Args:
        served: The result.
        engine: Name of the engine; empty for the engine of the deployment, or :data:`USUAL_ENGINE`.
        checkpoint: Name of the checkpoint, or its folder.

    Raises:
        SpecError: For an unsupported engine or processor, a field that the engine cannot express, and a checkpoint that
            is no name.
        Infeasible: If a sequence does not fit with the settings of the engine.
    """
    own = served.deployment.engine
    name = engine or (USUAL_ENGINE if own == ANY_ENGINE else engine_name(own))
    if name not in IMAGES:
        raise SpecError("--deploy", Problem("engine", f"one of {', '.join(IMAGES)}", name))
    _check_processor(served)
    image = IMAGES[name]
    server = server_of(served.model, served.system, served.workload)
    facts = facts_of(served.model, served.system)
    workers, changes = [], dict[str, tuple[Any, Any]]()
    for role, pool in _pools(served):
        fields, usual = engine_fields(image.dialect, pool, server, facts)
        found = engine_command(image.dialect, fields, deployment_defaults(), server, usual)
        head = tuple(command_head(image.dialect, fields, found, server))
        workers.append(_worker(role, pool, found, head, served.system.node))
        changes |= found.changes if role != PREFILL else {}
    fields = {field: new for field, (_, new) in changes.items()} | {"engine": name}
    if not served.deployment.max_batch and (batch := limited_batch(served)):
        fields["max_batch"] = batch
    question = ServedQuestion(
        model=served.model,
        system=served.system,
        deployment=read_deployment(served.deployment, fields),
        workload=served.workload,
    )
    site = _site(served, image, check_checkpoint(checkpoint), tuple(workers))
    return Deployed(name, site, replace(question.solve(), tried=served.tried), changes)


def _check_processor(served: Served) -> None:
    """Raise SpecError for a machine without NVIDIA processors."""
    family = served.system.provenance.family
    if not family.startswith(SUPPORTED):
        wanted = f"a machine with {SUPPORTED} processors, as the images need"
        hint = f"calculon export vllm writes the options alone: --system {served.system.name}"
        raise SpecError("--deploy", Problem("system", wanted, family or served.system.name, hint))


def _site(served: Served, image: EngineImage, checkpoint: str, workers: tuple[Worker, ...]) -> Site:
    return Site(
        model=served.model.name,
        engine=image,
        checkpoint=checkpoint,
        workers=workers,
        node=served.system.node,
    )


def _pools(served: Served) -> Iterator[tuple[str, Deployment]]:
    """Yield the workers by role, each as a separate deployment."""
    d = served.deployment
    batch = d.max_batch or limited_batch(served)
    limit: dict[str, Any] = {"max_batch": batch}
    prefills = d.prefill_deployment
    if prefills is None:
        yield SERVE, read_deployment(d, limit)
        return
    prompts = math.ceil(served.workload.computed)
    # Engines have no unlimited passes: a prompt fits into one, as the model assumes.
    yield PREFILL, replace(prefills, token_budget=max(FEWEST_TOKENS, prompts))
    rows = math.ceil(batch / d.attn_data_par)
    budget = max(FEWEST_TOKENS, d.token_budget, rows * (1 + (d.draft_tokens or 0)))
    alone: dict[str, Any] = {"prefill": None, "num_procs": d.own_procs, "token_budget": budget}
    yield DECODE, replace(d, **alone, **limit)


def _worker(
    role: str, pool: Deployment, found: EngineCommand, head: tuple[str, ...], node: int
) -> Worker:
    processors = pool.replica_procs
    nodes = math.ceil(processors / node)
    if processors % nodes:
        wanted = f"processors of a replica that fill nodes of {node} evenly"
        raise SpecError("--deploy", Problem("tensor_par", wanted, str(processors)))
    return Worker(
        role=role,
        replicas=pool.replicas,
        processors=processors,
        nodes=nodes,
        settings=found.settings,
        head=head,
    )


def checkpoint_of(document: object) -> str:
    """Return the name of the checkpoint that a model file states as its source; empty if it states none.

    >>> checkpoint_of({"about": {"source": "arXiv:2505.09388; config of Qwen/Qwen3-32B"}})
    'Qwen/Qwen3-32B'
    """
    about = document.get("about") if isinstance(document, Mapping) else None
    source = about.get("source") if isinstance(about, Mapping) else None
    words = str(source or "").partition(" of ")[2].split()
    name = words[0].rstrip(",;") if words else ""
    return name if name.count("/") == 1 else ""
