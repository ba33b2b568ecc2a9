"""Deployments with drafts: passes, memory, steady state, and when they pay."""

import json
from dataclasses import replace

import numpy as np
import pytest

from calculon import inputs
from calculon.architecture.parameters import module_count
from calculon.base.errors import SpecError
from calculon.serving.caches.rank_memory import cached_bytes, weight_bytes
from calculon.serving.passes.drafts import draft_of
from calculon.serving.passes.pass_rows import LOGIT_BYTES, pass_rows
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.passes.replica import Replica
from calculon.serving.passes.row_times import pass_times
from calculon.serving.records.deployments import Deployments
from calculon.serving.records.read_records import read_deployment, read_workload
from calculon.serving.serve import serve
from calculon.serving.states.operating_point import OperatingPointSolver
from tests.cases import for_each
from tests.draws import some
from tests.serving.given import H100, LOAD, PLAIN, SMALL, rows_of, types

DRAFT = "model:llama3.2-1B"
LLAMA_8B = inputs.model("llama3-8B")
PREDICTS = replace(SMALL, mtp_layers=2)
MIXTURE = replace(
    SMALL, num_experts=16, experts_per_token=2, expert_feedforward=512, mtp_layers=1, name="mixture"
)
DRAFTS = {
    "ngram": (PREDICTS, {"draft": "ngram"}),
    "mtp": (PREDICTS, {"draft": "mtp"}),
    "mixture": (MIXTURE, {"draft": "mtp"}),
    "model": (LLAMA_8B, {"draft": DRAFT}),
}
EACH = pytest.mark.parametrize(("model", "draft"), DRAFTS.values(), ids=DRAFTS)


def replica(model, system=H100, **deployment):
    record = read_deployment({"num_procs": 8, **deployment})
    return Replica(model, system, Deployments.of(record), read_workload(None, LOAD))


def answer(model, changes, procs=1, system=H100, **load):
    return serve(model, procs, system, LOAD, changes=changes, **load)


def drafting(draft, tokens, acceptance):
    return {**draft, "draft_tokens": tokens, "acceptance": acceptance}


def row(rows, name):
    (found,) = (one for one in rows if one.name == name)
    return found


def test_a_verification_reads_the_cache_once_and_multiplies_every_row():
    batch, drafted, context = 5, 3, 1000
    plain = rows_of(SMALL, decoded=batch, context=context)
    verified = rows_of(SMALL, decoded=batch, context=context, verified=1 + drafted)
    more = rows_of(SMALL, decoded=batch * (1 + drafted), context=context)
    for name in ("qkv", "output", "head"):
        assert row(verified, name).flops == row(more, name).flops
        assert row(verified, name).moved == row(more, name).moved
    cached = row(plain, "decode attention").cache / context
    assert row(verified, "decode attention").cache == cached * (context + drafted)
    seen = sum(context + further for further in range(1 + drafted))
    each = row(plain, "decode attention").flops / context
    assert row(verified, "decode attention").flops == pytest.approx(each * seen, rel=1e-12)
    assert row(verified, "sampling").moved == batch * (1 + drafted) * SMALL.vocab * LOGIT_BYTES


def test_a_window_bounds_what_each_row_of_a_verification_sees():
    model = replace(SMALL, sliding_window=64)
    plain = row(rows_of(model, decoded=1, context=1000), "decode attention")
    verified = row(rows_of(model, decoded=1, context=1000, verified=4), "decode attention")
    assert verified.flops == 4 * plain.flops
    assert verified.cache == plain.cache / 64 * (64 + 3)


def test_experts_are_touched_by_all_rows_of_a_verification():
    read = [
        sum(one.weights for one in rows if one.name == "experts")
        for rows in (
            rows_of(MIXTURE, decoded=3, context=100, verified=4),
            rows_of(MIXTURE, decoded=1e9, context=100),
        )
    ]
    assert read[0] == pytest.approx(read[1] * (1 - (1 - 2 / 16) ** 12), rel=1e-12)


@EACH
@for_each("tokens", [1, 3])
def test_a_step_is_a_verification_and_its_drafts(model, draft, tokens):
    own = replica(model, **drafting(draft, tokens, 0.5))
    size, context = np.full(1, 7.0), own.workload.context
    step = own.decode_pass(size)
    sizes = own.sizes(decoded=7, context=context, verified=1 + tokens)
    routing = own.deployments.record.routing
    rows = pass_rows(model, own.types, sizes, routing=routing)
    verification = pass_times(model, H100, rows, sizes)
    added = 0.0
    for number in range(tokens if own.draft.model else 0):
        seen = own.sizes(decoded=7, context=context + number)
        drafted = pass_rows(
            own.draft.model, own.types, seen, routing=routing, module=own.draft.module
        )
        added += pass_times(own.draft.model, H100, drafted, seen, step=False).time
    np.testing.assert_allclose(step.time, verification.time + added, rtol=1e-6)
    np.testing.assert_allclose(step.total("time"), step.time, rtol=1e-12)
    np.testing.assert_allclose(sum(step.causes().values()), step.time, rtol=1e-12)
    assert own.decode(size) == step.time


@EACH
def test_prompts_pass_through_what_drafts_once(model, draft):
    one, three = (replica(model, **drafting(draft, n, 0.5)) for n in (1, 3))
    plain = replica(model)
    prompt = np.ones(1)
    assert one.prefill(prompt)[0] == three.prefill(prompt)[0]
    assert (one.prefill(prompt)[0] > plain.prefill(prompt)[0]) == (one.draft.model is not None)


def test_the_host_launches_the_kernels_of_drafts():
    """Without graphs a module of one block takes its share of the kernels at least."""
    changes = drafting({"draft": "mtp"}, 1, 0.5)
    eager = [
        replica(PREDICTS, graphs=False, **one).decode_pass(np.ones(1)) for one in ({}, changes)
    ]
    beside = eager[1].of("host")
    assert len(beside) == 2
    assert eager[1].total("time")[0] > eager[0].total("time")[0]


def test_a_smaller_model_has_its_weights_beside():
    model, small = LLAMA_8B, inputs.model("llama3.2-1B")
    sizes = PassSizes.of(tensor_par=2, decoded=1)
    draft = draft_of(model, read_deployment({"num_procs": 1, **drafting({"draft": DRAFT}, 2, 0.5)}))
    alone, one = weight_bytes(model, types(), sizes, np.ones(1)), np.ones(1)
    both = weight_bytes(model, types(), sizes, one, draft)
    assert both == alone + weight_bytes(small, types(), sizes, one)


@for_each(("tokens", "modules"), [(1, 1), (2, 2), (5, 2)])
def test_modules_that_draft_have_their_weights_and_caches_beside(tokens, modules):
    deployment = read_deployment({"num_procs": 1, **drafting({"draft": "mtp"}, tokens, 0.5)})
    draft, sizes = draft_of(PREDICTS, deployment), PassSizes.of(tensor_par=1, decoded=1)
    alone = weight_bytes(PREDICTS, types(), sizes, np.ones(1))
    both = weight_bytes(PREDICTS, types(), sizes, np.ones(1), draft)
    each = module_count(PREDICTS) / PREDICTS.mtp_layers - PREDICTS.hidden  # no gains of last norms
    assert both - alone == modules * each * 2
    drafted = Replica(PREDICTS, H100, Deployments.of(deployment), read_workload(LOAD))
    plain, drafted = (cached_bytes(one, 100) for one in (drafted.without_draft(), drafted))
    assert drafted == pytest.approx(plain * (1 + modules / PREDICTS.num_blocks), rel=1e-12)


def test_what_drafts_is_on_the_last_stage():
    """Of uneven stages the last has fewer blocks, so that a small draft needs no more room."""
    model, split = replace(PREDICTS, num_blocks=5), PassSizes.of(tensor_par=1, decoded=1)
    deployment = read_deployment({"num_procs": 2, "pipeline_par": 2, "draft": "mtp"} | {
        "draft_tokens": 1, "acceptance": 0.5})  # fmt: skip
    draft, two = draft_of(model, deployment), np.full(1, 2.0)
    drafted = Replica(model, H100, Deployments.of(deployment), read_workload(LOAD))
    assert cached_bytes(drafted, 100) == cached_bytes(drafted.without_draft(), 100)
    assert weight_bytes(model, types(), split, two, draft) >= weight_bytes(
        model, types(), split, two
    )


@pytest.mark.parametrize("budget", [0, 512])
def test_littles_law_holds(budget):
    drafts = drafting({"draft": "mtp"}, 3, 0.6)
    found = answer(MIXTURE, {"max_batch": 24, "token_budget": budget} | drafts)
    assert found.cut == "max_batch"
    assert found["request_rate"] * 299 * found["tpot"] == pytest.approx(24, rel=1e-12)
    assert found["tpot"] * found["spec_tokens"] >= found["decode_time"]
    assert found["itl_max"] >= found["decode_time"]


def test_a_token_takes_a_step_over_what_it_yields_where_others_prefill():
    apart = {"prefill": {"num_procs": 1}, "max_batch": 24, "tensor_par": 1}
    found = answer(PREDICTS, apart | drafting({"draft": "mtp"}, 3, 0.6), procs=2)
    assert found["tpot"] * found["spec_tokens"] == pytest.approx(found["decode_time"], rel=1e-12)
    assert found["itl_max"] == found["decode_time"]


@pytest.mark.parametrize(
    ("model", "draft"), [DRAFTS["mixture"], pytest.param(*DRAFTS["model"], marks=pytest.mark.large)]
)
def test_drafts_pay_up_to_the_break_even_batch(model, draft):
    changes = {"memory_fraction": 0.1} | drafting(draft, 4, 0.35)
    found = answer(model, changes)
    drafted, plain = replica(model, **changes), replica(model)
    fits = np.arange(1.0, OperatingPointSolver(drafted).largest_batch()[0][0] + 1)
    pays = drafted.decode(fits) / drafted.per_pass < plain.decode(fits)
    largest = found["spec_break_even"]
    if not pays.any():
        assert largest == 0
    else:
        assert pays[int(largest) - 1]
        assert largest == len(fits) or not pays[int(largest)]
    shares = answer(model, {"max_batch": found.batch})["tpot"] / found["tpot"]
    assert found["spec_speedup"] == pytest.approx(shares, rel=1e-12)


def test_no_speculation_has_no_break_even():
    found = answer(SMALL, {"max_batch": 24}).stats
    assert found["spec_break_even"] is None
    assert found["spec_speedup"] is None
    assert found["spec_tokens"] == 1


def test_a_stage_that_drafts_may_be_the_slowest():
    """All parts of a batch pass through the last stage, which drafts after each."""
    deep = {"pipeline_par": 4, "tensor_par": 1}
    own = replica(LLAMA_8B, system=PLAIN, **deep, **drafting({"draft": DRAFT}, 8, 0.5))
    size = np.full(1, 64.0)
    step, part = own.decode_pass(size), 16.0
    (drafts,) = (sum(one.time for one in step.of("draft")),)
    assert own.decode(size) >= 64 / part * drafts
    assert own.decode(size) >= step.time


@for_each(
    ("model", "changes", "wrong"),
    [
        (SMALL, {"draft": "mtp"}, "draft"),
        (SMALL, drafting({"draft": DRAFT}, 2, 0.5), "draft"),
        (PREDICTS, {"draft": "mtp"}, "acceptance"),
        (replace(LLAMA_8B, attn_heads=96), drafting({"draft": DRAFT}, 2, 0.5) | {"tensor_par": 3}, "draft"),
    ],
)  # fmt: skip
def test_a_draft_that_does_not_go_with_the_model_is_named(model, changes, wrong):
    with pytest.raises(SpecError) as caught:
        answer(model, changes, procs=3)
    assert [one.field for one in caught.value.problems] == [wrong]


def test_an_unknown_draft_is_no_model():
    with pytest.raises(SpecError, match="llama3-9B"):
        answer(LLAMA_8B, drafting({"draft": "model:llama3-9B"}, 2, 0.5))


def test_a_draft_may_be_a_file(tmp_path):
    file = tmp_path / "draft.json"
    file.write_text(json.dumps(SMALL.to_dict()))
    changes = {"max_batch": 8} | drafting({"draft": f"model:{file}"}, 2, 0.5)
    found = answer(replace(SMALL, num_blocks=12), changes)
    assert found["spec_tokens"] == 1 + 0.5 + 0.25


PUBLISHED = {0: (1.0, 111), 1: (1.92, 198), 2: (2.58, 250), 3: (2.82, 253), 4: (2.99, 245), 5: (3.01, 239)}  # fmt: skip
"""DeepSeek-R1 on 8 B200, one user: drafted tokens, tokens of a pass, and tokens per second.

Source: TensorRT-LLM, *Pushing Latency Boundaries: Optimizing DeepSeek-R1 Performance on NVIDIA B200 GPUs*, 2025, table
of autoregressive MTP layers: 1,000 tokens in, 2,000 out; experts in nvfp4, attention in bfloat16, TP 8, EP 4.
"""


def test_published_speedups_of_modules_that_draft():
    """What more drafted tokens are worth; the best number of them is published as close to the best."""
    split = {"tensor_par": 8, "expert_par": 4, "experts_dtype": "nvfp4", "max_batch": 1}
    found = {}
    for tokens in (0, *some(range(1, 6), 3)):
        yields = PUBLISHED[tokens][0]
        drafts = {"draft": "mtp", "draft_tokens": tokens, "accepted": yields - 1} if tokens else {}
        load = {"prompt": 1000, "output": 2000, "users": 1}
        found[tokens] = serve("deepseek-v3", 8, "b200_sxm", load, changes=split | drafts)
    for tokens, served in found.items():
        speedup = served["interactivity"] / found[0]["interactivity"]
        assert speedup == pytest.approx(PUBLISHED[tokens][1] / PUBLISHED[0][1], rel=0.12)
    best = max(found, key=lambda tokens: found[tokens]["interactivity"])
    assert PUBLISHED[best][1] > 0.95 * max(PUBLISHED[tokens][1] for tokens in found)
