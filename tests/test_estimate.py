import json

import pytest

import calculon
from tests.helpers import NAMES, PLAIN, document

EXAMPLE = ("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
FOLDERS = ("models", "examples", "systems")
RAW = tuple(document(folder, name) for folder, name in zip(FOLDERS, EXAMPLE, strict=True))


@pytest.fixture(scope="module")
def result():
    """The estimate of the tutorial."""
    return calculon.estimate(*EXAMPLE, layers=True)


def test_a_result_knows_what_was_asked(result):
    assert (result.model.name, result.system.name) == (EXAMPLE[0], EXAMPLE[2])
    assert result.execution.to_dict() == RAW[1]
    assert result.edition == "sc23"


def test_it_reads_as_the_figures_that_matter(result):
    assert repr(result) == (
        "<Estimate of megatron-1T on 3072 x a100_80g (TP 4, PP 64, DP 12): "
        "131.9 s, 23.29 samples/s, 79.55 GiB, 30.46% efficiency>"
    )


def test_the_document_has_the_statistics_and_last_the_layers(result):
    document = result.to_dict()
    assert list(document) == [*NAMES, "layers"]
    assert list(calculon.estimate(*EXAMPLE).to_dict()) == list(NAMES)
    assert json.loads(json.dumps(document)) == document
    assert all(type(value) is float for value in result.stats.values())


def test_layers_are_listed_whether_or_not_the_execution_trains(result):
    inference = RAW[1] | {"training": False, "activation_recompute": "none"}
    inference |= {"data_par_overlap": False, "optimizer_offload": False}
    layers = calculon.estimate(RAW[0], inference, "a100_80e", layers=True).layers
    assert [layer["name"] for layer in layers] == [layer["name"] for layer in result.layers]
    assert sum(layer["agrad_flops"] for layer in layers) > 0
    assert sum(layer["optimizer"] for layer in layers) > 0


def _peers(tensor_par, pipeline_par, data_par, **more):
    degrees = {"tensor_par": tensor_par, "pipeline_par": pipeline_par, "data_par": data_par}
    whole = {"num_procs": tensor_par * pipeline_par * data_par, "batch_size": 4 * data_par}
    nets = {"tensor_par_net": 1, "pipeline_par_net": 1, "data_par_net": 1}
    plan = PLAIN | degrees | whole | nets | more
    return calculon.estimate("megatron-126M", plan, "a100_80e").peers()


@pytest.mark.parametrize("order", ["published", "stated", "tp-pp-dp", "tp-dp-pp"])
@pytest.mark.parametrize(("t", "p", "d"), [(1, 1, 1), (2, 1, 1), (1, 3, 1), (1, 1, 3), (2, 3, 4)])
def test_peers_of_every_rank(t, p, d, order):
    mesh = {} if order == "published" else {"edition": "corrected", "mesh_order": order}
    strides = {"tensor": 1, "pipeline": t, "data": t * p}
    if order == "tp-dp-pp":
        strides |= {"pipeline": t * d, "data": t}
    peers = _peers(t, p, d, **mesh)
    assert list(peers) == [str(rank) for rank in range(t * p * d)]
    for rank in range(t * p * d):
        expected = {}
        for axis, size in (("tensor", t), ("pipeline", p), ("data", d)):
            place = rank // strides[axis] % size
            group = [rank + (other - place) * strides[axis] for other in range(size)]
            if size > 1:
                expected[axis] = group[(place + 1) % size] if axis == "pipeline" else group
        assert peers[str(rank)] == expected


@pytest.mark.parametrize(
    ("position", "wrong", "file"),
    [
        (0, RAW[0] | {"hidden": "wide"}, "model"),
        (1, RAW[1] | {"datatype": "float17"}, "execution"),
        (2, RAW[2] | {"processing_mode": "fast"}, "system"),
        (0, "megatron-2T", "megatron-2T"),
    ],
)
def test_an_error_names_its_source(position, wrong, file):
    specs = list(RAW)
    specs[position] = wrong
    with pytest.raises(calculon.SpecError) as error:
        calculon.estimate(*specs)
    assert error.value.file == file


def test_a_memory_that_is_too_small_is_told_in_numbers():
    small = RAW[2] | {"mem1": RAW[2]["mem1"] | {"GiB": 40}}
    with pytest.raises(calculon.Infeasible) as error:
        calculon.estimate(RAW[0], RAW[1], small)
    found = error.value
    assert (found.reason, found.tier, found.available) == ("mem1_capacity", 1, 40 * 2.0**30)
    assert found.needed == calculon.estimate(*EXAMPLE).stats["proc_mem_tier1_cap_req"]
    with pytest.raises(calculon.Infeasible) as error:
        calculon.estimate(RAW[0], RAW[1] | {"pipeline_interleaving": 5}, RAW[2])
    assert (error.value.needed, error.value.available, error.value.tier) == (None, None, None)


def test_the_public_names_are_there():
    assert [name for name in calculon.__all__ if not hasattr(calculon, name)] == []
