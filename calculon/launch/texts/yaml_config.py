"""The settings of a configuration in YAML, with the lines that they stand in, and references to others resolved.

References are those of OmegaConf: ``${model.hidden_size}``, ``${.hidden_size}`` beside the setting, and the resolver
``${multiply:4, ${.hidden_size}}`` of NeMo.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from calculon.errors import Problem, SpecError
from calculon.launch.dialect import Unresolved
from calculon.launch.texts.tree import TARGET, Leaf, Tree
from calculon.spec.parse import MOST_NODES, MOST_YAML

_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
_TORCH_TYPE = re.compile(r"torch\.(\w+)")
_DEEPEST = 20
"""References to references."""

_AROUND = ("ConfigContainer", "training")
"""Names that some files have around all others."""


def settings_in(text: str, file: str, variables: Mapping[str, str]) -> Tree:
    """Return the settings of a YAML file.

    Parameters
    ----------
    text, file : str
        What it contains, and its name.
    variables : mapping of str to str
        Values of what it refers to beside itself: ``${TP}``.

    Raises
    ------
    SpecError
        For what is no YAML, no mapping, or too large.
    """
    import yaml  # only when there is some

    if len(text) > MOST_YAML:
        raise SpecError(file, Problem("", f"YAML of at most {MOST_YAML:,} bytes", f"{len(text):,}"))
    wanted = "a configuration in YAML"
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        tree = _Nodes(file).tree(node) if isinstance(node, yaml.MappingNode) else Tree()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        found = f"an error in line {mark.line + 1}" if mark else str(error).partition("\n")[0]
        raise SpecError(file, Problem("", wanted, found)) from None
    except RecursionError:
        raise SpecError(file, Problem("", wanted, "too deep a nesting")) from None
    if not tree:
        raise SpecError(file, Problem("", f"{wanted}, with named settings", "none"))
    for name in _AROUND:
        if isinstance(inside := tree.get(name), Tree):
            tree = Tree({**inside, **{other: v for other, v in tree.items() if other != name}})
    references = _References(tree, variables)
    for path, leaf in list(tree.leaves()):
        if "${" in str(leaf.value):
            names = tuple(path.split("."))
            tree.put(names, Leaf(references.resolved(leaf.value, names), leaf.line))
    return tree


class _Nodes:
    """Makes trees of the nodes of a document."""

    def __init__(self, file: str) -> None:
        self.file, self.count = file, 0

    def tree(self, node: Any) -> Tree:
        """Return the settings of a mapping."""
        made = Tree()
        for key, below in node.value:
            made[str(key.value)] = self.held(below)
        return made

    def held(self, node: Any) -> Leaf | Tree:
        """Return what stands under a name."""
        line = node.start_mark.line + 1
        if node.id == "mapping":
            made = self.tree(node)
            target = made.get(TARGET)
            if isinstance(target, Leaf) and (found := _TORCH_TYPE.fullmatch(str(target.value))):
                return Leaf(found[1], line)
            return made
        return Leaf(self.value(node), line)

    def value(self, node: Any) -> Any:
        """Return a value."""
        self.count += 1
        if self.count > MOST_NODES:  # an alias counts at each of its places
            raise SpecError(self.file, Problem("", f"at most {MOST_NODES:,} values", "more"))
        if node.id == "sequence":
            return [self.value(one) for one in node.value]
        if node.id == "mapping":
            return {str(key.value): self.value(one) for key, one in node.value}
        return _scalar(node)


def _scalar(node: Any) -> Any:
    """Return a value without quotes as YAML 1.1 reads it, as these launchers do; numbers also without a sign (1e-5)."""
    text: str = node.value
    return text if node.style in ("'", '"', "|", ">") else plain(text)


def plain(text: str) -> Any:
    """Return the value of a text without quotes."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind, form in _NUMBERS.items():
        if form.fullmatch(text):
            return kind(text.replace("_", ""))
    return text


_NUMBERS = {
    int: re.compile(r"[-+]?[0-9][0-9_]{0,30}"),
    float: re.compile(r"[-+]?([0-9][0-9_]*\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"),
}
_WORDS = {"": None, "~": None, "null": None, "none": None, "???": None} | {
    word: switch
    for switch, words in {True: ("true", "yes", "on"), False: ("false", "no", "off")}.items()
    for word in words
}


class _References:
    """Resolves references between the settings of a tree, and to variables."""

    def __init__(self, tree: Tree, variables: Mapping[str, str]) -> None:
        self.tree, self.variables = tree, variables

    def resolved(self, value: Any, path: tuple[str, ...], depth: int = 0) -> Any:
        """Return a value with what its references stand for; those that lead nowhere leave it open."""
        if isinstance(value, list):
            found = [self.resolved(one, path, depth) for one in value]
            unknown = any(isinstance(one, Unresolved) for one in found)
            return Unresolved(str(value)) if unknown else found
        if not isinstance(value, str):
            return value
        text = value
        while reference := _REFERENCE.search(text):
            stands = self.referred(reference[1], path, depth)
            if isinstance(stands, Unresolved):
                return Unresolved(value, stands.needs)
            if reference.span() == (0, len(text)):
                return stands
            text = f"{text[: reference.start()]}{stands}{text[reference.end() :]}"
        return text

    def referred(self, inside: str, path: tuple[str, ...], depth: int) -> Any:
        """Return what a reference stands for."""
        resolver, colon, rest = inside.partition(":")
        if colon:
            factors = rest.split(",")
            numbers = all(one.strip().isdecimal() for one in factors)
            if resolver != "multiply" or not numbers:
                return Unresolved(inside)
            return math.prod(map(int, factors))
        if inside in self.variables:
            return plain(self.variables[inside])
        names = inside.lstrip(".").split(".")
        if up := len(inside) - len(inside.lstrip(".")):
            places = [(*path[: len(path) - up], *names)]
        else:
            places = [tuple(names), tuple(names[1:])]  # the first may be around all others
        for place in places:
            found = self.tree.at(place) if place else None
            if isinstance(found, Leaf) and depth < _DEEPEST:
                return self.resolved(found.value, place, depth + 1)
        return Unresolved(inside, "" if "." in inside else inside)
