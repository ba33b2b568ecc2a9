"""Commands that start an engine: flags, YAML configurations, and fields in a comment.

A configuration is a here document in the script, or a separate file. Fields without a flag are kept in a comment,
``# deployment: replicas=2, reserve_gib=6``, and read back from it.
"""

import re
import shlex
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from calculon.base.errors import SpecError
from calculon.launch.dialect import Parsed, Setting, plain
from calculon.launch.texts.reading_budget import ExhaustedError
from calculon.launch.texts.shell_flags import flag_name, parse_script, switched
from calculon.launch.texts.yaml_config import plain as value_of
from calculon.launch.texts.yaml_config import settings_in

COMMENTED = "deployment."
"""Prefix of settings that are written as a comment."""

CHECKPOINT = "checkpoint"
"""Setting with the name or the folder of the model."""

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
        text, file: Script or configuration, and its name.
        variables: Values that take precedence over assignments in the script.
        program: Pattern of the word after which the engine's flags begin.
        name_of, key_of: Functions from a flag, or from the path of a key in a configuration, to the name of the
            setting; keys are named like flags by default.
        known: Function that returns true for a setting of the engine.

    Raises:
        SpecError: For a script that starts no engine, and for invalid YAML.
    """
    key_of = key_of or (lambda key: name_of(f"--{key}"))
    found = dict(_comments(text, file))
    # A script may have a YAML suffix by mistake; a command that starts the engine decides.
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
        notes += [
            f"{name} is set in several configurations: the last one is used" for name in changed
        ]
        settings |= inside
    # Flags override the configuration, as engines do, and comments override flags: only they state our own fields.
    settings |= {name: _switched(one) for name, one in parsed.settings.items()} | found
    return Parsed(file, settings, None, tuple(notes))


def _switched(setting: Setting) -> Setting:
    """Return a setting with switches in their usual form; the name of a checkpoint stays unchanged."""
    value = setting.value
    if setting.name == CHECKPOINT:
        return Setting(setting.name, str(value), setting.place)
    return Setting(setting.name, switched(value), setting.place)


def _comments(text: str, file: str) -> Mapping[str, Setting]:
    """Return the fields in comments, with a prefix."""
    result = {}
    for number, line in enumerate(text.splitlines(), 1):
        if said := _COMMENT.match(line):
            for field in said["fields"].split(","):
                name, equals, value = field.strip().partition("=")
                if equals:
                    place = f"{file}:{number}"
                    result[COMMENTED + name] = Setting(COMMENTED + name, value_of(value), place)
    return result


def _documents(
    text: str,
    file: str,
    variables: Mapping[str, str],
    key_of: Callable[[str], str],
    known: Callable[[str], bool],
) -> list[dict[str, Setting]]:
    """Return the settings of each configuration in a script; other here documents, such as programs, are skipped."""
    result = []
    for quote, first, written in _bodies(text):
        body = written
        if not quote:  # the shell expands variables in an unquoted here document
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
            result.append(inside)
    return result


def _bodies(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield each here document: the quote of its delimiter, the number of lines above its first line, and its text."""
    lines = [f"{line}\n" for line in text.split("\n")]
    # An index of lines that can end a document keeps scripts with many documents linear.
    ends: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        ends.setdefault(line.strip(" \t\n"), []).append(number)
    number = 0
    while number < len(lines):
        first = number + 1
        for opened in _DOCUMENT.finditer(lines[number]):
            places = ends.get(opened[2], [])
            place = bisect_left(places, first + 1)  # an empty document states nothing
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
    """Return the settings of a configuration, with the same names as flags."""
    result = {}
    for path, leaf in settings_in(text, file, variables).leaves():
        name = key_of(path)
        result[name] = Setting(name, leaf.value, f"{file}:{above + leaf.line}")
    return result


def written_out(word: str, spellings: Mapping[str, str]) -> str:
    """Return the documented name of a flag, given other spellings.

    >>> written_out("-tp=4", {"-tp": "--tp-size"}), written_out("--max_num_seqs", {})
    ('--tp-size', '--max-num-seqs')
    """
    name = flag_name(word)
    return spellings.get(name, name)


def render_flags(
    settings: Mapping[str, Any], processors: int, head: Sequence[str], *, command: str
) -> str:
    """Return a script that starts a replica of an engine whose settings are all flags."""
    del processors
    return render_server(command, flags_in(settings), head, commented_fields(settings))


def render_server(
    command: str,
    flags: Mapping[str, Any],
    head: Sequence[str],
    commented: Mapping[str, Any],
    before: Sequence[str] = (),
) -> str:
    """Return a script that starts an engine with flags; the script's argument is the checkpoint.

    Args:
        command: Words before the flags, as one text.
        flags: Flags by name; True for a switch.
        head: Comment lines.
        commented: Fields that the flags do not express.
        before: Lines before the command.
    """
    lines = ["#!/bin/bash", *(f"# {one}" for one in head)]
    if commented:
        lines.append(f"# deployment: {', '.join(f'{n}={plain(v)}' for n, v in commented.items())}")
    lines += ["CHECKPOINT=${1:?name or folder of the checkpoint}", "", *before]
    words = [command, *(shlex.join(words_of(name, value)) for name, value in flags.items())]
    return "\n".join([*lines, " \\\n    ".join(words), ""])


def words_of(name: str, value: object) -> list[str]:
    """Return the words of a flag on a command line: its name, and its value unless it is a switch.

    >>> words_of("--max-num-seqs", 64), words_of("--enforce-eager", True)
    (['--max-num-seqs', '64'], ['--enforce-eager'])
    """
    return [name] if value is True else [name, plain(value)]


def flags_in(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags among the settings of an engine whose settings are all flags."""
    return {name: value for name, value in settings.items() if name.startswith("-")}


def commented_fields(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields among settings that are written as a comment, by their own names."""
    return {
        name.removeprefix(COMMENTED): value
        for name, value in settings.items()
        if name.startswith(COMMENTED)
    }
