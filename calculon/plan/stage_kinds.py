"""Chunks of pipeline stages, and their kinds of block, from the position of the stages in the model."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from calculon.architecture.segments import kinds_by_block
from calculon.base.distinct_rows import distinct
from calculon.base.units import Array
from calculon.declarations.lists_of_counts import ListsOfCounts
from calculon.declarations.model import Model
from calculon.plan.columns import Columns
from calculon.plan.stage_layout import (
    FIRST,
    LAST,
    SECOND,
    StageLayout,
    chunks_of,
    chunks_of_stage,
    list_of,
)


def kinds_of_chunks(model: Model, chunks: Array, *, modules: bool = False) -> Array:
    """Return the number of blocks of each kind in the chunks of stages: shape (kinds, stages, chunks).

    Chunks are assigned round-robin (interleaved schedule): the first chunk of every stage, then the second of every
    stage. If MTP `modules` have a place of their own, they follow the blocks, and are the last kind.

    Source: Narayanan et al., arXiv 2104.04473, section 2.2.
    """
    kinds: Sequence[object] = kinds_by_block(model)
    if modules:
        kinds = [*(kinds or [None] * model.num_blocks), *["module"] * model.mtp_layers]
    if not kinds:
        return chunks[None]
    every = list(dict.fromkeys(kinds))
    among = np.array([[kind == one for kind in kinds] for one in every], float)
    before = np.concatenate([np.zeros((len(every), 1)), among.cumsum(axis=1)], axis=1)
    ends = np.clip(chunks.T.ravel().cumsum(), 0, len(kinds)).astype(np.int64)
    counts = np.diff(before[:, ends], axis=1, prepend=0.0)
    return counts.reshape(len(every), *chunks.T.shape).swapaxes(1, 2)


def kinds_of_halves(model: Model, halves: Array) -> Array:
    """Return the blocks of each kind in both chunks of ranks: shapes (2, ranks) -> (kinds, ranks, 2).

    The model visits the first chunks of all ranks in ascending order, then the second chunks in descending order.
    """
    ranks = halves.shape[1]
    along = np.concatenate([halves[0], halves[1, ::-1]])[:, None]
    counts = kinds_of_chunks(model, along)[:, :, 0]
    return np.stack([counts[:, :ranks], counts[:, : ranks - 1 : -1]], axis=-1)


def chunks_of_layout(
    stages: Sequence[float],
    interleaving: int,
    listed: str,
    last: int | None = None,
    first: int | None = None,
    modules: int = 0,
) -> Array:
    """Return the blocks of every chunk of stages with the given numbers of blocks: shape (stages, chunks).

    A `listed` layout may have a place for the MTP `modules`.
    `first` and `last` are the blocks of the first chunk of the first stage and of the last chunk of the last stage, if
    they differ from an even distribution.
    """
    if listed:
        return chunks_of(listed, len(stages), modules)
    several = len(stages) > 1
    beginnings = [first if several else None] + [None] * (len(stages) - 1)
    endings = [None] * (len(stages) - 1) + [last]
    return np.stack(
        [
            chunks_of_stage(max(int(blocks), 0), interleaving, ending, beginning)
            for blocks, beginning, ending in zip(stages, beginnings, endings, strict=True)
        ]
    )


def modules_in(listed: str, model: Model) -> bool:
    """Return true if a list gives the MTP modules of a model a place of their own."""
    return model.mtp_layers > 0 and ListsOfCounts.place_of_modules(listed) is not None


class _Stages(NamedTuple):
    """The stages of one layout.

    Attributes:
        kinds: Distinct stages: blocks, number of such stages, index of the first one, and blocks of each kind. The
            order is: first stage, inner stages by position, last stage. A single stage counts as the last one.
        kind: Index of each stage in the kinds; the last one has -1.
        chunks: Blocks of every chunk: shape (stages, chunks).
    """

    kinds: tuple[tuple[float, ...], ...]
    kind: list[int]
    chunks: Array


@lru_cache(maxsize=4096)
def _distinct_stages(
    model: Model,
    stages: tuple[int, ...],
    interleaving: int,
    listed: str,
    ends: tuple[int, int],
    in_order: bool,
    modules: bool,
) -> _Stages:
    """Return the distinct stages of a layout; stages that list their chunks differ if their chunks do.

    MTP `modules` in a place of their own are the last kind of block.
    `ends` are the blocks of the first chunk of the first stage, and of the last chunk of the last stage. If stages are
    `in_order`, only neighboring inner stages are counted together.
    """
    first_chunk, last_chunk = ends
    chunks = chunks_of_layout(
        stages, interleaving, listed, last_chunk, first_chunk, model.mtp_layers
    )
    counts = kinds_of_chunks(model, chunks, modules=modules).sum(axis=2).T
    rows = [(float(own.sum()), 1.0, float(i), *own.tolist()) for i, own in enumerate(counts)]
    final = rows[-1]
    first = rows[0] if len(rows) > 1 else (final[0], 0.0, *final[2:])
    between: dict[tuple[float, ...], tuple[float, ...]] = {}
    kind = [FIRST] * (len(rows) > 1)
    runs = np.append(0, (np.diff(counts, axis=0) != 0).any(axis=1).cumsum()) * in_order
    for (blocks, more, place, *own), parts in zip(rows[1:-1], chunks[1:-1].tolist(), strict=True):
        key = (runs[int(place)], *own, *(parts if listed else ()))
        _, count, foremost, *_ = between.get(key, (blocks, 0.0, place))
        between[key] = (blocks, count + more, foremost, *own)
        kind.append(SECOND + list(between).index(key))
    return _Stages((first, *between.values(), final), [*kind, LAST], chunks)


@lru_cache(maxsize=4096)
def _folded_ranks(
    model: Model, halves: tuple[tuple[int, int], ...]
) -> tuple[tuple[float, ...], ...]:
    """Return runs of equal ranks as :func:`_distinct_stages`, with the blocks of both chunks.

    The first rank is the last entry, because it holds both ends of the model; there is no first stage.
    """
    counts = kinds_of_halves(model, np.array(halves, float).T).sum(axis=2).T
    between: list[tuple[float, ...]] = []
    for rank, (one, other) in enumerate(halves):
        own = (float(one), float(other), *counts[rank].tolist())
        if rank > 1 and between[-1][3:] == own:
            blocks, count, *rest = between[-1]
            between[-1] = (blocks, count + 1, *rest)
        else:
            between.append((float(one + other), 1.0, float(rank), *own))
    first, *between = between
    return ((first[0], 0.0, *first[2:]), *between, first)


def with_folded_kinds(layout: StageLayout, model: Model) -> StageLayout:
    """Return a folded layout whose ranks are distinguished by their kinds of block."""
    assert layout.halves is not None
    kinds, shape = len(layout.count), layout.count.shape[1:]
    values = [*layout.count, *layout.halves[0], *layout.halves[1]]
    rows, inverse, _ = distinct([value.ravel().astype(np.int64) for value in values])
    found = []
    for row in rows.tolist():
        count, *halves = (row[i * kinds : (i + 1) * kinds] for i in range(3))
        # The last kind is the first rank of a folded layout.
        every = [kinds - 1, *range(kinds - 1)]
        pairs = [(halves[0][k], halves[1][k]) for k in every for _ in range(count[k])]
        found.append(_folded_ranks(model, tuple(pairs)))
    table = _table(found, inverse, shape)
    blocks, count, place, *rest = table
    return replace(
        layout,
        blocks=blocks,
        count=count,
        place=place,
        halves=np.stack(rest[:2]),
        of_kind=np.stack(rest[2:]),
    )


def with_kinds(
    layout: StageLayout, columns: Columns, model: Model, *, in_order: bool
) -> StageLayout:
    """Return a layout whose stages are distinguished by their kinds of block, `in_order` for a simulation."""
    rows, inverse, shape = _distinct_layouts(layout, columns)
    found = [_stages_of(row, model, in_order=in_order).kinds for row in rows.tolist()]
    blocks, count, place, *of_kind = _table(found, inverse, shape)
    return replace(layout, blocks=blocks, count=count, place=place, of_kind=np.stack(of_kind))


def _distinct_layouts(
    layout: StageLayout, columns: Columns
) -> tuple[Array, Array, tuple[int, ...]]:
    """Return the distinct layouts of executions as rows of numbers, the index of each execution, and their shape."""
    of_layout = [
        *(layout.blocks[FIRST : SECOND + 2]),
        *(layout.count[FIRST : SECOND + 2]),
        layout.blocks[LAST],
        columns.pipeline_par,
        columns.pipeline_interleaving,
        columns.stage_blocks,
        layout.beginning,
        layout.ending,
    ]
    same = np.broadcast_arrays(*of_layout)
    rows, inverse, _ = distinct([values.ravel().astype(np.int64) for values in same])
    return rows, inverse, same[0].shape


_LISTED = -3
"""Place of the number of the list in a row of :func:`_distinct_layouts`."""


class ChunkLayout(NamedTuple):
    """Chunks of the stages of a layout.

    Attributes:
        of_kind (shape (kinds of block, stages, chunks)): Blocks of each kind.
        kind: Kind of every stage in the layout of stages.
        modules: True if the last kind are MTP modules.
    """

    of_kind: Array
    kind: list[int]
    modules: bool

    @property
    def sending(self) -> Array:
        """Share of each kind in the transfer after a chunk: the mean of its blocks, and alone the modules at its end.

        A chunk without blocks sends as the first kind.
        """
        blocks = self.of_kind.sum(axis=0)
        share: Array = self.of_kind / np.maximum(blocks, 1)
        share[0] = np.where(blocks > 0, share[0], 1.0)
        if self.modules:
            last = self.of_kind[-1] > 0
            share = np.where(last, 0.0, share)
            share[-1] = last
        return share


class ChunkLayouts(NamedTuple):
    """Distinct layouts of executions with several chunks per stage, some of which have different numbers of blocks.

    Attributes:
        layouts: The layouts.
        number: Index of the layout of each execution.
        differ: Mask of executions whose chunks differ.
    """

    layouts: list[ChunkLayout]
    number: Array
    differ: Array


def chunk_layouts(
    layout: StageLayout, columns: Columns, model: Model, *, kinds: bool
) -> ChunkLayouts | None:
    """Return the layouts of chunks that differ; None if no execution has any.

    Args:
        layout: The layout, whose stages are not distinguished by their kinds of block.
        kinds: Number the stages by their kinds of block (:func:`with_kinds`).
    """
    if not (columns.pipeline_interleaving > 1).any():
        return None
    rows, inverse, shape = _distinct_layouts(layout, columns)
    found = [_stages_of(row, model) for row in rows.tolist()]
    differ = np.array([bool((one.chunks != one.chunks[0, 0]).any()) for one in found])
    several = rows[:, -4] > 1  # chunks
    differ &= several
    if not differ.any():
        return None
    layouts = []
    for row, one in zip(rows.tolist(), found, strict=True):
        modules = modules_in(list_of(row[_LISTED]), model)
        kind, of_kind = one.kind, kinds_of_chunks(model, one.chunks, modules=modules)
        if not kinds:
            inner = range(SECOND, len(kind) - 1)
            kind = [FIRST, *inner, LAST] if row[_LISTED] else _even_kinds(row, len(kind))
        layouts.append(ChunkLayout(of_kind, kind, modules))
    return ChunkLayouts(layouts, inverse.reshape(shape), differ[inverse].reshape(shape))


def _even_kinds(row: Sequence[int], stages: int) -> list[int]:
    """Return the kind of every stage of a layout without a list, whose inner stages have more or fewer blocks."""
    more, fewer = row[4:6]
    return [*[FIRST] * (stages > 1), *[SECOND] * more, *[SECOND + 1] * fewer, LAST]


def _table(
    found: Sequence[tuple[tuple[float, ...], ...]], inverse: Array, shape: tuple[int, ...]
) -> list[Array]:
    """Return the members of the stages of executions as arrays of shape (kinds of stage, ...)."""
    most = max(SECOND + 2, *(len(stages) for stages in found))
    table = np.array([_padded(stages, most) for stages in found])[inverse]
    return [
        np.moveaxis(table[..., member].reshape(*shape, most), -1, 0)
        for member in range(table.shape[-1])
    ]


def _padded(stages: tuple[tuple[float, ...], ...], most: int) -> tuple[tuple[float, ...], ...]:
    """Pad a list of stages before the last entry with empty copies of it, so that array shapes match."""
    *others, last = stages
    blocks, _, *rest = last
    return (*others, *[(blocks, 0.0, *rest)] * (most - len(stages)), last)


def _stages_of(row: Sequence[int], model: Model, *, in_order: bool = False) -> _Stages:
    """Return the stages of one layout, given as a row of numbers from :func:`_distinct_layouts`."""
    first, more, fewer, _, count, others, last, degree, interleaving, number, *ends = row
    listed = list_of(number)
    modules = modules_in(listed, model)
    if listed and len(listed.split("-")) != degree * interleaving:
        listed = ""  # rules refuse it
    stages = [first] * (degree > 1) + [more] * count + [fewer] * others + [last]
    if listed:
        stages = [0] * degree
    return _distinct_stages(
        model, tuple(stages), interleaving, listed, (ends[0], ends[1]), in_order, modules
    )
