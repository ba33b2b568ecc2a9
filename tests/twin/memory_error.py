"""The error of predicted memory: an execution may exceed tier 1 by it, and is evaluated all the same."""

import csv
from functools import cache
from math import exp, log, sqrt
from pathlib import Path

from scipy import stats

RUNS = Path(__file__).parents[2] / "validation" / "runs.csv"
INFEASIBLE = 0.05  # an execution that fits with less does not fit
GAIN = 3.0  # by which a run counts more for each property that it shares with the execution


@cache
def measured() -> list[dict[str, str]]:
    """Runs of frameworks whose memory was measured."""
    with RUNS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        row
        for row in rows
        if row["measured_memory"] and row["predicted_memory"] and row["preset"] != "published"
    ]


def framework(preset: str) -> list[str]:
    return preset.split("-")[:2]


def splits_weights(zero_stage: str) -> bool:
    return zero_stage in ("3", "fsdp", "owner")


def allowed(preset: str, zero_stage: str, experts: bool) -> float:
    """Predicted over usable memory up to which executions are evaluated."""
    mean, scale, freedom = student_t(preset, zero_stage, experts)
    return max(1.0, exp(-(mean + scale * stats.t.ppf(INFEASIBLE, freedom))))


def fits(preset: str, zero_stage: str, experts: bool, headroom: float) -> float:
    """Probability that an execution fits, by its usable over its predicted memory."""
    mean, scale, freedom = student_t(preset, zero_stage, experts)
    if headroom <= 0:
        return 0.0
    return float(stats.t.cdf((log(headroom) - mean) / scale, freedom))


@cache
def student_t(preset: str, zero_stage: str, experts: bool) -> tuple[float, float, float]:
    """Mean, scale and degrees of freedom of the logarithm of measured over predicted memory, over sources."""
    rows = measured()
    weights = []
    for row in rows:
        source = {one["study"] for one in rows if one["source"] == row["source"]}
        runs = [
            one for one in rows if (one["source"], one["study"]) == (row["source"], row["study"])
        ]
        alike = 1.0
        alike += GAIN * (framework(row["preset"]) == framework(preset))
        alike += GAIN * (splits_weights(row["zero_stage"]) == splits_weights(zero_stage))
        alike += GAIN * ((float(row["experts"]) > 0) == experts)
        weights.append(alike / len(source) / len(runs))
    errors = [log(float(row["measured_memory"]) / float(row["predicted_memory"])) for row in rows]
    of_source: dict[str, float] = {}
    for row, weight in zip(rows, weights, strict=True):
        of_source[row["source"]] = of_source.get(row["source"], 0.0) + weight
    total = sum(weights)
    mean = sum(w * x for w, x in zip(weights, errors, strict=True)) / total
    square = sum(w * (x - mean) ** 2 for w, x in zip(weights, errors, strict=True)) / total
    sources = total**2 / sum(w**2 for w in of_source.values())
    scale = sqrt(square * sources / (sources - 1) * (1 + 1 / sources))
    return mean, scale, max(1.0, sources - 1)
