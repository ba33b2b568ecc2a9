import numpy as np
import pytest

import calculon
from tests.cases import for_each
from tests.helpers import PLAIN, document

MODEL = document("models", "megatron-22B")
RAW = PLAIN | {
    "num_procs": 4,
    "tensor_par": 4,
    "batch_size": 4,
    "microbatch_size": 2,
    "pipeline_par_net": 1,
    "data_par_net": 1,
    "fused_activation": True,
}
MESSAGE = 2 * 2 * MODEL["seq_size"] * MODEL["hidden"]  # float16, two sequences
LATENCY, RATE = 1e-5, 300e9 * 0.65
PASSES = {"all_reduce": 2 * 3 / 4, "reduce_scatter": 1.5 * 3 / 4, "all_gather": 1.5 * 3 / 4}
"""Times that an operation moves its message among four, on network 0."""


def _layers(system="a100_80e", **changes):
    result = calculon.estimate(MODEL, RAW | changes, system, layers=True)
    return {layer["name"]: layer for layer in result.layers}


def _time(operation):
    return LATENCY + MESSAGE * PASSES[operation] / RATE


def _own(layer, phase):
    """Arithmetic and memory time that a collective layer adds to its link time."""
    system = calculon.inputs.system("a100_80e")
    flops, accessed = layer[f"{phase}_flops"], layer[f"{phase}_mem_accessed"]
    arithmetic = flops / (78e12 * system.vector["float16"].efficiency.at(flops))
    return arithmetic + accessed / (2048e9 * system.mem1.efficiency.at(accessed))


OPERATIONS = {
    ("ar", "base"): (None, "all_reduce", "all_reduce", None),
    ("ar", "edge"): (None, "all_reduce", "all_reduce", None),
    ("p2p_rs_ag", "base"): (None, "all_reduce", "all_reduce", None),
    ("p2p_rs_ag", "edge"): ("all_gather", "reduce_scatter", "reduce_scatter", "all_gather"),
    ("rs_ag", "base"): ("all_gather", "reduce_scatter", "reduce_scatter", "all_gather"),
    ("rs_ag", "edge"): ("all_gather", "reduce_scatter", "reduce_scatter", "all_gather"),
}
"""Operations of f forward and backward, and of g forward and backward."""


@for_each(("comm_type", "kind"), OPERATIONS)
def test_each_side_runs_its_operation_in_each_pass(comm_type, kind):
    layers = _layers(tensor_par_comm_type=comm_type)
    sides = [("F", "fw"), ("F", "agrad"), ("G", "fw"), ("G", "agrad")]
    for (side, phase), operation in zip(sides, OPERATIONS[comm_type, kind], strict=True):
        layer = layers[f"AttnBlock_{side}"]
        prefix = f"{kind}block_{'fw' if phase == 'fw' else 'bw'}_tp_comm"
        expected = _time(operation) + _own(layer, phase) if operation else 0
        assert layer[f"{prefix}_size"] == (MESSAGE if operation else 0)
        assert layer[f"{prefix}_time"] == pytest.approx(expected, rel=1e-12)
        assert layer[f"{prefix}_time_exposed"] == layer[f"{prefix}_time"]
        assert layer[f"{prefix}_tile"] == layer[f"{prefix}_size"]


def test_a_repeated_gather_costs_its_network_time_alone():
    layers = _layers(tensor_par_comm_type="rs_ag", activation_recompute="full")
    assert layers["MlpBlock_F"]["baseblock_recomm_time"] == pytest.approx(_time("all_gather"))
    assert layers["MlpBlock_G"]["baseblock_recomm_time"] == pytest.approx(_time("reduce_scatter"))


@pytest.mark.parametrize("overlap", ["ring", "pipe"])
def test_an_overlapped_collective_moves_in_as_many_tiles_as_there_are_peers(overlap):
    layers = _layers(tensor_par_comm_type="rs_ag", tensor_par_overlap=overlap)
    gather = layers["AttnBlock_QKV_AG"]
    assert gather["baseblock_fw_tp_comm_size"] == MESSAGE
    assert gather["baseblock_fw_tp_comm_tile"] == MESSAGE / 4
    assert gather["baseblock_fw_tp_comm_time"] == pytest.approx(_time("all_gather"), rel=1e-12)


def test_a_reducing_overlapped_collective_also_adds():
    reduce = _layers(tensor_par_comm_type="ar", tensor_par_overlap="ring")["MlpBlock_Mlp2_RS"]
    additions = MESSAGE / 2 * 3 / 4
    system = calculon.inputs.system("a100_80e")
    adding = additions / (78e12 * system.vector["float16"].efficiency.at(additions))
    expected = _time("all_reduce") + adding
    assert reduce["edgeblock_fw_tp_comm_time"] == pytest.approx(expected, rel=1e-12)


def _beside_free_networks(overlap, comm_type="rs_ag", edition="corrected"):
    """Return layers on a machine whose collectives take neither time nor processors."""
    free = document("systems", "a100_80e")
    for network in free["networks"]:
        network |= {"processor_usage": 0, "latency": 0, "bandwidth": 1e12}
    changes = {"tensor_par_comm_type": comm_type, "tensor_par_overlap": overlap}
    return _layers(free, edition=edition, **changes)


BOTH = (4, 4, 1)


@for_each(
    ("comm_type", "name", "cut"),
    [
        ("rs_ag", "MlpBlock_Mlp1_AG", BOTH),
        ("rs_ag", "MlpBlock_Mlp2_RS", BOTH),
        ("ar", "MlpBlock_Mlp1_AG", (1, 4, 1)),
        ("ar", "MlpBlock_Mlp2_RS", (4, 1, 1)),
    ],
)
def test_tiles_of_an_overlapped_product_are_products_that_each_read_the_weights(
    comm_type, name, cut
):
    """Source: Wang et al., ASPLOS 2023, section 5; passes without a collective, and gradients of weights, are whole."""
    tiled = _beside_free_networks("pipe", comm_type)[name]
    whole = _beside_free_networks("pipe", comm_type, "sc23")[name]
    system = calculon.inputs.system("a100_80e")
    for phase, tiles in zip(("fw", "agrad", "wgrad"), cut, strict=True):
        flops, accessed = (tiled[f"{phase}_{what}"] for what in ("flops", "mem_accessed"))
        assert flops == whole[f"{phase}_flops"]
        arithmetic = system.matrix["float16"].time(np.array(flops / tiles))
        time = tiles * system.combine(arithmetic, system.mem1.time(np.array(accessed / tiles)))
        assert tiled[f"{phase}_processing_time"] == pytest.approx(time)
    again = (cut[0] - 1) * tiled["weight"]
    assert tiled["fw_mem_accessed"] == whole["fw_mem_accessed"] + again


def test_a_ring_that_reduces_adds_a_tile_in_each_step_but_the_first():
    """Two tiles are read and one is written; a pipelined product leaves the sums to the collective."""
    ring, pipe = _beside_free_networks("ring"), _beside_free_networks("pipe")
    tile = MESSAGE / 4
    adding = 3 * calculon.inputs.system("a100_80e").mem1.time(np.array(3 * tile))
    for name, sums in (("MlpBlock_Mlp2_RS", (adding, 0)), ("MlpBlock_Mlp1_AG", (0, adding))):
        for phase, more in zip(("fw", "agrad"), sums, strict=True):
            key = f"{phase}_processing_time"
            assert ring[name][key] == pytest.approx(pipe[name][key] + more)


@pytest.mark.parametrize("name", ["MlpBlock_Mlp1_AG", "MlpBlock_Mlp2_RS"])
def test_kernels_of_tiles_are_launched_while_their_traffic_is_waited_for(name):
    """A pass and what it waits for take the longer of the launches and of both together."""

    def passes(kernel):
        system = document("systems", "a100_80e") | {"ext": {"launch": {"kernel": kernel}}}
        system["networks"][0]["bandwidth"] = 1
        changes = {"tensor_par_comm_type": "rs_ag", "tensor_par_overlap": "ring"}
        layer = _layers(system, edition="corrected", **changes)[name]
        return [
            layer["fw_processing_time"] + layer["baseblock_fw_tp_comm_time_exposed"],
            layer["agrad_processing_time"] + layer["baseblock_bw_tp_comm_time_exposed"],
        ]

    free = passes(0.0)
    assert passes(min(free) / 4) == pytest.approx(free)
    assert passes(max(free)) == pytest.approx([4 * max(free)] * 2)
