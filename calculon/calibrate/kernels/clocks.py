"""Clock of continuous work, and speed of a processor relative to another one, from measured kernels."""

import pandas as pd

CONTINUOUS = {"B200-SXM-180GB": "simumax-b200_bf16_ceperm"}
"""Source of back-to-back kernels with a fully throttled clock, by processor; it ran on a different machine than the
other sources.

No other B200 source shows the sustained rate. Products of nine calls slow down to the longest one: relative to
short ones they take 1.17 times as long at 10 to 30 ms, 1.25 at 42, 1.30 at 69 to 87 and 1.34 at 141 ms. Another B200,
which throttles from 1,965 to 1,580 MHz, falls after 5 ms of work and is 15 % slower after 0.15 s
(flashinfer-ai/flashinfer pull request 2899). Products of this source take 1.39 times as long at 0.2 to 0.5 ms, and 1.43
to 1.48 times above; attention with 131,072 tokens takes 1.54 times as long as in short calls.
"""

_SHAPE = ["causal", "batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "dim_qk", "dim_v"]


def relative_speed(rows: pd.DataFrame, gpu: str, other: str) -> float:
    """Return the speed of attention kernels on a processor relative to another one: the median over equal shapes.

    Args:
        rows: Measured forward passes of the same kernel on several processors.
        gpu, other: Names of the processors in the table.
    """
    times = [
        rows[rows.gpu == name].drop_duplicates(_SHAPE).set_index(_SHAPE).time_s
        for name in (gpu, other)
    ]
    both = pd.concat(times, axis=1, keys=["one", "other"], join="inner")
    return float((both.other / both.one).median())
