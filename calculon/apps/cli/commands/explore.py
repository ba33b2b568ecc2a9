"""``calculon explore``: the model as a page in a browser."""

import argparse

from calculon.apps.cli.options import Log, Parser
from calculon.errors import Problem, SpecError

HOST, PORT = "127.0.0.1", 8765
MODEL, SYSTEM, PROCS = "llama3-70B", "h100_80g_sxm", "1024"


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Open a page in the browser on which every control answers at once: a plan with its time, memory and rivals, "
        "a search, the machine and what more of it would buy, and the pipeline down to single operators. The address "
        "of the page is its state: a link reproduces it.\n"
        "The page is served by this program to this machine alone; Ctrl-C ends it.",
        "calculon explore\n"
        "calculon explore llama3-70B h100_80g_sxm 1024\n"
        "calculon explore my_model.json h100 64 --port 8080",
    )
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        default=MODEL,
        help=f"the model that is shown first: a name or a file (default: {MODEL})",
    )
    parser.add_argument(
        "system",
        nargs="?",
        metavar="SYSTEM",
        default=SYSTEM,
        help=f"the machine, likewise (default: {SYSTEM})",
    )
    parser.add_argument(
        "procs",
        nargs="?",
        metavar="PROCS",
        default=PROCS,
        help=f"processors, such as 1024 or 1k (default: {PROCS})",
    )
    parser.add_argument(
        "--host", default=HOST, help=f"address to listen at (default: {HOST}: this machine alone)"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=PORT,
        help=f"port to listen at; 0 takes any that is free (default: {PORT})",
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address, and open nothing"
    )


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Serve the page until it is interrupted."""
    try:
        import uvicorn

        from calculon.apps.explore.answers import Answers
        from calculon.apps.explore.offer import Offer
        from calculon.apps.explore.page_server import app
        from calculon.apps.explore.page_state import State, read_state
    except ImportError as error:
        hint = "pip install 'calculon[web]', or start ./bin/calculon of a checkout, which sets itself up"
        raise SpecError(
            "explore", Problem("", "the packages of the page", f"no {error.name}", hint)
        ) from None
    offer = Offer(arguments.model, arguments.system)
    first = State(model=offer.model, system=offer.system, procs=1)
    first = read_state([("procs", arguments.procs)], offer, first)
    page = app(Answers(offer), first, [arguments.host, "localhost"])
    log(f"http://{arguments.host}:{arguments.port}{first.link()}  (Ctrl-C ends it)")
    uvicorn.run(page, host=arguments.host, port=arguments.port, log_level="warning")
    return 0
