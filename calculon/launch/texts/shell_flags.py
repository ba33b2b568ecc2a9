"""Training command of a shell script: its flags, and the number of processors from launchers and batch systems.

Sources: PyTorch documentation, *torchrun* and ``torch.distributed.launch``; Slurm documentation, *srun* and *sbatch*;
DeepSpeed documentation, *Getting Started*; Hugging Face Accelerate documentation, *The Command Line*.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.launch.dialect import Parsed, Setting, Unresolved
from calculon.launch.texts.reading_budget import Budget, reading
from calculon.launch.texts.shell import Command, Script, run
from calculon.launch.texts.shell_expansion import OPEN_CHARACTER

_NODES = {
    *("--nnodes", "--num-nodes", "--nodes", "-N", "--num-machines"),
    *("--n-nodes", "--num-hosts"),
}
_PER_NODE = ("--nproc-per-node", "--num-gpus", "--ntasks-per-node", "--gpus-per-node", "--gres")
_ALL = ("--num-processes", "--ntasks", "-n", "-np")
_MODULES = ("torch.distributed.launch", "torch.distributed.run", "accelerate.commands.launch")
_STARTERS = ("torchrun", "deepspeed", "accelerate", *_MODULES)
"""Launchers that start a process per processor; without one of them, the batch system does."""

_OF_BATCH_SYSTEM = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NODES"),
    "per_node": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_NTASKS_PER_NODE"),
}
_BOTH = ("SLURM_NTASKS", "SLURM_NPROCS")
_SAYING = ("echo", "printf", "cat")
"""Commands that only print other commands."""

_CONTROL = re.compile(r"\|\|?|\|&|&&?|;|\d*(>|>>|>&|&>|&>>|<).*")
"""Words that end a command within a text, such as ``eval "$CMD &> run.log"``."""

_LONGEST_NUMBER = 40  # characters
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")

_IN_NAME = re.compile(r"[\w-]")

PROGRAM = "program"
"""Setting with the name of the training program."""

Size = int | Unresolved | None


@dataclass(frozen=True, slots=True)
class _Where:
    """Numbers of nodes and of processes per node, or the total number of processes."""

    nodes: Size = None
    per_node: Size = None
    total: Size = None

    @property
    def processors(self) -> Size:
        """Total number of processes, if known."""
        if self.total is not None or self.per_node is None:
            return self.total
        nodes = 1 if self.nodes is None else self.nodes
        for one in (nodes, self.per_node):
            if isinstance(one, Unresolved):
                return one
        assert isinstance(nodes, int)
        assert isinstance(self.per_node, int)
        return nodes * self.per_node


def parse_script(
    text: str,
    file: str,
    variables: Mapping[str, str],
    *,
    is_flag: Callable[[str], bool] = lambda name: True,
    name_of: Callable[[str], str] | None = None,
    environment: Sequence[str] = (),
    program: tuple[re.Pattern[str], str] | None = None,
) -> Parsed:
    """Return the flags of a script's training command by name, and its number of processors.

    The last of repeated flags counts, as in argparse.

    Args:
        text, file: Script, and its name.
        variables: Values that override the script's assignments.
        is_flag: Function that returns true for known flags: of several commands, the one with most known flags counts.
        name_of: Function from a flag, possibly followed by its value, to its name; by default :func:`flag_name`.
        environment: Environment variables that are also settings if the script sets them. The name of the training
            program is a setting, too (:data:`PROGRAM`).
        program: Pattern of the word after which flags begin, and the setting for the next word if it is no flag: ``vllm
            serve MODEL``.

    Raises:
        SpecError: For a script without a training command, and for a quotation or list without an end.
    """
    named = name_of or flag_name

    def known(word: str) -> bool:
        starts = program is not None and program[0].fullmatch(word) is not None
        return starts or (word.startswith("--") and is_flag(named(word)))

    with reading(file) as budget:
        batch = _batch_system(text)
        script = run(text, file, _slurm_variables(batch) | dict(variables))
        command, notes = _chosen(script, file, known, program[0] if program else None)
        before, after = _halves(command, known, program[0] if program else None)
        # A redirection or pipe ends the command.
        after = list(takewhile(lambda word: not _CONTROL.fullmatch(word), after))
        lines = _Lines(text, file, budget)
        others = _other_settings(command, script, environment, lines)
        if program and after and not _is_flag(after[0]):
            first = after.pop(0)
            others[program[1]] = Setting(
                program[1], script.open(first) or first, lines.place(first)
            )
        settings, loose = _flags(after, script, named, lines)
        notes += [f"{one} may hold further settings" for one in loose]
        return Parsed(file, settings | others, _processors(before, batch, script), tuple(notes))


def _chosen(
    script: Script, file: str, known: Callable[[str], bool], program: re.Pattern[str] | None
) -> tuple[list[str], list[str]]:
    """Return the words of the command with the most flags of the launcher, and notes about others.

    Raises:
        SpecError: If there is none.
    """
    commands = [_words(script, one) for one in script.commands if one.words[0] not in _SAYING]
    command = max(commands, key=lambda words: _score(words, known), default=[])
    notes = [f"{one} is not read" for one in script.sourced]
    starting = [one for one in commands if program and any(map(program.fullmatch, one))]
    if len(starting) > 1:
        notes.append(
            f"{len(starting)} commands start a server: the one with the most options is used"
        )
    trains = [one for one in commands if 2 * _score(one, known) >= _score(command, known) > 0]
    if not program and len(trains) > 1:
        notes.append(f"{len(trains)} commands train: the one with the most flags is used")
    if not _score(command, known):
        command = _all_flags(script)
        notes.append("no training command: all lists of flags were read")
    if not _score(command, known):
        wanted = "a command with flags of a launcher"
        raise SpecError(
            file, Problem("", wanted, "none", "variables with lists of flags are read, too")
        )
    return command, notes


def _other_settings(
    command: Sequence[str], script: Script, environment: Sequence[str], lines: "_Lines"
) -> dict[str, Setting]:
    """Return the settings that are no flags: the program, and environment variables that the script sets."""
    result: dict[str, Setting] = {}
    for name in environment:
        if isinstance(value := script.variables.get(name), str) and not script.open(value):
            result[name] = Setting(name, plain_value(value), lines.place(name))
    if program := next((word for word in command if word.endswith(".py")), ""):
        name = program.rpartition("/")[2]
        result[PROGRAM] = Setting(PROGRAM, name, lines.place(name))
    return result


def flag_name(word: str) -> str:
    """Return the name of a flag with dashes, as most launchers spell it.

    >>> flag_name("--tensor_model_parallel_size=8")
    '--tensor-model-parallel-size'
    """
    return word.partition("=")[0].replace("_", "-")


def plain_value(word: str) -> int | float | str:
    """Return a word as a number if it is one.

    >>> plain_value("16"), plain_value("6.0e-5"), plain_value("949,50,1")
    (16, 6e-05, '949,50,1')
    """
    if len(word) > _LONGEST_NUMBER:
        return word
    if re.fullmatch(r"[+-]?\d+(_\d+)*", word):
        return int(word)
    number = float(word) if _NUMBER.fullmatch(word) else math.inf
    return number if math.isfinite(number) else word


def switched(value: Any) -> Any:
    """Return a value; texts such as ``true`` become switches."""
    return _SWITCHES.get(value, value) if isinstance(value, str) else value


_SWITCHES = {"true": True, "false": False, "True": True, "False": False}


def _words(script: Script, command: Command) -> list[str]:
    """Return the words of a command, including those passed to ``bash -c``."""
    words: list[str] = []
    for word in command.words:
        inside = re.search(r"\s", word) and re.search(r"\s--?\w", f" {word}")
        words += script.resplit(word) if inside else [word]
    return words


def _score(words: Sequence[str], known: Callable[[str], bool]) -> int:
    return sum(map(known, words))


def _all_flags(script: Script) -> list[str]:
    """Return the words of all lists and texts of flags."""
    found: list[str] = []
    for value in script.variables.values():
        words = value if isinstance(value, list) else script.resplit(value)
        found += words if words[:1] and words[0].startswith("--") else []
    loose = (one.words for one in script.commands if one.words[0].startswith("--"))
    return [*found, *(word for words in loose for word in words)]


def _halves(
    words: Sequence[str], known: Callable[[str], bool], program: re.Pattern[str] | None = None
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the words before the program that trains or serves, and the words after it."""
    if program is not None:
        last = max((i for i, one in enumerate(words) if program.fullmatch(one)), default=None)
        if last is not None:
            return words[:last], words[last + 1 :]
    for place, word in enumerate(words):
        module = word == "-m" and words[place + 1 : place + 2] and words[place + 1] not in _MODULES
        if word.endswith(".py") or module:
            return words[:place], words[place + 1 + bool(module) :]
    first = next((place for place, word in enumerate(words) if known(word)), 0)
    return words[:first], words[first:]


def _flags(
    words: Sequence[str], script: Script, name_of: Callable[[str], str], lines: "_Lines"
) -> tuple[dict[str, Setting], list[str]]:
    """Return the settings of a command by name, and open words that may hold further settings."""
    found: dict[str, Setting] = {}
    loose: list[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if not _is_flag(word):
            opening = script.open(word)
            loose += [opening.text] if opening else []
            continue
        values = [word.partition("=")[2]] if "=" in word else []
        while "=" not in word and place < len(words) and not _is_flag(words[place]):
            opening = script.open(words[place])
            if opening and re.fullmatch(r"\$\{?[@*].*", opening.text):
                break  # arguments of the script itself
            values.append(words[place])
            place += 1
        name, opening = name_of(word), script.open(word.partition("=")[0])
        if opening:  # a flag in an undecided branch
            name = OPEN_CHARACTER.sub("", name)
            where = script.open("".join(OPEN_CHARACTER.findall(word)))
            assert where is not None
            value: object = replace(where, conditional=True)
        else:
            value = _value([script.open(one) or plain_value(one) for one in values])
        # Re-insertion moves a repeated flag to the end: order follows the last occurrence.
        found.pop(name, None)
        found[name] = Setting(name, value, lines.place(name))
    return found, loose


def _is_flag(word: str) -> bool:
    return re.match(r"--?[A-Za-z]", word) is not None


def _value(values: list[object]) -> object:
    """Return the value of a flag from the words after it."""
    if not values:
        return True
    return values[0] if len(values) == 1 else values


class _Lines:
    """Lines of a script, to locate flags."""

    def __init__(self, text: str, file: str, budget: Budget) -> None:
        self.file, self.budget = file, budget
        # Only display positions depend on it, so a ``#`` inside quotes does no harm.
        lines = (line.partition("#")[0] for line in text.splitlines())
        self.text = "\n".join(lines).replace("_", "-")

    def place(self, name: str) -> str:
        """Return the last line that contains a name outside comments."""
        self.budget.spend_values(1)
        name = name.replace("_", "-")
        at = self.text.rfind(name)
        while at >= 0 and _IN_NAME.match(self.text, at + len(name)):
            at = self.text.rfind(name, 0, at + len(name) - 1)
        return f"{self.file}:{self.text.count(chr(10), 0, at) + 1}" if at >= 0 else self.file


def _batch_system(text: str) -> dict[str, str]:
    """Return the options of ``#SBATCH`` lines."""
    result: dict[str, str] = {}
    for line in re.findall(r"^#SBATCH\s+(.*)$", text, re.MULTILINE):
        for name, value in re.findall(r"(--?[\w-]+)(?:[= ]+([^\s#]+))?", line):
            result[flag_name(name)] = value
    return result


def _slurm_variables(batch: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that Slurm sets for these options."""
    where = _where([w for pair in batch.items() for w in pair], plain_value)
    result: dict[str, str] = {}
    for kind, names in _OF_BATCH_SYSTEM.items():
        value = getattr(where, kind)
        if isinstance(value, int):
            result |= dict.fromkeys(names, str(value))
    if isinstance(where.processors, int):
        result |= dict.fromkeys(_BOTH, str(where.processors))
    return result


def _where(words: Sequence[str], value: Callable[[str], object]) -> _Where:
    """Return the sizes that a launcher's options state; the last option of each kind counts."""
    nodes: Size = None
    per_node: Size = None
    total: Size = None
    for place, word in enumerate(words):
        name = flag_name(word)
        raw = word.partition("=")[2] or (words[place + 1] if place + 1 < len(words) else "")
        if name == "--gres":
            raw = raw.rpartition(":")[2]
        found = value(raw)
        if not isinstance(found, (int, Unresolved)):
            continue
        if name in _NODES:
            nodes = found
        elif name in _PER_NODE:
            per_node = found
        elif name in _ALL:
            total = found
    return _Where(nodes, per_node, total)


def _processors(before: Sequence[str], batch: Mapping[str, str], script: Script) -> Size:
    """Return the number of processors of a command; it is unresolved if two numbers differ."""

    def value(word: str) -> object:
        return script.open(word) or plain_value(word)

    start = next((i for i, word in enumerate(before) if word.rpartition("/")[2] in _STARTERS), None)
    outer = _where([w for pair in batch.items() for w in pair], plain_value)
    launched = _where(before if start is None else before[start:], value)
    result = launched.processors
    if start is None:
        nodes = outer.nodes if launched.nodes is None else launched.nodes
        per_node = outer.per_node if launched.per_node is None else launched.per_node
        return _Where(nodes, per_node, launched.total or outer.total).processors or _world(script)
    around = _where(before[:start], value)
    if result is None:
        return _Where(around.nodes or outer.nodes, outer.per_node).processors or _world(script)
    if launched.nodes is None and isinstance(result, int):
        nodes = around.nodes or outer.nodes
        result = nodes if isinstance(nodes, Unresolved) else result * (nodes or 1)
    asked = outer.processors
    gpus = "--gres" in batch or "--gpus-per-node" in batch
    # Batch system and launcher disagree: either could be wrong, so the user must decide.
    if gpus and isinstance(asked, int) and isinstance(result, int) and asked != result:
        return Unresolved(f"{asked:,} of #SBATCH, but {result:,} of the launcher")
    return result


def _world(script: Script) -> Size:
    """Return the number of processors from variables that launchers read."""

    def of(name: str) -> Size:
        value = script.variables.get(name)
        if not isinstance(value, str):
            return None
        number = plain_value(value)
        return script.open(value) or (number if isinstance(number, int) else None)

    return _Where(of("NNODES"), of("NPROC_PER_NODE"), of("WORLD_SIZE")).processors
