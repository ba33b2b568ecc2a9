"""Figures that only some deployments have, and how a question comes to some that do."""

from collections.abc import Mapping

from calculon.base.errors import Problem, SpecError
from calculon.campaign.money import NO_PRICE
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.search.deployments.deployment_words import POOL_WORDS

NO_POWER = "no power is known of {system}: give ext.power of the system file"
"""Message where there is no energy."""

_APART = f"only deployments with a pool that prefills have it; {POOL_WORDS}"
_KEPT = "only prompts have it whose prefix is cached between requests: --prefix-hit 0.5"
_OFFLOADED = f"{_KEPT}, and --fix cache_offload=host"
_DRAFTED = "only deployments with drafts have it: --fix draft=mtp, or ngram with draft_tokens and acceptance"

HINTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("usd_per_mtoken", "usd_per_mtoken_blended"),
        NO_PRICE.replace("--price 2.5", "--fix price=2.5"),
    ),
    "joules_per_token": NO_POWER,
    **dict.fromkeys(("prefill_busy", "decode_busy", "balanced_prefill"), _APART),
    **dict.fromkeys(("kept_prefixes", "recompute_time", "hit_break_even"), _KEPT),
    **dict.fromkeys(("offloaded_prefixes", "hit_time"), _OFFLOADED),
    "waiting_prefixes": "only conversations with pauses have it: --set turns=5 --set think=30",
    **dict.fromkeys(("spec_speedup", "spec_break_even"), _DRAFTED),
    "even_context": "only caches that grow with the context have it",
}
"""What each of these figures needs."""


def unknown_figure(asked: str, name: str, system: str) -> SpecError:
    """Return the error of a figure that no deployment of a search has.

    Args:
        asked: What of the question names it: objective, or where.
        name: The figure.
        system: Name of the system.
    """
    hint = HINTS[name].format(system=system)
    return SpecError(asked, Problem("", "a figure that is known", name, hint))


def may_be_unknown(name: str) -> bool:
    """Return whether a name is that of a figure that some deployments do not have."""
    return name in SERVING_FIGURES and SERVING_FIGURES[name].nullable
