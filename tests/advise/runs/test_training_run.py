"""Whole training runs of plans: steps, phases, tokens from a loss."""

import json

import pytest

import calculon
from calculon.architecture.parameters import active_count, parameter_count
from calculon.base.errors import Infeasible, SpecError
from calculon.campaign.record import DAY
from calculon.campaign.scaling_laws import COUNTS, LAWS
from tests.helpers import LLAMA_X64_P4

MODEL, SYSTEM = "llama3-8B", "h100_80g_sxm"
STEP = LLAMA_X64_P4["batch_size"] * 8192
QUIET = {"reliability": {"mtbf_processor": "never"}}


def _run(**fields):
    return calculon.campaign(MODEL, LLAMA_X64_P4, SYSTEM, fields)


@pytest.fixture(scope="module", name="step")
def _step():
    return calculon.estimate(MODEL, LLAMA_X64_P4, SYSTEM, edition="corrected")


def test_a_quiet_run_is_its_steps(step):
    """C1: T = steps x t exactly."""
    run = _run(steps=1000, **QUIET)
    assert run.figures["days"] == 1000 * step.stats["total_time"] / DAY
    assert run.tokens == 1000 * STEP
    assert run.figures["mtbf_hours"] is None
    json.dumps(run.to_dict(), allow_nan=False)


@pytest.mark.parametrize("quiet", [QUIET, {}])
def test_two_equal_halves_are_the_whole(quiet):
    """C5: with whole steps in each half nothing changes."""
    whole = _run(tokens=1000 * STEP, **quiet)
    halves = _run(tokens=1000 * STEP, phases=[{"share": 0.5}, {"share": 0.5}], **quiet)
    assert len(halves.parts) == 2
    assert halves.pauses == 0
    for name, value in whole.figures.items():
        assert halves.figures[name] == (None if value is None else pytest.approx(value, rel=1e-12))


def test_halves_with_a_broken_step_have_one_more():
    run = _run(tokens=1001 * STEP, phases=[{"share": 0.5}, {"share": 0.5}])
    assert [one.steps for one in run.parts] == [501, 501]


def test_the_order_of_phases_does_not_matter_without_restarts():
    """C5."""
    phases = [
        {"tokens": 300 * STEP},
        {"tokens": 500 * STEP, "batch": 128},
        {"tokens": 200 * STEP, "seq_size": 4096},
    ]
    forth, back = _run(phases=phases), _run(phases=phases[::-1])
    assert forth.pauses == back.pauses == 0
    for name, value in forth.figures.items():
        same = None if value is None else pytest.approx(value, rel=1e-12)
        assert back.figures[name] == same, name


def test_a_loss_gives_the_tokens_and_tokens_the_loss():
    run = _run(loss=2.1)
    known = run.to_dict()["expected_loss"]
    parameters = float(active_count(run.model))
    assert known["parameters"] == parameters
    for name, law in LAWS.items():
        assert known["tokens"][name] == float(law.tokens(parameters, 2.1))
        assert known["loss"][name] == float(law.loss(parameters, run.tokens))
    assert 0 <= run.tokens - known["tokens"][COUNTS.name] < STEP
    assert known["loss"][COUNTS.name] == pytest.approx(2.1, abs=1e-6)
    assert known["tokens_per_parameter"] == run.tokens / parameters


def test_of_a_mixture_the_parameters_that_a_token_passes_count():
    run = calculon.campaign("mixtral-8x7B", "mixtral-8x7B_h100x64", SYSTEM, tokens="chinchilla")
    active = active_count(run.model)
    assert active < parameter_count(run.model)
    assert 0 <= run.tokens - 20 * active < run.parts[0].tokens_per_step


def test_a_launch_file_says_how_long_its_run_is(tmp_path):
    script = tmp_path / "run.sh"
    plan = {"base": "megatron-lm", "num_procs": 64, "tensor_par": 2, "pipeline_par": 2}
    plan["batch_size"] = LLAMA_X64_P4["batch_size"]
    text = calculon.export_flags(plan, "megatron-lm", model=MODEL, tokens=1000 * STEP)
    script.write_text(text)
    run = calculon.campaign(MODEL, str(script), SYSTEM)
    assert run.tokens == 1000 * STEP
    assert calculon.campaign(MODEL, str(script), SYSTEM, steps=7).tokens == 7 * STEP


LLAMA = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")


def test_it_is_planned_for_the_batch_and_the_length_of_the_end_of_the_run():
    ramp = [{"from": 0, "batch": "1M"}, {"from": "1G", "batch": "2M"}]
    asked = {"tokens": "1T", "batch_ramp": ramp, "seq_ramp": [{"from": 0, "seq_size": "4k"}]}
    run = calculon.campaign("llama3.2-1B", 8, "h100_80g_sxm", asked)
    assert [one.tokens_per_step for one in run.parts] == [2**20, 2**21]
    best = calculon.plan("llama3.2-1B", (8,), "h100_80g_sxm", batch="2M", seq="4k").best
    assert run.main.estimate.execution == best.execution


def test_what_fits_nowhere_says_so():
    with pytest.raises(Infeasible, match="no plan fits"):
        calculon.campaign("llama3.1-405B", 8, "h100_80g_sxm", tokens="1T")


def test_a_run_that_never_ends_says_so():
    with pytest.raises(Infeasible, match=r"never ends.*mtbf_processor"):
        calculon.campaign(*LLAMA, tokens="1T", reliability__mtbf_processor="1min")


def test_a_frame_has_a_row_for_each_part():
    ramp = [{"from": 0, "batch": 256}, {"from": "10G", "batch": 512}]
    run = calculon.campaign(*LLAMA, {"tokens": "1T", "batch_ramp": ramp})
    frame = run.to_frame()
    assert list(frame["batch_size"]) == [256, 512]
    assert list(frame["days"]) == [one.days for one in run.parts]
    assert "execution" not in frame


def test_a_campaign_is_the_argument_run():
    with pytest.raises(SpecError, match="run=") as refused:
        calculon.campaign(*LLAMA, campaign="llama3-405B")
    assert refused.value.field == "campaign"
