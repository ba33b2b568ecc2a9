import dataclasses

import numpy as np
import pytest

from calculon.base.record_arrays import apply, concatenate, gather, joint_view
from calculon.base.records import column, columns, part, record, stat
from calculon.base.units import Bytes, Seconds, Unit

KINDS = ("base", "edge")


@record
class Inner:
    time: Seconds = stat("time of {part}", name="{part}_time", source="1.1")
    size: Bytes = stat("{axis} size of {part}", name="{axis}_{part}_size", axis=KINDS)


@record
class Outer:
    fw: Inner = part("the forward pass")
    bw: Inner = part("the backward pass", name="back")
    total: Seconds = stat("all of it", nullable=True)


def _outer(rows):
    """Make a record in which every number is different."""
    numbers = iter(range(100))

    def fill(*shape):
        return np.array([next(numbers) for _ in range(int(np.prod(shape)))], float).reshape(shape)

    return Outer(
        fw=Inner(time=fill(rows), size=fill(2, rows)),
        bw=Inner(time=fill(rows), size=fill(2, rows)),
        total=fill(rows),
    )


def test_columns_expand_parts_and_axes_in_the_order_of_declaration():
    assert [c.name for c in columns(Outer)] == [
        *("fw_time", "base_fw_size", "edge_fw_size"),
        *("back_time", "base_back_size", "edge_back_size"),
        "total",
    ]
    helps = {c.name: c.help for c in columns(Outer)}
    assert helps["edge_back_size"] == "edge size of the backward pass"
    assert [c.name for c in columns(Outer) if c.nullable] == ["total"]
    assert column(Outer, "fw_time").unit == Unit("s")
    assert column(Outer, "base_fw_size").unit == Unit("B", binary=True)
    assert column(Outer, "fw_time").source == "1.1"


def test_there_is_no_column_of_an_unknown_name():
    with pytest.raises(KeyError, match="bubble"):
        column(Outer, "bubble")


def test_a_record_is_frozen_and_complete():
    one = _outer(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.total = np.zeros(1)
    with pytest.raises(TypeError, match="size"):
        Inner(time=np.zeros(1))


@pytest.mark.parametrize("rows", [[2, 0, 0], [1], []], ids=str)
def test_gathering_selects_executions_in_every_array(rows):
    one = _outer(3)
    found = gather(one, np.array(rows, int))
    for c in columns(Outer):
        np.testing.assert_array_equal(c.of(found), c.of(one)[rows])


def test_concatenation_joins_executions_in_every_array():
    one, two = _outer(2), apply(lambda array: -array, [_outer(3)])
    both = concatenate([one, two])
    for c in columns(Outer):
        np.testing.assert_array_equal(c.of(both), [*c.of(one), *c.of(two)])


def test_a_joint_view_computes_an_array_once_when_it_is_read():
    one, other = _outer(2), _outer(2)
    calls = []

    def larger(first, second):
        calls.append(first.shape)
        return np.maximum(first, second + 1)

    found = joint_view([one, other], larger)
    assert not calls
    assert np.array_equal(found.fw.time, np.maximum(one.fw.time, other.fw.time + 1))
    assert found.fw.time is found.fw.time
    assert calls == [one.fw.time.shape]


def test_an_axis_without_members_has_no_column():
    @record
    class Empty:
        size: Bytes = stat("size of {axis}", name="{axis}_size", axis=())

    assert columns(Empty) == ()
