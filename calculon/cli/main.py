"""The ``calculon`` program: find the command, run it, and turn errors into one message and an exit code.

Exit codes: 0 success; 1 infeasible, nothing written; 2 bad input or usage, or not enough memory; 129 the terminal was
closed; 130 interrupted; 141 the reader of the pipe exited; 143 terminated.
"""

import gc
import sys
import warnings
from argparse import SUPPRESS
from collections.abc import Sequence
from importlib import import_module
from itertools import islice

from calculon import __version__
from calculon.base.errors import Infeasible, SpecError, nearest
from calculon.cli.options import LEVELS, STDOUT, Command, Log, Parser, check_log
from calculon.cli.progress import waiting
from calculon.cli.streams import (
    STDOUT_NAME,
    exit_code,
    exit_process,
    flush_stdout,
    interruption_word,
    keep_standard_streams,
    print_stderr,
    redirect_to_null,
    terminable,
)
from calculon.declarations.decode import SpecWarning
from calculon.declarations.files import reason

GROUPS = {
    "Plan and search": (
        Command("plan", "the best plan to train a model: does it fit, how long"),
        Command("explore", "plans, searches and machines in a browser"),
        Command("estimate", "time, memory and efficiency of one plan"),
        Command("search", "the best plans for numbers of processors"),
        Command("serve", "latency, rate and price of a deployment (best: serve-optimal)"),
    ),
    "Understand": (
        Command("explain", "what takes the time, or why a plan cannot run", ("why",), "why"),
        Command("compare", "plans or results side by side"),
        Command("sensitivity", "sensitivity of a plan; the value of a faster machine"),
    ),
    "Study and check": (
        Command("study", "many searches from one file, resumed if interrupted"),
        Command(
            "validate",
            "predictions against published measurements, or yours",
            ("llm-validation", "lv"),
            "validation",
        ),
        Command("calibrate", "a system file fitted to measured times"),
    ),
    "Results and files": (
        Command("report", "results as one web page"),
        Command("plot", "charts of time, memory, searches and validation"),
        Command("catalog", "the shipped models, systems and presets"),
        Command(
            "import", "a launch script or a Hugging Face config.json, read", file="import_file"
        ),
        Command("export", "the launch script that runs a plan", ("export-flags",), "export_flags"),
    ),
    "Further commands": (
        Command("campaign", "a whole training run: days, failures, checkpoints, money, energy"),
        Command(
            "serve-optimal", "the best deployments that serve a model, or a frontier", ("sop",)
        ),
        Command("check", "a measured serving benchmark next to its prediction"),
        Command("describe", "the fields of specs and results"),
        Command("block", "one block, MLP or attention, by operator"),
        Command("matmul", "a matrix product, alone or during a copy from the host"),
        Command("collective", "an all-reduce or another collective, by algorithm"),
        Command("dispatch", "expert-parallel dispatchers compared"),
        Command("import-model", "a Hugging Face configuration as a model file"),
        Command("import-flags", "a launch script or configuration as an execution"),
        Command("completion", "a completion script for your shell"),
        Command("version", "the version", ("v",)),
    ),
    "Commands of the published tool, with its arguments": (
        Command("llm", "one execution of a model on a system"),
        Command("llm-optimal-execution", "the best executions of a model on a system", ("loe",)),
        Command("llm-all-executions", "every feasible execution, as a table", ("lae",)),
        Command("llm-parameter-calculator", "the parameters of a model", ("lpc",), "parameters"),
    ),
}
"""All commands by group, in the order of the help; the first :data:`FIRST` groups are on its first page."""

FIRST = 4
"""Number of groups listed by ``--help``; ``--help-all`` lists all."""

COMMANDS = tuple(command for commands in GROUPS.values() for command in commands)
"""All commands."""

_SPELLINGS = {name: command for command in COMMANDS for name in (command.name, *command.aliases)}

MEANT = {
    **dict.fromkeys(("models", "systems", "presets"), "calculon catalog lists them"),
    **dict.fromkeys(("list", "ls", "show", "gpus"), "try: calculon catalog systems"),
    **dict.fromkeys(("cost", "price", "train", "optimize"), "try: calculon plan"),
    **dict.fromkeys(("memory", "run", "simulate"), "try: calculon estimate"),
    **dict.fromkeys(("params", "parameters", "count"), "try: calculon lpc MODEL"),
    **dict.fromkeys(("verify", "accuracy"), "try: calculon validate"),
    **dict.fromkeys(("fields", "field"), "try: calculon describe"),
    "inference": "try: calculon serve",
    "deploy": "try: calculon serve --deploy DIR",
}
"""Command words of other tools, with a hint for each."""

PROG = "calculon"
DESCRIPTION = "Plan, estimate and search how large language models are trained and served."
EPILOG = """\
examples:
  calculon plan llama-3.1-70b 1k h100 --tokens 15T
  calculon estimate llama-3.1-8b "tp=4 dp=16" h100
`calculon COMMAND --help` explains a command and shows examples."""

PIPE_CLOSED = 141
EXPECTED = (
    *(KeyboardInterrupt, SpecError, Infeasible, OSError),
    *(ImportError, MemoryError, RuntimeError),
)
"""Errors that become a message; any other error is a defect and shows its traceback."""

PACKAGES = ("numpy", "pandas", "psutil", "rich", "shtab", "yaml")
"""Packages that every installation has."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code.

    Args:
        argv: Arguments after the program's name. By default the arguments of the process, which ends afterwards.
    """
    if argv is not None:
        return _guarded(list(argv))
    gc.set_threshold(50_000)  # imports make no garbage, and collecting takes a tenth of an estimate
    return exit_process(_guarded(sys.argv[1:]))


def _guarded(argv: list[str]) -> int:
    # Must come first: a file opened earlier could take the descriptor of a closed stream.
    keep_standard_streams()
    try:
        with terminable(), warnings.catch_warnings():
            warnings.simplefilter("always", SpecWarning)
            warnings.showwarning = _Warnings()
            code = _run(argv)
            flush_stdout()
    except EXPECTED as error:
        return _report(error)
    return code


def _report(error: BaseException) -> int:
    """Print the error and return the exit code; a defect of this program is raised again."""
    if isinstance(error, KeyboardInterrupt):
        notes = getattr(error, "__notes__", None)  # added by commands that know the progress
        print_stderr(
            f"{PROG}: {interruption_word(error)}{f': {notes[0]}' if notes else '; nothing was written'}"
        )
        return exit_code(error)
    if isinstance(error, BrokenPipeError):  # the reader exited, such as `| head`
        redirect_to_null(1)
        return PIPE_CLOSED
    if isinstance(error, Infeasible):
        return _print_error("infeasible", error, 1)
    message: object = error
    if isinstance(error, OSError):
        if error.filename is None:
            redirect_to_null(1)
        message = f"{error.filename or STDOUT_NAME}: {reason(error)}"
    elif isinstance(error, ImportError):
        message = _package_problem(error)
    elif isinstance(error, MemoryError) or "can't start new thread" in str(error):
        hint = "run it on fewer cores, request less at once, or use a machine with more memory"
        message = f"not enough memory; nothing was written. Hint: {hint}"
    elif isinstance(error, RuntimeError):
        raise error
    return _print_error("error", message, 2)


def _package_problem(error: ImportError) -> str:
    """Return which of :data:`PACKAGES` is missing or damaged; an error about any other package is raised again."""
    package = (error.name or "").partition(".")[0]
    if package in PACKAGES and error.name == package:
        cure = "start ./bin/calculon of a checkout, which sets itself up, or: pip install ."
        return f"{sys.executable} lacks the package {package}; {cure}"
    # A damaged package fails deep inside an import: walk the traceback to the first known package.
    place = error.__traceback__
    while place is not None and package not in PACKAGES:
        package = place.tb_frame.f_globals.get("__name__", "").partition(".")[0]
        place = place.tb_next
    if package not in PACKAGES:
        raise error
    cure = f"reinstall it: pip install --force-reinstall {package}"
    if sys.prefix != sys.base_prefix:
        cure = f"delete {sys.prefix} and start ./bin/calculon again"
    return f"the package {package} of {sys.executable} is damaged; {cure}"


def _run(argv: list[str]) -> int:
    target, verbosity = STDOUT, "INFO"
    try:
        if argv[:1] == ["help"]:  # like git and docker
            argv = [*argv[1:2], "--help"]
        if argv and (known := _SPELLINGS.get(argv[0])):  # spares one parser
            command, rest, called = known, argv[1:], argv[0]
        else:
            parser = top_parser()
            before = parser.parse_args(argv)
            command, rest, called = _find(parser, before.command), before.arguments, before.command
            target, verbosity = before.log, before.verbosity
        module = import_module(command.module)
        own = Parser(prog=f"{PROG} {command.name}")
        module.configure(own)
        values = own.parse_args(rest)
        # Under its name in the published tool, a command keeps the output of that tool.
        values.called = called
    except SystemExit as stop:  # help, version, usage
        return int(stop.code or 0)
    check_log(target, values)
    with Log.to(target, verbosity) as log, waiting(command.name):
        code: int = module.run(values, log)
    return code


def top_parser() -> Parser:
    """Return the parser of the arguments before the command."""
    parser = _TopParser(
        prog=PROG,
        usage="calculon [options] COMMAND ...",
        description=f"{DESCRIPTION}\n\n{_listing(FIRST)}",
        epilog=EPILOG,
    )
    add_common(parser)
    parser.add_argument("command", nargs="?", help=SUPPRESS)
    parser.add_argument("arguments", nargs="...", help=SUPPRESS)
    return parser


def _listing(count: int) -> str:
    """Return the commands of the first groups, each group under its title."""
    groups = dict(islice(GROUPS.items(), count))
    everything = count > FIRST
    titles = {c: c.title if everything else c.name for some in groups.values() for c in some}
    width = max(map(len, titles.values()))
    return "\n\n".join(
        "\n".join((f"{title}:", *(f"  {titles[c]:{width}}  {c.help}" for c in commands)))
        for title, commands in groups.items()
    )


class _TopParser(Parser):
    """Parser of the arguments before the command; its full help lists all commands."""

    def show_all(self) -> None:
        """Make the help list all commands."""
        super().show_all()
        self.description = f"{DESCRIPTION}\n\n{_listing(len(GROUPS))}"


def add_common(parser: Parser) -> None:
    """Add the options that precede every command."""
    parser.option(
        "-l, --log LOG", "file for the printed output (default: standard output)", default="-"
    )
    parser.option(
        "-v, --verbosity LEVEL",
        "DEBUG, INFO (default), WARNING, ERROR or CRITICAL",
        default="INFO",
        type=str.upper,
        choices=LEVELS,
    )
    parser.add_argument("--version", action="version", version=__version__)


def complete_parser() -> Parser:
    """Return one parser with every command as a subparser, for completion scripts."""
    parser = Parser(prog=PROG, description=DESCRIPTION)
    add_common(parser)
    below = parser.add_subparsers(dest="command", metavar="COMMAND")
    for command in COMMANDS:
        own = below.add_parser(command.name, aliases=command.aliases, help=command.help)
        import_module(command.module).configure(own)
    return parser


def _find(parser: Parser, name: str | None) -> Command:
    if name is None:
        parser.error("which command?")
    if name not in _SPELLINGS:
        known = [one.name for commands in islice(GROUPS.values(), FIRST) for one in commands]
        hint = MEANT.get(name.lower()) or nearest(name, [*_SPELLINGS])
        hint = hint or f"the first are {', '.join(known)}"
        parser.error(f"there is no command '{name}'; {hint}")
    return _SPELLINGS[name]


def _print_error(kind: str, error: object, code: int) -> int:
    """Print each line of an error, prefixed with its kind, and return the exit code."""
    for line in str(error).splitlines():
        print_stderr(f"{PROG}: {kind}: {line}")
    return code


class _Warnings:
    """Shows each warning of one call once, even if its file is read several times."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, message: Warning | str, *_: object, **__: object) -> None:
        """Show a warning."""
        if str(message) not in self._told:
            self._told.add(str(message))
            _print_error("warning", message, 0)
