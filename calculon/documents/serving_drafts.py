"""Speculative decoding on the page of a serving deployment: the draft, accepted tokens, and when it pays."""

from collections.abc import Iterator, Mapping
from typing import Any

from calculon.base.records import Plain
from calculon.render.texts import counted

_DRAFTS = {"mtp": "modules that predict further tokens", "ngram": "matches in the text so far"}
"""Words for drafts that are no model of their own."""

_NO_DRAFT, _OF_MODEL = "none", "model:"


def draft_words(served: Plain) -> str:
    """Return the draft, its accepted tokens, and the largest batch that it speeds up; empty without a draft."""
    if (own := served["speculation"]) is None:
        return ""
    f = served["figures"]
    by = _DRAFTS.get(own["draft"], own["draft"].removeprefix(_OF_MODEL))
    made = f"{counted(own['tokens'], 'token')} by {by}, {f['spec_tokens'] - 1:.3g} accepted"
    return f"{made}: {f['spec_speedup']:.3g} times as fast as without; {_pays(f)}"


def draft_mark(deployment: Plain) -> str:
    """Return the draft and its tokens in short; empty without a draft.

    >>> draft_mark({"draft": "model:llama3.2-1B", "draft_tokens": 4}), draft_mark({"draft": "mtp"})
    ('llama3.2-1B 4', 'mtp')
    """
    draft = deployment.get("draft", _NO_DRAFT)
    if draft == _NO_DRAFT:
        return ""
    return f"{draft.removeprefix(_OF_MODEL)} {deployment.get('draft_tokens', '')}".rstrip()


def _pays(figures: Mapping[str, Any]) -> str:
    """Return the largest batch whose decode passes are faster with drafts."""
    most = figures["spec_break_even"]
    if not most:
        return "decode passes are never faster with it"
    if most >= figures["max_concurrency"]:
        return "decode passes are faster with it for all that fit"
    return f"decode passes are faster with it up to {counted(int(most), 'sequence')}"


def draft_notes(served: Plain) -> Iterator[str]:
    """Yield the assumptions on drafts."""
    if (own := served["speculation"]) is None:
        return
    stated = served["deployment"]
    if stated.get("acceptance") is None and stated.get("accepted") is None:
        yield (
            f"{own['acceptance']:g} of drafted tokens are accepted: the least that DeepSeek-V3 reports "
            "(arXiv 2412.19437, section 5.4.3)."
        )
    yield (
        f"A drafted token is accepted with a probability of {own['acceptance']:.3g} where those before it are; tokens "
        "of a pass come at once, and the longest gap is between passes."
    )
