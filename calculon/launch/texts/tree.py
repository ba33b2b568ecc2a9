"""Trees of named settings, as in YAML and Python configurations: ``model.tensor_model_parallel_size``."""

from collections.abc import Iterator, Mapping
from typing import Any

from calculon.base.frozen import dataclass
from calculon.launch.texts.reading_budget import Budget

TARGET = "_target_"
"""Name of the class or function that creates an object, next to its settings, as in Hydra."""

CALLS = "calls"
"""Name, next to the settings of a Python file, of external functions that may change settings."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value, and its line."""

    value: Any
    line: int = 0


def spend_list(value: Any, budget: Budget) -> None:
    """Spend the elements of a list and its nested lists, each as often as it occurs."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, list):
            budget.spend_values(len(one))
            left += one


def flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested objects by path; an empty object counts as a value."""
    for key, value in settings.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{name}.")
        else:
            yield name, value


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by path as nested objects."""
    result: dict[str, Any] = {}
    for name, value in settings.items():
        *above, last = name.split(".")
        place = result
        for key in above:
            place = place.setdefault(key, {})
        place[last] = value
    return result


class Tree(dict[str, Any]):
    """Settings and subtrees by name; the name ``""`` holds the tree's own value, if any."""

    def put(self, path: tuple[str, ...], leaf: "Leaf | Tree") -> None:
        """Set the value of a path; existing settings of its leading names are kept."""
        first, *rest = path
        if not rest:
            self[first] = leaf
            return
        below = self.get(first)
        if not isinstance(below, Tree):
            below = Tree() if below is None or below.value is None else Tree({"": below})
            self[first] = below
        below.put(tuple(rest), leaf)

    def at(self, path: tuple[str, ...]) -> "Leaf | Tree | None":
        """Return the setting or subtree of a path; None if there is none."""
        result: Leaf | Tree | None = self
        for name in path:
            result = result.get(name) if isinstance(result, Tree) else None
        return result

    def copied(self, budget: Budget) -> "Tree":
        """Return an independent copy of the tree."""
        budget.spend_values(1 + len(self))
        items = self.items()
        return Tree((n, v.copied(budget) if isinstance(v, Tree) else v) for n, v in items)

    def spend(self, budget: Budget, around: tuple["Tree", ...] = ()) -> int:
        """Spend the values of all settings at every path; return the number of settings."""
        budget.spend_values(1 + len(self))
        around = (*around, self)
        count = 0
        for one in self.values():
            if not isinstance(one, Tree):
                count += 1
                spend_list(one.value, budget)
            elif not any(one is each for each in around):
                count += one.spend(budget, around)
        return count

    def leaves(
        self, above: str = "", around: tuple["Tree", ...] = ()
    ) -> Iterator[tuple[str, Leaf]]:
        """Yield every setting with its path, joined by dots; a tree inside itself is skipped."""
        around = (*around, self)
        for name, one in self.items():
            path = ".".join(filter(None, (above, name)))
            if not isinstance(one, Tree):
                yield path, one
            elif not any(one is each for each in around):
                yield from one.leaves(path, around)

    def trees(self) -> "Iterator[Tree]":
        """Yield the tree and all subtrees, each once."""
        found: dict[int, Tree] = {}
        left = [self]
        while left:
            one = left.pop()
            if id(one) not in found:
                found[id(one)] = one
                left += (below for below in one.values() if isinstance(below, Tree))
        yield from found.values()
