"""Copies into and out of the buffers of collectives, which FSDP makes on the way of the computation."""

from __future__ import annotations

from .block import Block, Held
from .data_parallel import SyncedBytes, synced_embedding_head
from .model_embedding_head import EmbeddingHead
from .optimizer import form_of
from .run import Run


def add_copies(run: Run, block: Block, embedding_head: EmbeddingHead | None) -> tuple[float, ...]:
    """Lengthen the passes of block, embedding and head; return the seconds of a microbatch that each takes more."""
    ex, shards = run.execution, form_of(run).shards
    if ex.zero_stage != "fsdp" or shards == 1 or not ex.training:
        return 0.0, 0.0, 0.0
    gradient = block.weight / run.element_bytes * run.reduction_bytes
    again = ex.reshard_after_forward
    whole = SyncedBytes(block.weight, gradient)
    found = [_lengthen(run, block, whole, block.held.resident, shards, ex.fsdp_unit, again=again)]
    if embedding_head is None:
        return found[0], 0.0, 0.0
    first: Held | None = embedding_head.first
    last: Held | None = embedding_head.last
    if run.model.tied and ex.pipeline_par == 1:  # one table, with the embedding
        first, last = embedding_head.both, None
    synced = synced_embedding_head(run, embedding_head)
    ends = embedding_head.embedding, embedding_head.head
    for end, size, held in zip(ends, synced, (first, last), strict=True):
        shard = held.resident if held else 0
        found.append(_lengthen(run, end, size, shard, shards, 1, again=False))
    return tuple(found)


def _lengthen(
    run: Run,
    block: Block,
    synced: SyncedBytes,
    shard: float,
    shards: int,
    unit: int,
    *,
    again: bool,
) -> float:
    """Add the copies of a gather forward and, if there is one, backward, and those of a reduction."""
    sent = synced.weight / shards
    gather = shard + sent + synced.weight + synced.weight
    moved = gather, gather if again else 0, synced.weight + synced.gradient
    more = 0.0
    for work, size in zip((block.fw, block.agrad, block.wgrad), moved, strict=True):
        time = run.system.move(unit * size) / unit
        work.mem_accessed += size
        work.mem_time += time
        work.time += time
        more += time
    return more
