"""``calculon explore``: an interactive page of the model in a browser."""

import argparse
import re
from typing import TYPE_CHECKING

from calculon.base.errors import Problem, SpecError
from calculon.cli.changes import add_changes, parsed
from calculon.cli.field_options import COUNT
from calculon.cli.options import USUAL, Log, Parser, add_preset
from calculon.cli.progress import end as end_progress
from calculon.cli.question_options import add_question_options, only_plan
from calculon.cli.streams import Terminated, handled_signals, print_stderr
from calculon.explore.packages import require
from calculon.explore.view_names import VIEWS

if TYPE_CHECKING:
    from calculon.explore.answers import Answers
    from calculon.explore.page_state import State

HOST, PORT = "127.0.0.1", 8765
MODEL, SYSTEM, PROCS = "llama3-70B", "h100_80g_sxm", "1024"

WORDS = ("preset", "batch", "seq", "dtype", "tokens", "view")
"""Options that become query parameters of the page's address."""


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Open a page in the browser that updates with every control: a plan with its time, memory and alternatives, "
        "a search, the machine and the benefit of a better one, the pipeline down to single operators, and deployments "
        "that serve the model. It takes the arguments of calculon plan and shows the same numbers. The address of the "
        "page contains its state, so a link reproduces it.\n"
        "This program serves the page, only to this machine and without network access; Ctrl-C ends it. On "
        "a machine without a screen, forward the port (ssh -L 8765:localhost:8765 MACHINE) and open the address that "
        "it prints.",
        "calculon explore\n"
        "calculon explore llama3-70B h100_80g_sxm 1024\n"
        "calculon explore llama-3.1-405b 16k h100 --batch 16M --tokens 15T\n"
        'calculon explore llama-3.1-70b 1024 h100 --mine "tp=8 pp=4 mbs=1"\n'
        "calculon explore llama-3-8b 64 h100 --mine run.sh --view pipeline\n"
        "calculon explore ./config.json mi300x 64 --set system.mem1.GiB=256 --port 8080",
    )
    _add_specs(parser)
    add_preset(parser, absent=USUAL, longer="", files=False)
    add_question_options(parser)
    parser.option("--tokens N", "training tokens in total (15T)")
    add_changes(parser, "system")
    parser.option(
        "--view VIEW",
        f"view that is opened first: {', '.join(VIEWS)} (default: {VIEWS[0]})",
        choices=VIEWS,
    )
    parser.option(
        "--host",
        f"address to listen on (default: {HOST}: only this machine; 0.0.0.0: everybody on the network)",
        default=HOST,
    )
    parser.option(
        "--port",
        f"port to listen on; 0 takes any free port (default: {PORT}, or the next free one)",
        type=_port,
    )
    parser.switch("--no-browser", "print the address without opening a browser")


def _add_specs(parser: Parser) -> None:
    for name, default, words in (
        (
            "MODEL",
            MODEL,
            "the model: a name as people write it, a file, or the config.json of Hugging Face",
        ),
        ("SYSTEM", SYSTEM, "the machine: a name (h100), or a file"),
        ("PROCS", PROCS, "processors: a count (1024, 1k), before or after the machine"),
    ):
        parser.argument(name, f"{words} (default: {default})", nargs="?", default=default)


def _port(text: str) -> int:
    """Parse a port number."""
    if not text.isdecimal() or int(text) >= 2**16:
        raise argparse.ArgumentTypeError(Problem("", "a number from 0 to 65535", repr(text)))
    return int(text)


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Serve the page until interrupted."""
    require("explore")
    from calculon.explore.allowed_inputs import AllowedInputs
    from calculon.explore.answers import Answers
    from calculon.explore.web.listening import (
        address_of,
        has_browser,
        listening,
        open_browser,
        serve,
    )
    from calculon.explore.web.page_server import app
    from calculon.explore.web.security import is_loopback, names_of

    system, procs = arguments.system, arguments.procs
    if re.fullmatch(COUNT, system):  # processors before the machine, as calculon plan accepts them
        system, procs = SYSTEM if procs == PROCS else procs, system
    answers = Answers(AllowedInputs(arguments.model, system))
    first = _first(arguments, answers, procs)
    host, port = arguments.host, arguments.port
    # A port that was asked for must be free; the default may move to the next free one.
    listener = listening(host, PORT if port is None else port, only=port is not None)
    address = address_of(listener, host)
    if not is_loopback(host):
        print_stderr(
            f"calculon: warning: everybody who reaches this machine can use the page, at {address}"
        )
    # The page waits for people, so a progress line would run forever.
    end_progress()
    log(f"{address}{first.link()}  (Ctrl-C ends it)")
    log.stream.flush()
    if not arguments.no_browser and has_browser():
        open_browser(address + first.link())
    try:
        number = serve(app(answers, first, names_of(host)), listener, handled_signals())
        if number is not None:
            raise Terminated(number)
    except KeyboardInterrupt as end:
        end.add_note("the page is no longer served")
        raise
    return 0


def _first(arguments: argparse.Namespace, answers: "Answers", procs: str) -> "State":
    """Return the page state that the arguments describe."""
    from calculon.explore.web.initial_state import initial_state

    words = [("procs", procs)]
    words += [(name, value) for name in WORDS if (value := getattr(arguments, name))]
    changes = parsed(arguments.changes, ("system",))["system"]
    for path, value in changes.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            hint = "set it in an overlay file of the system, and give that file"
            raise SpecError("--set", Problem(path, "a number", repr(value), hint))
        words.append((f"system.{path}", repr(value)))
    return initial_state(answers, words, only_plan(arguments.mine))
