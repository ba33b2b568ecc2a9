"""Speculative decoding on the page of a deployment: the draft, accepted tokens, and break-even batch."""

from collections.abc import Iterator

from calculon.render.texts import counted
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.speculation import NO_DRAFT, OF_MODEL
from calculon.serving.served_record import FigureRecord, ServedRecord

_DRAFTS = {"mtp": "multi-token prediction modules", "ngram": "n-gram matches in the text"}
"""Labels of drafts without a separate draft model."""


def draft_words(served: ServedRecord) -> str:
    """Return the draft, its accepted tokens, and the largest batch that it speeds up; empty without a draft."""
    if (own := served.speculation) is None:
        return ""
    f = served.figures
    by = _DRAFTS.get(own.draft, own.draft.removeprefix(OF_MODEL))
    made = f"{counted(own.tokens, 'token')} by {by}, {f['spec_tokens'] - 1:.3g} accepted"
    return f"{made}: {f['spec_speedup']:.3g} times as fast as without; {_pays(f)}"


def draft_mark(deployment: Deployment) -> str:
    """Return the draft and its tokens in short; empty without a draft.

    >>> draft_mark(Deployment(num_procs=1, draft="mtp")), draft_mark(Deployment(num_procs=1))
    ('mtp', '')
    """
    if deployment.draft == NO_DRAFT:
        return ""
    tokens = "" if deployment.draft_tokens is None else f" {deployment.draft_tokens}"
    return f"{deployment.draft.removeprefix(OF_MODEL)}{tokens}"


def _pays(figures: FigureRecord) -> str:
    """Return the largest batch whose decode passes are faster with drafts."""
    most = figures["spec_break_even"]
    if not most:
        return "decode passes are never faster with it"
    if most >= figures["max_concurrency"]:
        return "decode passes are faster with it for all batches that fit"
    return f"decode passes are faster with it up to {counted(int(most), 'sequence')}"


def draft_notes(served: ServedRecord) -> Iterator[str]:
    """Yield the assumptions on drafts."""
    if (own := served.speculation) is None:
        return
    stated = served.deployment
    if stated.acceptance is None and stated.accepted is None:
        yield (
            f"{own.acceptance:g} of drafted tokens are accepted: the lower end of the range in the DeepSeek-V3 report "
            "(arXiv 2412.19437, section 5.4.3)."
        )
    yield (
        f"A drafted token is accepted with probability {own.acceptance:.3g} if all earlier ones are; the tokens "
        "of a pass arrive at once, so the longest gap is between passes."
    )
