"""Candidate edits of the number of processors that a launch file states, in any language."""

import re
from collections.abc import Iterator, Sequence

from calculon.launch.patches.spans import replaced

_EACH = re.compile(r"per.(?:node|host|machine)|nproc|gres|devices|ngpu|num.gpus", re.IGNORECASE)
_NODE = 8
"""Processors per node, unless a file states more."""
_SIZE = re.compile(
    r"(?P<name>[\w-]*(?:node|machine|host|proc|task|gpu|world|gres|devices|-N\b)[\w-]*[\"']?)"
    r"(?P<between>[ \t]*[:= ][ \t]*|=\"?\$\{\w+:-)[\"']?(?P<value>(?:gpu:)?\d+)(?![\w.])",
    re.IGNORECASE,
)


def processor_edits(text: str, before: int, after: int) -> Iterator[str]:
    """Yield candidate texts with scaled numbers of nodes, or of processors in total or per node."""
    found = list(_SIZE.finditer(text))
    each = [one for one in found if _EACH.search(one["name"])]
    whole = [one for one in found if one not in each]
    # Scale nodes first: the number of processors per node is a property of the machine.
    yield _scaled(text, whole, before, after)
    for one in reversed(whole):
        yield _scaled(text, [one], before, after)
    yield _scaled(text, each, before, after)
    for one in reversed(each):
        yield _scaled(text, [one], before, after)


def _scaled(text: str, sizes: Sequence[re.Match[str]], before: int, after: int) -> str:
    """Return a text with sizes scaled by a ratio, if the result is a whole number."""
    for one in reversed(sizes):
        start, end = one.span("value")
        start = end - len(one["value"].rpartition(":")[2])
        size, rest = divmod(int(text[start:end]) * after, before)
        most = max(int(text[start:end]), _NODE) if _EACH.search(one["name"]) else size
        if 0 < size <= most and not rest:
            text = replaced(text, start, end, str(size))
    return text
