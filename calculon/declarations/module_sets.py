"""Sets of modules for activation recomputation: ``[mla_up_proj, moe_act]`` or ``mla_up_proj+moe_act``.

Source: Megatron-LM, ``--recompute-modules`` (``core/transformer/transformer_config.py``).
"""

from collections.abc import Collection
from functools import cache
from itertools import combinations
from typing import Any

from calculon.declarations.fields import NamedValues, nearest_choice

ALONE = {
    "none": (),
    "norm": ("norm",),
    "activation": ("activation",),
    "norm_activation": ("norm", "activation"),
    "mlp": ("mlp",),
    "ops": (),
}
"""Values that are not sets of Megatron-LM, or older than sets, with their modules."""

MODULES = (
    "norm",
    "core_attn",
    "mla_up_proj",
    "mlp",
    "moe_act",
    "shared_experts",
    "moe",
    "gdn_norm_out",
)
"""Modules of a set, in the order of its text."""

ALIASES = {"layernorm": "norm"}
"""Alternative names of modules."""

INSIDE = {"moe": ("moe_act", "shared_experts")}
"""Modules that are part of another module, and so cannot be listed together with it."""

_SETS = {
    # All sets are enumerated once (fewer than 2**8), so that a column of a table can hold the number of a set.
    "+".join(members): members
    for count in range(1, len(MODULES) + 1)
    for members in combinations(MODULES, count)
    if not any(part in members for whole in INSIDE if whole in members for part in INSIDE[whole])
}
_MEMBERS: dict[str, tuple[str, ...]] = ALONE | _SETS


@cache
def modules_of(value: str) -> frozenset[str]:
    """Return the modules of a value of ``recompute_modules``; none for ``ops``, which names no modules.

    >>> sorted(modules_of("norm_activation"))
    ['activation', 'norm']
    """
    return frozenset(_MEMBERS[value])


def written(modules: Collection[str]) -> str:
    """Return the value of ``recompute_modules`` for a set of :data:`MODULES`.

    >>> written({"moe_act", "norm"})
    'norm+moe_act'
    """
    return "+".join(name for name in MODULES if name in modules)


class ModuleSets(NamedValues):
    """Values of ``recompute_modules``: the older names, and every set, with its modules in a fixed order."""

    __slots__ = ()

    def __new__(cls) -> "ModuleSets":
        """Create the list of all values."""
        return super().__new__(cls, _MEMBERS)

    @property
    def wanted(self) -> str:
        """The allowed values, for a message."""
        return f"one of {', '.join(ALONE)}, or a set of {', '.join(MODULES)}"

    @property
    def usual(self) -> tuple[str, ...]:
        """The older names, each module alone, and some sets."""
        sets = ("norm+core_attn", "norm+mla_up_proj+moe_act", "moe_act+shared_experts", "norm+moe")
        return tuple(dict.fromkeys((*ALONE, *MODULES, *sets)))

    def plain(self, value: Any) -> Any:
        """Return a set in stored form, for any order and notation of its modules.

        >>> ModuleSets().plain(["moe_act", "layernorm"])
        'norm+moe_act'
        """
        if isinstance(value, str):
            return value if value in _MEMBERS else _ordered(value.split("+"), value)
        if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value):
            return _ordered(value, "+".join(value))
        return value

    def code(self, value: object) -> int:
        """Return the number of a value in stored form; -1 for anything else."""
        return _CODES.get(value, -1) if isinstance(value, str) else -1

    def hint(self, value: object) -> str | None:
        """Return None for an allowed value, else a hint (which may be empty)."""
        if value in self:
            return None
        names = value.split("+") if isinstance(value, str) else value
        if not isinstance(names, (list, tuple)):
            return ""
        found = {ALIASES.get(str(name).strip(), str(name).strip()) for name in names}
        for whole, parts in INSIDE.items():
            if whole in found and (nested := [part for part in parts if part in found]):
                return f"leave out {' and '.join(nested)}: part of {whole}"
        if exclusive := sorted(found & {*ALONE} - {*MODULES}):
            return f"{exclusive[0]} cannot be combined with others"
        known = (*MODULES, *ALIASES)
        return next((nearest_choice(one, known) for one in sorted(found) if one not in known), "")

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a value."""
        names = [*MODULES, *ALIASES]
        one = f"({'|'.join(names)})"
        items = {"type": "array", "items": {"enum": names}, "uniqueItems": True}
        text = {"type": "string", "pattern": rf"^{one}(\+{one})*$"}
        return {"anyOf": [{"enum": [*ALONE]}, text, items]}


def _ordered(names: Any, given: Any) -> Any:
    """Return the text of a set of modules; return `given` if the names are not a valid set."""
    stripped = [one.strip() for one in names]
    members = [ALIASES.get(one, one) for one in stripped]
    if not members:
        return "none"
    if len(members) == 1 and members[0] in ALONE:
        return members[0]
    text = "+".join(sorted(members, key=lambda one: (one not in MODULES, _PLACE.get(one, 0))))
    return text if len(set(members)) == len(members) and text in _SETS else given


_CODES = {name: code for code, name in enumerate(_MEMBERS)}
_PLACE = {name: place for place, name in enumerate(MODULES)}
