"""Words for drafts on the page of a deployment that serves."""

from dataclasses import replace

from calculon.documents.serving_drafts import draft_notes, draft_words
from calculon.documents.serving_page import serving_page
from calculon.serving.serve import serve
from tests.documents.drawing import drawn
from tests.store import cache


@cache
def _served(**changes):
    load = {"prompt": 1000, "output": 200}
    return serve("llama3-8B", 1, "h100_80g_sxm", load, changes={"max_batch": 8} | changes).record


def drafts():
    return _served(draft="ngram", draft_tokens=3, accepted=1.5)


def test_a_page_without_drafts_says_nothing_of_them():
    plain = _served()
    assert (plain.speculation, draft_words(plain), [*draft_notes(plain)]) == (None, "", [])


def test_the_page_says_what_drafts_and_when_it_pays():
    served = drafts()
    words = draft_words(served)
    assert words.startswith("3 tokens by n-gram matches in the text, 1.5 accepted: ")
    assert f"{served.figures['spec_speedup']:.3g} times as fast" in words
    shown = drawn(serving_page(served), width=200)
    assert words in shown
    assert "between passes" in shown


def test_batches_up_to_which_drafts_pay():
    served = drafts()
    for most, words in {
        0.0: "decode passes are never faster with it",
        1.0: "decode passes are faster with it up to 1 sequence",
        7.0: "decode passes are faster with it up to 7 sequences",
        8.0: "decode passes are faster with it for all batches that fit",
    }.items():
        figures = replace(served.figures, spec_break_even=most)
        assert draft_words(replace(served, figures=figures)).endswith(words)


def test_an_acceptance_that_is_not_stated_is_assumed():
    served = drafts()
    assert not any("DeepSeek" in one for one in draft_notes(served))
    assumed = replace(served, deployment=replace(served.deployment, draft="mtp", accepted=None))
    assert any("DeepSeek" in one for one in draft_notes(assumed))
