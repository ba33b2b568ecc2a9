"""Workers of a deployment: equal replicas that do the same work, with the words of their commands."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.launch.deploy.engine_images import (
    DECODE,
    PORT,
    PREFILL,
    EngineImage,
    NodeOptions,
    router_configuration,
)
from calculon.launch.dialect import Fields
from calculon.launch.engines.engine_files import COMMENTED, flags_in, words_of
from calculon.launch.engines.tensorrt_llm import (
    CONFIGURATION,
    TENSORRT_LLM,
    flags_and_configuration,
)
from calculon.launch.texts.tree import nested

FOLDER = "/config"
"""Folder of configurations in a container."""

GPU = "nvidia.com/gpu"
"""Kubernetes resource of a processor."""

TOKEN, SECRET = "HF_TOKEN", "hf-token-secret"
"""Environment variable with the token of Hugging Face, and the Kubernetes secret that has it under this key."""

CACHE = "/root/.cache/huggingface"
"""Folder of downloaded checkpoints in a container."""

_ENDPOINT = {"--host": "0.0.0.0", "--port": PORT}

_LONGEST_NAME = 40
"""Length of a name to which Kubernetes and we add suffixes; labels have at most 63 characters."""


@dataclass(frozen=True, slots=True)
class Worker:
    """Equal replicas that do the same work.

    Attributes:
        role: Its work: ``serve``, ``prefill`` or ``decode``.
        replicas: Number of replicas.
        processors: Processors of a replica.
        nodes: Nodes of a replica.
        settings: Settings of the engine.
        head: Comment lines of its script.
    """

    role: str
    replicas: int
    processors: int
    nodes: int
    settings: Fields
    head: tuple[str, ...]

    @property
    def processors_of_node(self) -> int:
        """Processors of a replica on each of its nodes."""
        return self.processors // self.nodes


@dataclass(frozen=True)
class Site:
    """A deployment as files describe it.

    Attributes:
        model: Name of the model, from which names of objects are made.
        engine: The engine in containers.
        checkpoint: Name or absolute folder of the checkpoint.
        workers: Workers by role.
        node: Processors of a node.
    """

    model: str
    engine: EngineImage
    checkpoint: str
    workers: tuple[Worker, ...]
    node: int

    @property
    def name(self) -> str:
        """Name of objects: lower-case letters, digits and hyphens (RFC 1123)."""
        words = re.sub(r"[^a-z0-9]+", "-", f"{self.engine.dialect.name}-{self.model}".lower())
        return words[:_LONGEST_NAME].strip("-")

    @property
    def apart(self) -> bool:
        """True if prefill and decode run on separate workers."""
        return len(self.workers) > 1

    @cached_property
    def across_nodes(self) -> bool:
        """True if a replica spans several nodes."""
        return any(worker.nodes > 1 for worker in self.workers)

    def settings(self, worker: Worker, node: NodeOptions | None = None) -> Fields:
        """Return all settings of a worker: endpoint, role, and the options of a node."""
        plain = self.engine.dialect is TENSORRT_LLM
        endpoint = {n.lstrip("-"): v for n, v in _ENDPOINT.items()} if plain else _ENDPOINT
        found = worker.settings | endpoint | dict(self.engine.roles.get(worker.role, {}))
        return found | (node.settings if node is not None else {})

    def command(self, worker: Worker, node: NodeOptions | None = None) -> list[str]:
        """Return the words of a worker's command in a container."""
        flags = self._flags(self.settings(worker, node))
        if self.configuration(worker):
            flags[CONFIGURATION] = f"{FOLDER}/{worker.role}.yaml"
        words = [word for name, value in flags.items() for word in words_of(name, value)]
        return [*self.engine.program, self.checkpoint, *words]

    def options(self, worker: Worker) -> list[str]:
        """Return the options of a worker for a launcher with its own endpoint and roles (Dynamo, llm-d)."""
        flags = self._flags(worker.settings)
        return [word for name, value in flags.items() for word in words_of(name, value)]

    def configuration(self, worker: Worker) -> Mapping[str, Any]:
        """Return the configuration file of a worker; empty if all its settings are flags."""
        if self.engine.dialect is not TENSORRT_LLM:
            return {}
        return flags_and_configuration(self.settings(worker))[1]

    def whole_configuration(self, worker: Worker) -> Mapping[str, Any]:
        """Return all settings of a worker as a configuration; empty for engines without one."""
        if self.engine.dialect is not TENSORRT_LLM:
            return {}
        role = dict(self.engine.roles.get(worker.role, {}))
        known = {n: v for n, v in worker.settings.items() if not n.startswith(COMMENTED)}
        return nested(known | role)

    @property
    def hosts(self) -> dict[str, list[str]]:
        """Names of the workers on one machine, or in a local network, by role."""
        return {
            worker.role: [f"{worker.role}-{index}" for index in range(worker.replicas)]
            for worker in self.workers
        }

    def router(
        self, hosts: Mapping[str, list[str]], folder: str = FOLDER
    ) -> tuple[list[str], Mapping[str, Any]]:
        """Return the command of the router between workers at these hosts, and its configuration if it has one.

        Args:
            hosts: Addresses by role.
            folder: Folder of the configuration.
        """
        prefill, decode = hosts[PREFILL], hosts[DECODE]
        words = self.engine.router(prefill, decode, f"{folder}/router.yaml")
        plain = self.engine.dialect is TENSORRT_LLM
        return words, router_configuration(prefill, decode) if plain else {}

    def _flags(self, settings: Mapping[str, Any]) -> Fields:
        if self.engine.dialect is TENSORRT_LLM:
            return flags_and_configuration(settings)[0]
        return flags_in(settings)

    def scripts(self) -> dict[str, str]:
        """Return the scripts of all workers by name: one for each node of a replica where nodes differ."""
        result = {}
        for worker in self.workers:
            head = list(worker.head)
            if self.apart and self.engine.environment:
                names = " and ".join(self.engine.environment)
                head.append(
                    f"set {names} to the address of this machine, which other workers reach"
                )
            several = worker.nodes > 1 and self.engine.nodes is not None
            for index in range(worker.nodes if several else 1):
                options = None
                if several and self.engine.nodes is not None:
                    options = self.engine.nodes(worker.settings, worker.nodes, index, "leader")
                    if options.shell is not None and index:
                        break  # Ray starts the further nodes
                name = f"{worker.role}-node{index}.sh" if several else f"{worker.role}.sh"
                settings = self.settings(worker, options)
                text = self.engine.dialect.render(settings, worker.processors, head)
                # Two workers of one machine would overwrite each other's configuration.
                result[name] = text.replace("config.yaml", f"{worker.role}.yaml")
        return result


def check_checkpoint(checkpoint: str) -> str:
    """Return the name of a checkpoint; SpecError for one that an engine would take for an option, or unprintable."""
    if checkpoint.startswith("-") or not checkpoint.isprintable() or not checkpoint.strip():
        wanted = "the name of a checkpoint (meta-llama/Llama-3.1-8B) or its folder"
        raise SpecError("--checkpoint", Problem("", wanted, repr(checkpoint)))
    return checkpoint
