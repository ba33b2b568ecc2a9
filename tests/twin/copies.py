"""Copies into and out of the buffers of collectives, which FSDP makes on the way of the computation."""

from .block import Block, Held, Work
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
    again = ex.reshard_after_forward and not ex.sync_once
    whole = SyncedBytes(block.weight, gradient)
    sent = block.weight_sent / shards
    if run.experts_apart:  # in parts of their own
        experts = block.experts_sent
        sent += experts / run.expert_shards(shards) - experts / shards
    shard = block.held.resident
    gather = shard + sent + 2 * block.weight_sent
    found = [_lengthen(run, block, whole, gather, ex.fsdp_unit, again=again)]
    if embedding_head is None:
        return found[0], 0.0, 0.0
    first: Held | None = embedding_head.first
    last: Held | None = embedding_head.last
    if run.model.tied and not run.ends_apart:  # one table, with the embedding
        first, last = embedding_head.both, None
    synced = synced_embedding_head(run, embedding_head, sent=False)
    ends = embedding_head.embedding, embedding_head.head
    for end, size, held in zip(ends, synced, (first, last), strict=True):
        shard = held.resident if held else 0
        gather = shard + size.weight / shards + 2 * size.weight
        found.append(_lengthen(run, end, size, gather, 1, again=False))
    of_modules = 1 - embedding_head.head_weight / embedding_head.last.whole
    embedding_head.module_time += of_modules * found[-1]
    return tuple(found)


def add_conversions(run: Run, block: Block, embedding_head: EmbeddingHead | None) -> None:
    """Let passes make the copies of a recipe, of weights that are gathered for each of them."""
    ex = run.execution
    if ex.zero_stage not in ("3", "fsdp", "owner"):
        return
    again = ex.reshard_after_forward and not ex.sync_once
    passes = [block.fw, block.agrad] if again else [block.fw]
    _convert(run, passes, block.converted)
    if embedding_head is not None and run.model.mtp_layers:
        size = embedding_head.head.converted
        embedding_head.module_time += _convert(run, [embedding_head.head.fw], size)


def _convert(run: Run, passes: list[Work], size: float) -> float:
    """Add bytes to passes; return the seconds of each."""
    time = run.system.move(size)
    for work in passes:
        work.mem_accessed += size
        work.mem_time += time
        work.time += time
    return time


def _lengthen(
    run: Run,
    block: Block,
    synced: SyncedBytes,
    gather: float,
    unit: int,
    *,
    again: bool,
) -> float:
    """Add the copies of a gather forward and, if there is one, backward, and those of a reduction."""
    reduce = synced.weight + synced.gradient
    if run.execution.sync_once:
        # Gathered by the first microbatch; sums are read and written by each, and copied once.
        gather /= run.microbatches
        reduce += synced.gradient + 2 * synced.gradient / run.microbatches
    moved = gather, gather if again else 0, reduce
    more = 0.0
    for work, size in zip((block.fw, block.agrad, block.wgrad), moved, strict=True):
        time = run.system.move(unit * size) / unit
        work.mem_accessed += size
        work.mem_time += time
        work.time += time
        more += time
    return more
