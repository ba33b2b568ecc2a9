"""``--emit FORMAT[:FILE]``: the launch file of the best plan of an answer."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.cli.options import Log, Parser
from calculon.cli.streams import tell
from calculon.declarations.files import check_writable, replacing

if TYPE_CHECKING:
    from calculon.advise.answer import Answer
    from calculon.launch.dialect import Dialect

OPTION = "--emit"


def add_emission(parser: Parser) -> None:
    """Declare the option."""
    parser.option(
        f"{OPTION} FORMAT[:FILE]",
        "write the launch file of the best plan: megatron-lm, megatron-bridge, nemo, torchtitan, deepspeed, "
        "accelerate; without FILE it is printed in place of the page",
    )


def check_launch_file(path: str, dialect: "Dialect") -> None:
    """Check that a launch file of this name could be written, and that its suffix is not of another language.

    Raises:
        SpecError: For a place that cannot be written, for a folder, and for the suffix of a language in which the
            launcher is not configured.
    """
    check_writable(path)
    if Path(path).is_dir():
        raise SpecError(path, Problem("", "a file", "a folder", "name a file in it"))
    suffix = Path(path).suffix.lower()
    if _LANGUAGES.get(suffix, dialect.suffix) != dialect.suffix:
        wanted = f"a name such as run{dialect.suffix}, in which {dialect.title} is written"
        raise SpecError(path, Problem("", wanted, suffix))


_LANGUAGES = {suffix: suffix for suffix in (".sh", ".py", ".yaml", ".json", ".toml")} | {
    ".bash": ".sh",
    ".yml": ".yaml",
}
"""Suffixes of the languages of launch files, by every suffix of each; names with other suffixes are for any of them."""


@dataclass(frozen=True, slots=True)
class Emission:
    """What to write of the best plan.

    Attributes:
        dialect: The launcher.
        file: Where to; empty for standard output.
        preset: The framework that it starts.
    """

    dialect: str
    file: str
    preset: str

    @classmethod
    def of(cls, text: str) -> "Emission":
        """Read the value of the option; SpecError for an unknown launcher, and for a file that cannot be written."""
        from calculon.launch.dialects import find_dialect  # only where it is asked for

        name, colon, file = text.partition(":")
        dialect = find_dialect(name)
        if colon and not file:
            raise SpecError(OPTION, Problem("", "a file after the colon", repr(text)))
        if file:
            check_launch_file(file, dialect)
        return cls(dialect.name, file, dialect.preset)

    def write(self, answer: "Answer", log: Log) -> None:
        """Write the launch file of the best plan, and the tokens of a training; SpecError if it cannot be expressed."""
        text = self._text(answer)
        if not self.file:
            log(text.rstrip("\n"))
            return
        with replacing(self.file) as stream:
            stream.write(text.encode())
        log(f"Output: {self.file}")

    def _text(self, answer: "Answer") -> str:
        """Return the launch file; without the settings of a model that the launcher cannot describe, which is told."""
        from calculon.advise.launch_flags import exported_plan

        if answer.best is None:
            raise SpecError(OPTION, Problem("", "a plan that fits", "none"))
        try:
            text, told = exported_plan(answer.best, self.dialect, answer.question.tokens)
        except SpecError as error:
            raise self._refusal(error) from None
        if told:
            tell(f"Note: the settings of {answer.question.model.name} are left out: {told}")
        return text

    def _refusal(self, error: SpecError) -> SpecError:
        """Return the error of a plan that the launcher cannot express; a search of what it can avoids it."""
        return SpecError(f"{OPTION} {self.dialect}", [_fixed(one) for one in error.problems])


def _fixed(one: Problem) -> Problem:
    """Return a problem whose hint is an option of the search."""
    if _NEAREST in one.expected:
        value = one.expected.partition(_NEAREST)[0].strip(_QUOTE)
        return replace(one, hint=f"--fix {one.field}={value}")
    if one.field == "pp_layout":
        return replace(one, hint="--fix pp_layout=uniform")
    return replace(one, hint=one.hint.replace("--set ", "--fix "))


_NEAREST = ", the nearest"
_QUOTE = "'"
