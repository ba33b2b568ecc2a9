"""Decode context parallelism: KV caches that ranks split by token instead of holding copies of the same heads.

Ranks in excess of the key/value heads, and all ranks with latent attention, hold copies of the cache. With
``context_par``, that many of them each hold a part of the tokens: all gather the queries of their heads, attend to
their own tokens, and merge the results using the maximum score and the sum of each. Prompts gather their cached keys
and values.

Source: Dao et al., *Flash-Decoding for long-context inference*, 2023, for the merge; vLLM,
``--decode-context-parallel-size``.
"""

from typing import NamedTuple

import numpy as np

from calculon.base.units import Bytes, Count, Seconds
from calculon.declarations.model import Model
from calculon.hardware.collectives.algorithm_times import AUTO, group_time
from calculon.hardware.collectives.placement import Group
from calculon.hardware.system import System
from calculon.serving.caches.cache import cached_width
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.records.number_types import ACTIVATION_BYTES, NumberTypes

SUM_BYTES = 4
"""Bytes of an element of a partial result, of its maximum score and of its sum."""


class SplitCache(NamedTuple):
    """Data that ranks with a split KV cache exchange in one block; arrays of shape ``(passes,)``.

    Attributes:
        ranks: Ranks that split the tokens.
        queries, results: Bytes of the queries of new tokens that are gathered, and of their results that are reduced.
        keys: Bytes of keys and values of prompts that are gathered.
    """

    ranks: Count
    queries: Bytes
    results: Bytes
    keys: Bytes

    @classmethod
    def of(cls, model: Model, types: NumberTypes, sizes: PassSizes, window: int) -> "SplitCache":
        """Return the exchange of a block for one group of ranks, with attention to a window (0: to all tokens)."""
        ranks = sizes.context_par
        heads = np.ceil(model.attn_heads * ranks / sizes.tensor_par)
        # with latent attention, queries and results are in the space of the latents
        asked, found = model.attn_size, model.value_size
        if model.latent:
            asked, found = model.kv_lora_rank + model.qk_rope_head_dim, model.kv_lora_rank
        rows = sizes.decoded * sizes.verified * heads
        seen = np.minimum(sizes.cached, float(window) if window else np.inf)
        elements = sizes.prompts * seen * cached_width(model, sizes.tensor_par)
        return cls(
            ranks=ranks,
            queries=rows * asked * ACTIVATION_BYTES,
            # two more elements: the maximum score and the sum
            results=rows * (found + 2) * SUM_BYTES,
            keys=elements * types.cache,
        )

    def time(self, system: System) -> Seconds:
        """Return the time of the collectives."""
        members = np.maximum(self.ranks, 2).astype(np.int64)
        group = Group.in_mesh(system, members, np.ones_like(members))
        time: Seconds = np.zeros_like(self.ranks)
        for size, operation in (
            (self.queries, "all_gather"),
            (self.results, "all_reduce"),
            (self.keys, "all_gather"),
        ):
            taken = group_time(system, operation, np.maximum(size, 1.0), group, AUTO)
            if operation == "all_reduce":
                taken = np.minimum(taken, system.small_reduce(size, members))
            time = time + np.where(size > 0, taken, 0.0)
        return np.where(self.ranks > 1, time, 0.0)
