"""What the commands share: their parser, the log they print to, and checks of file arguments."""

import argparse
import contextlib
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.cli.help_page import Layout, help_page
from calculon.cli.progress import hide
from calculon.cli.respelling import UNKNOWN, respelled
from calculon.cli.streams import LogFile, escaped, tell
from calculon.declarations.fields import nearest_choice
from calculon.declarations.files import (
    STDIN,
    check_output,
    document_suffix,
    is_device,
    json_text,
    replacing,
    write_json,
)
from calculon.declarations.named_values import EDITION_NAMES, PRESETS
from calculon.declarations.origin import note_on

if TYPE_CHECKING:
    from calculon.declarations.model import Model
    from calculon.hardware.system import System
    from calculon.render.document import Block, Document
    from calculon.render.text_tables import Table

LEVELS = ("NOTSET", "DEBUG", "INFO", "WARN", "WARNING", "ERROR", "FATAL", "CRITICAL")
"""Names of logging levels, as Python has them, ascending."""

STDOUT = "-"

EXAMPLES = 5
"""Examples that ``--help`` shows."""

USUAL = "megatron-lm, torchtitan below 16 processors, or common on others"
"""The preset of a question of edition ``corrected`` that names none."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        name: Its name.
        help: One line of help.
        aliases: Other spellings.
        file: Its module, by default of the same name.
    """

    name: str
    help: str
    aliases: tuple[str, ...] = ()
    file: str = ""

    @property
    def module(self) -> str:
        """Path of the module."""
        file = self.file or self.name.removeprefix("llm-").replace("-", "_")
        return f"calculon.cli.commands.{file}"

    @property
    def title(self) -> str:
        """Name and aliases, for the list of commands."""
        return ", ".join((self.name, *self.aliases))


class Parser(argparse.ArgumentParser):
    """An argument parser that folds its texts, and whose errors look like all others."""

    def __init__(self, **keywords: object):
        keywords.setdefault("formatter_class", Layout)
        super().__init__(**keywords)  # type: ignore[arg-type]
        self.stated: dict[str, object] = {}
        for action in (None, "store"):
            self.register("action", action, Stored)
        self._first: frozenset[str] = frozenset()
        self._more = ""
        self._further: list[str] = []
        self._longer: dict[argparse.Action, str] = {}
        self.add_argument(
            "--help-all", action=HelpAll, nargs=0, help="explain everything, and exit"
        )

    def show_first(self, *options: str) -> None:
        """Let ``--help`` list only some options; ``--help-all`` lists all."""
        self._first = frozenset(options)

    def show_all(self) -> None:
        """Let the help list all options and examples, with all their texts."""
        self._first = frozenset()
        self.description = "\n\n".join(filter(None, (self.description, self._more)))
        self.epilog = "\n".join(filter(None, (self.epilog, *self._further)))
        for option, text in self._longer.items():
            option.help = f"{option.help}{text}"

    def format_help(self) -> str:
        """Return the help, short unless everything is asked for."""
        return help_page(self, self._first)

    def explain(self, description: str, examples: str, more: str = "") -> None:
        """Set the texts of the help before and after the arguments: a line of `description` is a paragraph.

        Args:
            description: What the command does, in a few sentences.
            examples: A command a line; ``--help`` has the first :data:`EXAMPLES`.
            more: Paragraphs that only ``--help-all`` has.
        """
        self.description, self._more = description, more
        lines = [f"  {line}" for line in examples.splitlines()]
        title = "examples:" if len(lines) > 1 else "example:"
        self.epilog = "\n".join((title, *lines[:EXAMPLES]))
        self._further = lines[EXAMPLES:]

    def argument(
        self, metavar: str, text: str, name: str = "", longer: str = "", **more: Any
    ) -> None:
        """Declare an argument.

        Args:
            metavar: Its name in the help.
            text: Its help.
            name: Name of the parsed value, if it is not the metavar in small letters.
            longer: Rest of its help, which only ``--help-all`` has.
            **more: What else ``add_argument`` takes.
        """
        argument = self.add_argument(name or metavar.lower(), metavar=metavar, help=text, **more)
        self._longer[argument] = longer

    def option(self, usage: str, text: str, longer: str = "", **more: Any) -> None:
        """Declare an option with a value.

        Args:
            usage: Its spellings, then the name of its value: ``"-g, --per-node G"``; without that the help shows the
                choices.
            text: Its help.
            longer: Rest of its help, which only ``--help-all`` has.
            **more: What else ``add_argument`` takes.
        """
        *spellings, last = usage.split(", ")
        spelling, _, metavar = last.partition(" ")
        option = self.add_argument(*spellings, spelling, metavar=metavar or None, help=text, **more)
        self._longer[option] = longer

    def switch(self, spellings: str, text: str) -> None:
        """Declare a switch, which is off by default: ``"-q, --quiet"``."""
        self.add_argument(*spellings.split(", "), action="store_true", help=text)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments, also as other tools spell them; the error of an unknown option names the nearest one."""
        found, unknown = self.parse_known_args(respelled(self, args or ()), namespace)
        if unknown:
            option = next((one.partition("=")[0] for one in unknown if one.startswith("-")), "")
            hint = UNKNOWN.get(option) or nearest(option, [*self._option_string_actions])
            self.error(
                "; ".join(filter(None, (f"unrecognized arguments: {' '.join(unknown)}", hint)))
            )
        return found

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments that are known, and return the others with them."""
        self.stated.clear()
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the message on standard error, and leave with exit code 2."""
        tell(f"calculon: error: {message} (see: {self.prog} --help)")
        self.exit(2)


class Stored(argparse._StoreAction):
    """Stores a value; of an option that is stated several times, the last, which it says."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        """Store the value."""
        if option is not None:
            before = parser.stated.setdefault(self.dest, values)
            if before != values:
                tell(
                    f"calculon: note: {option} is stated as {before} and as {values}; the last counts"
                )
            parser.stated[self.dest] = values
        super().__call__(parser, namespace, values, option)


class HelpAll(argparse.Action):
    """Prints the help with everything, and leaves."""

    def __call__(self, parser: Any, *_: object, **__: object) -> None:
        """Print, and leave."""
        parser.show_all()
        parser.print_help()
        parser.exit()


def log_note(log: "Log", spec: "Model | System") -> None:
    """Say what a word for several systems was taken for."""
    if note := note_on(spec):
        log(note)


def log_machine(log: "Log", system: "System") -> None:
    """Print what a reader must know about a system, above a page without a title."""
    from calculon.documents.page_title import machine_sentences

    log_note(log, system)
    for sentence in machine_sentences(system.provenance.to_dict()):
        log(sentence)


class Suggested(tuple[str, ...]):
    """Choices that help and shells show, of an argument that takes other words as well."""

    def __contains__(self, word: object) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Log:
    """Where a command prints its result: standard output, or the file of ``--log``.

    Attributes:
        stream: What is written to.
        quiet: ``--verbosity`` asks for less than results.
    """

    stream: IO[str]
    quiet: bool = False

    @classmethod
    @contextlib.contextmanager
    def to(cls, target: str, verbosity: str) -> Iterator["Log"]:
        """Open the log: ``-`` is standard output; a file is emptied at the first text, SpecError if it cannot be."""
        quiet = LEVELS.index(verbosity) > LEVELS.index("INFO")
        if target == STDOUT:
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="backslashreplace")  # names need not be printable
            yield cls(sys.stdout, quiet)
            return
        with LogFile(target) as stream:
            yield cls(stream, quiet)  # type: ignore[arg-type]
            stream.finish()

    def __call__(self, text: str) -> None:
        """Print a result."""
        if not self.quiet:
            hide()
            print(escaped(text), file=self.stream)

    def show(self, *blocks: "Block") -> None:
        """Draw documents, or parts of one."""
        if not self.quiet:
            hide()
            from calculon.render.console import show

            for block in blocks:
                show(block, self.stream)

    def parts(self, *blocks: "Block") -> None:
        """Print blocks with blank lines between them: texts without folding them, tables as :meth:`table` does."""
        from calculon.render.document import Document
        from calculon.render.text_tables import Table

        for number, block in enumerate(blocks):
            if number:
                self("")
            if isinstance(block, str):
                self(block)
            elif isinstance(block, Table):
                self.table(block, "text")
            else:
                self.show(Document("", parts=(block,)))

    def write(self, document: Any, output: str, table: "Table | None" = None) -> None:
        """Write a document to a file, and say so; print it where `output` is ``-``.

        Files are .json or .json.gz; with a `table` also .csv, which has that.
        """
        if output == STDOUT:
            self(json_text(document))
        elif table is not None and document_suffix(output) == ".csv":
            self._save(table.csv(), output)
        else:
            write_json(output, document)
            self._written(output)

    def answer(
        self,
        arguments: argparse.Namespace,
        page: "Callable[[], Document]",
        data: Callable[[], Any],
        table: "Callable[[], Table] | None" = None,
        parts: int = 0,
    ) -> None:
        """Show an answer, as the options of :func:`add_answer` say: print it in a format, or write a file.

        Args:
            arguments: With ``format`` and ``file``.
            page, data, table: Return its document, its plain data, and what CSV has instead of the tables of the
                document; only the one that is needed is made.
            parts: Parts of the document that are printed unless a :func:`whole_page` is asked for; 0 for all.
        """
        form = answer_format(arguments)
        file = STDOUT if arguments.file is None else arguments.file
        if form == "json":
            self.write(data(), file)
            return
        if form == "text" and file == STDOUT:
            self.show(_in_short(page(), 0 if parts == 0 or whole_page(arguments) else parts))
            return
        text = table().csv() if table and form == "csv" else _written(page(), form)
        if file == STDOUT:
            self(text)
        else:
            self._save(text, file)

    def _save(self, text: str, file: str) -> None:
        """Write a text to a file, and say so."""
        with replacing(file) as stream:
            stream.write(f"{text}\n".encode())
        self._written(file)

    def _written(self, file: str) -> None:
        """Say that a file was written; of ``/dev/stdout`` or a pipe nothing, as that would be part of it."""
        if not is_device(file):
            self(f"Output: {file}")

    def document(self, document: "Document", form: str) -> None:
        """Print a document in a format; as text in a pipe a row of a table takes one line, as of a table."""
        from calculon.render.console import is_terminal, stated_width

        if form == "text" and (is_terminal(self.stream) or stated_width()):
            self.show(document)
            return
        from calculon.render.plain_text import document_text

        self(document_text(document, form))

    def table(self, table: "Table", form: str, *, published: bool = False) -> None:
        """Print a table in one of :data:`calculon.render.text_tables.FORMATS`.

        For people it is as wide as a terminal, or as ``COLUMNS`` says; else every row of a text takes one line, as
        those of published tables do in any pipe.
        """
        from calculon.render.console import is_terminal, stated_width

        asked = stated_width() and not published
        if form == "text" and (is_terminal(self.stream) or asked):
            self.show(table)
        else:
            self(table.written(form))


def whole_page(arguments: argparse.Namespace) -> bool:
    """Return whether everything is asked for: by ``-v``, or with a format or a file."""
    stated = arguments.file is not None or arguments.format is not None
    return stated or bool(arguments.verbose)


def _in_short(document: "Document", parts: int) -> "Document":
    """Return the first parts of a document; all of them for 0."""
    from calculon.render.document import shortened

    return shortened(document, parts) if parts else document


def _written(document: "Document", form: str) -> str:
    """Return a document in a format; as text as a pipe gets it."""
    if form == "text":
        from calculon.render.console import show

        stream = io.StringIO()
        show(document, stream, plain=True)
        return stream.getvalue().rstrip("\n")
    from calculon.render.plain_text import document_text

    return document_text(document, form)


def one_of(*names: str) -> Callable[[str], str]:
    """Return the type of an argument that is one of several names; the nearest is in its error."""

    def name(text: str) -> str:
        if text not in names:
            several = "," in text and all(one.strip() in names for one in text.split(","))
            hint = nearest_choice(text.replace("-", "_"), names)
            hint = "one at a time here" if several else hint
            problem = Problem("", "one of " + ", ".join(names), repr(text), hint)
            raise argparse.ArgumentTypeError(problem)
        return text

    return name


def positive(text: str) -> int:
    """Return a whole number above 0."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(Problem("", "a whole number above 0", repr(text)))
    return int(text)


PAGE = "what is printed: a page (text, default), or everything (json)"
"""Help of ``--format`` of a command that prints a page."""


def add_format(
    parser: argparse.ArgumentParser,
    choices: Sequence[str] = ("text", "json"),
    meaning: str = PAGE,
    default: str | None = "text",
) -> None:
    """Declare ``--format``."""
    parser.add_argument(
        "-f", "--format", choices=choices, metavar="FORMAT", default=default, help=meaning
    )


ANSWER_FILES = {".json": "json", ".html": "html", ".md": "markdown", ".csv": "csv"}
"""Formats of the files of answers, by suffix."""


def add_answer(
    parser: argparse.ArgumentParser,
    everything: str = "write everything",
    tables: str = "a line for each of its cells",
    flags: Sequence[str] = ("-o", "--output"),
) -> None:
    """Declare ``--format`` and ``--output`` (or other `flags`) of an answer, for :meth:`Log.answer`.

    `everything` and `tables` say what JSON and CSV have.
    """
    add_format(
        parser,
        ("text", *ANSWER_FILES.values()),
        "what is printed or written: a page (text, default), the page in another format, "
        f"{tables} (csv), or everything (json)",
        None,
    )
    parser.add_argument(
        *flags,
        dest="file",
        metavar="FILE",
        help=f"{everything} (.json, .json.gz), or the page (.html, .md) or {tables} (.csv); - prints everything",
    )


def answer_format(arguments: argparse.Namespace) -> str:
    """Return the format of an answer: the one that is asked for, else by the suffix of its file."""
    file = arguments.file
    if arguments.format is not None or file is None:
        return arguments.format or "text"
    return "json" if file == STDOUT else ANSWER_FILES.get(document_suffix(file), "json")


def check_answer(arguments: argparse.Namespace, inputs: Sequence[str]) -> None:
    """Check before any work that the file of an answer, if any, can be written."""
    if (file := arguments.file) not in (None, STDOUT):
        suffixes = (".json",) if is_device(file) else tuple(ANSWER_FILES)
        any_name = (document_suffix(file),)
        check_outputs([file], inputs, suffixes if arguments.format is None else any_name)


def add_edition(
    parser: Parser,
    several: bool = False,
    absent: str = "what the execution says",
    longer: str = "",
) -> None:
    """Declare ``--edition``: None or a name; with `several`, a tuple of names, empty where it is not given.

    `absent` says what holds without it, and `longer` more of that.
    """
    names = " or ".join(EDITION_NAMES) + (", or both" if several else "")
    parser.option(
        f"--edition {'NAME[,NAME]' if several else 'NAME'}",
        f"edition of the cost model: {names} (default: {absent})",
        longer,
        type=_editions if several else _edition,
        default=() if several else None,
    )


def add_preset(
    parser: Parser,
    several: bool = False,
    absent: str = "what the plan says, or by machine",
    longer: str = f"; by machine: common if the plan states all fields of the published tool, else {USUAL}",
    files: bool = True,
) -> None:
    """Declare ``--preset``: a framework by name or, with `files`, a file; others as for :func:`add_edition`."""
    own = " or file" if files else ""
    parser.option(
        f"--preset {'NAME[,NAME]' if several else 'NAME'}",
        f"framework{own} whose defaults and limits hold (calculon catalog presets; default: {absent})",
        longer,
        type=_names if several else str,
        choices=None if several else Suggested(PRESETS),
        default=() if several else None,
    )


_edition = one_of(*EDITION_NAMES)


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",")))


def _editions(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_edition(name.strip()) for name in text.split(",")))


def check_log(target: str, arguments: argparse.Namespace) -> None:
    """Check that the log is none of the files that the command reads or writes; SpecError when it is."""
    if target == STDOUT:
        return
    place = Path(target).resolve()
    for value in vars(arguments).values():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(one, str) and one and Path(one).resolve() == place:
                found = "an input or output of that name"
                raise SpecError(target, Problem("", "a log file of its own", found))


def add_specs(parser: Parser, model: str, metavar: str) -> None:
    """Add what is estimated: a model, under the name that the command has for it, an execution and a system."""
    parser.add_argument(model, metavar=metavar, help="the model: its shape")
    parser.add_argument(
        "execution", metavar="EXE", help="how it is run: parallelism, batch, options"
    )
    parser.add_argument("system", metavar="SYS", help="the machine: processors, memory, networks")


@contextlib.contextmanager
def naming(execution: str, **others: str) -> Iterator[None]:
    """Say in which file, or argument, an error is that is known by its kind only: fields that contradict each other."""
    names = {"execution": "<stdin>" if execution == STDIN else execution, **others}
    try:
        yield
    except SpecError as error:
        raise SpecError(names.get(error.file, error.file), error.problems) from None


def check_inputs(sources: Sequence[str]) -> None:
    """Check that standard input is asked for at most once; SpecError when it is not."""
    if sources.count(STDIN) > 1:
        found = f"{sources.count(STDIN)} times '{STDIN}'"
        raise SpecError("<stdin>", Problem("", "one input from standard input", found))


def check_outputs(
    outputs: Sequence[str], inputs: Sequence[str], suffixes: tuple[str, ...] = (".json",)
) -> None:
    """Check before any work that every output can be written, and that none is another output or an input.

    Raises:
        SpecError: For the first output that cannot.
    """
    taken = {Path(source).resolve(): "an input" for source in inputs if Path(source).is_file()}
    for output in outputs:
        check_output(output, suffixes)
        place = Path(output).resolve()
        if place in taken:
            raise SpecError(
                output, Problem("", "a file of its own", f"{taken[place]} of that name")
            )
        taken[place] = "another output"
