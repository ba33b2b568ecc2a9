"""Shared parts of the commands: the parser, the output log, and checks of file arguments."""

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
from calculon.cli.streams import LogFile, escaped, print_stderr
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
"""Names of Python's logging levels, ascending."""

STDOUT = "-"

EXAMPLES = 5
"""Number of examples that ``--help`` shows."""

USUAL = "megatron-lm, torchtitan below 16 processors, or common on others"
"""Description of the preset used in edition ``corrected`` if none is given."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the program.

    Attributes:
        name: Name of the command.
        help: One line of help.
        aliases: Alternative spellings.
        file: Module name, if it differs from the command's name.
    """

    name: str
    help: str
    aliases: tuple[str, ...] = ()
    file: str = ""

    @property
    def module(self) -> str:
        """Import path of the module."""
        file = self.file or self.name.removeprefix("llm-").replace("-", "_")
        return f"calculon.cli.commands.{file}"

    @property
    def title(self) -> str:
        """Name and aliases, for the list of commands."""
        return ", ".join((self.name, *self.aliases))


class Parser(argparse.ArgumentParser):
    """Argument parser with wrapped help texts and uniform error messages."""

    def __init__(self, **keywords: object):
        keywords.setdefault("formatter_class", Layout)
        super().__init__(**keywords)  # type: ignore[arg-type]
        self.stated: dict[str, object] = {}
        self._words: Sequence[str] = ()
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
        """Restrict ``--help`` to some options; ``--help-all`` lists all."""
        self._first = frozenset(options)

    def show_all(self) -> None:
        """Make the help list all options and examples with their full texts."""
        self._first = frozenset()
        self.description = "\n\n".join(filter(None, (self.description, self._more)))
        self.epilog = "\n".join(filter(None, (self.epilog, *self._further)))
        for option, text in self._longer.items():
            option.help = f"{option.help}{text}"

    def format_help(self) -> str:
        """Return the help, short unless all of it is requested."""
        return help_page(self, self._first)

    def explain(self, description: str, examples: str, more: str = "") -> None:
        """Set the help texts before and after the arguments; each line of `description` is a paragraph.

        Args:
            description: Purpose of the command, in a few sentences.
            examples: One command per line; ``--help`` shows the first :data:`EXAMPLES`.
            more: Paragraphs shown only by ``--help-all``.
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
            metavar: Name in the help.
            text: Help text.
            name: Name of the parsed value, if it is not the lower-case metavar.
            longer: Rest of the help text, shown only by ``--help-all``.
            **more: Further arguments of ``add_argument``.
        """
        argument = self.add_argument(name or metavar.lower(), metavar=metavar, help=text, **more)
        self._longer[argument] = longer

    def option(self, usage: str, text: str, longer: str = "", **more: Any) -> None:
        """Declare an option with a value.

        Args:
            usage: Spellings, then the name of the value: ``"-g, --per-node G"``; without a name the help shows the
                choices.
            text: Help text.
            longer: Rest of the help text, shown only by ``--help-all``.
            **more: Further arguments of ``add_argument``.
        """
        *spellings, last = usage.split(", ")
        spelling, _, metavar = last.partition(" ")
        option = self.add_argument(*spellings, spelling, metavar=metavar or None, help=text, **more)
        self._longer[option] = longer

    def switch(self, spellings: str, text: str) -> None:
        """Declare a switch that is off by default: ``"-q, --quiet"``."""
        self.add_argument(*spellings.split(", "), action="store_true", help=text)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments, including spellings of other tools; the error of an unknown option suggests a known one."""
        self._words = respelled(self, args or ())
        result, unknown = self.parse_known_args(self._words, namespace)
        if unknown:
            option = next((one.partition("=")[0] for one in unknown if one.startswith("-")), "")
            hint = UNKNOWN.get(option) or nearest(option, [*self._option_string_actions])
            hint = hint or _several_systems(getattr(result, "system", ""), unknown)
            self.error(
                "; ".join(filter(None, (f"unrecognized arguments: {' '.join(unknown)}", hint)))
            )
        return result

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the known arguments, and return the unknown ones separately."""
        self.stated.clear()
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the message on standard error and exit with code 2."""
        if message.endswith("required: SYSTEM"):
            message += _no_processors(self.prog, self._words)
        print_stderr(f"calculon: error: {message} (see: {self.prog} --help)")
        self.exit(2)


def _several_systems(system: str, further: Sequence[str]) -> str:
    """Return a hint to join systems by commas; empty if the further arguments are no systems."""
    from calculon.estimate.argument_order import is_system  # only for a message

    several = ",".join((system, *further))
    return f"join systems by commas: {several}" if system and is_system(list(further)) else ""


def _no_processors(command: str, words: Sequence[str]) -> str:
    """Return a hint to state processors; empty if the second argument is no system."""
    import shlex  # only for a message

    from calculon.estimate.argument_order import is_system

    if len(words) < 2 or not is_system(words[1]):
        return ""
    corrected = f"{command} {shlex.join((words[0], '8', words[1]))}"
    return f"; {words[1]} is the system, so the processors are missing: {corrected}"


class Stored(argparse._StoreAction):
    """Action that stores a value; a note is printed if an option is given again with another value."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        """Store the value."""
        if option is not None:
            before = parser.stated.setdefault(self.dest, values)
            if before != values:
                print_stderr(
                    f"calculon: note: {option} is given as {before} and as {values}; the last one is used"
                )
            parser.stated[self.dest] = values
        super().__call__(parser, namespace, values, option)


class HelpAll(argparse.Action):
    """Action that prints the full help and exits."""

    def __call__(self, parser: Any, *_: object, **__: object) -> None:
        """Print the help and exit."""
        parser.show_all()
        parser.print_help()
        parser.exit()


def log_note(log: "Log", spec: "Model | System") -> None:
    """Print which system an ambiguous name was resolved to."""
    if note := note_on(spec):
        log(note)


def log_machine(log: "Log", system: "System") -> None:
    """Print the notes about a system that readers need, above a page without a title."""
    from calculon.documents.page_title import machine_sentences

    log_note(log, system)
    for sentence in machine_sentences(system.provenance.to_dict()):
        log(sentence)


class Suggested(tuple[str, ...]):
    """Choices shown by help and shell completion for an argument that accepts other words, too."""

    def __contains__(self, word: object) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Log:
    """Output of a command: standard output, or the file of ``--log``.

    Attributes:
        stream: Stream that receives the output.
        quiet: True if ``--verbosity`` suppresses results.
    """

    stream: IO[str]
    quiet: bool = False

    @classmethod
    @contextlib.contextmanager
    def to(cls, target: str, verbosity: str) -> Iterator["Log"]:
        """Open the log: ``-`` is standard output; a file is truncated at the first text; SpecError if not writable."""
        # Results have level INFO; errors and warnings go to standard error regardless.
        quiet = LEVELS.index(verbosity) > LEVELS.index("INFO")
        if target == STDOUT:
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="backslashreplace")  # names may be unprintable
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
        """Draw documents or parts of documents."""
        if not self.quiet:
            hide()
            from calculon.render.console import show

            for block in blocks:
                show(block, self.stream)

    def parts(self, *blocks: "Block") -> None:
        """Print blocks separated by blank lines: texts without wrapping, tables as in :meth:`table`."""
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
        """Write a document to a file and report it; print it if `output` is ``-``.

        Files are .json or .json.gz; with a `table` also .csv, which contains the table.
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
        """Show a result as the options of :func:`add_answer` request: print it in a format, or write a file.

        Args:
            arguments: Parsed arguments with ``format`` and ``file``.
            page, data, table: Functions that return the document, its JSON data, and the CSV table that replaces the
                document's tables; only the needed one is called.
            parts: Number of document parts printed without :func:`whole_page`; 0 for all.
        """
        form = answer_format(arguments)
        file = STDOUT if arguments.file is None else arguments.file
        if form == "json":
            self.write(data(), file)
            return
        if form == "text" and file == STDOUT:
            self.show(first_parts(page(), 0 if parts == 0 or whole_page(arguments) else parts))
            return
        text = table().csv() if table and form == "csv" else _written(page(), form)
        if file == STDOUT:
            self(text)
        else:
            self._save(text, file)

    def _save(self, text: str, file: str) -> None:
        """Write a text to a file and report it."""
        with replacing(file) as stream:
            stream.write(f"{text}\n".encode())
        self._written(file)

    def _written(self, file: str) -> None:
        """Report a written file; not for ``/dev/stdout`` or a pipe, whose output the report would become part of."""
        if not is_device(file):
            self(f"Output: {file}")

    def document(self, document: "Document", form: str) -> None:
        """Print a document in a format; in a pipe, each table row takes one line of text."""
        from calculon.render.console import is_terminal, stated_width

        if form == "text" and (is_terminal(self.stream) or stated_width()):
            self.show(document)
            return
        from calculon.render.plain_text import document_text

        self(document_text(document, form))

    def table(self, table: "Table", form: str, *, published: bool = False) -> None:
        """Print a table in one of :data:`calculon.render.text_tables.FORMATS`.

        A terminal, or ``COLUMNS``, limits the width; otherwise every row takes one line, and so do rows of published
        tables in any pipe.
        """
        from calculon.render.console import is_terminal, stated_width

        asked = stated_width() and not published
        if form == "text" and (is_terminal(self.stream) or asked):
            self.show(table)
        else:
            self(table.written(form))


def whole_page(arguments: argparse.Namespace) -> bool:
    """Return True if the full output is requested: by ``-v``, a format or a file."""
    stated = arguments.file is not None or arguments.format is not None
    return stated or bool(arguments.verbose)


def first_parts(document: "Document", parts: int) -> "Document":
    """Return the first parts of a document; all parts for 0."""
    from calculon.render.document import shortened

    return shortened(document, parts) if parts else document


def _written(document: "Document", form: str) -> str:
    """Return a document in a format; text is laid out as for a pipe."""
    if form == "text":
        from calculon.render.console import show

        stream = io.StringIO()
        show(document, stream, plain=True)
        return stream.getvalue().rstrip("\n")
    from calculon.render.plain_text import document_text

    return document_text(document, form)


def one_of(*names: str) -> Callable[[str], str]:
    """Return an argument type that accepts one of several names; its error suggests the nearest name."""

    def name(text: str) -> str:
        if text not in names:
            several = "," in text and all(one.strip() in names for one in text.split(","))
            hint = nearest_choice(text.replace("-", "_"), names)
            hint = "only one name is accepted here" if several else hint
            problem = Problem("", "one of " + ", ".join(names), repr(text), hint)
            raise argparse.ArgumentTypeError(problem)
        return text

    return name


def positive(text: str) -> int:
    """Parse a whole number above 0."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(Problem("", "a whole number above 0", repr(text)))
    return int(text)


PAGE = "format of the printed output: a page (text, default), or everything (json)"
"""Help of ``--format`` for commands that print a page."""


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
"""Format of a result file, by suffix."""


def add_answer(
    parser: argparse.ArgumentParser,
    everything: str = "write everything",
    tables: str = "one line per table cell",
    flags: Sequence[str] = ("-o", "--output"),
) -> None:
    """Declare ``--format`` and ``--output`` (or other `flags`) of a result, for :meth:`Log.answer`.

    `everything` and `tables` describe the contents of JSON and CSV.
    """
    add_format(
        parser,
        ("text", *ANSWER_FILES.values()),
        "format of the output: a page (text, default), the page in another format, "
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
    """Return the format of a result: the requested one, or the one of the file's suffix."""
    file = arguments.file
    if arguments.format is not None or file is None:
        return arguments.format or "text"
    return "json" if file == STDOUT else ANSWER_FILES.get(document_suffix(file), "json")


def check_answer(arguments: argparse.Namespace, inputs: Sequence[str]) -> None:
    """Check before any work that the output file of a result, if any, can be written."""
    if (file := arguments.file) not in (None, STDOUT):
        suffixes = (".json",) if is_device(file) else tuple(ANSWER_FILES)
        any_name = (document_suffix(file),)
        check_outputs([file], inputs, suffixes if arguments.format is None else any_name)


def add_edition(
    parser: Parser,
    several: bool = False,
    absent: str = "from the execution",
    longer: str = "",
) -> None:
    """Declare ``--edition``: None or a name; with `several`, a tuple of names, empty without the option.

    `absent` describes the default, and `longer` adds details to it.
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
    absent: str = "from the plan, or by machine",
    longer: str = f"; by machine: common if the plan states all fields of the published tool, else {USUAL}",
    files: bool = True,
) -> None:
    """Declare ``--preset``: a framework name or, with `files`, a file; other arguments as for :func:`add_edition`."""
    own = " or file" if files else ""
    parser.option(
        f"--preset {'NAME[,NAME]' if several else 'NAME'}",
        f"framework{own} whose defaults and limits apply (calculon catalog presets; default: {absent})",
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
    """Raise SpecError if the log file is also an input or output of the command."""
    if target == STDOUT:
        return
    place = Path(target).resolve()
    for value in vars(arguments).values():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(one, str) and one and Path(one).resolve() == place:
                found = "an input or output of that name"
                raise SpecError(target, Problem("", "a separate log file", found))


def add_specs(parser: Parser, model: str, metavar: str) -> None:
    """Add the specs of an estimate: a model (under the command's name for it), an execution and a system."""
    parser.add_argument(model, metavar=metavar, help="the model: its shape")
    parser.add_argument(
        "execution", metavar="EXE", help="how it is run: parallelism, batch, options"
    )
    parser.add_argument("system", metavar="SYS", help="the machine: processors, memory, networks")


@contextlib.contextmanager
def naming(execution: str, **others: str) -> Iterator[None]:
    """Replace the kind of spec in errors by its file or argument, for errors that concern several fields."""
    names = {"execution": "<stdin>" if execution == STDIN else execution or "execution"} | others
    try:
        yield
    except SpecError as error:
        raise SpecError(names.get(error.file, error.file), error.problems) from None


def check_inputs(sources: Sequence[str]) -> None:
    """Raise SpecError if standard input is requested more than once."""
    if sources.count(STDIN) > 1:
        found = f"{sources.count(STDIN)} times '{STDIN}'"
        raise SpecError("<stdin>", Problem("", "one input from standard input", found))


def check_outputs(
    outputs: Sequence[str], inputs: Sequence[str], suffixes: tuple[str, ...] = (".json",)
) -> None:
    """Check before any work that every output can be written, and that none is an input or another output.

    Raises:
        SpecError: For the first invalid output.
    """
    # Names of the catalog are not files, so they cannot be overwritten.
    taken = {Path(source).resolve(): "an input" for source in inputs if Path(source).is_file()}
    for output in outputs:
        check_output(output, suffixes)
        place = Path(output).resolve()
        if place in taken:
            raise SpecError(output, Problem("", "a separate file", f"{taken[place]} of that name"))
        taken[place] = "another output"
