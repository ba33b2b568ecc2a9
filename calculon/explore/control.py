"""The controls of a page: what their templates take."""

from calculon.base.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A control with listed values.

    Attributes:
        name, label, help: The word of the address, its name in words, and what it is.
        values: The values as addresses have them and in words, and whether it is the value of now.
        follows: Nobody stated the value of now: the control is sent when it is the one that is changed.
        usual: What the framework has, in words; empty of sizes, which plans of one's own always state.
        less, more: Address and words of the values next to the value of now; empty at the ends.
    """

    name: str
    label: str
    help: str
    values: tuple[tuple[str, str, bool], ...]
    follows: bool
    usual: str = ""
    less: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextControl:
    """A control into which people write.

    Attributes:
        name, label, help: As of :class:`Control`.
        value: What is stated; empty if nothing is.
        usual: What counts then.
        wrong: Whether it cannot be understood.
    """

    name: str
    label: str
    help: str
    value: str
    usual: str
    wrong: bool = False
