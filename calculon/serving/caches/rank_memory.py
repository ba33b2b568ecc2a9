"""Memory of a rank: weights, activations, reserve, and KV cache capacity."""

from dataclasses import fields

import numpy as np

from calculon.architecture.segments import EMBEDDING
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes, Count
from calculon.declarations.model import Model
from calculon.serving.caches.cache import cached_width, sequence_bytes
from calculon.serving.caches.prefixes import NO_TIER
from calculon.serving.passes.drafts import Draft
from calculon.serving.passes.pass_rows import LOGIT_BYTES, executed, layer_stack, pass_layers
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.passes.replica import Replica
from calculon.serving.records.deployment import OF_FREE, OF_TOTAL, Deployment
from calculon.serving.records.load import Workload
from calculon.serving.records.number_types import ACTIVATION_BYTES, WEIGHT_TYPES, NumberTypes

NO_DRAFT = Draft()
"""No speculative decoding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Memory of the fullest rank in bytes, and the remainder for KV caches; all of shape ``(deployments,)``.

    Attributes:
        capacity: Memory available to a process.
        weights, reserve, activation: Memory that does not depend on the running sequences.
        free: Remainder for sequences, their KV caches and logits; negative if the model does not fit.
        cache_capacity: Part of it that KV caches may use, by ``memory_share`` and ``memory_fraction``.
    """

    capacity: Bytes
    weights: Bytes
    reserve: Bytes
    activation: Bytes
    free: Bytes
    cache_capacity: Bytes

    def take(self, places: Array) -> "RankMemory":
        """Return the memory of the deployments at some indices."""
        return RankMemory(**{one.name: getattr(self, one.name)[places] for one in fields(self)})


def weight_bytes(
    model: Model, types: NumberTypes, sizes: PassSizes, stages: Count, draft: Draft = NO_DRAFT
) -> Bytes:
    """Return the bytes of the weights on a rank of the fullest stage.

    Matrix products have the types of the deployment; norms, router, biases of experts, embedding and all other weights
    of a model stay in 16 bits. A table that embedding and head share is stored once if one stage has both. Drafts are
    on the last stage.
    """
    # blocks of different kinds are averaged over stages, although a stage may have more of the larger kind
    each = _block_bytes(model, types, sizes)
    of_block, model = each / model.num_blocks, executed(model)
    most = np.ceil(model.num_blocks / stages) * of_block
    fewest = np.floor(model.num_blocks / stages) * of_block
    rows = np.ceil(model.vocab / sizes.of_group.tensor_par)
    first = sum(layer.weights * ACTIVATION_BYTES for layer in pass_layers(model, sizes, EMBEDDING))
    head = rows * model.hidden * WEIGHT_TYPES[types.head].bytes
    both = each + first + head * (not model.tied)
    drafts = _draft_bytes(draft, types, sizes)
    # prediction modules need the embedding, which the last stage holds a copy of
    last = fewest + head + drafts + first * draft.module
    return np.where(stages == 1, both + drafts, np.maximum(most + first, last))


def _block_bytes(
    model: Model, types: NumberTypes, sizes: PassSizes, *, module: bool = False
) -> Bytes:
    """Return the bytes of the weights on a rank: of all blocks of a model, or of one multi-token prediction module."""
    result: Bytes = np.zeros(sizes.count)
    for kind in layer_stack(model, module=module).segments:
        for layer in pass_layers(executed(model), sizes, kind):
            stored: Bytes | float = ACTIVATION_BYTES
            if layer.kernel == "grouped_product":
                copied = 1 + sizes.copies / model.num_experts
                stored = copied * WEIGHT_TYPES[types.experts].bytes
            elif layer.kernel == "product":
                stored = WEIGHT_TYPES[types.weights].bytes
            result = result + kind.count * layer.weights * stored
    return result


def _draft_bytes(draft: Draft, types: NumberTypes, sizes: PassSizes) -> Bytes:
    """Return the bytes of the weights of drafts on a rank; modules share embedding and head with the model."""
    if draft.model is None:
        return np.zeros(sizes.count)
    if draft.module:
        return draft.modules * _block_bytes(draft.model, types, sizes, module=True)
    return weight_bytes(draft.model, types, draft.sizes(sizes), np.ones(sizes.count))


def logit_bytes(model: Model, tensor_par: Count) -> Bytes:
    """Return the bytes of a row of logits on a rank."""
    return np.ceil(model.vocab / tensor_par) * LOGIT_BYTES


def activation_bytes(model: Model, sizes: PassSizes, tokens: Count) -> Bytes:
    """Return the peak activation memory of a pass of a number of tokens, for tensors of one block without logits.

    A block needs three tensors of the residual stream, the tensors of the MLP (with experts: of the active ones), and
    queries, keys and values; `tokens` counts the tokens of the ranks that share a sequence.
    """
    split = sizes.of_group.tensor_par
    width = model.inner_width * (model.experts_per_token if model.mixes else 1)
    if model.mixes_kinds:
        width = max(width, model.feedforward)
    width += model.shared_feedforward
    queries = model.attn_heads * model.attn_size / split
    values = cached_width(model, split)
    block = (3 * model.hidden + 3 * width / split + queries + values) * ACTIVATION_BYTES
    return tokens * block


def rank_memory(replica: Replica, tokens: Count | float) -> RankMemory:
    """Return the memory of a rank for passes of a number of tokens, without the memory of each sequence.

    Memory taken by drivers and other processes (``ext.memory.withheld``) is not part of the capacity.
    """
    model, draft, d = replica.model, replica.draft, replica.deployments
    # the weights do not depend on the number of sequences, but a pass needs one
    sizes = replica.sizes(decoded=1)
    capacity = np.zeros(sizes.count) + replica.system.usable[0]
    weights = weight_bytes(model, replica.types, sizes, d.pipeline_par, draft)
    activation = activation_bytes(model, sizes, np.asarray(tokens, float))
    if draft.model is not None:
        drafting = activation_bytes(draft.model, draft.sizes(sizes), np.asarray(tokens, float))
        activation = np.maximum(activation, drafting)
    kept = cached_share(d.record, capacity, weights, activation)
    reserve = np.full(sizes.count, d.record.reserve)
    if kept is not None:  # an engine that leaves less than our reserve runs with that
        left = np.clip(capacity - weights - activation - kept, 0.0, reserve)
        reserve = np.where(kept > 0, left, reserve)
    free = capacity - weights - reserve - activation
    available = np.maximum(0.0, free)
    share = available * d.record.memory_fraction if kept is None else np.minimum(kept, available)
    return RankMemory(
        capacity=capacity,
        weights=weights,
        reserve=reserve,
        activation=activation,
        free=free,
        cache_capacity=share,
    )


def cached_share(
    deployment: Deployment, capacity: Bytes, weights: Bytes, activation: Bytes
) -> Bytes | None:
    """Return the bytes of the KV cache if an engine states a share of all memory; None for a share of the free memory.

    Sources: vLLM, *Conserving Memory*, ``gpu_memory_utilization``; SGLang, *Hyperparameter Tuning*,
    ``mem_fraction_static``.
    """
    if deployment.memory_share == OF_FREE:
        return None
    held = weights + (activation if deployment.memory_share == OF_TOTAL else 0.0)
    return np.maximum(0.0, deployment.memory_fraction * capacity - held)


def cached_bytes(replica: Replica, length: Count | float) -> Bytes:
    """Return the bytes that a rank of the fullest stage caches for a sequence of a given length.

    The last block of the cache is half empty on average: ``(kv_block - 1) / 2`` more tokens. A draft has its own cache,
    on the last stage.
    """
    blocks, d, element = replica.model.num_blocks, replica.deployments, replica.types.cache
    filled = np.asarray(length, float) + (d.kv_block - 1) / 2
    split, stages = d.attention_par, d.pipeline_par
    # the fullest stage is either one with the most blocks, or the last one with the cache of the draft
    total = sequence_bytes(replica.model, filled, split, element) / d.context_par
    most = total * (np.ceil(blocks / stages) / blocks)
    last = total * (np.floor(blocks / stages) / blocks)
    return np.maximum(most, last + replica.draft.sequence_bytes(filled, split, element))


# Sequences whose keys and values fit into the remaining memory of a rank.

LONGEST_CONTEXT = 2.0**40
"""Upper bound of the search for the longest sequence: more tokens than any memory holds."""


def admitted_tokens(deployment: Deployment, workload: Workload, drafted: int = 0) -> float:
    """Return the tokens of a request that have to fit into the KV cache before it starts.

    Tokens of shared prefixes are cached once and not counted for each request. If outputs have different lengths,
    running sequences are longer than the average, except in static batches, which start together. Drafted tokens are
    cached until they are verified (vLLM, ``num_lookahead_tokens``).
    """
    together = deployment.batching == "static"
    output = workload.output if together else workload.running_output
    shares = {"reserve": output, "mean": output / 2}
    fetched = deployment.cache_offload != NO_TIER
    return workload.alone(fetched=fetched) + shares[deployment.admission] + drafted


@dataclass(frozen=True)
class SequenceCapacity:
    """Memory of a rank for the sequences of a workload; columns of shape ``(deployments,)``.

    Attributes:
        replica, memory: The replicas, and the memory of a rank of each.
    """

    replica: Replica
    memory: RankMemory

    @property
    def fitting(self) -> Count:
        """Maximum sequences of a replica whose KV caches fit; 0 if not even one does."""
        d = self.replica.deployments
        drafted = self.replica.draft.speculation.tokens
        admitted = admitted_tokens(d.record, self.replica.workload, drafted)
        each = cached_bytes(self.replica, admitted) + self._logits
        return (
            np.floor(np.maximum(0.0, self.memory.cache_capacity - self.shared) / each)
            * d.attn_data_par
        )

    @property
    def shared(self) -> Bytes | float:
        """Bytes that a rank caches once for all running requests."""
        shared = self.replica.workload.shared(fetched=self._fetched)
        return cached_bytes(self.replica, shared) if shared else 0.0

    @property
    def held(self) -> Bytes:
        """Bytes that a rank caches for a running sequence in addition, in the middle of its output."""
        w = self.replica.workload
        return cached_bytes(self.replica, w.alone(fetched=self._fetched) + w.running_output / 2)

    @property
    def _fetched(self) -> bool:
        return self.replica.deployments.record.cache_offload != NO_TIER

    @property
    def logits(self) -> Bytes:
        """Bytes of the logits of a sequence."""
        d = self.replica.deployments
        return self.replica.rows * logit_bytes(self.replica.model, d.attention_par)

    @property
    def _logits(self) -> Bytes:
        """Reduction of the KV cache capacity by the logits of a sequence, which are not part of the cache."""
        d = self.replica.deployments.record
        return (d.memory_fraction if d.memory_share == OF_FREE else 1.0) * self.logits

    def of_prefixes(self, running: Count) -> Bytes:
        """Return the bytes that the running sequences of a group of ranks leave for other cached prefixes."""
        taken = running * (self.held + self._logits)
        return np.maximum(0.0, self.memory.cache_capacity - self.shared - taken)

    @property
    def longest(self) -> Count:
        """Tokens of the longest sequence that fits on its own, by bisection: windows make its size non-linear."""
        low = np.zeros_like(self.memory.cache_capacity)
        high = np.full_like(self.memory.cache_capacity, LONGEST_CONTEXT)
        for _ in range(42):
            middle = np.floor((low + high) / 2)
            fits = cached_bytes(self.replica, middle) + self._logits <= self.memory.cache_capacity
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        return low
