"""Memory of a rank: weights, activations and reserve, and the sequences whose keys and values fit beside them."""

from dataclasses import fields

import numpy as np

from calculon.architecture.segments import EMBEDDING
from calculon.frozen import dataclass
from calculon.hardware.system import System
from calculon.serving.cache import cached_width, sequence_bytes
from calculon.serving.deployment import Deployment
from calculon.serving.deployments import Deployments
from calculon.serving.drafts import Draft
from calculon.serving.load import Workload
from calculon.serving.number_types import ACTIVATION_BYTES, WEIGHT_TYPES, NumberTypes
from calculon.serving.pass_rows import LOGIT_BYTES, chain_of, executed, pass_layers
from calculon.serving.pass_sizes import PassSizes
from calculon.serving.prefixes import NO_TIER
from calculon.spec.model import Model
from calculon.units import Array, Bytes, Count

NO_DRAFT = Draft()
"""Without speculation."""

LONGEST_CONTEXT = 2.0**40
"""Tokens up to which the longest sequence is looked for: more than any memory holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Bytes of the rank with the most, and what they leave for caches; all of shape ``(deployments,)``.

    Attributes
    ----------
    capacity : array
        What a process gets.
    weights, reserve, activation : array
        What a rank holds whatever is asked of it.
    free : array
        What is left for sequences, their caches and logits; below 0 where the model does not fit.
    room : array
        What of it caches may take: ``memory_fraction``.
    """

    capacity: Bytes
    weights: Bytes
    reserve: Bytes
    activation: Bytes
    free: Bytes
    room: Bytes

    def take(self, places: Array) -> "RankMemory":
        """Return the memory of the deployments at some places."""
        return RankMemory(**{one.name: getattr(self, one.name)[places] for one in fields(self)})


def weight_bytes(
    model: Model, types: NumberTypes, sizes: PassSizes, stages: Count, draft: Draft = NO_DRAFT
) -> Bytes:
    """Return the bytes of the weights on a rank of the stage with the most.

    Products have the types of the deployment; norms, router, biases of experts, embedding and what a model has beside
    stay in 16 bits. A table that embedding and head share is there once, where one stage has both. What drafts is on
    the last stage.
    """
    each = _block_bytes(model, types, sizes)
    of_block, model = each / model.num_blocks, executed(model)
    most = np.ceil(model.num_blocks / stages) * of_block
    fewest = np.floor(model.num_blocks / stages) * of_block
    rows = np.ceil(model.vocab / sizes.of_group.tensor_par)
    first = sum(layer.weights * ACTIVATION_BYTES for layer in pass_layers(model, sizes, EMBEDDING))
    head = rows * model.hidden * WEIGHT_TYPES[types.head].bytes
    both = each + first + head * (not model.tied)
    beside = _draft_bytes(draft, types, sizes)
    last = fewest + head + beside + first * draft.module
    return np.where(stages == 1, both + beside, np.maximum(most + first, last))


def _block_bytes(
    model: Model, types: NumberTypes, sizes: PassSizes, *, module: bool = False
) -> Bytes:
    """Return the bytes of the weights on a rank of all blocks of a model, or of one module that predicts a token."""
    found: Bytes = np.zeros(sizes.count)
    for kind in chain_of(model, module=module).segments:
        for layer in pass_layers(executed(model), sizes, kind):
            stored: Bytes | float = ACTIVATION_BYTES
            if layer.kernel == "grouped_product":
                copied = 1 + sizes.copies / model.num_experts
                stored = copied * WEIGHT_TYPES[types.experts].bytes
            elif layer.kernel == "product":
                stored = WEIGHT_TYPES[types.weights].bytes
            found = found + kind.count * layer.weights * stored
    return found


def _draft_bytes(draft: Draft, types: NumberTypes, sizes: PassSizes) -> Bytes:
    """Return the bytes of the weights on a rank of what drafts; modules have embedding and head of the model."""
    if draft.model is None:
        return np.zeros(sizes.count)
    if draft.module:
        return draft.modules * _block_bytes(draft.model, types, sizes, module=True)
    return weight_bytes(draft.model, types, draft.sizes(sizes), np.ones(sizes.count))


def logit_bytes(model: Model, tensor_par: Count) -> Bytes:
    """Return the bytes of a row of logits on a rank."""
    return np.ceil(model.vocab / tensor_par) * LOGIT_BYTES


def activation_bytes(model: Model, sizes: PassSizes, tokens: Count) -> Bytes:
    """Return the largest live set of a pass of so many tokens, tensors of one block; logits are apart.

    Those of a block are three of the residual stream, the MLP's (of experts: of those that a token passes) and queries,
    keys and values; `tokens` are those of the ranks that share a sequence.
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


def rank_memory(
    model: Model,
    system: System,
    deployments: Deployments,
    types: NumberTypes,
    tokens: Count | float,
    draft: Draft = NO_DRAFT,
) -> RankMemory:
    """Return the memory of a rank for passes of so many tokens, without what each sequence takes.

    What drivers and others than the process take (``ext.memory.withheld``) is not part of the capacity.
    """
    sizes = PassSizes.of(
        tensor_par=deployments.tensor_par,
        expert_par=deployments.expert_par,
        copies=deployments.redundant_experts,
        attn_data_par=deployments.attn_data_par,
        decoded=1,
    )
    capacity = np.zeros(sizes.count) + system.usable[0]
    weights = weight_bytes(model, types, sizes, deployments.pipeline_par, draft)
    activation = activation_bytes(model, sizes, np.asarray(tokens, float))
    if draft.model is not None:
        drafting = activation_bytes(draft.model, draft.sizes(sizes), np.asarray(tokens, float))
        activation = np.maximum(activation, drafting)
    reserve = np.full(sizes.count, deployments.record.reserve)
    free = capacity - weights - reserve - activation
    room = np.maximum(0.0, free) * deployments.record.memory_fraction
    return RankMemory(
        capacity=capacity,
        weights=weights,
        reserve=reserve,
        activation=activation,
        free=free,
        room=room,
    )


def cached_bytes(
    model: Model,
    deployments: Deployments,
    types: NumberTypes,
    length: Count | float,
    draft: Draft = NO_DRAFT,
) -> Bytes:
    """Return the bytes that a rank of the stage with the most caches for a sequence of so many tokens.

    The last block of the cache is half empty on average: ``(kv_block - 1) / 2`` tokens more. What drafts has its own
    cache, on the last stage.
    """
    filled = np.asarray(length, float) + (deployments.kv_block - 1) / 2
    split, stages = deployments.attention_par, deployments.pipeline_par
    whole = sequence_bytes(model, filled, split, types.cache)
    most = whole * (np.ceil(model.num_blocks / stages) / model.num_blocks)
    last = whole * (np.floor(model.num_blocks / stages) / model.num_blocks)
    return np.maximum(most, last + draft.sequence_bytes(filled, split, types.cache))


def admitted_tokens(deployment: Deployment, workload: Workload, drafted: int = 0) -> float:
    """Return the tokens of a request that must find room in the cache before it starts.

    Tokens that prefixes share are cached once, and not counted with each request. Of outputs of different lengths those
    at hand are longer than the average, but where all of a batch start together. Drafted tokens are cached until they
    are verified (vLLM, ``num_lookahead_tokens``).
    """
    together = deployment.batching == "static"
    output = workload.output if together else workload.output_at_hand
    shares = {"reserve": output, "mean": output / 2}
    fetched = deployment.cache_offload != NO_TIER
    return workload.alone(fetched=fetched) + shares[deployment.admission] + drafted


def shared_bytes(
    model: Model,
    deployments: Deployments,
    types: NumberTypes,
    workload: Workload,
    draft: Draft = NO_DRAFT,
) -> Bytes | float:
    """Return the bytes that a rank caches once for all requests at hand."""
    shared = workload.shared(fetched=deployments.record.cache_offload != NO_TIER)
    return cached_bytes(model, deployments, types, shared, draft) if shared else 0.0


def held_bytes(
    model: Model,
    deployments: Deployments,
    types: NumberTypes,
    workload: Workload,
    draft: Draft = NO_DRAFT,
) -> Bytes:
    """Return the bytes that a rank caches for a sequence at hand beside these, in the middle of its output."""
    own = workload.alone(fetched=deployments.record.cache_offload != NO_TIER)
    return cached_bytes(model, deployments, types, own + workload.output_at_hand / 2, draft)


def sequences_that_fit(
    model: Model,
    deployments: Deployments,
    types: NumberTypes,
    memory: RankMemory,
    workload: Workload,
    draft: Draft = NO_DRAFT,
) -> Count:
    """Return the most sequences of a replica whose caches fit: 0 where not even one does."""
    admitted = admitted_tokens(deployments.record, workload, draft.speculation.tokens)
    each = cached_bytes(model, deployments, types, admitted, draft)
    once = shared_bytes(model, deployments, types, workload, draft)
    logits = _own_logits(model, deployments, draft)
    own = np.floor(np.maximum(0.0, memory.room - once) / (each + logits))
    return own * deployments.attn_data_par


def prefix_room(
    model: Model,
    deployments: Deployments,
    types: NumberTypes,
    memory: RankMemory,
    workload: Workload,
    at_hand: Count,
    draft: Draft = NO_DRAFT,
) -> Bytes:
    """Return the bytes of a rank that so many sequences of its group leave for other cached prefixes."""
    own = held_bytes(model, deployments, types, workload, draft)
    each = own + _own_logits(model, deployments, draft)
    once = shared_bytes(model, deployments, types, workload, draft)
    return np.maximum(0.0, memory.room - once - at_hand * each)


def _own_logits(model: Model, deployments: Deployments, draft: Draft) -> Bytes:
    """Return what the logits of a sequence take of the room for caches: they are beside them."""
    share = deployments.record.memory_fraction * draft.speculation.rows
    return share * logit_bytes(model, deployments.attention_par)


def longest_context(
    model: Model,
    deployments: Deployments,
    types: NumberTypes,
    memory: RankMemory,
    draft: Draft = NO_DRAFT,
) -> Count:
    """Return the tokens of the longest sequence that fits alone, by bisection: windows stop to grow."""
    logits = _own_logits(model, deployments, draft)
    low, high = np.zeros_like(memory.room), np.full_like(memory.room, LONGEST_CONTEXT)
    for _ in range(42):
        middle = np.floor((low + high) / 2)
        fits = cached_bytes(model, deployments, types, middle, draft) + logits <= memory.room
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return low
