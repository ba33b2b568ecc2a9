"""Configurations in YAML: settings by path, and what their references stand for."""

import pytest

from calculon.base.errors import SpecError
from calculon.launch.dialect import Unresolved
from calculon.launch.texts.yaml_config import settings_in


def _read(text: str, **variables: str) -> dict[str, object]:
    return {path: leaf.value for path, leaf in settings_in(text, "conf.yaml", variables).leaves()}


def test_settings_have_paths_and_lines():
    found = dict(settings_in("model:\n  a: 1\n  b: {c: [1, x]}\n", "conf.yaml", {}).leaves())
    assert found["model.a"].value == 1
    assert found["model.a"].line == 2
    assert found["model.b.c"].value == [1, "x"]


def test_values_are_those_of_yaml():
    rows = [
        ("16", 16),
        ("1e-5", 1e-5),
        ("0.9e-4", 0.9e-4),
        (".5", 0.5),
        ("True", True),
        ("off", False),
        ("null", None),
        ("???", None),
        ("'16'", "16"),
        ("99990,8,2", "99990,8,2"),
        ("2:00:00", "2:00:00"),
        ("bf16", "bf16"),
    ]
    assert [_read(f"a: {text}\n")["a"] for text, _ in rows] == [value for _, value in rows]


def test_references_are_resolved():
    text = "training:\n model:\n  h: 8\n  f: ${multiply:4, ${.h}}\n  g: ${training.model.f}\n  i: x${.h}y\n"
    assert _read(text) == {"model.h": 8, "model.f": 32, "model.g": 32, "model.i": "x8y"}


def test_references_to_nothing_are_open_until_a_variable_says_them():
    assert _read("a: ${TP}\n") == {"a": Unresolved("${TP}", "TP")}
    assert _read("a: ${TP}\n", TP="4") == {"a": 4}


def test_references_in_circles_are_open():
    assert isinstance(_read("a: ${b}\nb: ${a}\n")["a"], Unresolved)


def test_names_around_all_settings_are_left_out():
    assert _read("ConfigContainer:\n  model: {a: 1}\nmore: 2\n") == {"model.a": 1, "more": 2}


def test_types_as_hydra_writes_them():
    text = "a:\n  _call_: false\n  _target_: torch.bfloat16\n"
    assert _read(text) == {"a": "bfloat16"}


def test_what_is_no_configuration_is_refused():
    rows = [
        ("a: [\n", "an error in line"),
        ("- 1\n", "with named settings, found none"),
        ("", "with named settings, found none"),
        ("a: &a [*a]\n", "conf.yaml:1: expected values, found a value inside itself"),
        ("x: " + "[" * 2000 + "]" * 2000, "less deeply nested"),
    ]
    for text, words in rows:
        with pytest.raises(SpecError, match=words):
            settings_in(text, "conf.yaml", {})


def test_values_of_aliases_are_counted():
    tower = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{name}: &{name} [{','.join([f'*{below}'] * 10)}]\n"
        for below, name in zip("abcdefg", "bcdefgh", strict=True)
    )
    with pytest.raises(SpecError, match="at most 200,000 values after expansion, found more"):
        settings_in(tower, "conf.yaml", {})
