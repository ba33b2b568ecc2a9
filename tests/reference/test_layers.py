"""Every layer of reference results, in every member: of a third of them, and of all in a large run."""

import pytest

import calculon
from tests.draws import some
from tests.helpers import differences, reference_cases, reference_system


@pytest.mark.quick
def test_every_layer_meets_the_reference():
    wrong = {}
    for number, case in enumerate(some(reference_cases("layers"), 50)):
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
