"""Parts of a run: which execution trains each, where it restarts, and what names itself."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

import calculon
from calculon.advise.runs.run_parts import quickest
from calculon.base.errors import Infeasible, SpecError
from calculon.declarations.packing import packed_percent_of
from tests.cases import for_each
from tests.helpers import LLAMA_X64_P4

MODEL, SYSTEM = "llama3-8B", "h100_80g_sxm"
PLAN = {**LLAMA_X64_P4}


def _seconds(times, layouts, restart, path):
    """Return the time of one way through the options of all parts."""
    whole = sum(row[one] for row, one in zip(times, path, strict=True))
    kept = [row[one] for row, one in zip(layouts, path, strict=True)]
    return whole + restart * sum(one != other for one, other in pairwise(kept))


@given(st.data())
def test_the_way_through_the_options_is_the_quickest_of_all(data):
    """Against every way, on up to 5 parts of up to 3 options."""
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    seconds, words = st.integers(0, 50), st.sampled_from("abc")
    times = [[float(data.draw(seconds)) for _ in range(n)] for n in sizes]
    layouts = [[data.draw(words) for _ in range(n)] for n in sizes]
    restart = float(data.draw(st.integers(0, 30)))
    found = quickest(times, layouts, restart)
    ways = product(*map(range, sizes))
    best = min(_seconds(times, layouts, restart, way) for way in ways)
    assert _seconds(times, layouts, restart, found) == best


def _run(**fields):
    return calculon.campaign(MODEL, PLAN, SYSTEM, fields)


@pytest.fixture(scope="module", name="longer")
def _longer():
    """Return a run whose second phase has sequences four times as long, and is searched."""
    phases = [
        {"name": "short", "tokens": "10B"},
        {"name": "long", "tokens": "200B", "seq_size": "32k", "batch": "4M", "execution": "search"},
    ]
    return _run(phases=phases)


def test_a_phase_is_searched_for_its_batch_and_length(longer):
    short, long = longer.parts
    e = long.estimate.execution
    assert (e.batch_size, e.seq_length, e.num_procs) == (128, 32768, PLAN["num_procs"])
    assert long.step_time > 0
    asked = (MODEL, SYSTEM, e.num_procs, e.batch_size, e.datatype)
    fix = {"batch_size": e.batch_size, "seq_length": 32768}
    own = calculon.search(*asked, preset=e.preset, fix=fix, risk=1.0)
    assert long.step_time == pytest.approx(own[0].stats["total_time"])
    assert short.estimate.execution.tensor_par == PLAN["tensor_par"]


def test_a_change_of_the_split_is_one_restart(longer):
    assert [one.restarts for one in longer.parts] == [False, True]
    assert longer.pauses == longer.whole.pauses == 1
    restart = float(longer.whole.planned_restart)
    r = longer.campaign.reliability
    assert restart == float(r.restart) + float(longer.whole.saves.load)
    assert float(longer.whole.restarts) == restart


def test_a_phase_too_short_for_a_restart_stays_as_it_was():
    """The split found for it is quicker, but by less than a restart takes."""
    slow = {"base": "megatron-lm", "num_procs": 64, "tensor_par": 4, "pipeline_par": 4}
    slow |= {"batch_size": 512, "activation_recompute": "full"}
    phases = [{"tokens": "100B"}, {"tokens": "40M", "execution": "search"}]
    run = calculon.campaign(MODEL, slow, SYSTEM, phases=phases)
    first, second = run.parts
    assert run.pauses == 0
    assert second.estimate.execution == first.estimate.execution
    longer = [phases[0], phases[1] | {"tokens": "100B"}]
    changed = calculon.campaign(MODEL, slow, SYSTEM, phases=longer)
    assert changed.pauses == 1
    saved = first.step_time - changed.parts[1].step_time
    restart = float(run.whole.planned_restart)
    assert 0 < saved * second.steps < restart < saved * changed.parts[1].steps


def test_options_of_a_search_are_kept():
    options = {"fix": {"tensor_par": 2, "pipeline_par": 1}, "preset": "megatron-lm"}
    (part,) = _run(phases=[{"tokens": "1T", "execution": {"search": options}}]).parts
    assert (part.estimate.execution.tensor_par, part.estimate.execution.pipeline_par) == (2, 1)


@for_each(
    ("field", "changes"),
    [
        ("tensor_par", {"tensor_par": 0}),
        ("num_procs", {"num_procs": 2 * PLAN["num_procs"], "data_par": 2 * PLAN["data_par"]}),
    ],
)
def test_what_is_wrong_with_an_execution_of_a_phase_is_told_in_its_campaign(field, changes):
    with pytest.raises(SpecError) as error:
        _run(phases=[{"tokens": "1B", "execution": PLAN | changes}])
    assert error.value.field == f"phases[0].execution.{field}"


def test_documents_say_how_sequences_are_packed():
    phases = [{"name": "packed", "share": 1.0, "document_mean": 1024}]
    (part,) = _run(tokens="1T", phases=phases).parts
    (whole,) = _run(tokens="1T").parts
    length = part.segment.seq_size
    assert part.estimate.execution.packed_percent == packed_percent_of(1024, length)
    assert part.step_time < whole.step_time


def test_a_batch_that_the_split_does_not_divide_names_itself():
    ramp = [{"from": 0, "batch": 17}, {"from": "1B", "batch": 128}]
    with pytest.raises(SpecError, match=r"at batch 17, 8,192 tokens: .*batch_size"):
        _run(tokens="1T", batch_ramp=ramp)


def test_what_does_not_fit_names_itself():
    phases = [{"name": "long", "tokens": "1T", "seq_size": "128k", "batch": 128}]
    with pytest.raises(Infeasible, match="long at batch 128, 131,072 tokens: ") as error:
        _run(phases=phases)
    assert error.value.needed > error.value.available


CHUNKED = {
    "base": "megatron-lm",
    "num_procs": 64,
    "tensor_par": 4,
    "pipeline_par": 4,
    "batch_size": 64,
    "pipeline_interleaving": 2,
}


def test_a_batch_with_too_few_microbatches_runs_without_chunks_and_says_so():
    ramp = [{"from": 0, "batch": 8}, {"from": "1B", "batch": 64}]
    run = calculon.campaign(MODEL, CHUNKED, SYSTEM, tokens="2B", batch_ramp=ramp)
    small, usual = run.parts
    assert small.estimate.execution.pipeline_interleaving == 1
    assert usual.estimate.execution.pipeline_interleaving == 2
    assert small.note == (
        "one chunk in each stage instead of 2: 2 microbatches are not a multiple of the 4 stages"
    )
    assert (usual.note, usual.restarts) == ("", True)
    assert run.to_dict()["parts"][0]["note"] == small.note
