"""The key figures of a plan: label, number in words, and a remark."""

from collections.abc import Iterator

from calculon.advise.candidate import candidate_of, trainings
from calculon.declarations.plan_words import plan_words
from calculon.documents.how_sure import risk_words
from calculon.documents.plan_page import against_words
from calculon.documents.result import Result
from calculon.explore.answers import Answers, Shown
from calculon.explore.page_state import State
from calculon.render.texts import level_text, token_count


def words_of(state: State, answers: Answers, shown: Shown) -> str:
    """Return a plan in words; nothing where too little of it can be read."""
    if not shown.legal:
        return ""
    return plan_words(shown.fields, answers.question(state).preset.usual(shown.fields))


def key_figures(state: State, answers: Answers, result: Result) -> Iterator[tuple[str, str, str]]:
    """Yield the key figures of the plan of a page, with the digits that its interval leaves."""
    digits, total = result.digits, result.value("total_time")
    ends = "" if result.interval is None else f"{level_text(result.interval)}: {result.ends}"
    yield "Time of a step", digits.duration(total), ends
    if result.mfu:
        yield "MFU", digits.efficiency(result.mfu), result.masking
    tokens, fields = result.tokens_per_second, result.execution
    if tokens is not None and fields is not None:
        each = digits.rate(tokens / fields["num_procs"])
        yield "Tokens/s per processor", each, f"{digits.rate(tokens)} in total"
    there = (result.capacities or (0.0, 0.0))[0]
    used = result.value("proc_mem_tier1_cap_req")
    risk = risk_words(result.fits)
    yield "Memory", digits.gib(used), f"of {digits.gib(there)}, {digits.left(there - used)}; {risk}"
    yield from _days(state, answers, result)
    yield from _against_best(state, answers, total)


def _days(state: State, answers: Answers, result: Result) -> Iterator[tuple[str, str, str]]:
    """Yield the days of the whole training, where its tokens are stated."""
    question, estimate = answers.question(state), answers.plan(state).estimate
    if question.tokens is None or estimate is None:
        return
    lengths = question.tokens, question.tokens_per_step
    plans = [candidate_of(estimate)]
    (run,) = trainings(plans, question.campaign, question.model, question.system, *lengths)
    days = result.digits.rate(run["campaign"]["days"])
    failures = f"goodput {100 * run['campaign']['goodput']:.1f} %"
    yield f"Days for {token_count(question.tokens)} tokens", days, failures


def _against_best(state: State, answers: Answers, total: float) -> Iterator[tuple[str, str, str]]:
    """Yield how far the plan is from the best, as far as that is known already."""
    found = answers.found_before(state)
    if found is None or not len(found):
        return
    if not state.plan:
        counts = found.counts
        yield "Plans compared", f"{counts.total:,}", f"{counts.good:,} fit"
        return
    best = answers.best(state).brief
    if best is None:
        return
    least = best.value("total_time")
    words = against_words(total / least - 1).removesuffix(" against the best")
    which = "the best that the search tried" if total < least else "which"
    yield "Against the best", words, f"{which} takes {best.digits.duration(least)}"
