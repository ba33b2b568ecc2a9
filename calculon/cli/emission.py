"""``--emit FORMAT[:FILE]``: write the launch file of the best plan of a result."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.cli.options import STDOUT, Log, Parser
from calculon.cli.streams import print_stderr
from calculon.declarations.files import check_writable, replacing

if TYPE_CHECKING:
    from calculon.advise.answer import Answer
    from calculon.advise.ask import Question
    from calculon.estimate.estimate import Estimate
    from calculon.hardware.system import System
    from calculon.launch.dialect import Dialect, Launch

OPTION = "--emit"


def add_emission(parser: Parser) -> None:
    """Declare the option."""
    parser.option(
        f"{OPTION} FORMAT[:FILE]",
        "write the launch file of the best plan: megatron-lm, megatron-bridge, nemo, primus, mlperf, torchtitan, "
        "deepspeed, accelerate",
        "; without FILE it is printed in place of the page. If --mine is a launch file of the same launcher, that "
        "file is patched",
    )


def check_launch_file(path: str, dialect: "Dialect", patches: str = "") -> None:
    """Check that a launch file with this name can be written, and that its suffix suits the launcher.

    Args:
        path: Name of the launch file.
        dialect: The launcher.
        patches: Launch file that is patched, if any; its suffix is accepted, too.

    Raises:
        SpecError: For a path that cannot be written, a folder, the patched file itself, or the suffix of a language
            that the launcher does not use.
    """
    check_writable(path)
    if Path(path).is_dir():
        raise SpecError(path, Problem("", "a file", "a folder", "name a file in it"))
    if patches and Path(path).resolve() == Path(patches).resolve():
        hint = "write another file, look at it, and move it into place"
        raise SpecError(path, Problem("", "a separate file", "the file that is read", hint))
    if _language(path, dialect.suffix) not in (dialect.suffix, _language(patches, dialect.suffix)):
        wanted = f"a name such as run{dialect.suffix}, in which {dialect.title} is written"
        raise SpecError(path, Problem("", wanted, Path(path).suffix.lower()))


_LANGUAGES = {suffix: suffix for suffix in (".sh", ".py", ".yaml", ".json", ".toml")} | {
    **dict.fromkeys((".bash", ".slurm", ".sbatch"), ".sh"),
    ".yml": ".yaml",
}
"""Canonical suffix for every suffix of a launch file language; names with other suffixes suit any language."""


def _language(path: str, absent: str) -> str:
    """Return the suffix of the language that a file name indicates; `absent` if it indicates none."""
    return _LANGUAGES.get(Path(path).suffix.lower(), absent)


def show_changes(before: str, after: str, names: tuple[str, str], log: Log, *, aside: bool) -> None:
    """Show the differences between two launch files.

    Args:
        before, after: Their texts.
        names: Their names.
        log: Receives the output.
        aside: True if standard output has other data, so that the differences belong on standard error.
    """
    from calculon.render.text_diff import diff_lines, show_diff

    if not log.quiet:
        show_diff(diff_lines(before, after, names), sys.stderr if aside else log.stream)


@dataclass(frozen=True, slots=True)
class Emission:
    """Launch file to write for the best plan.

    Attributes:
        dialect: The launcher.
        file: Output file; empty for standard output.
        preset: The framework that the launcher starts.
    """

    dialect: str
    file: str
    preset: str

    @classmethod
    def of(cls, text: str, mine: str = "") -> "Emission":
        """Parse the option's value; raise SpecError for an unknown launcher or a file that cannot be written.

        Args:
            text: The value.
            mine: The user's plan, which may be a launch file.
        """
        from calculon.launch.dialects import DIALECTS, find_dialect  # only where it is asked for

        name, colon, file = text.partition(":")
        if not colon and Path(name).suffix in _LANGUAGES:
            wanted = f"a launcher before the file: {', '.join(DIALECTS)}"
            first = next(
                (one for one in DIALECTS.values() if one.suffix == _language(name, "")), None
            )
            hint = f"{OPTION} {first.name}:{name}" if first else ""
            raise SpecError(OPTION, Problem("", wanted, repr(text), hint))
        dialect = find_dialect(name)
        if dialect.subject == "deployment":
            wanted = f"a launcher of training: {', '.join(DIALECTS)}"
            hint = "calculon serve predicts a server; calculon export writes its configuration"
            raise SpecError(OPTION, Problem("", wanted, f"{dialect.title}, which serves", hint))
        if colon and not file:
            raise SpecError(OPTION, Problem("", "a file after the colon", repr(text)))
        if file == STDOUT:
            file = ""
        if file:
            patches = mine if os.path.isfile(mine) else ""  # noqa: PTH113 (a plan need not be a path)
            check_launch_file(file, dialect, patches)
        return cls(dialect.name, file, dialect.preset)

    def check_machine(self, system: "System") -> None:
        """Refuse Megatron-LM and its recipes for processors that they do not run on.

        Raises:
            SpecError: For such a machine.
        """
        from calculon.declarations.presets import FRAMEWORK, RUNS_ON  # help should not load presets

        family = system.provenance.family
        if self.preset.startswith(FRAMEWORK) and family and not family.startswith(RUNS_ON):
            wanted = f"a machine that {self.dialect} runs on: {' or '.join(RUNS_ON)}"
            raise SpecError(
                f"{OPTION} {self.dialect}", Problem("", wanted, f"{system.name} ({family})")
            )

    def check_model(self, question: "Question") -> None:
        """Refuse to patch a launch file of another model.

        Raises:
            SpecError: For such a file.
        """
        from calculon.advise.launch_flags import check_same_model

        mine = question.mine
        if mine and mine.launch is not None and mine.launch.dialect.name == self.dialect:
            check_same_model(mine.file, mine.launch, question.model)

    def write(self, answer: "Answer", log: Log, *, aside: bool = False) -> None:
        """Write the launch file of the best plan: the user's file with changes, or a new one with the training tokens.

        Args:
            answer: The answer.
            log: Receives the output.
            aside: True if standard output has data, so that changes are shown on standard error.

        Raises:
            SpecError: For a plan that the launcher cannot express.
        """
        if answer.best is None:
            raise SpecError(OPTION, Problem("", "a plan that fits", "none"))
        self.check_model(answer.question)
        before, text, obstacle = self._patched(answer, answer.best)
        # Without the user's launch file, or if it cannot be patched, a new file is written.
        if not before:
            text = self._new(answer, answer.best)
        if obstacle and answer.mine is not None and answer.mine.launch is not None:
            print_stderr(f"Note: {obstacle}{_left_out(answer.mine.launch, text)}")
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
        """Return the name of the user's launch file."""
        stated = answer.question.mine
        return "" if stated is None else stated.file

    def _patched(self, answer: "Answer", best: "Estimate") -> tuple[str, str, str]:
        """Return the user's launch file, the version patched for the best plan, and the obstacle to patching.

        The texts are empty if the file cannot be patched, and if it is no launch file of this launcher.
        """
        from calculon.advise.launch_flags import patched_file

        q, mine = answer.question, answer.mine
        if mine is None or mine.launch is None or mine.launch.dialect.name != self.dialect:
            return "", "", ""
        file, suffix = self._file_of(answer), mine.launch.dialect.suffix
        if self.file and _language(self.file, suffix) != _language(file, suffix):
            return "", "", f"{file} is not patched: {self.file} is in another language"
        try:
            if mine.execution is None:
                raise SpecError(file, Problem("", "a plan that can run", mine.problem))
            before, found = patched_file(file, mine.execution, best.execution, q.model, mine.launch)
        except SpecError as error:
            if self.file and _language(self.file, suffix) != suffix:
                hint = f"{OPTION} {self.dialect}:run{suffix} writes a new one"
                wrong = [replace(one, hint=hint) for one in error.problems]
                raise SpecError(error.file, wrong) from None
            return "", "", f"{file} cannot be patched: {_reasons(error)}"
        for note in found.notes:
            print_stderr(f"Note: {note}")
        return before, found.text, ""

    def _new(self, answer: "Answer", best: "Estimate") -> str:
        """Return a new launch file; without model settings if the launcher cannot describe the model."""
        from calculon.advise.launch_flags import exported_plan

        try:
            text, told = exported_plan(best, self.dialect, answer.question.tokens)
        except SpecError as error:
            raise self._refusal(error) from None
        if told:
            print_stderr(f"Note: the settings of {answer.question.model.name} are left out: {told}")
        return text

    def _refusal(self, error: SpecError) -> SpecError:
        """Return an error whose hints restrict the search to plans that the launcher can express."""
        return SpecError(f"{OPTION} {self.dialect}", [_fixed(one) for one in error.problems])


def _reasons(error: SpecError) -> str:
    """Return the reasons that prevent patching a file, on one line."""
    return "; ".join(str(one) for one in error.problems)


def _left_out(launch: "Launch", text: str) -> str:
    """Return a sentence that names the settings of a launch file which a new file lacks; empty if it has all."""
    lost = [one for one, _ in launch.not_modelled]
    settings = (*launch.ignored, *launch.unknown, *lost)
    names = [one.name for one in settings if str(one) not in text]
    if not names:
        return ""
    more = f" and {len(names) - _MOST} more" * (len(names) > _MOST)
    return f". The new file lacks its settings {', '.join(names[:_MOST])}{more}: add them"


_MOST = 12
"""Number of settings that a note names."""


def _fixed(one: Problem) -> Problem:
    """Return a problem whose hint is a ``--fix`` option of the search."""
    if _NEAREST in one.expected:
        value = one.expected.partition(_NEAREST)[0].strip(_QUOTE)
        return replace(one, hint=f"--fix {one.field}={value}")
    if one.field == "pp_layout":
        return replace(one, hint="--fix pp_layout=uniform")
    return replace(one, hint=one.hint.replace("--set ", "--fix "))


_NEAREST = ", the nearest"
_QUOTE = "'"
