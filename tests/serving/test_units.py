"""Passes and figures of serving scale by their units, exactly where these differ by powers of two."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from calculon import inputs
from calculon.base.records import columns
from calculon.declarations.serving_figures import ServingFigures
from calculon.serving.passes.pass_rows import pass_rows
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.passes.row_times import QUANTITIES, pass_times
from calculon.serving.records.number_types import WEIGHT_TYPES
from calculon.serving.records.read_records import read_deployment, read_workload
from calculon.serving.serve import solver_of
from tests.draws import draws
from tests.properties.test_homogeneity import Units
from tests.serving.drawn import FLOORS, deployments, machines, served_models, workloads
from tests.serving.given import types

pytestmark = pytest.mark.usefixtures("machine_list")

PLAIN_MACHINES = machines(tiles=False)
EXPONENTS = st.integers(-20, 20)


def in_units(system, other):
    """Write a machine in other units, the constants of serving included."""
    serving = system.ext.serving
    known = serving.small_reduce.latency
    latency = replace(known, seconds=tuple(one * other.seconds for one in known.seconds))
    floors = {name: getattr(serving, name) * other.seconds for name in FLOORS}
    reduce = replace(serving.small_reduce, latency=latency)
    launch = replace(system.ext.launch, eager=system.ext.launch.eager * other.seconds)
    ext = replace(
        system.ext, serving=replace(serving, small_reduce=reduce, **floors), launch=launch
    )
    return replace(other.system(system), ext=ext)


def rows_in_units(rows, other):
    """Write the rows of a pass in other units."""
    return [
        row._replace(
            flops=row.flops * other.flops,
            moved=row.moved * other.bytes,
            weights=row.weights * other.bytes,
            cache=row.cache * other.bytes,
            message=None if row.message is None else row.message * other.bytes,
        )
        for row in rows
    ]


@settings(max_examples=draws(8))
@given(
    model=served_models().map(inputs.model),
    system=PLAIN_MACHINES.map(inputs.system),
    weights=st.sampled_from(sorted(WEIGHT_TYPES)),
    exponents=st.tuples(EXPONENTS, st.integers(0, 20), EXPONENTS),  # no message below a byte
    graphs=st.booleans(),
)
def test_rows_of_a_pass(model, system, weights, exponents, graphs):
    other = Units(*(2.0**one for one in exponents))
    sizes = PassSizes.of(
        tensor_par=np.array([1.0, 1, model.attn_heads]),
        decoded=np.array([0.0, 9, 200]),
        context=np.array([0.0, 30, 900]),
        prompts=np.array([2.0, 1, 0]),
        chunk=np.array([10.0, 700, 0]),
    )
    rows = pass_rows(model, types(system, weights), sizes)
    ours = pass_times(model, system, rows, sizes, graphs=graphs)
    theirs = pass_times(
        model, in_units(system, other), rows_in_units(rows, other), sizes, graphs=graphs
    )
    scale = dict.fromkeys(QUANTITIES, other.seconds)
    scale |= {"flops": other.flops, "moved": other.bytes}
    scale |= {"weights": other.bytes, "cache": other.bytes}
    assert np.array_equal(theirs.time, ours.time * other.seconds)
    for before, after in zip(ours.rows, theirs.rows, strict=True):
        for name, factor in scale.items():
            expected = getattr(before, name) * factor
            np.testing.assert_array_equal(getattr(after, name), expected, err_msg=name)


@settings(max_examples=draws(5))
@given(data=st.data(), exponent=EXPONENTS)
def test_figures_of_a_slower_machine(data, exponent):
    """As many times as slow in all, with other prices: times and rates are so, and memory is as it was."""
    other = Units(1.0, 1.0, 2.0**exponent)
    document = data.draw(served_models())
    model, system = inputs.model(document), inputs.system(data.draw(PLAIN_MACHINES))
    deployment = read_deployment(data.draw(deployments(document, price=2.0)))
    load = read_workload(data.draw(workloads()))
    taken = {
        name: value * other.seconds
        for name in ("request_time", "pass_host", "sequence_host")
        if (value := getattr(deployment, name)) is not None
    }
    cases = (system, deployment), (in_units(system, other), replace(deployment, **taken))
    ours, theirs = (solver_of(model, *case, load).solve() for case in cases)
    assume(ours.fits[0])
    symbols = other.by_symbol | {
        "requests/s": 1 / other.seconds,
        "tokens/s": 1 / other.seconds,
        "USD/Mtoken": other.seconds,
        "J/token": other.seconds,
        "tokens": 1.0,
    }
    assert theirs.batch == ours.batch
    for column in columns(ServingFigures):
        expected = column.of(ours.figures) * symbols[column.unit.symbol]
        np.testing.assert_array_equal(column.of(theirs.figures), expected, err_msg=column.name)
