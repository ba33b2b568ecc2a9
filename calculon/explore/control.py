"""Controls of a page, as their templates expect them."""

from calculon.base.frozen import dataclass

_ALONE, _BETWEEN_STEPS = 14, 5
"""Characters that fit in a list next to its label, without and with buttons for the adjacent values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Control with a list of values.

    Attributes:
        name, label, help: Name in the address, label, and description.
        values: Values as in addresses, their labels, and True for the current value.
        follows: True if the current value is not stated: the control is sent only when it changes.
        usual: Label of the framework's default; empty for sizes, which the user's plan always states.
        best: True if the first value leaves the choice to a search.
        less, more: Address and label of the values next to the current one; empty at the ends.
    """

    name: str
    label: str
    help: str
    values: tuple[tuple[str, str, bool], ...]
    follows: bool
    usual: str = ""
    best: bool = False
    less: tuple[str, ...] = ()
    more: tuple[str, ...] = ()

    @property
    def long(self) -> bool:
        """True if the current value needs the whole width of the form."""
        most = _BETWEEN_STEPS if self.less or self.more else _ALONE
        return any(now and len(words) > most for _, words, now in self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextControl:
    """Control for free text.

    Attributes:
        name, label, help: As in :class:`Control`.
        value: The stated value; empty if there is none.
        usual: The default that applies without a stated value.
        wrong: True if the value cannot be understood.
    """

    name: str
    label: str
    help: str
    value: str
    usual: str
    wrong: bool = False
