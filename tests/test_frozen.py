"""Frozen dataclasses that are cheap to define are as those of the standard library."""

import copy
import dataclasses
import pickle
from dataclasses import field, fields, replace

import pytest

from calculon.base.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Light:
    a: int
    b: str = "b"
    c: list[int] = field(default_factory=list, compare=False)
    d: int = field(init=False, repr=False, default=3)

    def __post_init__(self):
        object.__setattr__(self, "d", 2 * self.a)


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    a: int
    b: str = "b"
    c: list[int] = field(default_factory=list, compare=False)
    d: int = field(init=False, repr=False, default=3)

    def __post_init__(self):
        object.__setattr__(self, "d", 2 * self.a)


@dataclass(frozen=True, kw_only=True, eq=False)
class Named:
    a: int


@dataclass(frozen=True, slots=True)
class Derived(Light):
    e: int = 0


@pytest.mark.parametrize("cls", [Light, Standard])
def test_it_is_made_compared_and_copied_as_a_dataclass(cls):
    one, same, other = cls(1), cls(a=1, b="b", c=[5]), cls(1, "c")
    assert (one.a, one.b, one.c, one.d) == (1, "b", [], 2)
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert repr(other) == f"{cls.__name__}(a=1, b='c', c=[])"
    assert [f.name for f in fields(cls)] == ["a", "b", "c", "d"]
    assert cls.__match_args__ == ("a", "b", "c")
    assert replace(one, b="c") == other
    assert replace(one, a=5).d == 10
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == copy.copy(one) == one
    assert cls(1).c is not cls(1).c
    assert not hasattr(one, "__dict__")


@pytest.mark.parametrize("cls", [Light, Standard])
@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), ((1, "b", [], 4, 5), {}), ((1,), {"a": 1}), ((1,), {"z": 1}), ((1,), {"d": 1})],
)
def test_wrong_arguments_are_refused(cls, values, named):
    with pytest.raises(TypeError):
        cls(*values, **named)


@pytest.mark.parametrize("cls", [Light, Standard])
def test_it_does_not_change(cls):
    one = cls(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.a = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.a


def test_keywords_identity_and_inheritance():
    with pytest.raises(TypeError):
        Named(1)
    assert Named(a=1) != Named(a=1)
    assert Derived(1, e=4).e == 4
    assert Derived(1) != Light(1)
    assert Derived(1).d == 2
