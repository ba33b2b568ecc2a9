"""Errors: malformed requests, and executions that cannot run."""

from collections.abc import Sequence
from typing import Any

from calculon.base.frozen import dataclass

MAX_PROBLEMS = 20
"""Maximum number of problems of one input in a message; further ones are counted."""

_LONGEST_LINE, _LONGEST_NAME = 4_000, 200  # characters
_MIN_PART, _MAX_NEAR = 3, 3  # letters of a part of a name, and names that have it

REASONS = {
    "network_size": "a network is too small for its group",
    "network_filled": "groups do not divide a network that must be filled",
    "offload_blocks": "offloading with fewer than 3 blocks per stage",
    "linear_heads_split": "tensor_par does not divide the heads of linear attention",
    "linear_groups_split": "tensor_par cuts groups of heads of Mamba-2 unevenly",
    "feedforward_split": "tensor_par does not divide feedforward",
    "dp_shard_split": "dp_shard does not divide data_par",
    "expert_shards_split": "groups of experts do not divide the groups of tensor_par x dp_shard",
    "expert_replicas_apart": "replicas of experts are on both sides of the pipeline axis (mesh_order)",
    "cp_network_size": "a network is too small for groups of context parallelism",
    "expert_network_size": "a network is too small for groups of experts",
    "pairs_schedule": "stages with one chunk have no overlapping pairs of passes",
    "schedule_has_pairs": "the schedule hides the expert all-to-all in pairs of passes: ep_overlap must be 1f1b",
    "pairs_need_microbatches": "too few microbatches for pairs of passes",
    "fsdp_unit_split": "fsdp_unit does not divide the blocks of a chunk",
    "owner_split": "data_par does not divide the blocks of a stage, which have owners",
    "owner_experts": "experts have more replicas than the blocks of a stage have owners",
    "whole_weights_offload": "sharded weights (zero_stage 3, fsdp, owner) cannot be offloaded",
    "mesh_size": "the networks connect too few processors for all groups",
    "mesh_even": "spread evenly, groups leave too many processors of the networks idle",
    "stages_need_pipeline": "schedules and layouts need several stages",
    "stages_need_one_chunk": "the schedule, or the layout of stages, needs a different number of chunks",
    "stage_blocks": "too few blocks are left for the other stages",
    "ends_as_blocks": "stages have too few blocks for embedding and head to count as blocks",
    "listed_blocks": "stage_blocks does not match the chunks or the blocks",
    "modules_place": "MTP modules have no legal place in stage_blocks",
    "overlap_needs_work": "with a single chunk there is no work to overlap with transfers",
    "dualpipe_even": "DualPipe needs an even number of stages and of microbatches",
    "dualpipe_filled": "too few microbatches for a bidirectional pipeline",
    "framework_schedule": "the framework of the preset cannot run it",
    "mem1_capacity": "memory is too small",
    "mem2_capacity": "host memory is too small",
}
"""Descriptions of the reasons for which executions of a search cannot run."""


class CalculonError(Exception):
    """Base class of all errors that this package raises on purpose."""


def printable(text: str) -> str:
    r"""Return a text on one line, with control characters escaped so that a terminal does not act on them.

    >>> printable("\x1b[31mred.json")
    '\\x1b[31mred.json'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@dataclass(frozen=True, slots=True)
class Problem:
    """Problem of an input: its field, the expected and the found value, and a hint."""

    field: str
    expected: str
    found: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.field}: " if self.field else ""
        text += f"expected {self.expected}, found {self.found}"
        return f"{text}. Hint: {self.hint}" if self.hint else text


class SpecError(CalculonError, ValueError):
    """Malformed request: a file, field or value that cannot be used (exit code 2).

    Attributes:
        file: Source of the input: a path, a catalog name, ``<stdin>`` or a word such as ``execution``.
        problems: All problems, in input order.
        field, expected, found, hint: Attributes of the first problem.
    """

    def __init__(self, file: str, problems: Sequence[Problem] | Problem):
        self.file = file
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        lines = [_line(f"{file}: {problem}") for problem in self.problems[:MAX_PROBLEMS]]
        if (more := len(self.problems) - MAX_PROBLEMS) > 0:
            lines.append(_line(f"{file}: and {more:,} more"))
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type["SpecError"], tuple[str, tuple[Problem, ...]]]:
        return type(self), (self.file, self.problems)  # studies send errors between processes

    @property
    def field(self) -> str:
        """Path of the first wrong field, such as ``networks[1].efficiency``."""
        return self.problems[0].field

    @property
    def expected(self) -> str:
        """Expected value of the first wrong field."""
        return self.problems[0].expected

    @property
    def found(self) -> str:
        """Value found in the first wrong field."""
        return self.problems[0].found

    @property
    def hint(self) -> str:
        """Hint of the first problem; may be empty."""
        return self.problems[0].hint


class Infeasible(CalculonError):
    """Well-formed execution that cannot run on the system (exit code 1).

    Attributes:
        reason: Short stable identifier of the violated rule, such as ``mem1_capacity``.
        needed, available: Required and available bytes, if memory is too small.
        tier: Memory tier, 1 or 2.
        details: Further lines of the message.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        needed: float | None = None,
        available: float | None = None,
        tier: int | None = None,
        details: Sequence[str] = (),
    ):
        self.reason, self.needed, self.available, self.tier = reason, needed, available, tier
        self.details = tuple(details)
        super().__init__("\n".join(map(printable, (message, *self.details))))

    def __reduce__(self) -> tuple[type["Infeasible"], tuple[Any, ...]]:
        message = str(self).partition("\n")[0]
        numbers = self.needed, self.available, self.tier
        return type(self), (self.reason, message, *numbers, self.details)


def in_words(reason: str) -> str:
    """Return the description of the reason that executions cannot run; an unknown identifier is returned unchanged.

    >>> in_words("mem1_capacity")
    'memory is too small'
    """
    return REASONS.get(reason, reason)


def _line(text: str) -> str:
    """Return a text as one line of a message, truncated and printable."""
    text = text if len(text) <= _LONGEST_LINE else text[: _LONGEST_LINE - 3] + "..."
    return printable(text)


def nearest(name: str, known: Sequence[str]) -> str:
    """Return a hint with the most similar known name, or with names that contain a word starting with `name`.

    >>> nearest("hiden", ["hidden", "seq_size"])
    "did you mean 'hidden'?"
    >>> nearest("mem", ["total_time", "proc_mem_tier1_cap_req", "proc_mem_tier2_cap_req"])
    "did you mean 'proc_mem_tier1_cap_req' or 'proc_mem_tier2_cap_req'?"
    """
    matches = nearest_names(name, known)
    *some, last = (f"'{one}'" for one in matches or [""])
    listed = f"{', '.join(some)} or {last}" if some else last
    return f"did you mean {listed}?" if matches else ""


def nearest_names(name: str, known: Sequence[str]) -> list[str]:
    """Return the most similar known name, or names that contain a word starting with `name`; empty without any."""
    from difflib import get_close_matches  # imported only for a message

    # Matching takes quadratic time: a hostile name must not stall the message.
    if len(name) > _LONGEST_NAME:
        return []
    return get_close_matches(name, known, n=1, cutoff=0.6) or _with_part(name, known)


def _with_part(name: str, known: Sequence[str]) -> list[str]:
    """Return a few names with a word that starts with a text of several letters, shortest first."""
    if len(name) < _MIN_PART:
        return []
    import re

    words = re.compile(rf"(?<![a-z]){re.escape(name)}", re.IGNORECASE)
    return sorted((one for one in known if words.search(one)), key=len)[:_MAX_NEAR]
