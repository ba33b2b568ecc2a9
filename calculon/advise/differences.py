"""Differences of two executions, as changes that can be made one after another.

A change is one decision. Parallel degrees whose product must stay constant change together; if the data-parallel degree
differs, it follows each other degree. Fields that a preset derives from a changed field, or that the change rules out,
change along with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Any

from calculon.advise.variations import Fields, varied
from calculon.base.frozen import dataclass
from calculon.declarations.axes import MESH_AXES
from calculon.declarations.execution import Execution
from calculon.declarations.fields import decisions
from calculon.declarations.model import Model
from calculon.plan.columns import DEFAULTS, field_of
from calculon.plan.plan import NAMES

REPLICAS = "data_par"

PROCESSORS = "num_procs"

_DEGREES = (PROCESSORS, *(axis.degree for axis in MESH_AXES))


@dataclass(frozen=True, slots=True)
class Change:
    """Fields that change together to the values of another execution.

    Attributes:
        names: The fields, in declaration order.
        moves_replicas: Whether ``data_par`` then follows from the other degrees.
    """

    names: tuple[str, ...]
    moves_replicas: bool = False


def changes_between(mine: Fields, best: Fields) -> list[Change]:
    """Return the changes that turn one execution into another, in field order; each field is in one change."""
    different = [name for name in NAMES if mine[name] != best[name]]
    found = [*_of_degrees(mine, best, [name for name in different if name in _DEGREES])]
    rest = [name for name in different if name not in _DEGREES]
    for several in decisions(Execution):
        names = tuple(name for name in several if name in rest)
        found += [Change(names)] if names else []
    return sorted(found, key=lambda one: NAMES.index(one.names[0]))


def _of_degrees(mine: Fields, best: Fields, names: Sequence[str]) -> Iterator[Change]:
    """Yield the smallest sets of degrees with constant product; with replicas, one change per other degree."""
    left = list(names)
    while left:
        sizes = range(1, len(left) + 1)
        sets = (some for size in sizes for some in combinations(left, size))
        # The complete set always qualifies, because both executions use all of their processors.
        some = next(some for some in sets if _keeps(mine, best, some))
        left = [name for name in left if name not in some]
        others = [name for name in some if name != REPLICAS]
        # For example TP and PP change and DP absorbs both: two decisions, each with its own DP.
        if REPLICAS in some and len(others) > 1:
            yield from (Change((name,), moves_replicas=True) for name in others)
        else:
            yield Change(some)


def _keeps(mine: Fields, best: Fields, names: Sequence[str]) -> bool:
    """Return True if the degrees still multiply to the processors after changing these fields."""
    after = {**mine, **{name: best[name] for name in names}}
    # Cross-multiplied to stay in integers.
    ratios = [prod(fields[name] for name in _DEGREES[1:]) for fields in (after, mine)]
    return bool(ratios[0] * mine[PROCESSORS] == ratios[1] * after[PROCESSORS])


def with_followers(
    model: Model,
    now: Mapping[str, Any],
    best: Fields,
    some: Sequence[Change],
    left: Sequence[Change],
) -> tuple[Change, ...]:
    """Return changes together with the remaining changes that follow from them.

    Args:
        model: The model.
        now, best: The execution to change, and the execution whose values it takes.
        some, left: The changes to make, and all remaining changes, which include `some`.
    """
    made = apply_changes(now, best, some)
    changed = {name: made[name] for name in NAMES if made[name] != now[name]}
    then = varied(model, Execution(**now), changed)
    others = [one for one in left if one not in some and not one.moves_replicas]
    follow = (one for one in others if all(_follows(name, now, then, best) for name in one.names))
    return (*some, *follow)


def _follows(name: str, now: Mapping[str, Any], then: Fields, best: Fields) -> bool:
    """Return True if a field takes its value in the best execution by itself, or cannot keep its present value."""
    if name in _DEGREES:
        return False
    if then[name] != now[name]:
        return bool(then[name] == best[name])
    needs: Mapping[str, Any] = field_of(name).declaration.needs
    ruled_out = any(then[other] not in values for other, values in needs.items())
    return ruled_out and best[name] == DEFAULTS.get(name, ...)


def apply_changes(now: Mapping[str, Any], best: Fields, some: Sequence[Change]) -> Fields:
    """Return an execution after some changes; rules decide later whether it can run."""
    then = {**now, **{name: best[name] for one in some for name in one.names}}
    if any(one.moves_replicas for one in some):
        others = prod(then[axis.degree] for axis in MESH_AXES if axis.degree != REPLICAS)
        replicas, rest = divmod(then[PROCESSORS], others)
        # If the split does not divide the processors, rules will refuse it; any replicas will do.
        then[REPLICAS] = best[REPLICAS] if rest else max(1, replicas)
    return then
