"""Size of the KV cache of a sequence, with grouped-query attention, latent attention and sliding windows."""

from typing import Any

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Bytes, Count
from calculon.declarations.model import Model
from calculon.serving.records.load import Workload


@dataclass(frozen=True, slots=True)
class CachedBlocks:
    """Blocks of a model by the tokens that they cache: the whole sequence, or a sliding window."""

    full: int
    windowed: int
    window: int

    @classmethod
    def of(cls, model: Model) -> "CachedBlocks":
        """Return the blocks of a model by the tokens that they cache.

        Raises:
            SpecError: For models with blocks other than softmax attention: their state is not a cache of tokens.
        """
        check_served(model)
        numbers = range(model.num_blocks) if model.sliding_window else ()
        windowed = sum(model.windowed_block(number) for number in numbers)
        return cls(model.num_blocks - windowed, windowed, model.sliding_window)

    @classmethod
    def of_last(cls, model: Model) -> "CachedBlocks":
        """Return only the last block of a model, whose kind multi-token prediction modules have."""
        window = model.sliding_window
        windowed = int(window > 0 and model.windowed_block(model.num_blocks - 1))
        return cls(1 - windowed, windowed, window)

    def tokens(self, length: Count) -> Count:
        """Return the cached tokens of a sequence, summed over blocks; sliding windows limit them."""
        return self.full * length + self.windowed * np.minimum(length, self.window or np.inf)

    def length(self, tokens: Count) -> Count:
        """Return the length of a sequence from its cached tokens, summed over blocks; infinite beyond windows alone.

        >>> blocks = CachedBlocks(full=1, windowed=3, window=100)
        >>> blocks.length(blocks.tokens(np.array([60.0, 250.0]))).tolist()
        [60.0, 250.0]
        """
        # up to the window all blocks grow; beyond it only blocks with full attention do
        short = tokens / (self.full + self.windowed)
        if not self.windowed:
            return short
        beyond = tokens - self.windowed * self.window
        long = beyond / self.full if self.full else np.full_like(tokens, np.inf)
        return np.where(short <= self.window, short, long)


def check_served(model: Model) -> None:
    """Check that the serving of a model can be modeled.

    Raises:
        SpecError: If it cannot.
    """
    problems = []
    if model.part != "block":
        problems.append(Problem("part", "block: a whole model", model.part))
    if not model.vocab:
        hint = "vocab states the size of the vocabulary"
        problems.append(Problem("vocab", "at least 1, to choose the next token", "0", hint))
    if model.has_linear or model.in_parts:
        wanted = "none: the state of linear attention is not a cache of tokens"
        problems.append(Problem("linear_attention", wanted, model.linear_attention))
    if not model.causal:
        problems.append(Problem("causal", "true, because tokens are generated in order", "false"))
    if problems:
        raise SpecError(model.name, problems)


def check_length(model: Model, workload: Workload) -> None:
    """Check that requests are not longer than a table of learned positions.

    Raises:
        SpecError: If they are.
    """
    length = workload.prompt + workload.output
    if 0 < model.positions < length:
        hint = f"prompt and output have {length:,} tokens"
        wanted = f"at least {length:,}, because positions are learned, or 0"
        raise SpecError(model.name, Problem("positions", wanted, f"{model.positions:,}", hint))


def heads_of_rank(model: Model, tensor_par: Count) -> Count:
    """Return the key/value heads that a rank caches: its share, or one head that it has in common with other ranks."""
    # with more ranks than key/value heads, a rank holds a copy of one head
    return np.ceil(model.key_value_heads / tensor_par)


def copies_of_heads(model: Model, ranks: Any) -> Any:
    """Return the number of ranks that hold copies of the same keys and values; with latent attention all ranks."""
    return ranks if model.latent else ranks // np.gcd(ranks, model.key_value_heads)


def cached_width(model: Model, tensor_par: Count) -> Count:
    """Return the elements that a rank caches for a token in one block.

    Keys and values of its heads; with latent attention the latent and the shared part of the keys, complete on every
    rank (DeepSeek-V2, arXiv 2405.04434, section 2.1.2).
    """
    if model.latent:
        return np.full_like(tensor_par, model.kv_lora_rank + model.qk_rope_head_dim)
    return 2.0 * heads_of_rank(model, tensor_par) * model.attn_size


def sequence_bytes(model: Model, length: Count, tensor_par: Count, element_bytes: float) -> Bytes:
    """Return the bytes that a rank caches for a sequence of a given length."""
    tokens = CachedBlocks.of(model).tokens(length)
    return tokens * cached_width(model, tensor_par) * element_bytes


def token_bytes(model: Model, element_bytes: float) -> float:
    """Return the bytes per token in the KV caches of all ranks together, without copies and windows.

    >>> llama = Model(hidden=8192, feedforward=28672, seq_size=8192, attn_heads=64, attn_size=128, num_blocks=80,
    ...               kv_heads=8, vocab=128256)
    >>> token_bytes(llama, 2.0)
    327680.0
    """
    return float(model.num_blocks * cached_width(model, np.ones(1))[0] * element_bytes)
