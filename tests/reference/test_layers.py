"""Every layer of the reference results, in every member."""

import pytest

import calculon
from tests.helpers import differences, reference_cases, reference_system

CASES = reference_cases("layers")


def _id(number, case):
    return f"{number} {case['model']} on {case['system']}"


@pytest.mark.parametrize("case", CASES, ids=[_id(i, case) for i, case in enumerate(CASES)])
def test_every_layer_meets_the_reference(case):
    system = reference_system(case["system"])
    result = calculon.estimate(case["application"], case["execution"], system, layers=True)
    expected = case["stats"]
    assert differences(result.stats, {n: v for n, v in expected.items() if n != "layers"}) == []
    assert [layer["name"] for layer in result.layers] == [x["name"] for x in expected["layers"]]
    for found, wanted in zip(result.layers, expected["layers"], strict=True):
        assert differences(found, wanted) == []


def test_there_are_150_listings():
    assert len(CASES) == 150
