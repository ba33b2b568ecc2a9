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


def _layers(system="a100_80e", **changes):
    result = calculon.estimate(MODEL, RAW | changes, system, layers=True)
    return {layer["name"]: layer for layer in result.layers}


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
