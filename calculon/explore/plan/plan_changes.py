"""Effects of changes of a plan: those that make it run, those that lead to the best plan, and single changes."""

from collections.abc import Mapping, Sequence
from math import ceil, isnan
from typing import Any

from calculon.advise.fixes import Fix
from calculon.advise.in_words import memory_and_time, plan_in_words
from calculon.advise.infeasibility import fix_in_words
from calculon.advise.space_fixes import SpaceFix
from calculon.base.errors import Infeasible, SpecError
from calculon.base.units import GIB, chance
from calculon.declarations.statistics import FITS, RISK
from calculon.documents.charts.waterfall_chart import WaterfallData, change_waterfall
from calculon.documents.confidence import WHY_TIED, order_in_words, risk_words
from calculon.documents.plan_page import against_words
from calculon.documents.waterfall_section import (
    digits_of_differences,
    steps_with_effect,
    waterfall_notes,
    waterfall_table,
)
from calculon.documents.why_page import percent_more
from calculon.explore.answers import Answers, DisplayedPlan
from calculon.explore.labels import change_words, label, value_words
from calculon.explore.page_state import State, value_text
from calculon.explore.plan_choices import Choice, Choices, Outcome
from calculon.explore.search.searches import with_opened
from calculon.explore.view_part import ViewPart, html
from calculon.plan.columns import field_of
from calculon.plan.plan import all_fields
from calculon.plan.rules.all_rules import MEMORY_REASONS
from calculon.render.chart import Chart, linked
from calculon.render.digits import WITHOUT_INTERVAL, Digits
from calculon.render.document import Block, Line, Section, Styled, dim
from calculon.render.text_tables import Column, Table
from calculon.render.texts import counted
from calculon.search.space import Space

LEAST = 0.0005
"""Relative time difference below which two plans count as equally fast."""


def fixes(state: State, answers: Answers) -> ViewPart | None:
    """Return the smallest changes that make a plan run, as buttons; None if it runs."""
    shown = answers.plan(state)
    if shown.estimate is not None:
        return None
    if not state.plan:
        return _infeasible(state, answers)
    found = answers.why(state)
    # Fixes are shown relative to the plan as completed by its framework.
    before = all_fields(found.execution)
    rows = [_proposed(state, answers, one, before) for one in found.proposals]
    others = [
        f"{one.field}: {one.message}".removeprefix(": ") + (f" ({one.hint})" if one.hint else "")
        for one in found.failures[1:]
    ]
    said = "The fewest changes first." if rows else "No change that was tried makes it run."
    rules = "another rule" if len(others) == 1 else f"{len(others)} other rules"
    more = [Section(f"It also violates {rules}", tuple(others))] if others else []
    return ViewPart(title="What would make it run", blocks=(dim(said), *rows, *more))


def _proposed(state: State, answers: Answers, one: Fix, before: Mapping[str, Any]) -> Line:
    """Return a fix as a button, with its costs."""
    fields = all_fields(one.execution)
    asked = {
        word: value
        for word, name, value in (
            ("procs", "num_procs", one.execution.num_procs),
            ("batch", "batch_size", str(one.execution.batch_size)),
        )
        if name in one.changes
    }
    longer = one.longer or 0.0
    slower = f", {_slower(longer)} than the fastest of these" if longer >= LEAST else ""
    follows = [change_words(name, before[name], value) for name, value in one.follows.items()]
    notes = [f"with {', '.join(follows)}"] if follows else []
    reasons = {each.that.text: each.words for each in answers.question(state).preset.practice}
    notes += [f"unusual: {reasons.get(text, text)}" for text in one.unusual]
    changes = ", ".join(change_words(n, before[n], value) for n, value in one.changes.items())
    link = state.link(plan=answers.stated_fields(state, fields), **asked)
    cost = f"{memory_and_time(one.found)}{slower}"
    return _offer(changes, link, "\n".join((cost, "; ".join(notes))).strip())


def _offer(change: str, link: str, cost: str) -> Line:
    """Return a change as a button, with its costs."""
    return Styled(change, "button", link=link), " ", dim(cost)


def _infeasible(state: State, answers: Answers) -> ViewPart:
    """Return the changes that would help if no plan fits."""
    found = answers.infeasibility_report(state)
    rows = [
        _offer(
            fix_in_words(one, found.space),
            _fixed(state, answers, one, found.space),
            f"{plan_in_words(one.found.execution)} ({memory_and_time(one.found)})",
        )
        for one in found.fixes
    ]
    lines = [f"No plan fits: {found.why}.", *found.nearest_in_words]
    said = (
        "A search found the best plan after each change."
        if rows
        else "No change that was tried makes a plan fit."
    )
    return ViewPart(title="What would make a plan fit", blocks=(*lines, dim(said), *rows))


def _fixed(state: State, answers: Answers, one: SpaceFix, space: Space) -> str:
    """Return the address of the page with a fix applied."""
    change = one.change
    if one.kind in ("memory", "product"):
        sizes = {f"{name}.GiB": ceil(size / GIB * 10) / 10 for name, size in change.items()}
        return state.link(machine={**state.machine, **sizes})
    value = next(iter(change.values()))
    if one.kind == "processors":
        return state.link(procs=value)
    if one.kind == "batch":
        return state.link(batch=str(value))
    if one.kind == "sequence":
        return state.link(seq=str(value))
    fields = all_fields(one.found.execution)
    return state.with_plan(answers.stated_fields(state, fields))


def against(state: State, answers: Answers) -> ViewPart | None:
    """Return the changes from the user's plan to the best; None if the best is shown or nothing fits."""
    shown = answers.plan(state)
    if not state.plan or not shown.legal:
        return None
    best = answers.best(state)
    if best.brief is None:
        return None
    answer = answers.answer(state)
    try:
        waterfall = answer.waterfall
    except (Infeasible, SpecError):
        return None
    if waterfall is None:
        return None
    data = waterfall.to_dict()
    steps = steps_with_effect(data)
    digits = digits_of_differences(_digits(one) for one in (shown, best) if one.brief is not None)
    alone = _alone(state, answers, [step["fields"] for step in steps])
    changes = _with_buttons(waterfall_table(data, digits), alone)
    said: Line = _said_against(shown, best, answer.order_of_mine)
    listed = "; ".join(f"{row['change']} {row['seconds']}" for row in changes.rows)
    use = Styled("Use the best plan", "button", link=state.link(plan={}))
    faster = _changed_words(answer.untried)
    ahead = f"Yours is faster by {faster}, which the search for the best plan does not try"
    blocks: list[Block] = [(said, " ", use) if _worth(shown, best) else said]
    blocks += [_extended(state, answers, ahead, answer.untried)] if faster else []
    blocks += [changes] if changes.rows else []
    blocks += map(dim, waterfall_notes(data))
    blocks += [dim(f"{WHY_TIED}.")] if answer.order_of_mine else []
    return ViewPart(
        title="From your plan to the best, one change at a time",
        blocks=tuple(blocks),
        chart=_with_steps(state, change_waterfall(_drawn(data, digits, best)), alone),
        summary=f"{said} A bar for each change: {listed}." if steps else "",
    )


def _drawn(data: Mapping[str, Any], digits: Digits, best: DisplayedPlan) -> WaterfallData:
    """Return the waterfall with the texts of its chart."""
    assert best.brief is not None
    title = f"{best.brief.title}: one change at a time"
    return WaterfallData(data, ("your plan", "the best"), title, best.brief.terms, digits)


def _with_steps(
    state: State, chart: Chart | None, alone: Sequence[tuple[str, str]]
) -> Chart | None:
    """Return a waterfall whose bars link to their single change, and whose ends link to the plans."""
    if chart is None:
        return None
    steps = (link or f"{state.link()}#part-changes" for _, link in alone)
    return linked(chart, [f"{state.link()}#part-figures", *steps, state.link(plan={})])


def _with_buttons(table: Table, alone: Sequence[tuple[str, str]]) -> Table:
    """Return the changes of a waterfall; a button applies each change alone."""
    columns = {column.key: column for column in table.columns}
    columns["alone"] = Column("alone", "this change alone", right=True)
    shown = [columns[key] for key in ("change", "seconds", "bytes", "alone", "parts")]
    rows = [
        {**row, "alone": _button(row["change"], *one)}
        for row, one in zip(table.rows[1:-1], alone, strict=True)
    ]
    return Table(tuple(shown), rows)


def _button(change: str, effect: str, link: str) -> Styled:
    if not link:
        return dim(effect)
    return Styled(effect, "button", link=link, hint=f"make this change alone: {change}")


def _extended(
    state: State, answers: Answers, text: str, untried: Mapping[str, Any]
) -> tuple[str | Styled, ...]:
    """Return the values that a search does not try, with a link to a search that does, if possible."""
    link = with_opened(state, answers, untried)
    add = (": ", Styled("add it to the search", link=link)) if link else ()
    return (text, *add, ".")


def _worth(shown: DisplayedPlan, best: DisplayedPlan) -> bool:
    """Return True if the best plan improves on the user's plan: that cannot run, or is slower."""
    if shown.brief is None or best.brief is None:
        return True
    return shown.brief.value("total_time") > best.brief.value("total_time") * (1 + LEAST)


def _slower(longer: float) -> str:
    return f"{percent_more(longer).removeprefix('+')} slower"


def _changed_words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{label(name)} {value_words(name, value)}" for name, value in values.items())


def _said_against(shown: DisplayedPlan, best: DisplayedPlan, order: Any) -> str:
    """Describe how the user's plan compares with the best plan."""
    assert best.brief is not None
    least = best.brief.value("total_time")
    if shown.brief is None:
        return f"The best plan takes {best.brief.digits.duration(least)} a step; yours cannot run."
    if shown.fields == best.fields:
        return "Your plan is the best plan."
    time = shown.brief.value("total_time")
    mine, other = (one.digits.duration(t) for one, t in ((shown.brief, time), (best.brief, least)))
    sure = "" if order is None else f": {order_in_words(order.to_dict(), 'the best', 'yours')}"
    return (
        f"Your plan takes {mine} a step, the best {other}: {against_words(time / least - 1)}{sure}."
    )


def _alone(state: State, answers: Answers, steps: list[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return for each step its effect alone, and the address of a page with it."""
    found = answers.choices(state)
    if found is None:
        return [("", "")] * len(steps)
    asked = [
        {name: after for name, (_, after) in step.items() if name != "data_par"} for step in steps
    ]
    shown, usable = answers.plan(state), answers.usable(state)
    return [
        ("not possible", "")
        if one is None
        else (
            _effect(one, shown, usable),
            state.with_plan(answers.stated_fields(state, one.fields)),
        )
        for one in found.outcomes(asked)
    ]


def single_changes(state: State, answers: Answers) -> ViewPart | None:
    """Return every single change of a plan, with its effect on the time, or the missing memory."""
    shown, found = answers.plan(state), answers.choices(state)
    if found is None:
        return None
    outcomes = answers.single_changes(state)
    if not outcomes:
        return None
    usable, best = answers.usable(state), _best_of(outcomes, shown)
    untried = _untried(state, answers, best) if _gains(best, shown) else {}
    rows, notes = [], {}
    for choice in (*found.sizes, *found.switches):
        chips = {
            value_text(one.changes[choice.field]): _chip(
                state, answers, choice.field, one, shown, usable
            )
            for one in outcomes
            if choice.field in one.changes
        }
        if chips:
            notes[choice.field] = {value: chip["effect"] for value, chip in chips.items()}
            rows.append(_row(choice, chips))
    said: Line = _said_single(shown, outcomes, found)
    if untried:
        values = _changed_words(untried)
        text = f"{said} The search for the best plan does not try {values}"
        said = _extended(state, answers, text, untried)
    return ViewPart(
        title="The effect of single changes",
        blocks=(said, html("plan_single.html", rows=rows, notes=notes)),
    )


def _best_of(outcomes: Sequence[Outcome], shown: DisplayedPlan) -> Outcome | None:
    """Return the fastest feasible change with an acceptable risk, or one no higher than the current plan's."""
    now = shown.estimate.stats.get(FITS) if shown.estimate is not None else None
    least = 1 - RISK if now is None else min(1 - RISK, now)
    good = (one for one in outcomes if not one.reason and not one.fits < least)
    return min(good, key=lambda one: one.time, default=None)


def _gains(one: Outcome | None, shown: DisplayedPlan) -> bool:
    """Return True if a change makes a running plan faster."""
    longer = None if one is None else _longer(one, shown)
    return longer is not None and longer < -LEAST


def _untried(state: State, answers: Answers, one: Outcome | None) -> dict[str, Any]:
    """Return the changes of the best plan that its search did not try."""
    if one is None or state.plan:
        return {}
    tried = answers.best_plans(state).space.switches
    return {
        name: value
        for name, value in one.changes.items()
        if name in tried and value not in tried[name]
    }


def _row(choice: Choice, chips: Mapping[str, Mapping[str, str]]) -> Mapping[str, Any]:
    """Return the values of a field in order, including the current one."""
    now = {"kind": "now", "words": value_words(choice.field, choice.value), "link": ""}
    now["id"] = _id(choice.field, choice.value)
    texts = [(value_text(value), value == choice.value) for value in choice.values]
    return {
        "id": f"changes-{choice.field}",
        "label": label(choice.field),
        "help": field_of(choice.field).declaration.help,
        "chips": [
            now if is_now else chips[text] for text, is_now in texts if is_now or text in chips
        ],
    }


def _chip(
    state: State,
    answers: Answers,
    name: str,
    one: Outcome,
    shown: DisplayedPlan,
    usable: tuple[float, float],
) -> dict[str, str]:
    """Return a change as a link."""
    digits, value = _digits(shown), one.changes[name]
    needs = f"{digits.gib(one.memory[0])} needed"
    if not isnan(one.fits):
        needs += f", {risk_words(one.fits)}"
    title = needs if one.reason else f"{digits.duration(one.time)} a step, {needs}"
    follows = [change_words(field, *ends) for field, ends in one.follows.items()]
    return {
        "id": _id(name, value),
        "words": value_words(name, value),
        "effect": _effect(one, shown, usable),
        "kind": _kind(one, shown),
        "title": "; ".join((title, *(f"{words} follows" for words in follows))),
        "link": state.with_plan(answers.stated_fields(state, one.fields)),
    }


def _id(name: str, value: Any) -> str:
    """Return the page id of a value, which keeps the focus when the value becomes current."""
    return f"chip-{name}-{value_text(value)}"


def _kind(one: Outcome, shown: DisplayedPlan) -> str:
    """Return the kind of a change: better, worse, same, or over capacity."""
    if one.reason:
        return "over"
    longer = _longer(one, shown)
    if longer is None or longer < -LEAST:
        return "better"
    return "worse" if longer > LEAST else "same"


def _longer(one: Outcome, shown: DisplayedPlan) -> float | None:
    """Return the relative time increase of a changed plan; None if the current plan cannot run."""
    if shown.estimate is None:
        return None
    return one.time / (shown.estimate.stats["total_time"] or 1.0) - 1


def _effect(one: Outcome, shown: DisplayedPlan, usable: tuple[float, float]) -> str:
    """Summarize the effect of a change in a few words.

    For a running plan the relative change of its time, otherwise the time with which it would run.
    """
    digits = _digits(shown)
    if one.reason in MEMORY_REASONS:
        tier = MEMORY_REASONS.index(one.reason)
        return f"{digits.gib(one.memory[tier] - usable[tier])} too much"
    longer = _longer(one, shown)
    text = f"runs: {digits.duration(one.time)}" if longer is None else percent_more(longer)
    return f"{text}, fits with {chance(one.fits)}" if one.fits < 1 - RISK else text


def _said_single(shown: DisplayedPlan, outcomes: tuple[Outcome, ...], choices: Choices) -> str:
    """Describe the best single change."""
    running = sum(not one.reason for one in outcomes)
    best = _best_of(outcomes, shown)
    if best is None:
        return f"None of {counted(len(outcomes), 'change')} alone makes it run."
    words = ", ".join(
        change_words(name, choices.fields[name], value) for name, value in best.changes.items()
    )
    longer = _longer(best, shown)
    if longer is None:
        return f"{running} of {len(outcomes)} changes alone make it run; the fastest plan then: {words}."
    if longer >= -LEAST:
        return f"None of {counted(len(outcomes), 'change')} alone makes it faster. The change of the time with each:"
    return f"The best single change: {words} ({percent_more(longer)})."


def _digits(shown: DisplayedPlan) -> Digits:
    return Digits(WITHOUT_INTERVAL) if shown.brief is None else shown.brief.digits
