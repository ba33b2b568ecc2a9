"""Pipelines whose stages are told apart: their blocks, and the time of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from .fields import Execution, Model
from .multiplied import products
from .pipelines import FOLDED


def stage_blocks(model: Model, ex: Execution) -> list[int] | None:
    """Return the blocks of each stage; None for the published pipeline, of equal stages."""
    p, total = ex.pipeline_par, model.num_blocks
    if p > 1 and ex.pp_schedule in FOLDED:
        return _folded_blocks(total, ex)
    if ex.stage_blocks and states_stages(ex):  # of chunk j of stage i the count j p + i
        return [sum(counts_of(ex)[stage::p]) for stage in range(p)]
    return _stated_blocks(model, ex, p, total)


def _stated_blocks(model: Model, ex: Execution, p: int, total: int) -> list[int] | None:
    """Return those of stages that are not listed."""
    stated = ex.first_stage_blocks or ex.last_stage_blocks
    if p == 1 or not (states_stages(ex) or len(set(model.kinds())) > 1):
        return None
    at_embedding, at_head = ends_as_blocks(ex)
    if at_embedding or at_head:  # all stages have as many, ends included; odd ones go to the inner
        each, odd = divmod(total + at_embedding + at_head, p)
        inner = [each + (number < odd) for number in range(p - 2)]
        return [each - at_embedding, *inner, each + (odd > p - 2) - at_head]
    first, last = ex.first_stage_blocks, ex.last_stage_blocks
    if not last:
        last = (total - first) // (p - 1) if first else -(-total // p)
        if ex.pp_layout == "balanced":
            last = _balanced(total, p, ex.pipeline_interleaving, _head_blocks(model, ex))
    if not stated and ex.pp_layout == "uniform":
        return equal_stages(total, p)
    # What is not stated is shared evenly; of the stages that share, the first has least.
    first = first or (total - last) // (p - 1)
    between = p - 2
    if between == 0:
        return [first, last]
    rest = total - first - last
    more = rest % between
    return [first, *[rest // between + 1] * more, *[rest // between] * (between - more), last]


def _folded_blocks(total: int, ex: Execution) -> list[int]:
    """Return the blocks of ranks that have two parts each; odd blocks are not on the first, which has both ends."""
    if ex.stage_blocks:
        return [sum(pair) for pair in _opposite(counts_of(ex))]
    ranks = ex.pipeline_par // (2 if ex.pp_schedule == "dualpipe" else 1)
    each, odd = divmod(total, ranks)
    return [each, *[each + 1] * odd, *[each] * (ranks - 1 - odd)]


def _opposite(parts: list[int]) -> list[list[int]]:
    """Return the parts of each rank: one of the way there, one of the way back."""
    half = len(parts) // 2
    return [list(pair) for pair in zip(parts[:half], parts[: half - 1 : -1], strict=True)]


def states_stages(ex: Execution) -> bool:
    """Whether an execution states the blocks of stages, or another schedule than the published one."""
    listed = len(set(counts_of(ex))) > 1  # equal chunks are the published layout
    stated = ex.first_stage_blocks or ex.last_stage_blocks or listed
    return bool(stated) or ex.pp_layout != "uniform" or ex.pp_schedule != "1f1b"


def ends_as_blocks(ex: Execution) -> tuple[int, int]:
    """Return the blocks that the embedding and the head count as."""
    embedding = ex.pp_layout in ("embedding_as_block", "both_as_blocks")
    return int(embedding), int(ex.pp_layout in ("head_as_block", "both_as_blocks"))


def chunks_of_stages(layout: list[int], ex: Execution) -> list[list[int]]:
    """Return the blocks of every chunk of every stage: as listed, or dealt out one by one."""
    p, chunks = ex.pipeline_par, ex.pipeline_interleaving
    folded = ex.pp_schedule in FOLDED
    chunks = 2 if folded else chunks
    if counts := counts_of(ex):
        if folded:
            return _opposite(counts)
        return [counts[stage::p] for stage in range(p)]
    dealt = [_dealt(blocks, chunks) for blocks in layout]
    if ends_as_blocks(ex)[0] and p > 1:  # the embedding is one of the blocks of the first chunk
        dealt[0] = _dealt(layout[0] + 1, chunks)
        dealt[0][0] -= 1
    if ex.pp_layout == "balanced" and chunks > 1:
        dealt[-1] = _before_head(layout[-1], max(dealt[:-1]))
    return dealt


def chunks_differ(layout: list[int], ex: Execution) -> bool:
    """Return true if chunks of a pipeline with several chunks have different numbers of blocks."""
    several = ex.pipeline_interleaving > 1 and ex.pp_schedule not in FOLDED
    return several and len({n for own in chunks_of_stages(layout, ex) for n in own}) > 1


def _dealt(blocks: int, chunks: int) -> list[int]:
    """Deal blocks out to chunks one by one."""
    own = [0] * chunks
    for block in range(blocks):
        own[block % chunks] += 1
    return own


def _before_head(blocks: int, others: list[int]) -> list[int]:
    """Return the chunks of a last stage: its last one has the blocks for which those before have no place."""
    left = max(0, blocks - sum(others[:-1]))
    return [*_dealt(blocks - left, len(others) - 1), left]


def numbers_of_stages(layout: list[int], ex: Execution) -> list[list[int]]:
    """Return the numbers of the blocks of every stage: chunks follow each other in the model, one of each stage."""
    dealt = chunks_of_stages(layout, ex)
    found: list[list[int]] = [[] for _ in layout]
    begin = 0
    folded = ex.pp_schedule in FOLDED
    for chunk in range(2 if folded else ex.pipeline_interleaving):
        along = list(enumerate(dealt))
        for stage, blocks in reversed(along) if folded and chunk else along:
            found[stage] += range(begin, begin + blocks[chunk])
            begin += blocks[chunk]
    return found


def equal_stages(total: int, stages: int) -> list[int]:
    """Return the blocks of stages whose numbers differ by one at most, odd ones last, first, second and so on."""
    blocks = [total // stages] * stages
    for odd in range(total % stages):
        blocks[odd - 1] += 1
    return blocks


def counts_of(ex: Execution) -> list[int]:
    """Return the listed blocks of all chunks of stages."""
    counts = ex.stage_blocks.replace("m", "")
    return [int(count) for count in counts.split("-")] if counts else []


def place_of_modules(ex: Execution) -> int | None:
    """Return which of the listed chunks has the modules that predict further tokens, if that is not the last one."""
    marked = [number for number, one in enumerate(ex.stage_blocks.split("-")) if "m" in one]
    return marked[0] if marked else None


def _head_blocks(model: Model, ex: Execution) -> float:
    """Return the blocks that the head is worth, by the weights of its products.

    Blocks that are computed again take 4 passes where the head takes 3.
    """
    kinds = model.kinds()
    blocks = sum(products(kind, 0) for kind in kinds) / len(kinds)
    heads = (1 + model.mtp_layers) * model.vocab * model.hidden / blocks
    some = (ex.recompute_blocks or 1) / ex.recompute_every
    again = some if ex.activation_recompute == "full" else 0
    module = sum(
        products(kind, 0) for kind in model.module_kinds()
    )  # computed again as other blocks
    module += 2 * model.hidden**2
    return heads * 3 / (3 + again) + model.mtp_layers * module / blocks


def _balanced(total: int, stages: int, chunks: int, head: float) -> int:
    """Try all numbers of blocks of the last stage: the most with the least sum of longest chunks, and largest stage."""
    tried = []
    for last in range(1, max(total - stages + 1, 1) + 1):
        most = -(-(total - last) // (stages - 1))
        largest = longest = max(most, last + head)
        if chunks > 1:
            others = _dealt(most, chunks)
            own: list[float] = [*_before_head(last, others)]
            own[-1] += head
            longest = sum(map(max, own, others))
        tried.append((round(longest, 9), round(largest, 9), -last))
    return -min(tried)[2]


@dataclass
class StagePasses:
    """Seconds of a stage for a microbatch; of `backward` `weight` is for weights, and `stalled` waits for replicas."""

    forward: float
    backward: float
    weight: float
    saved: float = 0  # on average by pairs of passes
    stalled: float = 0

    @property
    def both(self) -> float:
        return self.forward + self.backward

    @property
    def busy(self) -> float:
        return self.both - self.saved


def slowest_stage(stages: Sequence[StagePasses]) -> int:
    """Return the number of the slowest stage, the last of several."""
    longest = max(stage.busy for stage in stages)
    return max(i for i, stage in enumerate(stages) if stage.busy == longest)


def idle_time(
    schedule: str,
    stages: Sequence[StagePasses],
    microbatches: int,
    chunks: int = 1,
    longest: float | None = None,
) -> float:
    """Seconds of a batch in which the slowest stage has nothing to do.

    A microbatch takes the longest of each chunk together, if that is more than the slowest stage. A place without one
    is as long as the longest passes that nothing stalls.
    """
    slowest = stages[slowest_stage(stages)]
    if schedule == "1f1b":  # passes of a chunk of the others, while it fills and drains
        most = max(stage.both for stage in stages)
        others = sum(stage.both for stage in stages) - most
        rest = microbatches % len(stages)
        short = (chunks - 1) * (len(stages) - rest) if rest else 0
        wait = 0.0 if longest is None else longest - slowest.busy
        empty = max(stage.both - stage.stalled for stage in stages)
        return (others + short * empty) / chunks + microbatches * wait
    if schedule == "gpipe":
        return gpipe_time(stages, microbatches) - microbatches * slowest.both
    return _zero_bubble(stages, microbatches)


def gpipe_time(stages: Sequence[StagePasses], microbatches: int) -> float:
    """Execute all forward passes, then all backward passes, event by event."""
    there, free = [0.0] * microbatches, []
    for stage in stages:
        now = 0.0
        for i in range(microbatches):
            now = there[i] = max(now, there[i]) + stage.forward
        free.append(now)
    there = [0.0] * microbatches
    for stage, begin in zip(reversed(stages), reversed(free), strict=True):
        now = begin
        for i in range(microbatches):
            now = there[i] = max(now, there[i]) + stage.backward
    return there[-1]


def _zero_bubble(stages: Sequence[StagePasses], microbatches: int) -> float:
    """Fill before the slowest stage, and what its gradients of weights leave of the drain after it.

    Gradients of weights fill no more than they find: a forward pass, or gradients of inputs.
    """
    place = slowest_stage(stages)
    fill = drain = 0.0
    for i, stage in enumerate(stages):
        if i != place:
            fill += stage.forward
            drain += stage.backward - stage.weight
    filling = [min(x.weight, x.forward, x.backward - x.weight) for x in stages]
    moved = min(len(stages), microbatches) * filling[place] - filling[0]
    return fill + max(0, drain - moved)
