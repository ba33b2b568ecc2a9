"""Every layer of the reference results, in every member."""

import pytest

import calculon
from tests.helpers import differences, reference_cases, reference_system

CASES = reference_cases("layers")


@pytest.mark.quick
def test_every_layer_meets_the_reference():
    wrong = {}
    for number, case in enumerate(CASES):
        system = reference_system(case["system"])
        result = calculon.estimate(case["application"], case["execution"], system, layers=True)
        expected = case["stats"]
        names = [layer["name"] for layer in expected["layers"]]
        found = differences(result.stats, {n: v for n, v in expected.items() if n != "layers"})
        if [layer["name"] for layer in result.layers] != names:
            found.append(f"the layers are not {names}")
        for name, layer, wanted in zip(names, result.layers, expected["layers"], strict=False):
            found += [f"{name}: {one}" for one in differences(layer, wanted)]
        if found:
            wrong[f"{number} {case['model']} on {case['system']}"] = found
    assert not wrong


def test_there_are_150_listings():
    assert len(CASES) == 150
