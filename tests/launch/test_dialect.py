"""The form of dialects: what rows read, write and leave over, on a launcher that is made up."""

import json
import re

import pytest

from calculon import inputs
from calculon.errors import SpecError
from calculon.launch.dialect import (
    Dialect,
    Parsed,
    Reading,
    Row,
    Setting,
    Unresolved,
    plain,
    read,
    settings_of,
    write,
)
from calculon.launch.rows import named, number, switch
from calculon.plan.plan import NAMES
from tests.launch.laws import refusal


def _parse(text, file, variables):
    raw = json.loads(text)
    given = {
        name: variables.get(v[1:], Unresolved(v, v[1:])) if str(v)[:1] == "$" else v
        for name, v in raw.items()
    }
    settings = {name: Setting(name, value, f"{file}:1") for name, value in given.items()}
    return Parsed(file, settings, 8)


def _degrees(one):
    tensor = one.count("tp", default=1)
    return {
        **{"num_procs": one.processors(), "tensor_par": tensor, "pipeline_par": 1},
        "data_par": one.processors() // tensor,
    }


LAUNCHER = Dialect(
    name="launcher",
    title="Launcher",
    version="1.0",
    preset="megatron-lm",
    rows=(
        Row(
            ("num_procs", "tensor_par", "pipeline_par", "data_par"),
            ("tp",),
            _degrees,
            lambda one: {"tp": one["tensor_par"]},
        ),
        number("batch", "batch_size", 8),
        switch("clip", "grad_clip"),
        named("loss", "ce_impl", {"plain": "megatron", "fast": "fused"}, "plain"),
        Row(
            ("tokens",),
            ("tokens",),
            lambda one: {"tokens": one.get("tokens")},
            lambda one: {},
            "campaign",
        ),
    ),
    no_effect=("lr*",),
    not_modelled={"quick_*": "kernels"},
    parse=_parse,
    render=lambda settings, procs, head: json.dumps(
        {**settings, "head": list(head), "procs": procs}
    ),
    recognises=lambda text, file: file.endswith(".launch"),
)


def _read(**settings):
    return read(LAUNCHER, json.dumps(settings), "x.launch")


def test_every_setting_is_sorted_by_what_becomes_of_it():
    launch = _read(tp=2, lr_min=1, quick_norm=True, strange=3, tokens="$T")
    assert [one.name for one in launch.used] == ["tp"]
    assert [one.name for one in launch.ignored] == ["lr_min"]
    assert [(one.name, effect) for one, effect in launch.not_modelled] == [
        ("quick_norm", "kernels")
    ]
    assert [one.name for one in launch.unknown] == ["strange"]
    assert [one.name for one in launch.unresolved] == ["tokens"]
    assert json.loads(json.dumps(launch.to_dict()))["unresolved"][0]["value"] == "$T"


def test_absent_settings_are_the_defaults_of_the_launcher():
    assert _read().execution == {
        **{
            "base": "megatron-lm",
            "num_procs": 8,
            "tensor_par": 1,
            "pipeline_par": 1,
            "data_par": 8,
        },
        **{"batch_size": 8, "grad_clip": False, "ce_impl": "megatron"},
    }


def test_what_an_execution_needs_and_the_file_does_not_say_is_an_error():
    with pytest.raises(
        SpecError, match=r"x.launch:1: tp: .*found \$T. Hint: import-flags --env T=VALUE"
    ):
        _read(tp="$T")
    launch = read(LAUNCHER, '{"tp": "$T"}', "x.launch", variables={"T": 4})
    assert launch.execution["tensor_par"] == 4


def test_values_without_meaning_are_errors():
    rows = [
        ({"tp": "two"}, "a whole number, found 'two'"),
        ({"batch": True}, "a whole number, found true"),
        ({"clip": 3}, "true or false, found 3"),
        ({"loss": "slow"}, "one of plain, fast, found 'slow'"),
    ]
    wrong = [
        settings for settings, words in rows if not re.search(words, refusal(_read, **settings))
    ]
    assert wrong == []


def test_processors_that_are_asked_for_hold_against_the_file():
    assert read(LAUNCHER, "{}", "x.launch", num_procs=4).execution["data_par"] == 4


def test_a_switch_before_what_is_open_is_on_and_told():
    reading = Reading(Parsed("x", {"clip": Setting("clip", Unresolved("$MORE", "MORE"))}))
    assert reading.switch("clip") is True
    assert reading.notes == ["$MORE may hold further settings"]
    conditional = Unresolved("where $A", "A", conditional=True)
    with pytest.raises(SpecError, match="where"):
        Reading(Parsed("x", {"clip": Setting("clip", conditional)})).switch("clip")


def _whole(**fields):
    plan = {"base": "megatron-lm", "num_procs": 8, "tensor_par": 2, "pipeline_par": 1}
    execution = inputs.execution({**plan, "batch_size": 16, **fields})
    return {name: getattr(execution, name) for name in NAMES}


USUAL = {"zero_stage": "1"}


def test_settings_say_what_is_not_the_default():
    assert settings_of(LAUNCHER, _whole(grad_clip=False)) == {"tp": 2, "batch": 16}
    assert settings_of(LAUNCHER, _whole(ce_impl="fused"))["loss"] == "fast"


def test_what_no_setting_says_is_refused_with_the_nearest():
    with pytest.raises(SpecError, match="pipeline_par: expected 1, the nearest that Launcher"):
        settings_of(LAUNCHER, _whole(pipeline_par=2, data_par=2))
    with pytest.raises(SpecError, match="optimizer: expected adam, as Launcher runs it"):
        settings_of(LAUNCHER, _whole(optimizer="lion"))


def test_files_begin_with_the_version_that_they_were_written_for():
    document = json.loads(write(LAUNCHER, _whole()))
    assert document["procs"] == 8
    assert document["head"] == ["Launcher, written for 1.0: 8 processors"]


def test_values_are_shown_as_a_message_has_them():
    rows = [(3, "3"), (True, "true"), ("a b", "a b"), ([1, "x"], "1 x"), (Unresolved("$A"), "$A")]
    assert [plain(value) for value, _ in rows] == [text for _, text in rows]
