"""Settings of a YAML configuration with their lines, and with references to other settings resolved.

References follow OmegaConf: ``${model.hidden_size}``, ``${.hidden_size}`` for a sibling, and NeMo's resolver
``${multiply:4, ${.hidden_size}}``.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.launch.dialect import Unresolved
from calculon.launch.texts.reading_budget import LARGEST_NUMBER, Budget, reading, too_large
from calculon.launch.texts.tree import TARGET, Leaf, Tree

_TORCH_TYPE = re.compile(r"torch\.(\w+)")

AROUND = ("ConfigContainer", "training")
"""Top-level names that wrap all settings in some files."""


def settings_in(text: str, file: str, variables: Mapping[str, str]) -> Tree:
    """Return the settings of a YAML file.

    Args:
        text, file: Contents and name of the file.
        variables: Values of external references, such as ``${TP}``.

    Raises:
        SpecError: For text that is not YAML, not a mapping, or exceeds the budget.
    """
    with reading(file) as budget:
        tree = _composed(text, file, budget)
        if not tree:
            wanted = "a configuration in YAML, with named settings"
            raise SpecError(file, Problem("", wanted, "none"))
        for name in AROUND:
            if isinstance(inside := tree.get(name), Tree):
                others = {other: v for other, v in tree.items() if other != name}
                tree = Tree({**inside, **others})
        references = _References(tree, variables, file, budget)
        for path, leaf in list(tree.leaves()):
            names = tuple(path.split("."))
            if "${" in str(leaf.value):
                tree.put(names, Leaf(references.setting(names, leaf), leaf.line))
    return tree


def _composed(text: str, file: str, budget: Budget) -> Tree:
    """Return the unresolved settings of a YAML file; an empty tree for text that is not a mapping."""
    import yaml  # imported late: it costs start-up time

    # Sizes of composed nodes by identity: aliases return the same node object.
    sizes: dict[int, int] = {}

    class Loader(yaml.SafeLoader):
        count = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            """Compose a node; an alias spends as many values as its target, so that nested aliases cannot explode."""
            alias, before = self.check_event(yaml.AliasEvent), self.count
            node: Any = super().compose_node(parent, index)
            if alias and id(node) not in sizes:
                place = f"{file}:{node.start_mark.line + 1}"
                raise SpecError(place, Problem("", "values", "a value inside itself"))
            size = sizes[id(node)] if alias else 1
            budget.spend_values(size)
            self.count += size
            sizes[id(node)] = self.count - before
            return node

    try:
        node = yaml.compose(text, Loader=Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        found = f"an error in line {mark.line + 1}" if mark else str(error).partition("\n")[0]
        raise SpecError(file, Problem("", "a configuration in YAML", found)) from None
    return _tree(node) if isinstance(node, yaml.MappingNode) else Tree()


def _tree(node: Any) -> Tree:
    """Return the settings of a mapping."""
    made = Tree()
    for key, below in node.value:
        made[str(key.value)] = _held(below)
    return made


def _held(node: Any) -> Leaf | Tree:
    """Return the setting or subtree of a node."""
    line = node.start_mark.line + 1
    if node.id == "mapping":
        made = _tree(node)
        target = made.get(TARGET)
        if isinstance(target, Leaf) and (found := _TORCH_TYPE.fullmatch(str(target.value))):
            return Leaf(found[1], line)
        return made
    return Leaf(_value(node), line)


def _value(node: Any) -> Any:
    """Return the value of a node."""
    if node.id == "sequence":
        return [_value(one) for one in node.value]
    if node.id == "mapping":
        return {str(key.value): _value(one) for key, one in node.value}
    return _scalar(node)


def _scalar(node: Any) -> Any:
    """Return a scalar as YAML 1.1 reads it if unquoted, like these launchers; exponents need no sign (1e-5)."""
    text: str = node.value
    return text if node.style in ("'", '"', "|", ">") else plain(text)


def plain(text: str) -> Any:
    """Return the value of an unquoted text."""
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


_OPENING, _CLOSING = "${", "}"
_PARTS = re.compile(r"\$\{|\}|[^${}]+|.", re.DOTALL)
_NO_REFERENCE = re.compile(r"[${]")
_MAX_DIGITS = len(str(LARGEST_NUMBER))


class _References:
    """Resolver of references between the settings of a tree, and to variables.

    Each referenced setting is resolved once, however many references lead to it.
    """

    def __init__(self, tree: Tree, variables: Mapping[str, str], file: str, budget: Budget) -> None:
        self.tree, self.variables, self.file, self.budget = tree, variables, file, budget
        self.resolved: dict[tuple[str, ...], Any] = {}

    def setting(self, path: tuple[str, ...], leaf: Leaf) -> Any:
        """Return the resolved value of a setting; a setting that refers to itself is unresolved."""
        if path not in self.resolved:
            self.resolved[path] = Unresolved(str(leaf.value))
            self.resolved[path] = self.value(leaf.value, path, leaf.line)
        return self.resolved[path]

    def value(self, value: Any, path: tuple[str, ...], line: int) -> Any:
        """Return the resolved value of a setting; it is unresolved if any reference is."""
        if isinstance(value, list):
            found = [self.value(one, path, line) for one in value]
            unknown = any(isinstance(one, Unresolved) for one in found)
            return Unresolved(str(value)) if unknown else found
        if not isinstance(value, str) or _OPENING not in value:
            return value
        texts: list[list[str]] = [[]]  # texts of the value, and of each open reference
        for part in _PARTS.finditer(value):
            if part[0] == _OPENING:
                texts.append([])
            elif part[0] != _CLOSING or len(texts) == 1:
                texts[-1].append(part[0])
            elif _NO_REFERENCE.search(inside := "".join(texts.pop())):
                texts[-1].append(f"{_OPENING}{inside}{_CLOSING}")
            else:
                stands = self.referred(inside, path, line)
                if isinstance(stands, Unresolved):
                    return Unresolved(value, stands.needs)
                if texts == [[]] and part.end() == len(value):
                    return stands
                texts[-1].append(str(stands))
                self.budget.spend_characters(len(texts[-1][-1]))
        return _OPENING.join(map("".join, texts))

    def referred(self, inside: str, path: tuple[str, ...], line: int) -> Any:
        """Return the value that a reference stands for."""
        resolver, colon, rest = inside.partition(":")
        if colon:
            factors = [one.strip() for one in rest.split(",")]
            if resolver != "multiply" or not all(map(str.isdecimal, factors)):
                return Unresolved(inside)
            product = 1
            for one in factors:
                product *= int(one) if len(one) < _MAX_DIGITS else LARGEST_NUMBER
                if product >= LARGEST_NUMBER:
                    raise too_large(f"{self.file}:{line}", ".".join(path))
            return product
        if inside in self.variables:
            return plain(self.variables[inside])
        names = inside.lstrip(".").split(".")
        if up := len(inside) - len(inside.lstrip(".")):
            places = [(*path[: len(path) - up], *names)]
        else:
            places = [tuple(names), tuple(names[1:])]  # the first name may wrap all settings
        for place in places:
            found = self.tree.at(place) if place else None
            if isinstance(found, Leaf):
                return self.setting(place, found)
        return Unresolved(inside, "" if "." in inside else inside)


def yaml_lines(
    values: Mapping[str, Any], write: Callable[[object], str], indent: str = ""
) -> Iterator[str]:
    """Yield the lines of a configuration; `write` formats a value."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from yaml_lines(value, write, f"{indent}  ")
        else:
            yield f"{indent}{name}: {write(value)}"
