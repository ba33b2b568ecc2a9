"""The differences of two executions as changes that can be made one after the other.

A change is what somebody decides. Degrees whose product has to stay are changed together; where the replicas differ,
they follow each other degree. What a preset derives from a changed field, and what that rules out, goes along with it.
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
    """Fields that get the values of another execution at once.

    Attributes:
        names: The fields, in their order.
        moves_replicas: Whether ``data_par`` follows from the other degrees then.
    """

    names: tuple[str, ...]
    moves_replicas: bool = False


def changes_between(mine: Fields, best: Fields) -> list[Change]:
    """Return the changes that make one execution another, in the order of their fields; each field is in one."""
    different = [name for name in NAMES if mine[name] != best[name]]
    found = [*_of_degrees(mine, best, [name for name in different if name in _DEGREES])]
    rest = [name for name in different if name not in _DEGREES]
    for several in decisions(Execution):
        names = tuple(name for name in several if name in rest)
        found += [Change(names)] if names else []
    return sorted(found, key=lambda one: NAMES.index(one.names[0]))


def _of_degrees(mine: Fields, best: Fields, names: Sequence[str]) -> Iterator[Change]:
    """Yield the smallest sets of degrees with an unchanged product; of that with the replicas, each of the others."""
    left = list(names)
    while left:
        sizes = range(1, len(left) + 1)
        sets = (some for size in sizes for some in combinations(left, size))
        some = next(some for some in sets if _keeps(mine, best, some))
        left = [name for name in left if name not in some]
        others = [name for name in some if name != REPLICAS]
        if REPLICAS in some and len(others) > 1:
            yield from (Change((name,), moves_replicas=True) for name in others)
        else:
            yield Change(some)


def _keeps(mine: Fields, best: Fields, names: Sequence[str]) -> bool:
    """Whether the processors are still the product of the degrees after changes of these."""
    after = {**mine, **{name: best[name] for name in names}}
    ratios = [prod(fields[name] for name in _DEGREES[1:]) for fields in (after, mine)]
    return bool(ratios[0] * mine[PROCESSORS] == ratios[1] * after[PROCESSORS])


def with_followers(
    model: Model,
    now: Mapping[str, Any],
    best: Fields,
    some: Sequence[Change],
    left: Sequence[Change],
) -> tuple[Change, ...]:
    """Return changes, with those of the rest that follow from them.

    Args:
        model: The model.
        now, best: The execution that is changed, and the one whose values it gets.
        some, left: The changes, and those that are still to be made: all of `some` are among them.
    """
    made = after(now, best, some)
    changed = {name: made[name] for name in NAMES if made[name] != now[name]}
    then = varied(model, Execution(**now), changed)
    others = [one for one in left if one not in some and not one.moves_replicas]
    follow = (one for one in others if all(_follows(name, now, then, best) for name in one.names))
    return (*some, *follow)


def _follows(name: str, now: Mapping[str, Any], then: Fields, best: Fields) -> bool:
    """Whether a field gets the value that it has in the best execution by itself, or cannot stay as it is."""
    if name in _DEGREES:
        return False
    if then[name] != now[name]:
        return bool(then[name] == best[name])
    needs: Mapping[str, Any] = field_of(name).declaration.needs
    ruled_out = any(then[other] not in values for other, values in needs.items())
    return ruled_out and best[name] == DEFAULTS.get(name, ...)


def after(now: Mapping[str, Any], best: Fields, some: Sequence[Change]) -> Fields:
    """Return an execution after some changes; whether it can run is for rules to say."""
    then = {**now, **{name: best[name] for one in some for name in one.names}}
    if any(one.moves_replicas for one in some):
        others = prod(then[axis.degree] for axis in MESH_AXES if axis.degree != REPLICAS)
        replicas, rest = divmod(then[PROCESSORS], others)
        then[REPLICAS] = best[REPLICAS] if rest else max(1, replicas)
    return then
