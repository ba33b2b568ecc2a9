"""Text to documents: what a short text may stand for is bounded, and what is no value of JSON is refused."""

import time

import pytest

from calculon.base.errors import SpecError
from calculon.declarations.parse import MAX_VALUES, MAX_YAML, parse

MAX_NODES = 5000
"""Values of a document in these tests: a tenth of the bound, which is read ten times as soon."""


def _refused(text: str) -> str:
    """Return the message of a YAML text, which comes soon."""
    start = time.process_time()
    with pytest.raises(SpecError) as error:
        parse(text.encode(), "my.yaml", ".yaml")
    assert time.process_time() - start < 10
    assert str(error.value).startswith("my.yaml: expected a JSON or YAML document, found ")
    assert "\n" not in str(error.value)
    return str(error.value)


def _tower(first: str, floor: str) -> str:
    """Return nine levels of a value, each made of ten times the one below."""
    lines = [f"a: &a {first}"]
    for below, name in zip("abcdefghi", "bcdefghij", strict=True):
        lines.append(f"{name}: &{name} " + floor.format(",".join([f"*{below}"] * 10)))
    return "\n".join([*lines, "hidden: *j"])


@pytest.mark.parametrize(
    "text",
    [_tower("[x]", "[{}]"), _tower("{x: 1}", "{{<<: [{}]}}"), "- 1\n" * (MAX_NODES + 1)],
    ids=["aliases", "merge keys", "plain"],
)
def test_values_of_yaml_are_counted_with_those_of_aliases(text, monkeypatch):
    monkeypatch.setattr("calculon.declarations.parse.MAX_NODES", MAX_NODES)
    assert f"YAML of more than {MAX_NODES:,} values. Hint: write it as JSON" in _refused(text)


def test_yaml_is_shorter_than_json_may_be():
    assert "found YAML of more than 1 MiB. Hint: write it as JSON" in _refused(
        "#" * MAX_YAML + "\na"
    )


def test_values_of_json_are_counted():
    text = b"[" + b"[]," * (MAX_VALUES // 2) + b"1]"
    with pytest.raises(SpecError, match="found JSON of more than 5,000,000 values"):
        parse(text, "my.json", ".json")


def test_aliases_and_merge_keys_of_people_are_read():
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: [*a, *a]"
    one = {"x": 1, "y": 2}
    assert parse(text.encode(), "my.yaml") == {"a": one, "b": {"x": 1, "y": 3}, "c": [one, one]}


def test_yaml_has_the_values_of_json_only():
    for text, found in [
        ("hidden: !!bool x", "the tag !!bool of something else at line 1, column 9. Hint: leave"),
        ("hidden: !!int ''", "the tag !!int of something else"),
        ("hidden: !!float ''", "the tag !!float of something else"),
        ("hidden: !!timestamp x", "the tag !!timestamp at line 1, column 9"),
        ("hidden: !!set {a}", "the tag !!set"),
        ("hidden: !!binary gIGC", "the tag !!binary"),
        ("!!omap [a: 1]", "the tag !!omap"),
        ("? [1]\n: 2", "unhashable key at line 1, column 3"),
        ("<<: 1", "expected a mapping or list of mappings for merging"),
        ("hidden: 1" + "0" * 5000, "a number of more than 4,300 digits"),
        ("a: 1\n---\nb: 2", "but found another document at line 2"),
        ("\thidden: 1", "character '\\t' that cannot start any token"),
        ("[" * 500, "too deep a nesting"),
        ("hidden: \0", "unacceptable character #x0000"),
        ("hidden: !!python/object:os.system x", "the tag !!python/object:os.system"),
        ("hidden: &a [*a]", "a value inside itself at line 1, column 9"),
        ("x: {networks[0].size: 8}", "Hint: a path with [ ] as a key needs quotes"),
    ]:
        assert found in _refused(text)


def test_dates_and_times_of_yaml_are_texts():
    for text in ("2001-02-03", "2001-99-99", "1:30"):
        assert parse(f"about: {text}".encode(), "my.yaml") == {"about": text}


@pytest.mark.parametrize("suffix", [".json", pytest.param(".yaml", marks=pytest.mark.large)])
def test_a_repeated_key_among_many_is_found_soon(suffix):
    keys = [f"k{i}" for i in range(20_000)]
    line = '"{}": 1' if suffix == ".json" else "{}: 1"
    lines = [line.format(key) for key in [*keys, keys[-1]]]
    text = "{" + ",".join(lines) + "}" if suffix == ".json" else "\n".join(lines)
    start = time.process_time()
    with pytest.raises(SpecError, match="k19999: expected each field once"):
        parse(text.encode(), "my", suffix)
    assert time.process_time() - start < 10


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_a_document_is_as_deep_as_functions_can_walk(suffix):
    deep = '{"a": ' * 99 + "1" + "}" * 99
    assert parse(deep.encode(), "my", suffix)
    with pytest.raises(SpecError, match="too deep a nesting"):
        parse(b'{"a": [[' + deep.encode() + b"]]}", "my", suffix)
