"""Key figures of a plan: label, value in words, and a note."""

from collections.abc import Iterator

from calculon.advise.answer import TOKENS
from calculon.advise.candidate import candidate_of, trainings
from calculon.base.records import Plain
from calculon.base.units import chance
from calculon.declarations.plan_words import plan_words
from calculon.documents.headline import headline
from calculon.documents.plan_page import against_words
from calculon.documents.result import Result
from calculon.estimate.estimate import Estimate
from calculon.explore.answers import Answers, DisplayedPlan
from calculon.explore.page_state import State
from calculon.render.document import words
from calculon.render.texts import level_text, token_count


def words_of(state: State, answers: Answers, shown: DisplayedPlan) -> str:
    """Return a plan in words; empty if too few fields are readable."""
    if not shown.legal:
        return ""
    return plan_words(shown.fields, answers.question(state).preset.usual(shown.fields))


def key_figures(
    state: State, answers: Answers, shown: DisplayedPlan, result: Result
) -> Iterator[tuple[str, str, str]]:
    """Yield the key figures of the page's plan, with the digits that its prediction interval allows."""
    assert shown.estimate is not None
    yield _risk(result)
    training = _training(state, answers, shown.estimate)
    # The last row is the memory, which the row of the risk includes.
    *rows, _ = headline(result, training)
    # Without an interval (edition sc23) the column of intervals stays empty.
    level = f"{level_text(result.interval)}: " if result.interval else ""
    for label, value, interval in rows:
        name = words(label)
        if name == "USD":
            name = f"US dollars for {token_count(training['tokens'])} tokens"
        yield f"{name[:1].upper()}{name[1:]}", words(value), f"{level}{interval}" * bool(interval)
    tokens, fields = result.tokens_per_second, result.execution
    if tokens is not None and fields is not None:
        each = result.digits.rate(tokens / fields["num_procs"])
        yield "Tokens/s per processor", each, f"{result.digits.rate(tokens)} in total"
    yield from _against_best(state, answers, result)


def _risk(result: Result) -> tuple[str, str, str]:
    """Return the risk of running out of memory, and the memory use."""
    digits, there = result.digits, (result.capacities or (0.0, 0.0))[0]
    used = result.value("proc_mem_tier1_cap_req")
    memory = f"{digits.gib(used)} of {digits.gib(there)} usable, {digits.left(there - used)}"
    risk = "not known" if result.fits is None else chance(1 - result.fits)
    return "Risk of running out of memory", risk, memory


def _training(state: State, answers: Answers, estimate: Estimate) -> Plain:
    """Return the whole run with a plan, for the question's or the default number of tokens."""
    question = answers.question(state)
    lengths = question.tokens or TOKENS, question.tokens_per_step
    plans = [candidate_of(estimate)]
    (run,) = trainings(plans, question.campaign, question.model, question.system, *lengths)
    return run


def _against_best(state: State, answers: Answers, result: Result) -> Iterator[tuple[str, str, str]]:
    """Yield the distance of the plan from the best plan, if that is already known."""
    found = answers.cached_best_plans(state)
    if found is None or not len(found):
        return
    if not state.plan:
        counts = found.counts
        yield "Plans compared", f"{counts.total:,}", f"{counts.good:,} fit"
        return
    best = answers.best(state).brief
    if best is None:
        return
    total, least = result.value("total_time"), best.value("total_time")
    said = against_words(total / least - 1).removesuffix(" compared with the best")
    which = "the best that the search tried" if total < least else "which"
    yield "Against the best", said, f"{which} takes {best.digits.duration(least)}"
