"""Files of campaigns: every field decodes, and what is wrong gives one clear message."""

import math

import pytest

from calculon.base.errors import SpecError
from calculon.campaign.goals import MeanTime, TimeSpan
from calculon.campaign.phases import Rollout
from calculon.campaign.read import read_campaign
from calculon.campaign.record import PARTS, Campaign, Phase
from calculon.declarations.fields import spec_fields
from tests.cases import for_each

WHOLE = {
    "about": "every field of a campaign",
    "tokens": "15.6T",
    "phases": [
        {"name": "short", "share": 0.9, "seq_size": "8k", "batch": "16M"},
        {
            "share": 0.1,
            "execution": "search",
            "document_mean": 2000,
            "rollout": {
                "prompt": "1k",
                "output": 4000,
                "output_cv": 0.5,
                "samples": 512,
                "deployment": {"tensor_par": 4},
                "switch": "20s",
            },
        },
    ],
    "batch_ramp": {"start": 16, "step": 16, "tokens": "1B"},
    "seq_ramp": [{"from": 0, "seq_size": "4k"}, {"from": "1T", "seq_size": 8192}],
    "evaluate_every": 1000,
    "evaluate_time": "2min",
    "spikes": 3,
    "rollback_steps": 50,
    "experiments": 0.2,
    "overhead_factor": 1.1,
    "reliability": {
        "scenario": "new",
        "mtbf_processor": "50000h",
        "mtbf_common": 27.6,
        "detect": 60,
        "restart": "5min",
        "spares": 4,
        "repair": "1d",
        "hardware_share": 0.5,
        "elastic": True,
        "silent": 1e-7,
        "silent_detect": 12,
        "slow_share": 0.01,
        "slow_factor": 1.1,
        "slow_detect": 24,
        "jitter": 0.01,
    },
    "checkpoints": {
        "interval": "30min",
        "bytes_per_param": 14,
        "bandwidth": 500,
        "bandwidth_per_node": 2,
        "mode": "sync",
        "pause": 3,
        "levels": 2,
        "memory_interval": "1min",
        "memory_lost": 0.1,
        "load_time": 60,
        "kept": 5,
    },
    "fleet": {
        "price": 2.5,
        "price_kind": "reserved",
        "storage": 20,
        "tdp": 700,
        "pue": 1.1,
        "g_co2_per_kwh": 400,
        "g_co2_per_kwh_market": 0,
        "usd_per_kwh": 0.08,
        "wue": 0.2,
    },
    "deadline": "60d",
    "budget_usd": "5M",
    "budget_mwh": 10000,
}
INSTEAD = {"loss": 2.0, "steps": 1000, "checkpoints.interval_steps": 100}
"""Fields that go only without others, such as a loss without tokens."""


def _problems(document):
    with pytest.raises(SpecError) as error:
        read_campaign(document)
    return error.value.problems


def test_every_field_decodes():
    found = read_campaign(WHOLE)
    assert found.tokens.tokens == 15.6e12
    assert found.deadline == 60 * 86400
    assert found.reliability.mtbf_processor == 50_000 * 3600
    assert found.reliability.mtbf_common == pytest.approx(27.6 * 3600)
    assert found.checkpoints.bandwidth == 500e9
    assert found.phases[1].execution.searched
    rollout = found.phases[1].rollout
    assert (rollout.prompt, rollout.switch) == (1024, 20)
    assert {one.key for one in spec_fields(Rollout)} == WHOLE["phases"][1]["rollout"].keys()
    known = {one.key for one in spec_fields(Campaign)} - INSTEAD.keys()
    assert known <= WHOLE.keys()
    for part in PARTS:
        fields = {f"{part}.{one.key}" for one in spec_fields(type(getattr(found, part)))}
        assert {one.partition(".")[2] for one in fields - INSTEAD.keys()} == WHOLE[part].keys()
    phases = {key for phase in WHOLE["phases"] for key in phase}
    assert {one.key for one in spec_fields(Phase)} - {"tokens"} == phases


@for_each("path", INSTEAD)
def test_the_rest_decodes_as_an_option(path):
    found = read_campaign(None, {path: INSTEAD[path]})
    part, _, name = path.rpartition(".")
    assert getattr(getattr(found, part) if part else found, name) == INSTEAD[path]


def test_what_is_stated_is_no_default():
    everything = {path for path, _, _, _ in read_campaign().defaults}
    assert everything
    assert all(source for _, _, _, source in read_campaign().defaults)
    stated = read_campaign(WHOLE)
    assert stated.defaults == []
    one = read_campaign(None, {"reliability.detect": "10min"})
    assert {path for path, _, _, _ in one.defaults} == everything - {"reliability.detect"}


def test_options_go_before_files_and_files_before_defaults():
    found = read_campaign(WHOLE, {"reliability.detect": 30, "tokens": "1T"})
    assert (found.reliability.detect, found.tokens.tokens) == (30, 1e12)
    assert found.reliability.restart == 300
    assert read_campaign().reliability.restart == TimeSpan(300)


def test_tokens_are_stated_or_follow_from_the_parameters():
    for text, tokens in {"2T": 2e12, "chinchilla": 20 * 8e9, "0.5X": 0.5 * 8e9}.items():
        assert read_campaign({"tokens": text}).tokens.of(8e9) == tokens


def test_a_processor_that_never_fails():
    found = read_campaign({"reliability": {"mtbf_processor": "never"}})
    assert found.reliability.mtbf_processor == MeanTime(math.inf)


@for_each(
    ("document", "place", "words"),
    [
        ({"tokns": "1T"}, "tokns", "only the known fields"),
        ({"tokens": "1T", "loss": 2}, "tokens", "one of tokens, loss and steps"),
        ({"tokens": -1}, "tokens", "tokens such as 15T"),
        ({"tokens": "-3x"}, "tokens", "tokens per parameter"),
        ({"loss": 0}, "loss", "above 0"),
        ({"deadline": "soon"}, "deadline", "a time such as 60d"),
        ({"reliability": {"mtbf_processor": "soon"}}, "reliability.mtbf_processor", "a time"),
        ({"reliability": []}, "reliability", "an object with named fields"),
        ({"checkpoints": {"interval": 0}}, "checkpoints.interval", "a time above 0"),
        (
            {"checkpoints": {"interval": 60, "interval_steps": 5}},
            "checkpoints.interval",
            "one of interval and interval_steps",
        ),
        ({"checkpoints": {"mode": "later"}}, "checkpoints.mode", "one of async, sync"),
        ({"fleet": {"pue": 0.9}}, "fleet.pue", "at least 1"),
        (
            {"tokens": 9, "phases": [{"share": 0.5}, {"share": 0.6}]},
            "phases",
            "shares that sum to 1",
        ),
        ({"phases": [{"share": 1}]}, "tokens", "phases state shares"),
        ({"tokens": 9, "phases": [{"tokens": 9}]}, "phases", "shares of the tokens"),
        ({"phases": [{"name": "a"}]}, "phases[0].tokens", "one of tokens and share"),
        (
            {"phases": [{"tokens": 9, "execution": 3}]},
            "phases[0].execution",
            "an execution of the catalog",
        ),
        (
            {"phases": [{"tokens": 9, "execution": {"search": {"top": 3}}}]},
            "phases[0].execution.search.top",
            "preset, fix, add",
        ),
        (
            {"phases": [{"tokens": 9, "execution": {"search": {}, "fix": 3}}]},
            "phases[0].execution.fix",
            "no other fields next to search",
        ),
        (
            {"phases": [{"tokens": 9, "execution": {"search": {"fix": {"batch_size": 8}}}}]},
            "phases[0].execution.search.fix.batch_size",
            "fields other than batch_size and seq_length",
        ),
        ({"batch_ramp": []}, "batch_ramp", "a list of"),
        ({"batch_ramp": [{"from": 0}]}, "batch_ramp[0].batch", "this field"),
        ({"batch_ramp": {"start": 1, "tokens": 9}}, "batch_ramp.step", "a whole number"),
    ],
)
def test_what_is_wrong_is_said_once(document, place, words):
    (problem,) = _problems(document)
    assert problem.field == place
    assert words in problem.expected


def test_a_misspelled_field_has_a_hint():
    (problem,) = _problems({"reliability": {"mtbf_procesor": 3}})
    assert "mtbf_processor" in problem.hint


def test_no_campaign_of_a_name():
    with pytest.raises(SpecError, match="llama3-405B"):
        read_campaign("llama3-404B")


def test_what_a_campaign_is_about_says_which_of_its_values_are_replaced():
    source = {"about": "a run of 15T tokens", "tokens": "15T", "fleet": {"price": 2.0}}
    changes = {"tokens": "1T", "deadline": "9d", "fleet.price": 3.0}
    found = read_campaign(source, changes)
    assert (
        found.document["about"]
        == "a run of 15T tokens; tokens 1T, not 15T; fleet.price 3.0, not 2.0"
    )
    for same in ({}, {"tokens": "15T"}, {"deadline": "9d"}):
        assert read_campaign(source, same).document["about"] == source["about"]
    assert "about" not in read_campaign({"tokens": "15T"}, {"tokens": "1T"}).document
