"""Failure scenarios: published failure rates of a good, a typical and a new cluster, with times to detect failures.

The rates are rows of ``validation/failures.csv``. ``typical`` has the defaults of :class:`Reliability`. A stated field
overrides the scenario. Published times from a failure to the next step are longer than in ``typical`` and shorter than
in ``new``: 10 minutes of synchronous training on 100,000 GPUs (arXiv:2602.00277), 11 minutes between retries on 504
B200 (arXiv:2605.09370).

The module also has the time of published runs over their predicted steps, failures and checkpoints: the *rest* of the
runs with known settings in ``validation/whole_runs.md``.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

GOOD, TYPICAL, NEW = "good", "typical", "new"

SCENARIOS = {
    GOOD: "a cluster that has been in operation for long",
    TYPICAL: "the pre-training of Llama 3, the default",
    NEW: "a new cluster, with restarts by hand",
}
"""Scenarios with their meaning."""


class ScenarioValue(NamedTuple):
    """Value of a field in the form of a file, and its source."""

    value: Any
    source: str


_OPT = "OPT-175B, arXiv:2205.01068, section 2.5, 2022"

VALUES: Mapping[str, Mapping[str, ScenarioValue]] = {
    GOOD: {
        "mtbf_processor": ScenarioValue(
            round(24_000 * 8 / 2.34),
            "2.34 failures in 1,000 days of a node of 8: RSC-2, arXiv:2410.21680, 2024",
        ),
    },
    TYPICAL: {},
    NEW: {
        "mtbf_processor": ScenarioValue(
            round(992 * 1440 / (35 + 70)),
            f"35 manual and 70 automatic restarts in 60 days on 992 A100: {_OPT}",
        ),
        "detect": ScenarioValue(600, "NCCL's default time-out: nothing else watches the ranks"),
    },
}
"""Fields of ``reliability`` that a scenario sets, by name."""

PUBLISHED_OVERHEADS = {
    "Llama 3.1 405B": 1.01,
    "BLOOM 176B": 1.10,
    "MPT-7B": 1.17,
    "PaLM 540B": 1.46,
}
"""Time of published runs over their predicted steps, failures and checkpoints, ascending."""


OVERHEADS = ", ".join(f"{name} {value:.2f}" for name, value in PUBLISHED_OVERHEADS.items())
"""These runs in words."""


def with_scenario(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the document of a campaign with the fields that its scenario sets and that it does not state itself."""
    part = document.get("reliability")
    name = part.get("scenario") if isinstance(part, Mapping) else None
    # Other values are reported when the document is decoded.
    values = VALUES.get(name, {}) if isinstance(name, str) else {}
    if not values or not isinstance(part, Mapping):
        return document
    filled = {field: one.value for field, one in values.items() if field not in part}
    return {**document, "reliability": {**part, **filled}}
