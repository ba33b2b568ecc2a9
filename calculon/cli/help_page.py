"""Layout of command help: a short first page, with options grouped into sections."""

import argparse
from collections.abc import Iterable, Sequence

OPTIONS = {
    "inputs": (
        *("--batch", "--seq", "--dtype", "--preset", "--edition", "--mine", "--evidence", "--set"),
    ),
    "workload": (
        *("--workload", "--prompt", "--output-tokens", "--rate", "--users", "--ttft", "--tpot"),
        *("--percentile", "--prefix-hit", "--requests"),
    ),
    "training run": (
        *("--campaign", "--tokens", "--loss", "--steps", "--deadline", "--budget-usd"),
        *("--budget-mwh", "--mtbf", "--failures", "--overhead", "--spares", "--interval"),
        *("--price", "--price-kind", "--pue", "--carbon"),
    ),
    "search": (
        *("--objective", "--pareto", "--where", "--risk", "--top-n", "--top"),
        *("--fix", "--add", "--any-batch", "--apart"),
    ),
    "output": (
        *("--deploy", "--checkpoint", "--force"),
        *("-o", "--format", "--emit", "--verbose", "--layers", "--all", "--columns", "--quiet"),
    ),
}
"""Options shared by several commands, by help section."""

HELP = ("--help", "--help-all")
"""Options about the help itself, which are listed last."""


class Layout(argparse.RawDescriptionHelpFormatter):
    """Help layout: prose is wrapped to the width of the terminal, examples are not."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import re
        import textwrap

        lines = []
        for line in text.splitlines():
            term = re.match(r" +\S.*?  +", line)  # item of a list of terms and meanings
            hanging = " " * len(term[0]) if term else ""
            prose = term or not line.startswith(" ")
            lines.append(textwrap.fill(line, width, subsequent_indent=hanging) if prose else line)
        return "\n".join(lines)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Return the spellings of an option with its value once: ``-o, --output FILE``."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


def help_page(parser: argparse.ArgumentParser, first: frozenset[str]) -> str:
    """Return the help of a command with the options in `first`, or with all options if `first` is empty."""
    # argparse has no public access to its actions.
    options = [one for one in parser._actions if one.option_strings]
    listed = [one for one in options if not first or first & {*one.option_strings}]
    page = parser.formatter_class(prog=f"{parser.prog} [options]")
    placed = [one for one in parser._actions if not one.option_strings]
    required = [one for one in listed if one.required]
    page.add_usage(parser.usage, [*required, *placed], ())
    page.add_text(parser.description)
    for group in parser._action_groups:
        below = [one for one in group._group_actions if not one.option_strings]
        _add_section(page, "arguments" if group is parser._positionals else group.title, below)
    about = [one for one in options if {*one.option_strings} & {*HELP}]
    sections = _sections(one for one in listed if one not in about)
    # A single section needs no separate heading for the help options.
    if len(sections) > 1:
        sections["help"] = about
    else:
        sections.setdefault("options", []).extend(about)
    for title, actions in sections.items():
        _add_section(page, title, actions)
    page.add_text(parser.epilog)
    return page.format_help()


def _add_section(
    page: argparse.HelpFormatter, title: str | None, actions: Sequence[argparse.Action]
) -> None:
    """Add a section with actions; argparse drops it if there are none."""
    page.start_section(title)
    page.add_arguments(actions)
    page.end_section()


def _sections(options: Iterable[argparse.Action]) -> dict[str, list[argparse.Action]]:
    """Return the non-empty sections with their options; options of only this command come first."""
    sections: dict[str, list[argparse.Action]] = {"options": [], **{name: [] for name in OPTIONS}}
    for one in options:
        sections[_section(one)].append(one)
    return {title: actions for title, actions in sections.items() if actions}


def _section(option: argparse.Action) -> str:
    """Return the section of an option."""
    names = option.option_strings
    if names[0] == "--output":  # the number of generated tokens; file options also have ``-o``
        return "workload"
    found = (title for title, known in OPTIONS.items() if {*names} & {*known})
    return next(found, "options")
