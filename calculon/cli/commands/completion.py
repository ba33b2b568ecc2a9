"""``calculon completion``: complete commands, options, catalog names and files in a shell."""

import argparse
from typing import Any

from calculon.cli.options import Log, Parser
from calculon.cli.respelling import DEGREES
from calculon.declarations.short_names import FIELDS as SHORT
from calculon.declarations.short_names import QUESTION_WORDS

SHELLS = ("bash", "zsh", "tcsh")
SPECS = {
    **{"APP": "model", "MODEL": "model"},
    **{"EXE": "execution", "EXECUTION": "execution", "PLAN": "execution"},
    **{"SYS": "system", "SYSTEM": "system"},
    "DEPLOYMENT": "deployment",
}
"""Arguments that take a catalog name or a file, keyed by metavar; the value is the kind of spec."""

OPTIONS = ("campaign", "workload")
"""Options with the name of a kind of spec, which take such specs."""

WORDS = {"execution": (*SHORT, *QUESTION_WORDS.values()), "deployment": DEGREES}
"""Keys of ``key=value`` words that an argument accepts in place of a name."""

FILES = ("FILE", "STATS", "LOG", "CONFIG")


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Print a script that completes commands, options, names of the catalog and files. For bash, put "
        "the first line below into ~/.bashrc; for zsh, write the script to a file _calculon in $fpath.",
        'eval "$(calculon completion bash)"\ncalculon completion zsh > ~/.zfunc/_calculon',
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell to complete in")


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Print the script."""
    import shtab

    from calculon.cli.main import complete_parser

    parser = complete_parser()
    _mark(parser, shtab.FILE)
    preamble: Any = _preamble()  # one text per shell; shtab annotates only a single text
    log(shtab.complete(parser, arguments.shell, preamble=preamble))
    return 0


def _mark(parser: argparse.ArgumentParser, files: Any) -> None:
    """Attach completions to every argument of a parser and its subparsers."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            # Aliases of a command share one parser object, so visit each object once.
            for below in {id(one): one for one in action.choices.values()}.values():
                _mark(below, files)
        elif action.metavar in SPECS or action.dest in OPTIONS:
            name = f"_calculon_{SPECS.get(str(action.metavar), action.dest)}"
            complete = {"bash": name, "zsh": name, "tcsh": "f"}
            action.complete = complete  # type: ignore[attr-defined]
        elif action.metavar in FILES:
            action.complete = files  # type: ignore[attr-defined]


def _preamble() -> dict[str, str]:
    """Return shell functions for each kind of spec, which complete catalog names, then files."""
    from calculon.declarations import catalog

    bash, zsh = [], []
    for kind in dict.fromkeys((*SPECS.values(), *OPTIONS)):
        pairs = (f"{word}=" for word in WORDS.get(kind, ()))
        names = " ".join((*catalog.names(kind), *pairs))
        bash.append(
            f"_calculon_{kind}() {{\n"
            f"  compgen -W '{names}' -- \"$1\"\n"
            f'  compgen -o plusdirs -f -- "$1"\n'
            f"}}"
        )
        zsh.append(
            f"_calculon_{kind}() {{\n"
            f"  _alternative 'names:catalog:({names})' 'files:file:_files'\n"
            f"}}"
        )
    return {"bash": "\n".join(bash), "zsh": "\n".join(zsh)}
