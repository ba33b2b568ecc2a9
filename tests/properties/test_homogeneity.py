"""Every quantity scales by its declared unit.

FLOP, bytes and seconds are measured in other units, powers of two of ours, and every result must come out exactly as
its annotation says: a sum of unlike quantities, a forgotten factor or a wrong declaration shows.
"""

import dataclasses
from typing import get_type_hints

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import calculon
from calculon.architecture.block import block_layers
from calculon.architecture.shape import BlockShape
from calculon.base.records import columns
from calculon.base.units import unit_of
from calculon.cost.batch import Batch
from calculon.cost.block_tables import block_tables, only_choices
from calculon.cost.layer_cost import LayerTable, LayerTimes, layer_cost, layer_times
from calculon.cost.tensor import NetworkTimes, Traffic
from calculon.declarations.statistics import Stats
from calculon.editions import SC23
from calculon.hardware.curve import Curve
from calculon.plan.plan import Plan
from tests.draws import draws
from tests.helpers import schedule_of
from tests.strategies import questions

EXPONENTS = st.integers(-30, 30)


class Units:
    """Other units: so many of them make one FLOP, one byte, one second."""

    def __init__(self, flops: float, size: float, seconds: float):
        self.flops, self.bytes, self.seconds = flops, size, seconds
        self.by_symbol = {
            "FLOP": flops,
            "B": size,
            "s": seconds,
            "FLOP/s": flops / seconds,
            "B/s": size / seconds,
            "samples/s": 1 / seconds,
            "fraction": 1.0,
            "": 1.0,
        }

    def record(self, record):
        """Write a record in these units, field by field as declared."""
        hints = get_type_hints(type(record), include_extras=True)
        values = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
        return type(record)(
            **{
                name: self.record(value)
                if dataclasses.is_dataclass(value)
                else value * self.by_symbol[unit_of(hints[name]).symbol]
                for name, value in values.items()
            }
        )

    def system(self, system):
        """Write a system in these units, the thresholds of its curves included."""

        def engine(one):
            curve = Curve(one.efficiency.sizes * self.flops, one.efficiency.efficiencies)
            return dataclasses.replace(
                one, peak=one.peak * self.flops / self.seconds, efficiency=curve
            )

        def memory(one):
            curve = Curve(one.efficiency.sizes * self.bytes, one.efficiency.efficiencies)
            return dataclasses.replace(
                one,
                capacity=one.capacity * self.bytes,
                bandwidth=one.bandwidth * self.bytes / self.seconds,
                efficiency=curve,
            )

        def network(one):
            return dataclasses.replace(
                one,
                bandwidth=one.bandwidth * self.bytes / self.seconds,
                latency=one.latency * self.seconds,
            )

        return dataclasses.replace(
            system,
            matrix={name: engine(one) for name, one in system.matrix.items()},
            vector={name: engine(one) for name, one in system.vector.items()},
            mem1=memory(system.mem1),
            mem2=memory(system.mem2),
            networks=tuple(network(one) for one in system.networks),
        )


@st.composite
def units(draw):
    """Any combination of other units."""
    return Units(*(2.0 ** draw(EXPONENTS) for _ in range(3)))


def _decoded(question):
    """Return model, system and plan, or nothing for a question without an answer."""
    model, execution, system = question
    plan = Plan.from_records([execution])
    if calculon.evaluate(model, system, plan).reason[0]:
        return None
    return calculon.inputs.model(model), calculon.inputs.system(system), plan


@settings(max_examples=draws(10))
@given(question=questions(), other=units())
def test_statistics_of_an_iteration(question, other):
    if (decoded := _decoded(question)) is None:
        return
    model, system, plan = decoded
    tables = block_tables(model, system, plan, SC23)
    schedule = schedule_of(plan, model, system)
    with np.errstate(invalid="ignore"):  # null is not-a-number
        ours = Batch(model, tables.block, tables.optimizer, schedule, system, SC23)
        theirs = Batch(
            model,
            other.record(tables.block),
            other.record(tables.optimizer),
            schedule,
            other.system(system),
            SC23,
        )
        for column in columns(Stats):
            expected = column.of(ours) * other.by_symbol[column.unit.symbol]
            np.testing.assert_array_equal(column.of(theirs), expected, err_msg=column.name)


@settings(max_examples=draws(10))
@given(question=questions(), other=units())
def test_times_and_messages_of_layers(question, other):
    if (decoded := _decoded(question)) is None:
        return
    model, system, plan = decoded
    block, _, sizes = only_choices(plan)
    if block.tensor_par_overlap != "none":  # there a byte of a message stands for an addition
        other = Units(other.bytes, other.bytes, other.seconds)
    layers = list(block_layers(BlockShape.of(model, block.layout, sizes, SC23)))

    def cost(table, system):
        times = layer_times(table, system, block.layout)
        return layer_cost(table, times, NetworkTimes(system, sizes), block, SC23)

    ours = cost(LayerTable(layers, 1), system)
    table = LayerTable([_with_message(layer, other.bytes) for layer in layers], 1)
    table.flops *= other.flops
    table.accessed *= other.bytes
    theirs = cost(table, other.system(system))
    for cls, mine, yours in (
        (LayerTimes, ours.times, theirs.times),
        (Traffic, ours.traffic, theirs.traffic),
    ):
        for name, hint in get_type_hints(cls, include_extras=True).items():
            expected = getattr(mine, name) * other.by_symbol[unit_of(hint).symbol]
            np.testing.assert_array_equal(getattr(yours, name), expected, err_msg=name)


def _with_message(layer, factor):
    if layer.collective is None:
        return layer
    scaled = layer.collective._replace(message=layer.collective.message * factor)
    return layer._replace(collective=scaled)


@settings(max_examples=draws(10))
@given(question=questions(), exponent=EXPONENTS)
def test_seconds_of_a_whole_estimate(question, exponent):
    if (decoded := _decoded(question)) is None:
        return
    model, system, plan = decoded
    other = Units(1.0, 1.0, 2.0**exponent)
    ours = calculon.evaluate(model, system, plan)
    theirs = calculon.evaluate(model, other.system(system), plan)
    for column in columns(Stats):
        expected = ours[column.name] * other.by_symbol[column.unit.symbol]
        np.testing.assert_array_equal(theirs[column.name], expected, err_msg=column.name)
