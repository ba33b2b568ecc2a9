"""Times and rates over the batch: each place is the answer for it, and bounds cut where the answer says."""

import numpy as np
import pytest

from calculon.serving.by_batch import PLACES, by_batch
from calculon.serving.passes.row_times import CAUSES
from calculon.serving.serve import serve
from tests.cases import for_each
from tests.serving.given import H100, LOAD, SMALL, small

DRAFTS = {"draft": "ngram", "draft_tokens": 2, "acceptance": 0.5}


@pytest.fixture(scope="module")
def curve():
    return by_batch(small())


@pytest.mark.parametrize("changes", [{}, {"batching": "static", "token_budget": 0}, DRAFTS])
def test_each_place_is_the_answer_for_its_batch(changes):
    curve = by_batch(small(changes))
    for i in (len(curve.batch) // 3, len(curve.batch) - 1):
        one = small({**changes, "max_batch": int(curve.batch[i])})
        for name in ("tpot", "ttft", "output_rate"):
            assert curve.columns[name][i] == pytest.approx(one[name], rel=1e-12)


@for_each(
    "changes", [{}, {"batching": "static", "token_budget": 0}, {"pipeline_par": 2, "num_procs": 2}]
)
def test_causes_sum_up_to_the_time_that_decodes(changes):
    curve = by_batch(small(changes))
    assert curve.causes.shape == (len(CAUSES), len(curve.batch))
    assert curve.causes.sum(axis=0) == pytest.approx(curve.decode, rel=1e-9)
    assert np.all(curve.decode <= curve.tpot * (1 + 1e-12))


def test_processors_that_prefill_bound_rates():
    fields = {"num_procs": 2, "prefill": {"num_procs": 1}}
    served = serve(SMALL, fields, H100, LOAD)
    curve = by_batch(served)
    cuts = {one.name: one.batch for one in curve.cuts}
    assert served.cut == "prefill"
    assert cuts["prefill"] == served.batch < cuts["memory"]
    beyond = curve.output_rate[curve.batch >= cuts["prefill"]]
    assert beyond == pytest.approx(beyond[0], rel=1e-12)
    assert curve.causes.sum(axis=0) == pytest.approx(curve.tpot, rel=1e-9)


def test_passes_without_prompts_have_a_token_of_every_sequence():
    fields = {"num_procs": 2, "prefill": {"num_procs": 1}, "max_batch": 16}
    without, least, more = (
        serve(SMALL, fields | {"token_budget": budget}, H100, LOAD) for budget in (0, 16, 64)
    )
    assert without["mem_activation"] == least["mem_activation"] < more["mem_activation"]


def test_batches_rise_to_the_most_that_fit_with_all_powers_of_two(curve):
    cuts = {one.name: one.batch for one in curve.cuts}
    most = min(cuts["memory"], cuts["token_budget"])
    assert curve.batch[[0, -1]].tolist() == [1, most]
    assert np.all(np.diff(curve.batch) > 0)
    assert {2.0**n for n in range(most.bit_length())} <= {*curve.batch}
    assert len(curve.batch) <= PLACES + most.bit_length() + len(curve.cuts)


def test_bounds_cut_where_the_answer_says(curve):
    middle = curve.batch[len(curve.batch) // 2]
    limit = curve.tpot[curve.batch == middle][0] * 1.0001
    asked = small(tpot_limit=limit)
    cuts = {one.name: one.batch for one in by_batch(asked).cuts}
    assert asked.cut == "tpot"
    assert cuts["tpot"] == asked.batch
    assert "ttft" not in cuts
    late = small(ttft_limit=curve.ttft[-1] * 0.999)
    assert {one.name: one.batch for one in by_batch(late).cuts}["ttft"] == late.batch
    capped = by_batch(small({"max_batch": 7}, users=3, tpot_limit=1e-9))
    cuts = {one.name: one.batch for one in capped.cuts}
    assert (cuts["max_batch"], cuts["tpot"]) == (7, 0)
    assert capped.batch[-1] > 7
    assert capped.to_dict()["point"]["batch"] == pytest.approx(capped.served["concurrency"])


def test_the_table_has_a_row_for_each_batch(curve):
    frame = curve.to_frame()
    assert frame["batch"].tolist() == curve.batch.tolist()
    causes = frame[[f"decoding_{name}" for name in CAUSES]].sum(axis=1)
    assert causes.to_numpy() == pytest.approx(frame["decode_time"].to_numpy(), rel=1e-9)
