"""Classes of measured steps: every step is in one class, and the first condition that it meets decides."""

import dataclasses
import itertools

import pytest

from calculon.declarations.named_values import SPLIT_WEIGHTS
from calculon.declarations.presets import COMMON, PUBLISHED_FORMS
from calculon.estimate.run_table import SMALL_MODEL, runs
from calculon.validate.run_classes import CLASSES, HOPPER_AND_AMPERE, class_of

TESTS, EXPERTS, SMALL, SHARDED, FRAMEWORK, OTHER = CLASSES

STATES = {
    "functional": (0, 1),
    "experts": (0, 8),
    "parameters": (int(SMALL_MODEL) - 1, int(SMALL_MODEL)),
    "zero_stage": ("0", "1", *SPLIT_WEIGHTS),
    "family": (*HOPPER_AND_AMPERE, "NVIDIA Blackwell", ""),
    "preset": ("megatron-lm", COMMON, PUBLISHED_FORMS),
}
"""Values of everything that decides a class, on both sides of each condition."""


@pytest.fixture(scope="module")
def steps():
    one = runs()[0]
    return [
        dataclasses.replace(one, **dict(zip(STATES, values, strict=True)))
        for values in itertools.product(*STATES.values())
    ]


def test_every_step_is_in_one_class_and_no_class_is_empty(steps):
    assert {class_of(one) for one in steps} == set(CLASSES)
    for number, one in enumerate(CLASSES):
        members = [step for step in steps if class_of(step) is one]
        rest = [step for step in steps if class_of(step) in CLASSES[number + 1 :]]
        assert all(map(one.holds, members))
        assert not any(map(one.holds, rest))


def test_functional_tests_are_in_no_other_class(steps):
    assert all((class_of(one) is TESTS) == bool(one.functional) for one in steps)


def test_models_with_and_without_experts_are_never_mixed(steps):
    for one in steps:
        if not one.functional:
            assert (class_of(one) is EXPERTS) == (one.experts > 0)


def test_dense_models_are_divided_by_size_then_sharding_then_framework(steps):
    for one in steps:
        if one.functional or one.experts:
            continue
        small, sharded = one.parameters < SMALL_MODEL, one.zero_stage in SPLIT_WEIGHTS
        known = one.family in HOPPER_AND_AMPERE and one.preset == "megatron-lm"
        wanted = SMALL if small else SHARDED if sharded else FRAMEWORK if known else OTHER
        assert class_of(one) is wanted
