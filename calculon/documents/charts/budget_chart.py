"""Chart of days and cost of whole runs by machine and processor count, with the Pareto front and the limits."""

from collections.abc import Iterator, Sequence
from typing import Any

from calculon.base.errors import Infeasible
from calculon.base.records import Plain
from calculon.declarations.origin import stated_name
from calculon.render.canvas import wrapped
from calculon.render.chart import Axis, Chart, Line, Mark, Notes, Panel, Rule, dots, line_look
from calculon.render.chart_axes import value_axis
from calculon.render.label_places import place_labels
from calculon.render.texts import token_count

_WIDTH, _HEIGHT = 6.4, 4.2  # inches
_FACTOR = 4.0  # ratio of longest to shortest run from which on days are logarithmic
_NEAR = (0.5, 1.3)  # a limit is drawn between these multiples of the smallest and the largest value
_MONEY = {"usd": ("Cost", "USD"), "processor_hours": ("Processor-hours", "")}


def budget(document: Plain) -> Chart:
    """Return a point for each machine and processor count, and a line through the Pareto-optimal points.

    Points that miss a limit are hollow. The cheapest point that meets all limits is ringed, with its interval of days.

    Args:
        document: :meth:`calculon.advise.runs.fleet.FleetAnswer.to_dict`.

    Raises:
        Infeasible: If no plan fits, and if several machines have no known price.
    """
    money, asked = document["money"], document["question"]
    points = [one for one in document["points"] if one.get(money) is not None]
    if not points:
        reason = (
            "no plan fits on any of these processor counts"
            if money
            else "no price is known for these machines; set one with --price"
        )
        raise Infeasible("nothing", reason)
    prefix, factor = _prefix(max(one[money] for one in points))
    words, unit = _MONEY[money]
    days, costs = [one["days"] for one in points], [one[money] * factor for one in points]
    if (best := _ringed(document)) is not None and best["days_low"] is not None:
        days += best["days_low"], best["days_high"]
    limits = [_limit(rule, costs if rule.level else days) for rule in _limits(document, factor)]
    rules = [one for one in limits if isinstance(one, Rule)]
    # Drawn limits must lie within the axes.
    days += [one.at for one in rules if not one.level]
    costs += [one.at for one in rules if one.level]
    x = value_axis("Days of the whole run, with failures", "", days, ratio=_FACTOR)
    y = value_axis(words, f"{prefix} {unit}".strip(), costs)
    systems = list(dict.fromkeys(one["system"] for one in document["points"]))
    marks: list[Mark] = [*_best(document, factor), *_front(document, factor), *limits]
    for number, system in enumerate(systems):
        marks += _series(document, points, number, system, factor)
    marks.append(_names(document, points, factor, x, y, marks))
    machines = ", ".join(systems) if len(systems) <= 2 else f"{len(systems)} machines"
    model = f"{token_count(document['tokens'])} tokens of {stated_name(asked['model'])}"
    return Chart(
        title=f"{model} on {machines}",
        subtitle="best plan for each processor count",
        terms=[asked["edition"]],
        rows=((Panel(x=x, y=y, marks=marks, height=_HEIGHT),),),
        width=_WIDTH,
    )


def _prefix(largest: float) -> tuple[str, float]:
    """Return the unit prefix for the largest amount, and its factor."""
    steps = ((1e6, "million", 1e-6), (1e4, "thousand", 1e-3), (0.0, "", 1.0))
    return next((word, factor) for least, word, factor in steps if largest >= least)


def _ringed(document: Plain) -> Plain | None:
    """Return the best point that meets the limits, or else the closest one, if its cost is known."""
    place = document["nearest"]
    one: Plain | None = None if place is None else document["points"][place]
    return None if one is None or one[document["money"]] is None else one


def _line(points: Sequence[Plain], money: str, factor: float, **look: Any) -> Line:
    x, y = [one["days"] for one in points], [one[money] * factor for one in points]
    return Line(x=x, y=y, **look)


def _series(
    document: Plain, points: Sequence[Plain], number: int, system: str, factor: float
) -> Iterator[Line]:
    """Yield the points of a machine: filled, or hollow if they miss a limit."""
    money, prices = document["money"], {one["system"]: one for one in document["prices"]}
    name = f"{system}: {_price(prices.get(system))}" if money == "usd" else system
    mine = [one for one in points if one["system"] == system]
    if not mine:
        name += ", not drawn"
    color, marker, _ = line_look(number)
    look: dict[str, Any] = {"color": color, "marker": marker, "dash": "none", "sizes": (5.5,)}
    met = [one for one in mine if one["meets"]]
    yield _line(met, money, factor, name=wrapped(name, 80), **look)
    if len(met) < len(mine):
        missed = [one for one in mine if not one["meets"]]
        yield _line(missed, money, factor, **look, hollow=True)
        look |= {"color": "gray", "marker": "circle"}
        # A line without points only adds a legend entry.
        yield _line([], money, factor, name="misses a limit", **look, hollow=True)


def _price(price: Plain | None) -> str:
    """Return the price of a machine in words."""
    if price is None or price["usd"] is None:
        return "no price"
    words = [f"{price['usd']:,.2f} USD/h", price["kind"].replace("_", " "), price["date"]]
    return ", ".join(filter(None, words))


def _front(document: Plain, factor: float) -> Iterator[Line]:
    """Yield the line through the Pareto-optimal points in days and money."""
    front = [document["points"][place] for place in document["frontier"]]
    if len(front) > 1:
        look = {"name": "frontier", "color": "gray", "steps": "after"}
        yield _line(front, document["money"], factor, **look)


def _limits(document: Plain, factor: float) -> Iterator[Rule]:
    """Yield the deadline and the budget."""
    limits = {one["field"]: one["limit"] for point in document["points"] for one in point["limits"]}
    if (days := limits.get("deadline")) is not None:
        yield Rule(name=f"deadline {float(f'{days:.3g}'):,g} d", at=days, width=1.2)
    if (usd := limits.get("budget_usd")) is not None:
        name = f"budget {token_count(usd)} USD"
        yield Rule(name=name, at=usd * factor, level=True, dash="dash", width=1.2)


def _limit(rule: Rule, values: Sequence[float]) -> Mark:
    """Return a limit, or only its legend entry if it is far from all values."""
    # A distant limit would compress all points into a corner of the chart.
    if _NEAR[0] * min(values) <= rule.at <= _NEAR[1] * max(values):
        return rule
    name = f"{rule.name} (off the chart)"
    return Line(name=name, x=(), y=(), color="black", dash=rule.dash, width=rule.width)


def _best(document: Plain, factor: float) -> Iterator[Line]:
    """Yield a ring around the best point, and the interval of its days."""
    one = _ringed(document)
    if one is None:
        return
    y = one[document["money"]] * factor
    if one["days_low"] is not None:
        ends = [one["days_low"], one["days_high"]]
        name = "interval of its days"
        yield Line(name=name, x=ends, y=[y, y], color="gray+40", width=3.0)
    words = "best" if document["best"] is not None else "closest to the limits"
    look = {"color": "black", "sizes": (13.0,), "hollow": True}
    name = f"{words}: {one['num_procs']:,} x {one['system']}"
    yield dots([(one["days"], y)], name=name, **look)


def _names(
    document: Plain,
    points: Sequence[Plain],
    factor: float,
    x: Axis,
    y: Axis,
    marks: Sequence[Mark],
) -> Notes:
    """Return the processor counts of the best point, of the front, and of other points if there is space."""
    money, rows = document["money"], document["points"]
    first = dict.fromkeys((document["nearest"], *document["frontier"]))
    named = [rows[place] for place in first if place is not None]
    order = [one for one in named if one.get(money) is not None]
    order += [one for one in points if one not in order]
    notes = Notes(
        x=[one["days"] for one in order],
        y=[one[money] * factor for one in order],
        texts=[f"{one['num_procs']:,}" for one in order],
        size=7.0,
    )
    return place_labels(notes, x, y, (_WIDTH, _HEIGHT), marks)
