"""``--emit FORMAT[:FILE]``: the launch file of the best plan of an answer."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.cli.options import STDOUT, Log, Parser
from calculon.cli.streams import tell
from calculon.declarations.files import check_writable, replacing

if TYPE_CHECKING:
    from calculon.advise.answer import Answer
    from calculon.estimate.estimate import Estimate
    from calculon.launch.dialect import Dialect

OPTION = "--emit"


def add_emission(parser: Parser) -> None:
    """Declare the option."""
    parser.option(
        f"{OPTION} FORMAT[:FILE]",
        "write the launch file of the best plan: megatron-lm, megatron-bridge, nemo, torchtitan, deepspeed, accelerate",
        "; without FILE it is printed in place of the page. With a launch file of the same launcher as --mine, that "
        "file is changed where it differs",
    )


def check_launch_file(path: str, dialect: "Dialect", patches: str = "") -> None:
    """Check that a launch file of this name could be written, and that its suffix is not of another language.

    Args:
        path: Its name.
        dialect: The launcher.
        patches: A file that is changed, if one is: its language is taken, too.

    Raises:
        SpecError: For a place that cannot be written, for a folder, for the file that is changed, and for the suffix of
            a language in which the launcher is not configured.
    """
    check_writable(path)
    if Path(path).is_dir():
        raise SpecError(path, Problem("", "a file", "a folder", "name a file in it"))
    if patches and Path(path).resolve() == Path(patches).resolve():
        hint = "write another file, look at it, and move it into place"
        raise SpecError(path, Problem("", "a file of its own", "the file that is read", hint))
    if _language(path, dialect.suffix) not in (dialect.suffix, _language(patches, dialect.suffix)):
        wanted = f"a name such as run{dialect.suffix}, in which {dialect.title} is written"
        raise SpecError(path, Problem("", wanted, Path(path).suffix.lower()))


_LANGUAGES = {suffix: suffix for suffix in (".sh", ".py", ".yaml", ".json", ".toml")} | {
    **dict.fromkeys((".bash", ".slurm", ".sbatch"), ".sh"),
    ".yml": ".yaml",
}
"""Suffixes of the languages of launch files, by every suffix of each; names with other suffixes are for any of them."""


def _language(path: str, absent: str) -> str:
    """Return the suffix of the language that a name says; `absent` for one that says none."""
    return _LANGUAGES.get(Path(path).suffix.lower(), absent)


def show_changes(before: str, after: str, names: tuple[str, str], log: Log, *, aside: bool) -> None:
    """Show what differs between two launch files.

    Args:
        before, after: Their texts.
        names: Their names.
        log: Where results are printed.
        aside: Whether standard output has something else: then on standard error.
    """
    from calculon.render.text_diff import diff_lines, show_diff

    if not log.quiet:
        show_diff(diff_lines(before, after, names), sys.stderr if aside else log.stream)


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
    def of(cls, text: str, mine: str = "") -> "Emission":
        """Read the value of the option; SpecError for an unknown launcher, and for a file that cannot be written.

        Args:
            text: The value.
            mine: The plan of one's own, which may be a launch file.
        """
        from calculon.launch.dialects import find_dialect  # only where it is asked for

        name, colon, file = text.partition(":")
        dialect = find_dialect(name)
        if colon and not file:
            raise SpecError(OPTION, Problem("", "a file after the colon", repr(text)))
        if file == STDOUT:
            file = ""
        if file:
            patches = mine if os.path.isfile(mine) else ""  # noqa: PTH113 (a plan may be no path)
            check_launch_file(file, dialect, patches)
        return cls(dialect.name, file, dialect.preset)

    def write(self, answer: "Answer", log: Log, *, aside: bool = False) -> None:
        """Write the launch file of the best plan: one's own with what differs, else one with the tokens of a training.

        Args:
            answer: The answer.
            log: Where results are printed.
            aside: Whether standard output has data, so that what is changed is shown on standard error.

        Raises:
            SpecError: For a plan that the launcher cannot express.
        """
        if answer.best is None:
            raise SpecError(OPTION, Problem("", "a plan that fits", "none"))
        before, text = self._patched(answer, answer.best)
        if not before:
            text = self._new(answer, answer.best)
        if not self.file:
            log(text.rstrip("\n"))
        else:
            with replacing(self.file) as stream:
                stream.write(text.encode())
        if before:
            names = (self._file_of(answer), self.file or f"{self.dialect}: best plan")
            show_changes(before, text, names, log, aside=aside or not self.file)
        if self.file:
            log(f"Output: {self.file}")

    def _file_of(self, answer: "Answer") -> str:
        """Return the name of one's own launch file."""
        stated = answer.question.mine
        return "" if stated is None else stated.file

    def _patched(self, answer: "Answer", best: "Estimate") -> tuple[str, str]:
        """Return one's own launch file, and the same with what the best plan has otherwise; empty if none."""
        from calculon.advise.launch_flags import patched_file

        q, mine = answer.question, answer.mine
        if mine is None or mine.launch is None or mine.launch.dialect.name != self.dialect:
            return "", ""
        file, suffix = self._file_of(answer), mine.launch.dialect.suffix
        if self.file and _language(self.file, suffix) != _language(file, suffix):
            return "", ""
        try:
            if mine.execution is None:
                raise SpecError(file, Problem("", "a plan that can run", mine.problem))
            before, found = patched_file(file, mine.execution, best.execution, q.model, mine.launch)
        except SpecError as error:
            if self.file and _language(self.file, suffix) != suffix:
                hint = f"{OPTION} {self.dialect}:run{suffix} writes a new one"
                wrong = [replace(one, hint=hint) for one in error.problems]
                raise SpecError(error.file, wrong) from None
            tell(f"Note: written anew, without what only {file} has: {_reasons(error)}")
            return "", ""
        for note in found.notes:
            tell(f"Note: {note}")
        return before, found.text

    def _new(self, answer: "Answer", best: "Estimate") -> str:
        """Return a new launch file; without the settings of a model that the launcher cannot describe."""
        from calculon.advise.launch_flags import exported_plan

        try:
            text, told = exported_plan(best, self.dialect, answer.question.tokens)
        except SpecError as error:
            raise self._refusal(error) from None
        if told:
            tell(f"Note: the settings of {answer.question.model.name} are left out: {told}")
        return text

    def _refusal(self, error: SpecError) -> SpecError:
        """Return the error of a plan that the launcher cannot express; a search of what it can avoids it."""
        return SpecError(f"{OPTION} {self.dialect}", [_fixed(one) for one in error.problems])


def _reasons(error: SpecError) -> str:
    """Return why a file cannot be changed, in a line."""
    return "; ".join(str(one) for one in error.problems)


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
