"""One test for each correction, which the published edition fails; tags are those of ``validation/editions.md``."""

import dataclasses
import re

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.editions import CORRECTED, SC23
from calculon.editions.edition import DataParallelWindow
from tests.cases import for_each
from tests.helpers import PLAIN, ROOT, document

MODEL = document("models", "megatron-22B")  # 48 blocks
SYSTEM = document("systems", "a100_80e")  # its tier-1 memory is never full
MACHINE, PUBLISHED = inputs.system(SYSTEM), inputs.system("a100_80g")
BASE = PLAIN | {
    "num_procs": 4,
    "tensor_par": 4,
    "pipeline_par_net": 1,
    "data_par_net": 1,
    "batch_size": 8,
}
BLOCKS, LATENCY = MODEL["num_blocks"], SYSTEM["networks"][1]["latency"]
ELEMENTS = MODEL["seq_size"] * MODEL["hidden"]
MESSAGE = 2 * ELEMENTS  # float16
FULL = {"activation_recompute": "full"}
SELECTIVE = {"activation_recompute": "attn_only"}
SPLIT = {"tensor_par_comm_type": "rs_ag"}
REDO = SPLIT | {"seq_par_ag_redo": True}
RING = {"tensor_par_overlap": "ring"}
PIPELINE = {"num_procs": 16, "pipeline_par": 4}
REPLICATED = {"num_procs": 16, "data_par": 4, "batch_size": 32}
SHARDED = REPLICATED | {"optimizer_sharding": True}
INFERENCE = {"training": False}
CORE = ("Key_Query", "SoftMax", "DropOut", "Attn")
PRODUCTS = ("AttnBlock_QKV_AG", "AttnBlock_MLP_RS", "MlpBlock_Mlp1_AG", "MlpBlock_Mlp2_RS")


def _estimate(edition="corrected", *, system=MACHINE, **changes):
    """Estimate; layers by name."""
    execution = BASE | {"edition": edition} | changes
    result = calculon.estimate(MODEL, execution, system, layers=True)
    return result.stats, {layer["name"]: layer for layer in result.layers}


def _both(name, **changes):
    """Return a statistic in this and in the published edition."""
    return tuple(_estimate(edition, **changes)[0][name] for edition in ("corrected", "sc23"))


def test_every_correction_is_in_the_fidelity_table_and_has_a_test():
    table = (ROOT / "validation" / "editions.md").read_text()
    source = (ROOT / "calculon" / "editions" / "edition.py").read_text()
    named = set(re.findall(r"\b[AL]\d+w?\b", " ".join(re.findall(r"\[[AL]\d[^]]*\]", source))))
    tested = {name.split("_")[1].capitalize() for name in globals() if name.startswith("test_")}
    tags = {tag for tag in tested if re.fullmatch(r"[AL]\d+w?", tag)}
    assert tags >= named - {"A36"}  # which is as published
    assert tags <= set(re.findall(r"\b[AL]\d+w?\b", table))
    oddities = {int(tag) for tag in re.findall(r"\| ?O(\d+) \|", table)}
    assert oddities >= set(range(1, 26)) - {9}


# -- work and space of a block ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("recompute", ["full", "attn_only"])
def test_a01_recomputed_layers_count_their_own_forward_work(recompute):
    stats, layers = _estimate(activation_recompute=recompute)
    core = {f"AttnBlock_Multihead_{name}" for name in CORE}
    again = [
        layer
        for name, layer in layers.items()
        if (recompute == "full" and not name.endswith(("_F", "_G"))) or name in core
    ]
    for member in ("flops", "mem_accessed"):
        expected = sum(layer[f"fw_{member}"] for layer in again)
        assert stats[f"block_re_{member}"] == pytest.approx(expected, rel=1e-13)
    assert _estimate("sc23", activation_recompute=recompute)[0]["block_re_flops"] > sum(
        layer["fw_flops"] for layer in again
    )


def test_a02_an_input_that_is_never_split_is_stored_and_not_gathered_again():
    found, published = _both("block_act_storage_space", **SELECTIVE)
    assert found == ELEMENTS * (10 + 24 / 4)  # Korthikanti et al., arXiv 2205.05198, table 2
    assert published == found - MESSAGE


@for_each("comm_type", ["ar", "p2p_rs_ag", "rs_ag"])
def test_a04_an_overlapped_linear_saves_its_input_and_has_the_gradient_of_its_output(comm_type):
    for edition in ("corrected", "sc23"):
        _, layers = _estimate(edition, **RING, tensor_par_comm_type=comm_type)
        right = [
            layers[name]["activation"] == 2 * layers[name]["inputs_size"]
            and layers[name]["activation_grad"] == 2 * layers[name]["outputs_size"]
            for name in PRODUCTS
        ]
        assert all(right) if edition == "corrected" else not any(right)


def test_a29_a_gathered_input_is_stored_unless_it_is_gathered_again():
    kept = _both("block_act_storage_space", **RING, **SPLIT)
    again = _both("block_act_storage_space", **RING, **REDO)
    assert kept[0] - again[0] == 2 * (MESSAGE - MESSAGE / 4)
    assert kept[1] == again[1]


@pytest.mark.parametrize("comm_type", ["ar", "rs_ag"])
def test_a30_gradient_products_move_their_operands(comm_type):
    for edition in ("corrected", "sc23"):
        _, layers = _estimate(edition, **RING, tensor_par_comm_type=comm_type)
        right = [
            layer["wgrad_mem_accessed"]
            == layer["weight"] + 2 * (layer["inputs_size"] + layer["outputs_size"])
            and (layer["agrad_mem_accessed"] - layer["wgrad_mem_accessed"]) / layer["weight"]
            in (0, TILES - 1)  # each tile reads all weights
            for layer in (layers[name] for name in PRODUCTS)
        ]
        assert all(right) == (edition == "corrected")


def test_a15_a_checkpoint_is_split_with_the_residual_stream():
    assert _both("block_act_checkpoint_size", **FULL, **SPLIT) == (MESSAGE / 4, MESSAGE)
    assert _both("block_act_checkpoint_size", **FULL) == (MESSAGE, MESSAGE)


def test_a21_the_gradient_of_a_dropout_has_the_datatype():
    for name in ("MlpBlock_DropOut", "AttnBlock_Multihead_DropOut"):
        layer, published = (_estimate(edition)[1][name] for edition in ("corrected", "sc23"))
        assert layer["activation_grad"] == 2 * layer["inputs_size"]
        assert published["activation_grad"] == layer["activation"] == layer["inputs_size"]


def test_a61_gradients_count_at_the_peak_of_the_backward_pass():
    """Of an MLP, when the second product has both gradients; later its saved input is freed."""
    hidden, inner = 2 * ELEMENTS, 2 * MODEL["seq_size"] * MODEL["feedforward"] / 4
    model = MODEL | {"part": "mlp", "vocab": 0}
    found = calculon.estimate(model, BASE | {"edition": "corrected"}, MACHINE).stats
    assert found["block_act_grad_space"] == hidden + inner
    published, layers = _estimate("sc23")
    gradients = sum(layer["activation_grad"] for layer in layers.values())
    assert published["block_act_grad_space"] == gradients
    assert _estimate()[0]["block_act_grad_space"] < gradients


@for_each(
    "name",
    [
        "AttnBlock_Multihead_SoftMax",
        "MlpBlock_GeLU",
        "AttnBlock_LayerNorm",
        "AttnBlock_Multihead_Key_Query",
        "AttnBlock_Multihead_Attn",
    ],
)
def test_a22_the_backward_pass_writes_the_gradient_of_its_input(name):
    layer, published = (_estimate(edition)[1][name] for edition in ("corrected", "sc23"))
    reads = layer["weight"] + 2 * (layer["inputs_size"] + layer["outputs_size"])
    writes = 2 * layer["inputs_size"]
    assert layer["agrad_mem_accessed"] == reads + writes
    assert published["agrad_mem_accessed"] == reads
    assert layer["wgrad_mem_accessed"] == published["wgrad_mem_accessed"]


def test_a25_selective_recomputation_repeats_the_whole_attention_core():
    stats, layers = _estimate(**SELECTIVE)
    times = [layers[f"AttnBlock_Multihead_{name}"]["fw_processing_time"] for name in CORE]
    assert stats["block_re_time"] == pytest.approx(sum(times), rel=1e-13)
    published, _ = _estimate("sc23", **SELECTIVE)
    assert published["block_re_time"] == pytest.approx(sum(times[:-1]), rel=1e-13)


def test_a28_beside_a_gathered_input_its_shard_is_not_stored():
    found, published = _both("block_act_storage_space", **SPLIT)
    assert published - found == 2 * MESSAGE / 4
    found, published = _both("block_act_storage_space", **SPLIT, **SELECTIVE)
    assert published - found == MESSAGE / 4  # attention gathers again and needs its shard
    found, published = _both("block_act_storage_space", **REDO)
    assert published == found


def test_a45_one_key_and_value_head_is_what_multiquery_products_read():
    operands, size = MODEL["seq_size"] * MODEL["attn_size"], MODEL["seq_size"] ** 2
    heads = MODEL["attn_heads"] / 4
    for name, whole in (("Key_Query", operands), ("Attn", size)):
        layer, published = (
            _estimate(edition, attention_type="multiquery")[1][f"AttnBlock_Multihead_{name}"]
            for edition in ("corrected", "sc23")
        )
        assert layer["inputs_size"] == heads * whole + 1 * operands
        assert published["inputs_size"] == heads * whole + heads * operands


# -- time of a block --------------------------------------------------------------------------------------------------

ARITHMETIC, MEMORY, TILES, USAGE = 1.0, 0.25, 4.0, 0.2
SLOWED = ARITHMETIC / (1 - USAGE)


def _times(edition, link, *, pipelined=False, memory=MEMORY, mode="no_overlap"):
    """Times of an overlapped linear whose base and edge links take so long."""
    processing, exposed = edition.overlapped_times(
        np.array([ARITHMETIC]),
        np.array([memory]),
        np.array(link)[:, None],
        np.array([TILES]),
        np.array([USAGE]),
        dataclasses.replace(PUBLISHED, processing_mode=mode),
        pipelined=pipelined,
    )
    return processing[0], exposed[:, 0]


def _of_kind(edition, links, kind):
    """Return processing and exposed time of one kind of block."""
    processing, exposed = _times(edition, links)
    return processing, exposed[kind]


@pytest.mark.parametrize("link", [5.0, 0.5], ids=["communication bound", "compute bound"])
def test_a05_a_pipelined_tile_is_paid_once(link):
    for edition, paid in ((CORRECTED, 0.0), (SC23, link / TILES)):
        ring = _times(edition, [link, link])
        pipe = _times(edition, [link, link], pipelined=True)
        assert pipe[0] - ring[0] == pytest.approx(paid)
        np.testing.assert_allclose(pipe[1] - ring[1], link / TILES)


def test_a06_each_kind_of_block_waits_for_its_own_collective():
    for links in ([0.5, 5.0], [5.0, 0.5], [5.0, 6.0]):
        for kind in (0, 1):
            found = sum(_of_kind(CORRECTED, links, kind))
            longer = max(sum(_of_kind(CORRECTED, [link, link], 0)) for link in links)
            own = sum(_of_kind(CORRECTED, [links[kind]] * 2, 0))
            assert own * (1 - 1e-12) <= found <= longer * (1 + 1e-12)
    waits = (TILES - 1) / TILES * (6.0 - 5.0)
    exposed = _times(CORRECTED, [5.0, 6.0])[1]
    assert exposed[1] - exposed[0] == pytest.approx(waits)
    assert np.ptp(_times(SC23, [5.0, 6.0])[1]) == 0


def test_a07_the_weight_gradient_of_a_recomputed_layer_overlaps_nothing():
    for edition in ("corrected", "sc23"):
        (_, full), (_, none) = (_estimate(edition, **RING, **SPLIT, **c) for c in (FULL, {}))
        same = [full[n]["wgrad_processing_time"] == none[n]["wgrad_processing_time"] for n in none]
        assert all(same) == (edition == "corrected")


@for_each("name", ["AttnBlock_F", "AttnBlock_G", "MlpBlock_F", "MlpBlock_G"])
def test_a24_a_repeated_collective_is_as_published(name):
    changes = FULL | SPLIT
    layer, published = (_estimate(edition, **changes)[1][name] for edition in ("corrected", "sc23"))
    assert layer["baseblock_recomm_time"] == published["baseblock_recomm_time"]
    own = layer["baseblock_fw_tp_comm_time"] - layer["baseblock_recomm_time"]
    arithmetic = MACHINE.vector["float16"].time(np.array(layer["fw_flops"]))
    memory = MACHINE.mem1.time(np.array(layer["fw_mem_accessed"]))
    assert own == pytest.approx(arithmetic + memory, rel=1e-9)


def test_l1_being_slowed_never_takes_longer_than_running_slowed():
    """A memory-bound product: its arithmetic is slowed, and still shorter than its memory time."""
    memory = 2 * SLOWED
    links = np.linspace(0.01, 2 * memory, 50)
    for edition in (CORRECTED, SC23):
        total = [
            processing + exposed[0]
            for processing, exposed in (
                _times(edition, [link, link], memory=memory, mode="roofline") for link in links
            )
        ]
        assert (np.diff(total) >= -1e-12).all() == (edition is CORRECTED)
        if edition is CORRECTED:
            waits = np.maximum(0, links - memory) * (TILES - 1) / TILES
            np.testing.assert_allclose(total, memory + waits, rtol=1e-12)


@for_each("links", [[0.0, 0.5], [0.5, 1.0], [0.0, 5.0], [0.5, 5.0]])
def test_l3_an_edge_block_is_slowed_by_its_own_collective(links):
    """Slowed by more than a base block, which is the processing time of both: the rest counts as exposed."""
    processing, exposed = _times(CORRECTED, links)
    alone = ARITHMETIC + MEMORY
    others = (TILES - 1) / TILES
    slower = [others * USAGE * min(link, SLOWED) for link in links]
    assert processing == pytest.approx(alone + slower[0])
    wait = others * max(0.0, links[1] - SLOWED)
    assert exposed[1] == pytest.approx(wait + slower[1] - slower[0])
    assert exposed[0] == 0
    assert _times(SC23, links)[1].tolist() == [0, 0]


# -- data parallelism -------------------------------------------------------------------------------------------------


def _window(**changes):
    """Return a window: two chunks of three blocks on each of four stages, nothing shared."""
    values = {
        "collective": 1.0,
        "backward_base": 2.0,
        "backward_edge": 2.0,
        "backward_chunk": 6.0,
        "memory": 0.5,
        "tensor_base": 0.0,
        "tensor_edge": 0.0,
        "compute": 0.75,
        "step_compute": 0.0,
        "slack": 0.0,
        "p2p": 0.25,
        "shares_pipeline_network": False,
        "usage": 0.2,
        "microbatches": 8.0,
        "pipeline_par": 4.0,
        "interleaving": 2.0,
        "chunk_blocks": 3.0,
        "message": 100.0,
        "traffic_factor": 1.5,
        "volume": 130.0,
    }
    return DataParallelWindow(**{k: np.array([v]) for k, v in (values | changes).items()})


def _exposed(edition, **changes):
    return edition.data_par_exposed(_window(**changes)).item()


@for_each("usage", [0.0, 0.2, 0.49])
@for_each("collective", [0.1, 1.0, 5.0, 7.0, 50.0])
@for_each("memory", [0.5, 1.9, 2.0, 3.0])
def test_a08_traffic_is_exposed_for_what_its_window_does_not_hold(usage, collective, memory):
    chunk, tail = 3 * collective, 2 * collective

    def exposed(traffic, window, compute):
        if window <= 0:
            return traffic
        slowed = usage * traffic * min(1, compute / window)
        return min(traffic, max(traffic - window, slowed))

    expected = collective
    expected += exposed(chunk, 4 * 3 * (2 - memory), 4 * 3 * 0.75)
    expected += exposed(tail, 2 * (2 - memory), 2 * 0.75)
    changes = {"usage": usage, "collective": collective, "memory": memory}
    found = _exposed(CORRECTED, **changes)
    assert found == pytest.approx(expected, rel=1e-12)
    assert found <= 6 * collective * (1 + 1e-12)
    if memory > 2:
        assert _exposed(SC23, **changes) > 6 * collective  # than the link time


@for_each("microbatches", [1.0, 2.0, 4.0, 9.0])
def test_a09_a_short_group_leaves_its_places_as_window_and_is_slowed_where_it_is(microbatches):
    """Of four places of three blocks, each 1.5 s without memory time; 0.5 s of the edge block are a transfer."""
    usage, collective, several = 0.4, 4.0, min(microbatches, 4)
    chunk = 3 * collective
    slowed = usage * chunk * several * 3 * 0.75 / (4 * 3 * 1.5)
    tail = 2 * collective - 2 * 1.5
    expected = collective + max(chunk - 4 * 3 * 1.5, slowed) + tail
    changes = {"usage": usage, "collective": collective, "microbatches": microbatches}
    assert _exposed(CORRECTED, **changes) == pytest.approx(expected, rel=1e-12)
    assert _exposed(SC23, **changes) != pytest.approx(expected, rel=1e-3)


def test_a10w_a_chunk_has_the_bandwidth_that_its_own_window_asks_for():
    block = 130.0  # with the offset of its operation
    needed = block * 3 / (4 * 3 * (2.0 - 0.5)), block * 2 / (2 * (2.0 - 0.5))
    found = [rate.item() for rate in CORRECTED.data_par_bandwidth(_window())]
    assert found == pytest.approx(needed, rel=1e-13)
    assert [r.item() for r in SC23.data_par_bandwidth(_window())] != pytest.approx(needed)


def test_l2_a_transfer_on_the_same_network_takes_its_time_off_the_window():
    chunk, window = 3 * 9.0, 4 * (3 * 1.5 - 0.25)
    tail, rest = 2 * 9.0, 2 * 1.5
    expected = 9.0 + (chunk - window) + (tail - rest)
    changes = {"collective": 9.0, "shares_pipeline_network": True}
    assert _exposed(CORRECTED, **changes) == pytest.approx(expected, rel=1e-13)
    assert _exposed(SC23, **changes) != pytest.approx(expected)


def test_a26_gradients_are_reduced_in_their_own_datatype():
    stats, _ = _estimate(**SHARDED, grad_comm_dtype="float32")
    weights, rate = (
        stats["block_weight_space"],
        25e9 * 0.9,
    )  # each collective moves its message once
    assert stats["block_dp_size"] == 2 * weights
    one = 2 * LATENCY + 2 * weights / rate + weights / rate  # scatter gradients, gather weights
    assert stats["dp_comm_link_time"] == pytest.approx(BLOCKS * one, rel=1e-13)
    same, published = _both("block_dp_size", **SHARDED)
    assert same == published == weights


@pytest.mark.parametrize(("sharding", "steps"), [(False, 2 * 3), (True, 3 + 3)])
def test_a27_each_step_of_a_ring_pays_its_latency(sharding, steps):
    changes = REPLICATED | {"optimizer_sharding": sharding}
    stats, _ = _estimate(**changes, latency_per_step=True)
    once, published = _both("dp_comm_link_time", **changes)
    more = steps - (2 if sharding else 1)
    assert stats["dp_comm_link_time"] == pytest.approx(once + BLOCKS * more * LATENCY, rel=1e-13)
    assert once == published


def test_a23_of_a_network_stated_by_its_bus_bandwidth_the_wire_is_all():
    """What nccl-tests shows is from memory to memory; the published convention adds a pass and the additions."""
    by_bus = SYSTEM | {"ext": {"networks": [{"kind": "nvlink"}]}}
    name, network = "baseblock_fw_tp_comm_time", SYSTEM["networks"][0]
    wire = 2 * (1 - 1 / 4) * MESSAGE / (network["bandwidth"] * 1e9 * network["efficiency"])
    _, layers = _estimate(system=by_bus)
    assert layers["MlpBlock_G"][name] == pytest.approx(network["latency"] + wire, rel=1e-13)
    _, conventional = _estimate()
    _, published = _estimate("sc23", system=by_bus)
    more = conventional["MlpBlock_G"][name] - layers["MlpBlock_G"][name]
    assert more > 2 * MESSAGE / (SYSTEM["mem1"]["GBps"] * 1e9)
    assert published["MlpBlock_G"][name] == conventional["MlpBlock_G"][name]


# -- optimizer --------------------------------------------------------------------------------------------------------


def test_a10_whole_gradients_have_four_bytes():
    whole = _both("block_weight_grad_space", **REPLICATED)
    weights, _ = _both("block_weight_space", **REPLICATED)
    assert whole == (2 * weights, weights)
    assert _both("block_weight_grad_space", **SHARDED) == (weights / 4, weights / 4)


def test_a11_gradients_may_stay_whole_beside_a_sharded_optimizer():
    stats, _ = _estimate(**SHARDED, grad_buffer="full")
    assert stats["block_weight_grad_space"] == 2 * stats["block_weight_space"]
    assert stats["weight_grad_space"] == pytest.approx(BLOCKS * 2 * stats["block_weight_space"])
    split, published = _both("block_weight_grad_space", **SHARDED)
    assert split == published == stats["block_weight_space"] / 4


@for_each(
    ("changes", "bytes_moved"),
    [
        (REPLICATED, 2 * 12 + 4 + 2),
        (SHARDED, (2 * 12 + 2 + 2) / 4),
        (SHARDED | {"grad_buffer": "full"}, (2 * 12 + 4 + 2) / 4),
    ],
)
def test_a12_a_step_reads_and_writes_its_state_reads_gradients_and_writes_weights(
    changes, bytes_moved
):
    stats, _ = _estimate(**changes)
    parameters = stats["block_weight_space"] / 2
    assert stats["block_optim_mem_accessed"] == pytest.approx(parameters * bytes_moved, rel=1e-13)
    known = {name: value for name, value in changes.items() if name != "grad_buffer"}
    published, _ = _estimate("sc23", **known)
    assert published["block_optim_mem_accessed"] == published["block_optimizer_space"]


def test_a13_an_offloaded_optimizer_moves_once_per_batch():
    few, many = ({"optimizer_offload": True, "batch_size": size} for size in (2, 8))
    stats, _ = _estimate(**many)
    moved = stats["block_optimizer_space"] + stats["block_weight_grad_space"]
    expected = BLOCKS * MACHINE.mem2.time(np.array(moved))
    assert stats["bw_offload_exposed_time"] == pytest.approx(expected, rel=1e-12)
    found, published = zip(
        *(_both("bw_offload_exposed_time", **c) for c in (few, many)), strict=True
    )
    assert found[0] == found[1]
    assert published[1] == pytest.approx(4 * published[0])


def test_a14_recomputation_keeps_the_memory_from_offload_traffic():
    slow = SYSTEM | {"mem2": SYSTEM["mem2"] | {"GBps": 1}}
    changes = FULL | {"activations_offload": True}
    stats, _ = _estimate(**changes, system=slow)
    transfer = inputs.system(slow).mem2.time(np.array(stats["block_act_checkpoint_size"]))
    busy = stats["block_re_time"] + stats["block_agrad_time"] + stats["block_wgrad_time"]
    busy += stats["baseblock_recomm_time_exposed"] + stats["baseblock_agrad_tp_time_exposed"]
    memory = stats["block_agrad_mem_time"] + stats["block_wgrad_mem_time"]
    waits = transfer + memory + stats["block_re_mem_time"] - busy
    assert waits > stats["block_re_mem_time"] > 0
    expected = 8 * BLOCKS * waits
    assert stats["bw_offload_exposed_time"] == pytest.approx(expected, rel=1e-12)
    published, _ = _estimate("sc23", **changes, system=slow)
    assert published["bw_offload_exposed_time"] < expected


@for_each(("busy", "memory", "window"), [(3.0, 1.0, 2.0), (3.0, 3.0, 0.0), (3.0, 4.0, 0.0)])
def test_a38_a_pass_that_only_uses_the_memory_leaves_no_window(busy, memory, window):
    times = np.array([busy]), np.array([memory])
    assert CORRECTED.offload_window(*times) == window
    assert SC23.offload_window(*times) == busy - memory
    rounded = CORRECTED.offload_window(np.array([busy]), np.array([np.nextafter(busy, 0)]))
    assert rounded == 0


def test_a19_the_optimizer_is_useful_once_per_batch():
    stats, _ = _estimate()
    passes = sum(stats[f"block_{name}_flops"] for name in ("fw", "agrad", "wgrad"))
    step, microbatches = stats["block_optim_flops"], 8
    assert stats["useful_flops"] == pytest.approx(passes + step / microbatches, rel=1e-14)
    assert _estimate("sc23")[0]["useful_flops"] == pytest.approx(passes + step, rel=1e-14)


# -- pipeline and inference -------------------------------------------------------------------------------------------


def test_a16_a_stage_holds_no_more_microbatches_than_there_are():
    changes = PIPELINE | FULL | {"pipeline_interleaving": 2, "batch_size": 2}
    found, published = _both("act_checkpoint_size", **changes)
    one = BLOCKS / 4 * MESSAGE
    assert found == 2 * one
    assert published == pytest.approx(2 * (1 + 3 / (2 * 4)) * one)


def test_a17_nothing_to_send_takes_no_time():
    sent, published = _both("pp_comm_link_time", **PIPELINE, **INFERENCE)
    assert sent == published
    bubble, longer = _both("bubble_time", **PIPELINE, **INFERENCE)
    stats, _ = _estimate(**PIPELINE, **INFERENCE)
    forward = stats["block_fw_time"] + stats["baseblock_fw_tp_time_exposed"]
    assert bubble == pytest.approx(3 * (BLOCKS / 4 * forward + sent / 8), rel=1e-13)
    assert longer == pytest.approx(bubble + 3 * LATENCY, rel=1e-13)


def _sizes(edition, **changes):
    """Return the collectives of the forward pass whose message differs between the kinds of block."""
    _, layers = _estimate(edition, tensor_par_comm_type="p2p_rs_ag", **changes)
    return {
        name
        for name, layer in layers.items()
        if layer["baseblock_fw_tp_comm_time"] != layer["edgeblock_fw_tp_comm_time"]
        or layer["baseblock_bw_tp_comm_time"] != layer["edgeblock_bw_tp_comm_time"]
    }


@pytest.mark.parametrize("overlap", ["none", "ring"])
def test_a18_only_the_collectives_next_to_a_transfer_are_split(overlap):
    changes = PIPELINE | {"tensor_par_overlap": overlap}
    outer = {
        "none": {"AttnBlock_F", "MlpBlock_G"},
        "ring": {"AttnBlock_QKV_AG", "MlpBlock_Mlp2_RS"},
    }[overlap]
    assert _sizes("corrected", **changes) == outer
    assert len(_sizes("sc23", **changes)) == 4


def test_a37_inference_keeps_no_checkpoint():
    assert _both("act_checkpoint_size_with_offload", **INFERENCE) == (0, None)


@for_each(("pipeline_par", "blocks"), [(48, 1), (24, 2), (16, 3)])
def test_a47_no_more_blocks_stay_of_what_is_offloaded_than_there_are(pipeline_par, blocks):
    changes = {"num_procs": 4 * pipeline_par, "pipeline_par": pipeline_par, "batch_size": 1}
    for name in ("weight", "optimizer"):
        stays, published = _both(f"{name}_space_with_offload", **changes)
        one = _estimate(**changes)[0][f"block_{name}_space"]
        assert stays == min(2, blocks) * one
        assert published == 2 * _estimate("sc23", **changes)[0][f"block_{name}_space"]


@for_each(("num_blocks", "first"), [(12, 3), (13, 3), (14, 4), (15, 4), (16, 4)])
def test_a48_a_single_odd_block_is_not_on_the_first_stage(num_blocks, first):
    model = MODEL | {"num_blocks": num_blocks}
    for edition, blocks in (("corrected", first), ("sc23", -(-num_blocks // 4))):
        execution = BASE | PIPELINE | {"edition": edition}
        stats = calculon.estimate(model, execution, SYSTEM).stats
        assert stats["weight_space"] == blocks * stats["block_weight_space"]


def test_a41_offloading_leaves_the_working_set_of_inference():
    kept, _ = _both("act_space", **INFERENCE)
    found, published = _both("act_space_with_offload", **INFERENCE, activations_offload=True)
    assert found == kept
    assert published > kept


@pytest.mark.parametrize(("edition", "switches"), [("sc23", True), ("corrected", False)])
def test_a52_of_equally_fast_executions_the_one_with_fewest_switches_wins(edition, switches):
    """On a tier 2 of any speed all offloading hides behind the passes."""
    system = document("systems", "a100_80e")
    system["mem2"] |= {"GBps": 1e9, "GiB": 1e6}
    plan = {"tensor_par": 8, "tensor_par_overlap": "none", "activation_recompute": "none"}
    plan |= {"optimizer_offload": False}
    offloads = ["weight_offload", "activations_offload"]
    terms = {"edition": edition, "preset": "common" if edition == "corrected" else None}
    best = calculon.search("megatron-22B", system, 8, 4, **terms, fix=plan).estimates()[0]
    assert [getattr(best.execution, name) for name in offloads] == [switches] * 2
    other = dataclasses.replace(best.execution, **dict.fromkeys(offloads, not switches))
    other_stats = calculon.estimate("megatron-22B", other, system).stats
    assert other_stats["total_time"] == best.stats["total_time"]


def test_a60_a_fused_activation_costs_a_pass_backward():
    apart, fused = (
        _estimate("corrected", fused_activation=fuses)[1]["MlpBlock_GeLU"]["agrad_mem_accessed"]
        for fuses in (False, True)
    )
    published = _estimate("sc23", fused_activation=True)[1]["MlpBlock_GeLU"]["agrad_mem_accessed"]
    assert fused > apart > published


def test_a49_each_tile_of_an_overlapped_product_reads_all_weights():
    (_, tiled), (_, whole) = (_estimate(edition, **RING) for edition in ("corrected", "sc23"))
    name = "MlpBlock_Mlp2_RS"
    more = tiled[name]["fw_mem_accessed"] - whole[name]["fw_mem_accessed"]
    assert more == (TILES - 1) * whole[name]["weight"]


# -- as published ----------------------------------------------------------------------------------------------------


def test_an_overlapped_linear_waits_for_communication_that_is_longer_than_arithmetic():
    slowed, link = 1.0 / 0.8, 5.0
    processing, exposed = _times(SC23, [link, link])
    assert processing == pytest.approx(1.25 / 4 + 3 * (slowed + 0.25) / 4)
    assert exposed == pytest.approx([3 * (link / 4 - slowed / 4)] * 2)


def test_an_overlapped_linear_is_slowed_while_its_communication_lasts():
    processing, exposed = _times(SC23, [0.5, 0.5])
    assert processing == pytest.approx(1.25 + 3 * 0.5 / 4 * 0.2)
    assert exposed.tolist() == [0, 0]


@pytest.mark.parametrize("pipelined", [False, True])
def test_o5_without_communication_of_a_base_block_both_kinds_are_ordinary(pipelined):
    processing, exposed = _times(SC23, [0.0, 3.0], pipelined=pipelined)
    assert (processing, exposed.tolist()) == (1.25, [0, 0])


def test_o25_offload_traffic_is_a_maximum_forward_and_a_sum_backward():
    weights, activations, optimizer = (np.array([v]) for v in (3.0, 5.0, 7.0))
    assert SC23.offload_bytes(weights, activations, optimizer) == (5.0, 15.0)
