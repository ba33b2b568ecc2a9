"""Deployments from and to commands of inference engines; the memory of a model on a machine converts their options."""

import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.base.units import GIB
from calculon.declarations.fields import optional_defaults, spec_fields
from calculon.declarations.files import STDIN
from calculon.declarations.model import Model
from calculon.declarations.serving_classes import engine_name
from calculon.hardware.system import System
from calculon.launch.dialect import Dialect, Launch, read
from calculon.launch.dialects import recognized_engine
from calculon.launch.engines.engine_commands import command_text
from calculon.launch.engines.engine_rows import DIGITS, MEMORY_SHARE, OF_HOST
from calculon.launch.launch_files import is_command, launch_text
from calculon.launch.server import RankBytes, Server
from calculon.serving.caches.rank_memory import rank_memory
from calculon.serving.default_deployment import with_released_types
from calculon.serving.passes.replica import Replica
from calculon.serving.records.deployment import OF_FREE, OF_TOTAL, Deployment
from calculon.serving.records.deployments import Deployments
from calculon.serving.records.engine_presets import ENGINE, with_engine
from calculon.serving.records.load import Workload
from calculon.serving.records.read_records import read_deployment, read_workload

UNCUT_TOKENS = 8192
"""Tokens of the largest pass if prompts are not chunked and no workload states their length."""


def deployment_defaults() -> dict[str, Any]:
    """Return the defaults of the fields of a deployment, in the form of a file."""
    values = optional_defaults(Deployment)
    keys = {one.name: (one.key, one.declaration.scale) for one in spec_fields(Deployment)}
    return {
        key: values[name] if scale == 1 or values[name] is None else values[name] / scale
        for name, (key, scale) in keys.items()
        if name in values
    }


def fields_of(deployment: Deployment) -> dict[str, Any]:
    """Return all fields of a deployment in the form of a file; None for fields that are left open."""
    return deployment_defaults() | deployment.to_dict()


def server_of(
    model: Model, system: System, workload: Workload | None = None, *, released: bool = False
) -> Server:
    """Return a model on a machine, for the conversion of memory options.

    Args:
        model, system: Model and machine.
        workload: Its prompts set the size of the largest pass of a deployment without chunked prefill.
        released: True if weights of 16 bits are those of the checkpoint, which may be narrower.
    """
    # the shortest output that a workload may have: only the prompt affects the activations
    load = workload or read_workload({"prompt": UNCUT_TOKENS, "output": 2})

    def rank(fields: Mapping[str, Any]) -> RankBytes:
        stated = {name: value for name, value in fields.items() if value is not None}
        one = read_deployment(with_released_types(model, stated) if released else stated)
        tokens = one.token_budget if one.mixes else load.computed
        found = rank_memory(Replica(model, system, Deployments.of(one), load), tokens)
        sizes = (found.capacity, found.weights, found.activation, found.reserve)
        return RankBytes(*(float(each[0]) for each in sizes))

    return Server(system.name, float(system.mem1.capacity), rank)


def launched_server(
    source: Any, server: Server | None = None, num_procs: int | None = None
) -> Launch | None:
    """Return the launch of an inference engine that a file or command states; None for any other source.

    Args:
        source: Source of a deployment.
        server: Model and machine, used to convert memory fractions.
        num_procs: Processors of all replicas; by default the processors of the command.

    Raises:
        SpecError: For a file that cannot be read, and for an option with a meaningless value.
    """
    if not isinstance(source, (str, os.PathLike)) or os.fspath(source) == STDIN:
        return None
    path = os.fspath(source)
    if is_command(path):
        text, path = path, "command"
    elif os.path.isfile(path):  # noqa: PTH113 (a text that can be no path has none)
        text = launch_text(path)
    else:
        return None
    engine = recognized_engine(text, path)
    return None if engine is None else read(engine, text, path, num_procs=num_procs, server=server)


def deployment_text(
    dialect: Dialect,
    deployment: Deployment,
    server: Server | None = None,
    facts: SimpleNamespace | None = None,
) -> str:
    """Return a script that starts an engine for a deployment.

    Args:
        dialect: The engine.
        deployment: The deployment.
        server: Model and machine, which shares of memory depend on.
        facts: Model and machine, which the engine's own defaults depend on.

    Raises:
        SpecError: As in :func:`command_text`, and for a share of all memory without model and machine.
    """
    same = engine_name(deployment.engine) == dialect.name
    engine = deployment.engine if same else dialect.name
    open_fields = (*OF_HOST, MEMORY_SHARE, "memory_fraction")
    known = {name: one for name, one in deployment.to_dict().items() if name not in open_fields}
    usual = with_engine(known | {ENGINE: engine}, facts)
    fields = _of_free_memory(fields_of(deployment), usual, server)
    return command_text(dialect, fields, deployment_defaults(), server, usual)


def _of_free_memory(
    fields: dict[str, Any], usual: Mapping[str, Any], server: Server | None
) -> dict[str, Any]:
    """Return fields whose share of memory is one of the free memory, with the same KV cache.

    Without model and machine, the engine's default stays open, and another share of the same kind is written as it is.
    """
    base = fields[MEMORY_SHARE]
    if base == OF_FREE:
        return fields
    if server is None:
        shares = (MEMORY_SHARE, "memory_fraction")
        if all(fields[name] == usual.get(name) for name in shares):
            return fields | {name: deployment_defaults()[name] for name in shares}
        if base == usual.get(MEMORY_SHARE):
            return fields
        hint = "a share of all memory depends on model and machine: --system"
        raise SpecError("deployment", Problem(MEMORY_SHARE, OF_FREE, base, hint))
    defaults = {MEMORY_SHARE: OF_FREE, "memory_fraction": 1.0}
    rank = server.rank(fields | defaults)
    held = rank.weights + (rank.activation if base == OF_TOTAL else 0.0)
    left = rank.capacity - rank.weights - rank.activation
    cache = min(fields["memory_fraction"] * rank.capacity - held, left)
    reserve = min(rank.reserve, left - cache)
    share = round(min(1.0, max(0.0, cache) / max(left - reserve, 1.0)), DIGITS)
    return fields | defaults | {"memory_fraction": share, "reserve_gib": reserve / GIB}
