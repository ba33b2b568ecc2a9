"""Layout of blocks over pipeline stages."""

import math
from functools import lru_cache, reduce
from operator import add
from typing import NamedTuple

import numpy as np

from calculon.architecture.segments import kinds_of_block, prediction_module, segments, totals
from calculon.base.distinct_rows import distinct
from calculon.base.records import record
from calculon.base.units import Array, Count
from calculon.declarations.lists_of_counts import ListsOfCounts
from calculon.declarations.model import Model
from calculon.declarations.named_values import ENDS_AS_BLOCKS, PP_LAYOUTS
from calculon.plan.columns import FIELDS, Columns, code, field_of

STAGE_FIELDS = tuple(one.name for one in FIELDS if "pipeline_par" in one.declaration.needs)
"""Fields that need several pipeline stages; their defaults have code 0."""

FIRST, SECOND, LAST = 0, 1, -1
"""Kinds of stage in every layout."""

_KINDS = ("first", "more blocks", "fewer blocks", "last")

_BALANCED = code("pp_layout", "balanced")
_ENDS = np.array([ENDS_AS_BLOCKS.get(name, (0, 0)) for name in PP_LAYOUTS])
_LISTS = field_of("stage_blocks").declaration.choices
assert isinstance(_LISTS, ListsOfCounts)


def own_stages(columns: Columns) -> Array:
    """Return a mask of executions that state a schedule or a layout, which the published model lacks.

    A list of equal chunks is the uniform layout.
    """
    stated = (columns.first_stage_blocks > 0) | (columns.last_stage_blocks > 0)
    if columns.stage_blocks.any():
        uneven = np.array([len(set(ListsOfCounts.counts(text))) > 1 for text in _LISTS])
        stated = stated | uneven[columns.stage_blocks]
    return stated | (columns.pp_layout != 0) | (columns.pp_schedule != 0)


def modules_apart(columns: Columns) -> Array:
    """Return a mask of executions whose lists give MTP modules a place on another stage than the loss."""
    listed: Array = columns.stage_blocks
    if not listed.any():
        return np.zeros(listed.shape, bool)
    places = [ListsOfCounts.place_of_modules(text) for text in _LISTS]
    return np.array([place is not None for place in places])[listed]


@record
class StageLayout:
    """Blocks of the stages of executions; every stage has whole blocks, and any stage may be the slowest.

    The first axis of all arrays is the kind of stage: the first stage, two kinds of inner stages (the first with more
    blocks), and the last or only stage. Executions that list their stages have more kinds before the last: kind *i* is
    stage *i*.

    Chunks of a stage that are not listed differ by at most one block, and larger ones come first. The first chunk of
    the first stage has one block less if the embedding counts as a block; in a balanced layout, the last chunk of the
    last stage, which has the head, may have fewer blocks.

    MTP modules count as blocks of their stage if a list gives them a place of their own.

    Attributes:
        blocks, count: Blocks of a stage of each kind, and number of such stages.
        beginning, ending: Blocks of the first chunk of the first stage, and of the last chunk of the last stage.
        place: Index of the first stage of each kind, if inner kinds differ by more than their blocks.
        halves (shape (2, kinds of stage, ...)): Blocks of both chunks of ranks that hold two opposite parts of the
            model (V-shaped schedules). Then the last kind is the first rank, which holds both ends of the model, the
            inner kinds are the other ranks in order, and there is no stage of the first kind.
        of_kind (shape (kinds of block, kinds of stage, ...)): Blocks of each kind of block, if a model has several;
            then inner kinds of stage differ in them (:func:`~calculon.plan.stage_kinds.with_kinds`).
    """

    blocks: Count
    count: Count
    beginning: Count
    ending: Count
    place: Count | None = None
    of_kind: Count | None = None
    halves: Count | None = None

    @classmethod
    def of(
        cls, columns: Columns, pipeline_par: Count, recompute_all: Array, model: Model
    ) -> "StageLayout":
        """Return the layout of a model's blocks as executions state it."""
        balanced = columns.pp_layout == _BALANCED
        given = columns.first_stage_blocks, columns.last_stage_blocks
        share = np.maximum(1, columns.recompute_blocks) / columns.recompute_every
        chunks = columns.pipeline_interleaving
        first, last = _outer(balanced, given, (pipeline_par, chunks), recompute_all, share, model)
        if model.mtp_layers and not np.all(columns.training):
            executed = model.executed(training=False)
            degrees = pipeline_par, chunks
            others = _outer(balanced, given, degrees, recompute_all, share, executed)
            first, last = (
                np.where(columns.training, *two) for two in zip((first, last), others, strict=True)
            )
        first, last = _with_ends(columns, pipeline_par, model, first, last)
        piped, inner = pipeline_par > 1, np.where(pipeline_par > 1, pipeline_par - 2, 0.0)
        between = np.maximum(pipeline_par - 2, 1)
        rest = np.where(pipeline_par > 2, model.num_blocks - first - last, 0)
        low = np.floor(rest / between)
        more = rest - low * between
        blocks = np.stack(np.broadcast_arrays(first, low + (more > 0), low, last))
        count = np.stack(np.broadcast_arrays(np.where(piped, 1.0, 0.0), more, inner - more, 1.0))
        ending = _ending(blocks, count, chunks, balanced & piped & (chunks > 1))
        embedding = np.where(count[FIRST] > 0, ends_as_blocks(columns)[0], 0.0)
        beginning = np.ceil((blocks[FIRST] + embedding) / chunks) - embedding
        if columns.stage_blocks.any():
            blocks, count = _listed(columns, blocks, count, model.mtp_layers)
        return cls(blocks=blocks, count=count, beginning=beginning, ending=ending)

    @classmethod
    def folded(cls, columns: Columns, ranks: Count, model: Model) -> "StageLayout":
        """Return the layout over ranks with two chunks: as listed, or with extra blocks in first chunks of inner ranks.

        Lists have a count for each part of the model, in order: rank `i` of `n` has parts `i` and `2 n - 1 - i`.
        """
        total = float(model.num_blocks)
        low = np.floor(total / ranks)
        more = total - low * ranks
        lists = columns.stage_blocks
        if not lists.any():
            lists = np.zeros(1, np.int64)
        numbers, ranks, low, more = np.broadcast_arrays(lists, ranks, low, more)
        listed = numbers > 0
        most = max(len(_KINDS), int(np.where(listed, ranks, 0).max()) + 1)
        blocks = np.repeat(low[None], most, axis=0)
        count = np.zeros_like(blocks)
        blocks[SECOND] = np.where(more > 0, low + 1, low)
        count[SECOND], count[SECOND + 1], count[LAST] = more, np.maximum(0, ranks - 1 - more), 1.0
        place = np.zeros_like(blocks)
        place[SECOND], place[SECOND + 1] = 1.0, 1.0 + more
        halves = np.stack([np.ceil(blocks / 2), np.floor(blocks / 2)])
        for number, degree in set(
            zip(numbers.ravel().tolist(), ranks.ravel().tolist(), strict=True)
        ):
            counts = np.array(ListsOfCounts.counts(_LISTS[number]), float)
            if not counts.size or counts.size != 2 * degree:
                continue  # rules refuse the latter
            here = (numbers == number) & (ranks == degree)
            # The second half is reversed: the last rank has the two middle parts.
            own = np.stack([counts[: int(degree)], counts[: int(degree) - 1 : -1]])
            for kind in range(most):
                rank = kind if 0 < kind < min(int(degree), most - 1) else 0
                halves[:, kind, here] = own[:, rank, None]
                blocks[kind, here] = own[:, rank].sum()
                count[kind, here] = float(rank > 0 or kind == most - 1)
                place[kind, here] = rank
        return cls(
            blocks=blocks,
            count=count,
            beginning=halves[0, LAST],
            ending=halves[1, LAST],
            place=place,
            halves=halves,
        )

    def mean(self, pipeline_par: Count) -> Count:
        """Return the mean number of blocks of a stage."""
        return reduce(add, self.blocks * self.count) / pipeline_par

    @property
    def largest_between(self) -> Count:
        """Blocks of the largest inner stage, or of the first stage if there is none."""
        between = np.where(self.count > 0, self.blocks, 0.0)[SECOND:LAST].max(axis=0)
        return np.where(between > 0, between, self.blocks[FIRST])

    @property
    def smallest_between(self) -> Count:
        """Blocks of the smallest inner stage, or of the first stage if there is none."""
        between = np.where(self.count > 0, self.blocks, np.inf)[SECOND:LAST].min(axis=0)
        return np.where(np.isfinite(between), between, self.blocks[FIRST])

    @property
    def largest(self) -> Count:
        """Blocks of the largest stage."""
        return np.where(self.count > 0, self.blocks, 0.0).max(axis=0)


def _ending(blocks: Count, count: Count, interleaving: Count, balanced: Array) -> Count:
    """Return the blocks of the last chunk of the last stage, if stages do not list their chunks.

    Chunks are even, with larger ones first. If they are `balanced`, the last one has only the blocks for which the
    other chunks of its stage have no space: these are as large as those of other stages.
    """
    last: Count = np.floor(blocks[LAST] / interleaving)
    if balanced.any():
        of_others = np.where(count > 0, blocks, 0.0)[:LAST].max(axis=0)
        others = np.floor(of_others / interleaving)
        least = np.maximum(0.0, blocks[LAST] - (of_others - others))
        last = np.where(balanced, least, last)
    return last


def chunks_of_stage(
    blocks: int, chunks: int, last: int | None = None, first: int | None = None
) -> Array:
    """Return the blocks of every chunk of a stage without a list: even, larger chunks first.

    A stated `first` or `last` chunk is taken from the blocks before.

    >>> chunks_of_stage(7, 3), chunks_of_stage(5, 4, 0), chunks_of_stage(7, 4, first=1)
    (array([3., 2., 2.]), array([2., 2., 1., 0.]), array([1., 2., 2., 2.]))
    """
    if first is not None and chunks > 1:
        return np.append(float(first), chunks_of_stage(blocks - first, chunks - 1, last))
    if last is not None and chunks > 1:
        return np.append(chunks_of_stage(blocks - last, chunks - 1), float(last))
    return np.floor(blocks / chunks) + (np.arange(chunks) < blocks % chunks)


def ends_as_blocks(columns: Columns) -> Array:
    """Return the number of blocks that embedding and LM head count as: shape (2, ...)."""
    return np.moveaxis(_ENDS[columns.pp_layout], -1, 0)


def _with_ends(
    columns: Columns, pipeline_par: Count, model: Model, first: Count, last: Count
) -> tuple[Count, Count]:
    """Replace the blocks of first and last stage if embedding and LM head count as blocks.

    Remaining blocks go to the inner stages, one each; if one is left over, it goes to the last stage.

    Source: Megatron-LM, ``--account-for-embedding-in-pipeline-split`` and ``--account-for-loss-in-pipeline-split``;
    Llama Team, arXiv 2407.21783, section 3.3.2 (one block less on the first and on the last stage).
    """
    ends = ends_as_blocks(columns)
    blocks = model.num_blocks + ends.sum(axis=0)
    of_stage = np.floor(blocks / pipeline_par)
    odd = blocks - of_stage * pipeline_par > np.maximum(pipeline_par - 2, 0)
    counted = (ends.sum(axis=0) > 0) & (pipeline_par > 1)
    return (
        np.where(counted, of_stage - ends[0], first),
        np.where(counted, of_stage + odd - ends[1], last),
    )


def chunks_of(listed: str, stages: int, modules: int = 0) -> Array:
    """Return the blocks of every chunk of a list, with the MTP `modules` of a marked chunk: shape (stages, chunks).

    >>> chunks_of("2-1-1m-0", 2, modules=2)
    array([[2., 3.],
           [1., 0.]])
    """
    counts = np.array(ListsOfCounts.counts(listed), float)
    if (place := ListsOfCounts.place_of_modules(listed)) is not None:
        counts[place] += modules
    return counts.reshape(-1, stages).T


def list_of(number: int) -> str:
    """Return a list of blocks from its code in executions."""
    text: str = _LISTS[number]
    return text


class ListedCounts(NamedTuple):
    """Number of counts of the lists of executions, their sum, and their greatest common divisor."""

    length: Array
    total: Array
    divisor: Array


def listed_counts(stage_blocks: Array) -> ListedCounts:
    """Return counts, sums and divisors of the lists of blocks of executions; 1 divides a chunk with MTP modules."""
    lists = [ListsOfCounts.counts(text) for text in _LISTS]
    apart = [ListsOfCounts.place_of_modules(text) is not None for text in _LISTS]
    divisors = [1 if some else math.gcd(*one) for one, some in zip(lists, apart, strict=True)]
    of_lists = [len(one) for one in lists], [sum(one) for one in lists], divisors
    return ListedCounts(*(np.array(values)[stage_blocks] for values in of_lists))


def _listed(columns: Columns, blocks: Count, count: Count, modules: int) -> tuple[Count, Count]:
    """Replace the stages of executions that list their blocks: one kind for each stage.

    A list may have a place for the MTP `modules`.
    """
    numbers, stages = np.broadcast_arrays(columns.stage_blocks, columns.pipeline_par)
    most = max(len(blocks), int(np.where(numbers > 0, stages, 0).max()))
    shape = np.broadcast_shapes(blocks.shape[1:], numbers.shape)
    further = ((0, 0),) * len(shape)

    def widened(values: Count) -> Count:
        values = np.broadcast_to(values, (len(values), *shape))
        inner = np.pad(values[:LAST], ((0, most - len(values)), *further))
        return np.concatenate([inner, values[LAST:]])

    blocks, count = widened(blocks), widened(count)
    for number, degree in set(zip(numbers.ravel().tolist(), stages.ravel().tolist(), strict=True)):
        counts = ListsOfCounts.counts(_LISTS[number])
        if not counts or len(counts) % degree:
            continue  # rules refuse lists of other lengths
        here = np.broadcast_to((numbers == number) & (stages == degree), shape)
        of_stages = chunks_of(_LISTS[number], degree, modules).sum(axis=1)
        for kind in range(most):
            stage = degree - 1 if kind == most - 1 else kind
            there = kind == most - 1 or kind < degree - 1
            blocks[kind, here] = of_stages[stage] if there else 0.0
            count[kind, here] = 1.0 if there else 0.0
    return blocks, count


def head_blocks(model: Model) -> float:
    """Return the weight of the LM head in blocks, by the sizes of its matrices; each MTP module uses it once more.

    >>> from calculon import inputs
    >>> round(head_blocks(inputs.model("llama3-8B")), 2)
    2.41
    """
    head = sum(totals(model, one).matrices for one in segments(model) if one.place == "last")
    return (1 + model.mtp_layers) * head * model.num_blocks / _matrices(model)


def module_blocks(model: Model) -> float:
    """Return the weight of the MTP modules in blocks, without the head.

    >>> from dataclasses import replace
    >>> from calculon import inputs
    >>> llama = inputs.model("llama3-8B")
    >>> module_blocks(llama), round(module_blocks(replace(llama, mtp_layers=1)), 2)
    (0.0, 1.15)
    """
    module = prediction_module(model)
    if module is None:
        return 0.0
    own = module.count * totals(model, module).matrices
    return own * model.num_blocks / _matrices(model)


def _matrices(model: Model) -> int:
    """Return the number of matrix weights of all blocks."""
    return sum(kind.count * totals(model, kind).matrices for kind in kinds_of_block(model))


def _outer(
    balanced: Array,
    given: tuple[Count, Count],
    degrees: tuple[Count, Count],
    recompute_all: Array,
    share: Array,
    model: Model,
) -> tuple[Count, Count]:
    """Return the blocks of the first and of the last stage.

    By default, odd blocks go to the last stage, to the first, and then to the following ones, for any schedule.
    Otherwise the remaining blocks are divided evenly over the other stages, and the first stage is one of the smallest:
    it stores the most microbatches. With full recomputation, block products are computed four times and head products
    three times; `share` is the fraction of recomputed blocks. MTP modules are on the stage of the head, and are
    recomputed like blocks. `degrees` are the numbers of stages and of chunks.
    """
    pipeline_par, chunks = degrees
    total = float(model.num_blocks)
    others = np.maximum(pipeline_par - 1, 1)
    head = head_blocks(model) * np.where(recompute_all, 3 / (3 + share), 1.0)
    head = head + module_blocks(model)
    first, last = (np.asarray(blocks, float) for blocks in given)
    uniform = np.ceil(total / pipeline_par)
    after_first = np.where(first > 0, np.floor((total - first) / others), uniform)
    even = np.where(balanced, _balanced(total, pipeline_par, head, chunks), after_first)
    last = np.where(last > 0, last, even)
    shared = (total - last) / others
    stated = balanced | (given[0] > 0) | (given[1] > 0)
    first = np.where(first > 0, first, np.where(stated, np.floor(shared), np.ceil(shared)))
    piped = pipeline_par > 1
    return np.where(piped, first, total), np.where(piped, last, total)


def _balanced(total: float, pipeline_par: Count, head: Array, chunks: Count) -> Count:
    """Return the number of blocks of the last stage that minimizes the largest stage, with the head as `head` blocks.

    Of several optima it is the largest: the other stages, which store more microbatches, then have fewer blocks. With
    several chunks, it minimizes the time by :func:`balanced_last`.
    """
    others = np.maximum(pipeline_par - 1, 1)
    # Every other stage needs at least one block.
    most = np.maximum(total - others, 1)
    even = np.floor((total + head) / pipeline_par - head)

    def largest(last: Count) -> Count:
        return np.maximum(np.ceil((total - last) / others), last + head)

    # The optimum is next to the even share: below or above it.
    one, other = (np.clip(even + more, 1, most) for more in (0, 1))
    best = np.where(largest(one) <= largest(other), one, other)
    last = np.clip(np.floor(largest(best) - head), best, most)
    if not np.any((chunks > 1) & (pipeline_par > 1)):
        return last
    same = np.broadcast_arrays(last, pipeline_par, chunks, head)
    columns = [values.ravel() for values in same]
    _, inverse, first = distinct(columns[1:])
    rows = zip(*(values[first].tolist() for values in columns), strict=True)
    found = [
        one if parts == 1 or stages == 1 else balanced_last(int(total), int(stages), parts, weight)
        for one, stages, parts, weight in rows
    ]
    return np.array(found, float)[inverse].reshape(same[0].shape)


@lru_cache(maxsize=4096)
def balanced_last(total: int, stages: int, chunks: int, head: float) -> float:
    """Return the blocks of the last stage with which the chunks of stages are balanced.

    Groups of microbatches pass one chunk after the other, about at the speed of the stage that takes longest there
    (exactly: :mod:`calculon.cost.pipeline.interleaved`). The last chunk of the last stage has the head and the blocks
    for which its other chunks have no space. So the sum of the longest chunks is minimized, then the largest stage;
    of several optima, the last stage has most blocks.

    >>> balanced_last(61, 8, 4, 3.92)  # chunks of 2, 2, 1 and 0 blocks
    5.0
    """
    last = np.arange(max(total - stages + 1, 1), 0.0, -1.0)
    others = np.ceil((total - last) / (stages - 1))
    final = np.floor(others / chunks)
    own = np.maximum(0.0, last - (others - final))
    longest = others - final + np.maximum(final, own + head)
    largest = np.maximum(others, last + head)
    # Sums that differ by rounding are equal.
    best = longest <= longest.min() * (1 + 1e-12)
    return float(last[np.where(best, largest, np.inf).argmin()])
