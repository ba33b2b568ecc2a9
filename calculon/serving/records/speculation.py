r"""Speculative decoding: a fast draft proposes tokens, and the served model verifies several of them in one pass.

A verification processes the last token of a sequence and `γ` drafted ones in one pass. It accepts drafted tokens up to
the first that the model would not have generated, and generates one more itself. If each is accepted with probability
`α` given that the previous ones are, it yields on average

.. math:: \tau = \sum_{j=0}^{\gamma} \alpha^j = \frac{1 - \alpha^{\gamma + 1}}{1 - \alpha}

tokens. Source: Leviathan et al., *Fast Inference from Transformers via Speculative Decoding*, arXiv 2211.17192,
equation 1.
"""

from typing import Any, ClassVar

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.fields import NamedValues, declare

NO_DRAFT, MTP, NGRAM = "none", "mtp", "ngram"
"""Kinds of draft that are not separate models."""

OF_MODEL = "model:"
"""Prefix of the name of a draft model."""

MTP_ACCEPTANCE = 0.85
"""Default acceptance if a multi-token prediction module drafts one token.

The lower end of 85 to 90 % for second tokens on several topics: DeepSeek-V3, arXiv 2412.19437, section 5.4.3.
"""

HALVINGS = 60
"""Bisection steps on [0, 1] after which a 64-bit number no longer changes."""


class Drafts(NamedValues):
    """Kinds of draft, and draft models by name."""

    __slots__ = ()
    pattern: ClassVar[str] = f"^{OF_MODEL}.+"

    @property
    def wanted(self) -> str:
        """Allowed values, for a message."""
        return f"{super().wanted}, {OF_MODEL}NAME"

    def __contains__(self, value: object) -> bool:
        """Return True for one of the names, and for a draft model."""
        return super().__contains__(value) or draft_name(value) != ""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a value."""
        return {"anyOf": [{"enum": [*self]}, {"type": "string", "pattern": self.pattern}]}


DRAFTS = Drafts((NO_DRAFT, MTP, NGRAM))
"""Values of the field ``draft`` of a deployment."""


def draft_name(draft: object) -> str:
    """Return the name of a draft model; empty for other drafts.

    >>> draft_name("model:llama3.2-1B"), draft_name("ngram")
    ('llama3.2-1B', '')
    """
    named = isinstance(draft, str) and draft.startswith(OF_MODEL)
    return str(draft).removeprefix(OF_MODEL) if named else ""


def tokens_per_pass(acceptance: float, drafted: int) -> float:
    """Return the mean tokens per verification: the accepted ones, and one that the model generates itself.

    The sum is exact for an acceptance of 1, too, for which the closed form is 0/0.

    >>> round(tokens_per_pass(0.8, 4), 2), tokens_per_pass(1.0, 4), tokens_per_pass(0.0, 4)
    (3.36, 5.0, 1.0)
    """
    total = 1.0
    for _ in range(drafted):  # Horner's rule: 1 + α (1 + α (...))
        total = 1.0 + acceptance * total
    return total


def acceptance_of(accepted: float, drafted: int) -> float:
    """Return the acceptance with which a verification accepts a given mean number of the drafted tokens.

    The inverse of :func:`tokens_per_pass`, which increases with the acceptance, by bisection.

    >>> round(acceptance_of(tokens_per_pass(0.7, 3) - 1, 3), 12)
    0.7
    """
    low, high = 0.0, 1.0
    if accepted >= drafted:
        return high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = tokens_per_pass(middle, drafted) - 1 >= accepted
        low, high = (low, middle) if enough else (middle, high)
    # for a target of 0 bisection approaches 0 from above, and the lower end is exact
    return high if accepted > 0 else low


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding of a deployment: draft, number of drafted tokens, and acceptance.

    Attributes:
        draft: One of :data:`DRAFTS`.
        tokens: Tokens drafted per verification; 0 without speculation.
        acceptance: Probability that a drafted token is accepted if the previous ones are.
    """

    draft: str = declare("source of drafted tokens", choices=DRAFTS, default=NO_DRAFT)
    tokens: int = declare("drafted tokens per sequence", at_least=0, default=0)
    acceptance: float = declare("probability of acceptance", at_least=0, at_most=1, default=0.0)

    @classmethod
    def of(
        cls,
        draft: str,
        tokens: int | None,
        acceptance: float | None,
        accepted: float | None,
        modules: int,
    ) -> "Speculation":
        """Return the speculation of a deployment, for a model with a number of multi-token prediction modules.

        Raises:
            SpecError: If more tokens are accepted than drafted, if the model lacks the modules, and if the acceptance
                of several drafted tokens is not stated.
        """
        if draft == NO_DRAFT:
            return cls()
        if draft == MTP and not modules:
            hint = "ngram and model:NAME draft for any model"
            found = "a model without multi-token prediction modules (mtp_layers=0)"
            raise SpecError("deployment", Problem("draft", "none", f"mtp, for {found}", hint))
        drafted = modules if tokens is None else tokens
        if not drafted:
            return cls()
        if accepted is not None:
            if accepted > drafted:
                wanted = f"at most mtp_layers={drafted}, the number of drafted tokens"
                raise SpecError("deployment", Problem("accepted", wanted, f"{accepted:g}"))
            return cls(draft, drafted, acceptance_of(accepted, drafted))
        if acceptance is None and drafted > 1:
            wanted = f"a share, or accepted, because {drafted} tokens are drafted"
            hint = f"published values cover only one drafted token: {MTP_ACCEPTANCE:g}"
            raise SpecError("deployment", Problem("acceptance", wanted, "neither", hint))
        return cls(draft, drafted, MTP_ACCEPTANCE if acceptance is None else acceptance)

    @property
    def rows(self) -> int:
        """Rows of a sequence in a verification: its last token, and the drafted tokens."""
        return self.tokens + 1

    @property
    def per_pass(self) -> float:
        """Mean tokens per sequence and pass: 1 without speculation."""
        return tokens_per_pass(self.acceptance, self.tokens)
