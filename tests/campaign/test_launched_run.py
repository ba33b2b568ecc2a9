"""Launch files as campaigns: tokens, ramps and checkpoints that their flags state, unless the campaign does."""

import pytest

from calculon.base.errors import SpecError
from calculon.campaign.launched_run import launched_fields, with_launch
from calculon.campaign.ramps import LinearRamp
from calculon.campaign.read import read_campaign
from calculon.launch.dialects import read_launch
from tests.cases import for_each
from tests.helpers import ROOT

HEAD = (
    "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --micro-batch-size 1 --seq-length 4096 "
)
LENGTH = 4096


def _megatron(flags: str):
    return read_launch(HEAD + flags + "\n", "run.sh", dialect="megatron-lm")


def test_steps_are_tokens():
    fields = launched_fields(_megatron("--global-batch-size 64 --train-iters 100"))
    assert fields == {"tokens": 100 * 64 * LENGTH}


@pytest.mark.parametrize(("flag", "mode"), [("", "sync"), ("--async-save", "async")])
def test_a_checkpoint_stops_the_steps_unless_it_is_asynchronous(flag, mode):
    launch = _megatron(f"--train-samples 1000 --save-interval 50 {flag}")
    found = with_launch(read_campaign(), launch)
    assert (found.checkpoints.interval_steps, found.checkpoints.mode) == (50, mode)
    assert found.tokens.tokens == 1000 * LENGTH


def test_a_schedule_counts_tokens_and_its_largest_batch_is_that_of_the_plan():
    launch = _megatron(
        '--train-samples 1000000000 --step-batch-size-schedule "0:64 1.5B:128 2T:256"'
    )
    assert launch.execution["batch_size"] == 256
    ramp = with_launch(read_campaign(), launch).batch_ramp
    steps = [(one.start.tokens, one.batch.sequences(LENGTH)) for one in ramp.steps]
    assert steps == [(0, 64), (1.5e9, 128), (2e12, 256)]


@for_each(
    "flags",
    ["--rampup-batch-size 16 16", "--rampup-batch-size a b c", "--step-batch-size-schedule 0-64"],
)
def test_a_ramp_that_is_none_is_refused(flags):
    with pytest.raises(SpecError, match=flags.split(" ", maxsplit=1)[0]):
        _megatron(f"--global-batch-size 64 {flags}")


def test_what_the_campaign_states_goes_before():
    launch = _megatron(
        "--global-batch-size 256 --train-samples 1000 --save-interval 50 --rampup-batch-size 32 16 500"
    )
    stated = {"tokens": "1T", "checkpoints": {"interval": "10min", "mode": "async"}}
    stated |= {"batch_ramp": [{"from": 0, "batch": 64}]}
    asked = read_campaign(stated)
    assert with_launch(asked, launch) == asked
    phases = read_campaign({"phases": [{"tokens": "1T"}]})
    found = with_launch(phases, launch)
    assert (found.tokens, found.batch_ramp) == (None, None)
    assert found.checkpoints.interval_steps == 50


def test_the_run_of_bloom():
    """Its script: 220,000,000 samples of 2,048 tokens, a ramp from 192 by 16 to 2,048 over 9,765,625 samples."""
    path = ROOT / "tests/launch/scripts/megatron_lm/bloom_176b.slurm"
    launch = read_launch(path.read_text(), path.name, num_procs=384)
    found = with_launch(read_campaign(), launch)
    assert isinstance(found.batch_ramp.linear, LinearRamp)
    assert found.batch_ramp.linear.tokens.tokens == 9_765_625 * 2048
    assert (found.batch_ramp.linear.start, found.batch_ramp.linear.step) == (192, 16)
    assert found.tokens.tokens == 220_000_000 * 2048


def test_torchtitan_saves_as_it_says():
    text = (ROOT / "tests/launch/scripts/torchtitan/llama3_8b_2025.toml").read_text()
    plain = launched_fields(read_launch(text, "run.toml", num_procs=64))
    assert "checkpoints.mode" not in plain  # its checkpoints are off
    on = text.replace("enable_checkpoint = false", "enable_checkpoint = true")
    on = on.replace("enable = false", "enable = true")
    assert launched_fields(read_launch(on, "run.toml", num_procs=64))["checkpoints.mode"] == "sync"
    pinned = on.replace('async_mode = "disabled"', 'async_mode = "async_with_pinned_mem"')
    found = launched_fields(read_launch(pinned, "run.toml", num_procs=64))
    assert found["checkpoints.mode"] == "async"
