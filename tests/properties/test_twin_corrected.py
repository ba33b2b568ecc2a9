"""The corrected edition of the array model agrees with that of its scalar twin."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

import calculon
from tests import twin
from tests.draws import draws
from tests.helpers import FLOORS, differences, unlabelled
from tests.strategies import DATATYPES, questions

CORRECTED = {"edition": "corrected", "preset": "published"}
OPTIONS = {
    "grad_buffer": st.sampled_from(("sharded", "full")),
    "grad_comm_dtype": st.sampled_from(("same", *DATATYPES)),
    "latency_per_step": st.booleans(),
    "optimizer_impl": st.sampled_from(("fused", "foreach", "loop")),
    "grad_clip": st.booleans(),
}
SECONDS = st.one_of(st.just(0), st.floats(1e-7, 1e-3))

GRADIENTS = st.sampled_from(
    (
        {},
        {"grad_dtype": "float32"},
        {"grad_dtype": "bfloat16"},
        {"grad_dtype": "float16", "main_grad": True},
    )
)
OPTIMIZERS = st.sampled_from(
    (
        {},
        {"optimizer_state_dtype": "bfloat16"},
        {"optimizer": "adam_8bit"},
        {"optimizer": "lion", "optimizer_state_dtype": "bfloat16"},
        {"optimizer": "sgd_momentum"},
        {"optimizer": "sgd"},
    )
)

MOVED = {
    "act_offload_bw_req": ("block_act_storage_space", "block_act_checkpoint_size"),
    "weight_offload_bw_req": ("block_weight_space",),
    "optim_offload_bw_req": ("block_weight_grad_space", "block_optimizer_space"),
    "offload_mem_bw_req": ("block_weight_space",),
    "dp_bw_overlap_req_chunk": ("block_dp_size",),
    "dp_bw_overlap_req_tail": ("block_dp_size",),
}
"""Bandwidths, and what has to move in the time that a block leaves for it."""


@st.composite
def corrected_questions(draw):
    """Questions to the corrected edition, with or without options and additions to the networks."""
    model, execution, system = draw(questions())
    if draw(st.booleans()):
        execution |= {name: draw(value) for name, value in OPTIONS.items()}
        execution |= draw(GRADIENTS) | draw(OPTIMIZERS)
    if draw(st.booleans()):
        link = st.fixed_dictionaries({}, optional={"step_latency": SECONDS, "ramp": SECONDS})
        links = draw(st.lists(link, min_size=1, max_size=len(system["networks"])))
        system |= {"ext": {"networks": links}}
    return model, execution | CORRECTED, system


def _settled(stats):
    """Replace what rounding leaves of a difference of equal times: an exposed time, a window."""
    settled = dict(stats)
    for name in FLOORS:
        if abs(stats[name]) < 1e-12 * stats["total_time"]:
            settled[name] = 0
    passes = ("block_fw", "block_re", "block_agrad", "block_wgrad")
    links = ("edgeblock_fw_tp", "edgeblock_recomm", "edgeblock_agrad_tp")
    time = sum(stats[f"{name}_time"] for name in (*passes, *links))
    for name, sizes in MOVED.items():
        if (stats[name] or 0) > 1e5 * sum(stats[size] for size in sizes) / time:
            settled[name] = None
    return settled


def disagreements(found, expected):
    """List the statistics in which ours differ from those of the twin."""
    ours, theirs = _settled(found), _settled(expected)
    for name in FLOORS:  # differences of nearly equal times, and what is added to them
        close = abs(ours[name] - theirs[name]) < 1e-12 * theirs["total_time"]
        ours[name] = theirs[name] if close else ours[name]
    return differences(ours, theirs)


def _twin(question):
    try:
        return twin.estimate(*question), ""
    except twin.Rejected:
        return None, "malformed"
    except twin.DoesNotFit:
        return None, "infeasible"


def _ours(question):
    try:
        return calculon.estimate(*question).stats, ""
    except calculon.SpecError:
        return None, "malformed"
    except calculon.Infeasible:
        return None, "infeasible"


def test_outcome_and_statistics_of_any_corrected_execution():
    outcomes = Counter()

    @settings(max_examples=draws(140))
    @given(question=corrected_questions())
    def agree(question):
        expected, kind = _twin(question)
        found, outcome = _ours(question)
        outcomes[kind or "feasible"] += 1
        assert outcome == kind
        if expected is not None:
            assert disagreements(found, expected) == []

    agree()
    assert min(outcomes.values()) > 2, "the strategies are to reach every outcome often"
    assert outcomes["feasible"] > 60


@given(question=corrected_questions())
def test_every_layer_of_any_corrected_execution(question):
    try:
        found = calculon.estimate(*question, layers=True).layers
    except calculon.CalculonError:
        return
    for ours, theirs in zip(found, twin.layers(*question), strict=True):
        assert differences(unlabelled(ours), theirs) == []


@given(question=corrected_questions())
def test_data_parallel_traffic_is_exposed_at_most_once(question):
    stats, _ = _twin(question)
    if stats is not None:
        assert stats["dp_comm_exposed_time"] <= stats["dp_comm_link_time"] * (1 + 1e-12)
