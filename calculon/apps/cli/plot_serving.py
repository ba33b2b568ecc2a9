"""``calculon plot batch`` and ``plot frontier``: pictures of a served model."""

import argparse
from typing import Any

from calculon.apps.cli.changes import parsed
from calculon.apps.cli.field_options import processors_in_place, stated_by
from calculon.apps.cli.serving_options import KINDS, OPTIONS, asked_served
from calculon.apps.views.serving_frontier import frontier_of
from calculon.errors import Problem, SpecError
from calculon.inputs import Changed
from calculon.serving.by_batch import by_batch


def batch(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return times and rates of a deployment over its batch."""
    return by_batch(asked_served(arguments)).to_dict()


def frontier(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the frontier of each machine."""
    count = processors_in_place(arguments.num_procs)
    if count is None:
        wanted = "a number of processors"
        raise SpecError("COUNT", Problem("", wanted, repr(arguments.num_procs)))
    changes = parsed(arguments.changes, KINDS)
    return frontier_of(
        Changed.of(arguments.model, changes["model"]),
        count,
        [Changed.of(one, changes["system"]) for one in arguments.systems],
        arguments.workload,
        changes["deployment"],
        stated_by(OPTIONS, arguments) | changes["workload"],
    )
