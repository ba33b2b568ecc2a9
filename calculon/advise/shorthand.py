"""Parser of the user's own plan: in words, as a mapping, or from a file."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from calculon.base.frozen import dataclass
from calculon.declarations.spellings.plan_pairs import (
    ASKED,
    fields_of_words,
    pairs_of,
    plan_fields,
    words_and_pairs,
)
from calculon.inputs import Source, as_mapping, launch_in

if TYPE_CHECKING:
    from calculon.launch.dialect import Launch

OPTION = "--mine"


@dataclass(frozen=True, slots=True)
class StatedPlan:
    """A plan to compare with the best one.

    Attributes:
        fields: Its fields by name; None if it is in a file.
        file: Its file.
        launch: Parsed launch file, if `file` is one.
        words: Question words in the plan (``batch``, ``seq``, ...), whose fields depend on the model.
    """

    fields: Mapping[str, Any] | None = None
    file: str = ""
    launch: "Launch | None" = None
    words: Mapping[str, str] = field(default_factory=dict)

    def of_model(self, seq_size: int) -> "StatedPlan":
        """Return the plan with its question words converted to fields, given the sequence length of the model."""
        if not self.words:
            return self
        said = fields_of_words(self.words, seq_size, OPTION)
        return replace(self, fields={**said, **(self.fields or {})}, words={})


def read_baseline(source: Source, num_procs: int | None = None) -> StatedPlan:
    """Read a plan: ``NAME=VALUE`` pairs, a mapping, the name of an execution or its file, or a launch file.

    Args:
        source: The plan.
        num_procs: Processors for a launch file that does not state them.

    Raises:
        SpecError: With all names that are not fields of an execution.

    Examples:
        >>> read_baseline("tp=8 pp=4 mbs=1").fields
        {'tensor_par': 8, 'pipeline_par': 4, 'microbatch_size': 1}
    """
    given = as_mapping(source)
    if given is None:
        text = str(source)
        if "=" not in text:
            return StatedPlan(file=text, launch=launch_in(text, num_procs))
        given = pairs_of(text)
    words, pairs = words_and_pairs(given)
    return StatedPlan(plan_fields(pairs, OPTION, ASKED), words=words)
