"""Commands that start an engine: their flags, configurations in YAML beside them, and what a comment says.

A script has the configuration as a here document, or it is a file of its own. What no engine has a flag for is kept in
a comment, ``# deployment: replicas=2, reserve_gib=6``, and read from there.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from calculon.base.errors import SpecError
from calculon.launch.dialect import Parsed, Setting, plain
from calculon.launch.texts.reading_budget import ExhaustedError
from calculon.launch.texts.shell_flags import flag_name, parse_script, switched
from calculon.launch.texts.yaml_config import plain as value_of
from calculon.launch.texts.yaml_config import settings_in

BESIDE = "deployment."
"""What names of settings begin with that a comment says."""

CHECKPOINT = "checkpoint"
"""The setting that is the name of the model, or its folder."""

_COMMENT = re.compile(r"#\s*deployment:(?P<fields>.*)")
_DOCUMENT = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_YAML = (".yaml", ".yml")


def parse_server(
    text: str,
    file: str,
    variables: Mapping[str, str],
    *,
    program: re.Pattern[str],
    name_of: Callable[[str], str],
    known: Callable[[str], bool],
    key_of: Callable[[str], str] | None = None,
) -> Parsed:
    """Return the settings of a command that starts an engine, or of its configuration alone.

    Args:
        text, file: The script or configuration, and its name.
        variables: Values that hold whatever a script says.
        program: The word after which the flags of the engine begin.
        name_of, key_of: Return the name of a setting, given a flag, or the path of a key of a configuration; by default
            as of a flag.
        known: Whether a name is a setting of the engine.

    Raises:
        SpecError: For a script that starts no engine, and for what is no YAML.
    """
    key_of = key_of or (lambda key: name_of(f"--{key}"))
    found = dict(_comments(text, file))
    if file.endswith(_YAML) and not program.search(text):
        return Parsed(file, _keys(text, file, variables, key_of) | found, None)
    parsed = parse_script(
        text, file, variables, is_flag=known, name_of=name_of, program=(program, CHECKPOINT)
    )
    settings: dict[str, Setting] = {}
    notes = list(parsed.notes)
    for inside in _documents(text, file, variables, key_of, known):
        changed = [
            n for n, one in inside.items() if n in settings and settings[n].value != one.value
        ]
        notes += [f"{name} stands in several configurations: the last counts" for name in changed]
        settings |= inside
    settings |= {name: _switched(one) for name, one in parsed.settings.items()} | found
    return Parsed(file, settings, None, tuple(notes))


def _switched(one: Setting) -> Setting:
    """Return a setting whose value is a switch as a text with that switch; the name of a checkpoint as it stands."""
    value = one.value
    if one.name == CHECKPOINT:
        return Setting(one.name, str(value), one.place)
    return Setting(one.name, switched(value), one.place)


def _comments(text: str, file: str) -> Mapping[str, Setting]:
    """Return the fields that a comment says, under names of their own."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if said := _COMMENT.match(line):
            for field in said["fields"].split(","):
                name, equals, value = field.strip().partition("=")
                if equals:
                    place = f"{file}:{number}"
                    found[BESIDE + name] = Setting(BESIDE + name, value_of(value), place)
    return found


def _documents(
    text: str,
    file: str,
    variables: Mapping[str, str],
    key_of: Callable[[str], str],
    known: Callable[[str], bool],
) -> list[dict[str, Setting]]:
    """Return the settings of each configuration in a script; what is none, such as a program, is passed over."""
    found = []
    for quote, first, written in _bodies(text):
        body = written
        if not quote:  # the shell puts variables in
            body = _VARIABLE.sub(
                lambda v: variables.get(v[1] or v[2], f"${{{v[1] or v[2]}}}"), body
            )
        try:
            inside = _keys(body, file, variables, key_of, first)
        except ExhaustedError:
            raise
        except SpecError:
            continue
        if any(map(known, inside)):
            found.append(inside)
    return found


def _bodies(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield the quote around the name of each here document, the lines above its first one, and its text."""
    lines = [f"{line}\n" for line in text.split("\n")]
    ends: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        ends.setdefault(line.strip(" \t\n"), []).append(number)
    number = 0
    while number < len(lines):
        first = number + 1
        for opened in _DOCUMENT.finditer(lines[number]):
            places = ends.get(opened[2], [])
            place = bisect_left(places, first + 1)  # an empty one says nothing
            if place < len(places):
                yield opened[1], first, "".join(lines[first : places[place]])
                first = places[place]
                break
        number = first


def _keys(
    text: str,
    file: str,
    variables: Mapping[str, str],
    key_of: Callable[[str], str],
    above: int = 0,
) -> dict[str, Setting]:
    """Return the settings of a configuration, by the names that flags have, too."""
    found = {}
    for path, leaf in settings_in(text, file, variables).leaves():
        name = key_of(path)
        found[name] = Setting(name, leaf.value, f"{file}:{above + leaf.line}")
    return found


def written_out(word: str, spellings: Mapping[str, str]) -> str:
    """Return the name of a flag as the documentation has it, given other spellings.

    >>> written_out("-tp=4", {"-tp": "--tp-size"}), written_out("--max_num_seqs", {})
    ('--tp-size', '--max-num-seqs')
    """
    name = flag_name(word)
    return spellings.get(name, name)


def render_flags(
    settings: Mapping[str, Any], processors: int, head: Sequence[str], *, command: str
) -> str:
    """Return a script that starts a replica of an engine all of whose settings are flags."""
    del processors
    flags = {name: value for name, value in settings.items() if name.startswith("-")}
    return render_server(command, flags, head, beside_in(settings))


def render_server(
    command: str,
    flags: Mapping[str, Any],
    head: Sequence[str],
    beside: Mapping[str, Any],
    before: Sequence[str] = (),
) -> str:
    """Return a script that starts an engine with some flags; its argument is the checkpoint.

    Args:
        command: Words before the flags, in one text.
        flags: Flags by name; of a switch the value is True.
        head: Lines of comment.
        beside: Fields that the flags do not say.
        before: Lines before the command.
    """
    lines = ["#!/bin/bash", *(f"# {one}" for one in head)]
    if beside:
        lines.append(f"# deployment: {', '.join(f'{n}={plain(v)}' for n, v in beside.items())}")
    lines += ["CHECKPOINT=${1:?name or folder of the checkpoint}", "", *before]
    words = [command]
    words += [name if value is True else f"{name} {_word(value)}" for name, value in flags.items()]
    return "\n".join([*lines, " \\\n    ".join(words), ""])


def _word(value: object) -> str:
    text = plain(value)
    return text if re.fullmatch(r"[\w.,:/+=-]+", text) else f"'{text}'"


def beside_in(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields among settings that a comment says, by their own names."""
    return {
        name.removeprefix(BESIDE): value
        for name, value in settings.items()
        if name.startswith(BESIDE)
    }
