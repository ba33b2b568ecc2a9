"""``calculon plot batch`` and ``plot frontier``: pictures of a served model."""

import argparse
from typing import Any

from calculon.cli.changes import parsed
from calculon.cli.field_options import stated_by
from calculon.cli.serving_options import FRONTIER_KINDS, OPTIONS, asked_served
from calculon.documents.served_frontier import frontier_of
from calculon.inputs import Changed
from calculon.search.deployments import deployment_words
from calculon.serving.by_batch import by_batch


def batch(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return times and rates of a deployment over its batch."""
    return by_batch(asked_served(arguments)).to_dict()


def frontier(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the frontier of each machine."""
    changes = parsed(arguments.changes, FRONTIER_KINDS)
    return frontier_of(
        Changed.of(arguments.model, changes["model"]),
        arguments.num_procs,
        [Changed.of(one, changes["system"]) for one in arguments.systems],
        arguments.workload,
        stated_by(OPTIONS, arguments) | changes["workload"],
        deployment_words.parsed("--fix", arguments.fix),
        deployment_words.parsed("--add", arguments.add),
        apart=arguments.apart,
    )
