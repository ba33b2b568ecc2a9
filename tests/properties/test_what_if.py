"""Row i of a table of variants of a system equals that system alone, bit for bit, whatever figures others change."""

import contextlib
from random import Random

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.hardware.figures import figures_of, with_figures
from tests.draws import draws, some
from tests.properties.table import with_all_fields

FACTORS = (0.5, 0.9, 1.01, 1.25, 3.0)


def variants(random, system, count):
    """Choose new values of some figures for each of so many rows; a few switch something off."""
    figures, found = figures_of(system, points=True), []
    while len(found) < count:
        some = random.sample(sorted(figures), min(len(figures), random.choice((0, 1, 1, 2, 5))))
        change = {path: other(random, figures[path]) for path in some}
        with contextlib.suppress(calculon.SpecError):  # of figures that do not go together
            with_figures(system, change)
            found.append(change)
    return found


def other(random, figure):
    """Choose another value that a figure may have."""
    values = [figure.value * factor for factor in FACTORS]
    if figure.kind is int:
        values = [max(1, round(value)) for value in values]
    allowed = [value for value in (*values, 0) if figure.problem(value) is None]
    return random.choice(allowed or [figure.value])


def assert_rows_are_alone(model, plan, system, changes):
    """Compare what is evaluated together with every changed system alone: values, reasons, bit for bit."""
    many = calculon.what_if(model, plan, system, changes)
    for i, change in enumerate(changes):
        machine = with_figures(system, change) if change else system
        alone = calculon.evaluate(model, machine, plan.take(slice(i, i + 1)))
        assert many.reason[i] == alone.reason[0], change
        for name in alone.names:
            found, expected = many[name][i], alone[name][0]
            assert found == expected or (np.isnan(found) and np.isnan(expected)), (name, change)


def compare(table, random):
    """Compare some executions of a table on some variants of its system."""
    model, system = inputs.model(table.model), inputs.system(table.system)
    plan = calculon.Plan.from_records(random.sample(table.rows, min(2, len(table.rows))))
    each = np.repeat(np.arange(len(plan)), 3)
    changes = variants(random, system, len(each))
    assert_rows_are_alone(model, plan.take(each), system, changes)


def test_executions_on_variants_of_random_systems():
    for number, table in enumerate(with_all_fields()[1::3]):
        compare(table, Random(number))


DENSE = (
    {
        "tensor_par": 4,
        "pipeline_par": 2,
        "pipeline_interleaving": 4,
        "tensor_par_comm_type": "rs_ag",
    },
    {
        "zero_stage": "fsdp",
        "optimizer_sharding": True,
        "mesh_order": "tp-dp-pp",
        "coll_algo": "auto",
    },
    {"tensor_par": 2, "context_par": 2, "mesh_order": "tp-pp-dp", "coll_algo": "ring"},
    {"tensor_par": 8, "tensor_par_comm_type": "rs_ag", "tensor_par_overlap": "ring"},
    {"weight_offload": True, "activations_offload": True, "optimizer_offload": True},
    {"training": False, "tensor_par": 8},
    {"tensor_par": 4, "launch_mode": "eager", "optimizer_impl": "loop", "fusion": "none"},
)
EXPERTS = (
    {"expert_par": 8, "tensor_par": 2},
    {"expert_par": 8, "moe_dispatcher": "deepep", "mesh_order": "tp-dp-pp", "coll_algo": "auto"},
)
COMMON = {
    **{"num_procs": 32, "tensor_par": 1, "pipeline_par": 1, "batch_size": 64},
    **{"microbatch_size": 1, "datatype": "bfloat16", "edition": "corrected"},
}


@pytest.mark.parametrize(
    ("name", "model", "executions"),
    [
        ("a100_80g_sxm", "llama3-8B", DENSE),
        ("h100_80g_sxm", "mixtral-8x7B", EXPERTS),
        ("gb200_nvl72", "mixtral-8x7B", EXPERTS),
        ("tpu_v5p", "llama3-8B", DENSE),
        ("mi300x", "llama3-8B", DENSE),
    ],
)
def test_figures_of_systems_of_the_catalog(name, model, executions):
    system, random = inputs.system(name), Random(name)
    found = figures_of(system, points=True)
    # of the rates of kernels, those of the type that runs
    paths = [path for path in found if "kernels" not in path or "bfloat16" in path or "any" in path]
    changes = []
    for path in random.sample(paths, min(draws(5), len(paths))):
        with contextlib.suppress(calculon.SpecError):  # a network larger than its torus
            with_figures(system, change := {path: other(random, found[path])})
            changes.append(change)
    changes += [{"mem1.GiB": 1.0, "mem1.GBps": 1e4}]
    executions = [COMMON | execution for execution in executions]
    plan = calculon.Plan.from_records([random.choice(executions) for _ in changes])
    assert_rows_are_alone(inputs.model(model), plan, system, changes)


@pytest.mark.parametrize("execution", [DENSE[1], DENSE[6]], ids=["mesh", "launches"])
def test_what_is_nothing_in_some_rows_switches_nothing_off_in_others(execution):
    system = inputs.system("a100_80g_sxm")
    parts = ("ext.networks", "ext.launch", "ext.memory", "networks", "ext.kernels.product.bfloat16")
    terms = [one for one in calculon.figures(system).values() if not one.builds]
    terms = [one for one in terms if one.path.startswith(parts) and one.problem(0) is None]
    changes = [{one.path: 0 if one.value else 1e-6} for one in some(terms, 8)]
    plan = calculon.Plan.from_records([COMMON | execution] * len(changes))
    assert_rows_are_alone(inputs.model("llama3-8B"), plan, system, changes)
