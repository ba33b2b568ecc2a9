"""Deployments from and to commands of inference engines; the memory of a model on a machine converts their options."""

import os
from collections.abc import Mapping
from typing import Any

from calculon.declarations.fields import optional_defaults, spec_fields
from calculon.declarations.files import STDIN
from calculon.declarations.model import Model
from calculon.hardware.system import System
from calculon.launch.dialect import Dialect, Launch, read
from calculon.launch.dialects import recognized_engine
from calculon.launch.engines.engine_commands import command_text
from calculon.launch.launch_files import is_command, launch_text
from calculon.launch.server import RankBytes, Server
from calculon.serving.caches.rank_memory import rank_memory
from calculon.serving.passes.replica import Replica
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.deployments import Deployments
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


def server_of(model: Model, system: System, workload: Workload | None = None) -> Server:
    """Return a model on a machine, for the conversion of memory options.

    Args:
        model, system: Model and machine.
        workload: Its prompts set the size of the largest pass of a deployment without chunked prefill.
    """
    # the shortest output that a workload may have: only the prompt affects the activations
    load = workload or read_workload({"prompt": UNCUT_TOKENS, "output": 2})

    def rank(fields: Mapping[str, Any]) -> RankBytes:
        stated = {name: value for name, value in fields.items() if value is not None}
        one = read_deployment(stated)
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


def deployment_text(dialect: Dialect, deployment: Deployment, server: Server | None = None) -> str:
    """Return a script that starts an engine for a deployment; errors as in :func:`command_text`."""
    return command_text(dialect, fields_of(deployment), deployment_defaults(), server)
