"""What embedding and head add to the first and the last stage."""

import pytest

import calculon
from tests.cases import for_each
from tests.helpers import CORRECTED_PLAIN, document

VOCAB, HIDDEN = 51200, 6144
MODEL = document("models", "megatron-22B")
SYSTEM = document("systems", "a100_80e")  # its tier-1 memory is never full
MACHINE = calculon.inputs.system(SYSTEM)
TENSOR, STAGES, MICROBATCHES = 4, 4, 8
RAW = CORRECTED_PLAIN | {
    "num_procs": TENSOR,
    "tensor_par": TENSOR,
    "batch_size": MICROBATCHES,
    "fused_activation": True,
}
PIPELINE = {"num_procs": TENSOR * STAGES, "pipeline_par": STAGES}
REPLICATED = {"num_procs": TENSOR * 4, "data_par": 4, "batch_size": 4 * MICROBATCHES}
TABLE = 2 * VOCAB * HIDDEN / TENSOR  # bytes of one rank
LATENCY, RATE = 2e-5, 25e9 * 0.9  # of network 1, where an all-reduce moves its message once


def _stats(model=(), **changes):
    return calculon.estimate(MODEL | dict(model), RAW | changes, MACHINE).stats


def _with_and_without(fields=(), **changes):
    return _stats({"vocab": VOCAB} | dict(fields), **changes), _stats(**changes)


def _more(name, fields=(), **changes):
    """Return what a vocabulary adds to a statistic."""
    found, without = _with_and_without(fields, **changes)
    return found[name] - without[name]


shapes = pytest.mark.parametrize("shape", [{}, PIPELINE], ids=["one stage", "pipeline"])
modes = pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])


@modes
@shapes
@for_each("vocab", [100, VOCAB, 2_000_000])
def test_an_iteration_waits_for_the_slower_end_and_passes_the_other_once(shape, training, vocab):
    changes = shape | {"training": training}
    found, without = _with_and_without({"vocab": vocab}, **changes)
    embedding, head = (found[f"{end}_time"] / MICROBATCHES for end in ("embedding", "head"))
    assert min(embedding, head) > 0
    step = found["optim_step_time"] - without["optim_step_time"]
    if shape:
        expected = MICROBATCHES * max(embedding, head) + min(embedding, head)
    else:
        expected = MICROBATCHES * (embedding + head)
    grown = found["total_time"] - without["total_time"] - step
    assert grown == pytest.approx(expected, rel=1e-9)
    assert without["embedding_time"] == without["head_time"] == 0


# -- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", [("layernorm", 2), ("rmsnorm", 1)], ids=lambda norm: norm[0])
def test_a_single_stage_holds_both_tables_or_one_that_they_share(norm):
    kind, vectors = norm
    gains = 2 * vectors * HIDDEN
    with_norm = {"norm": kind}

    def grown(**fields):
        whole = _stats(with_norm | {"vocab": VOCAB} | fields)["weight_space"]
        return whole - _stats(with_norm)["weight_space"]

    assert grown() == 2 * TABLE + gains
    assert grown(tied=True) == TABLE + gains


@pytest.mark.parametrize("tied", [False, True])
def test_each_end_of_a_pipeline_holds_a_table(tied):
    fuller = {"vocab": VOCAB, "tied": tied}  # the first stage: it holds more microbatches
    assert _more("weight_space", fuller, **PIPELINE) == TABLE
    last = fuller | {"vocab": 40 * VOCAB}  # with the logits of a microbatch
    found = _more("weight_space", last, **PIPELINE, activation_recompute="full")
    assert found == 40 * TABLE + 2 * 2 * HIDDEN


def test_two_copies_of_a_table_add_up_their_gradients_once_per_batch():
    for shape, times in (({}, 0), (PIPELINE, 1)):
        shared = _more("pp_comm_link_time", {"tied": True}, **shape)
        assert shared == pytest.approx(times * (LATENCY + TABLE / RATE), rel=1e-9)
        assert _more("pp_comm_link_time", **shape) == 0
        assert _more("pp_comm_link_time", {"tied": True}, **shape, training=False) == 0


# -- data parallelism -------------------------------------------------------------------------------------------------


def _reduction(parameters):
    return LATENCY + 2 * parameters / RATE


@pytest.mark.parametrize("tied", [False, True])
def test_replicas_reduce_the_gradients_of_the_ends(tied):
    table, gains = VOCAB * HIDDEN / TENSOR, 2 * HIDDEN
    fields = {"tied": tied}
    expected = _reduction(table + gains) + (0 if tied else _reduction(table))
    for kind in ("link", "exposed"):
        found = _more(f"dp_comm_{kind}_time", fields, **REPLICATED)
        assert found == pytest.approx(expected, rel=1e-9)
    piped = REPLICATED | PIPELINE | {"num_procs": TENSOR * STAGES * 4}
    larger = _more("dp_comm_link_time", fields, **piped)
    assert larger == pytest.approx(_reduction(table + gains), rel=1e-9)


def test_gradients_of_the_head_may_hide_and_those_of_the_embedding_come_last():
    table, gains = VOCAB * HIDDEN / TENSOR, 2 * HIDDEN
    long = REPLICATED | {"data_par_overlap": True, "microbatch_size": 8, "batch_size": 64}
    found = _more("dp_comm_exposed_time", **long) - _reduction(table)
    usage = SYSTEM["networks"][1]["processor_usage"]
    assert 0 < found <= usage * _reduction(table + gains) * (1 + 1e-9)
    short = REPLICATED | {"data_par_overlap": True}
    found = _more("dp_comm_exposed_time", **short) - _reduction(table)
    assert found == pytest.approx(_reduction(table + gains), rel=1e-9)
