"""torchtitan: pipeline schedules (1F1B, interleaved, zero bubble), and the distribution of layers over stages.

Source: pytorch/torchtitan, ``distributed/pipeline_parallel.py``, ``generate_llm_fqn_per_model_part``: embedding and
head count as a number of layers each, and remaining layers go to the first parts, one each.
"""

import math
import re
from itertools import pairwise
from typing import Any

from calculon.declarations.lists_of_counts import ListsOfCounts
from calculon.declarations.named_values import ENDS_AS_BLOCKS
from calculon.launch.dialect import Fields, Reading, Setting, Writing
from calculon.launch.rows import row
from calculon.launch.texts.name_patterns import under
from calculon.launch.titan.torchtitan_files import (
    blocks_of,
    flavor_of,
    indivisible,
    model_of,
    parallel,
)

_ENDS = {ends: name for name, ends in ENDS_AS_BLOCKS.items()} | {(0, 0): "uniform"}
"""Layouts by the number of blocks that the embedding and the head count as."""

_SCHEDULES = {
    "1f1b": ("1f1b", False, ""),
    "gpipe": ("gpipe", False, ""),
    "interleaved1f1b": ("1f1b", True, ""),
    "loopedbfs": ("1f1b", True, "all forward passes come first: treated as Interleaved1F1B"),
    "interleavedzerobubble": (
        "1f1b",
        True,
        "weight gradients fill the bubble: treated as Interleaved1F1B",
    ),
    "zbvzerobubble": ("zbv", True, ""),
    "dualpipev": ("dualpipev", True, ""),
}
"""Schedules of torch.distributed.pipelining: our name, true for several chunks per rank, and lost effects."""

_WRITTEN_SCHEDULES = {
    ("1f1b", False): "1F1B",
    ("1f1b", True): "Interleaved1F1B",
    ("gpipe", False): "GPipe",
    ("zbv", True): "ZBVZeroBubble",
    ("dualpipev", True): "DualPipeV",
}
_USUAL_CHUNKS = 2
"""Default number of chunks per rank of interleaved schedules, without layers per stage."""

_LAYER = re.compile(r"(?:.*\.)?layers\.(\d+)")


def _read_pipeline(reading: Reading) -> Fields:
    scheduled = reading.setting(*parallel("pipeline_parallel_schedule"))
    listed = reading.setting(
        *parallel("module_fqns_per_model_part"),
        "parallelism.pipeline_parallel_module_fqns_per_model_part",
    )
    points = reading.setting(*parallel("pipeline_parallel_split_points"))
    layers = reading.count(*parallel("pipeline_parallel_layers_per_stage"), least=1)
    ends = tuple(
        reading.count(*parallel(name), default=1, least=0)
        for name in (
            "pipeline_parallel_first_stage_less_layers",
            "pipeline_parallel_last_stage_less_layers",
        )
    )
    result = _pipeline("1f1b", 1)
    stages = reading.execution["pipeline_par"]
    if stages == 1:
        return result
    schedule, several, lost = "1f1b", False, ""
    if scheduled is not None:
        key = str(scheduled.value).lower()
        if key not in _SCHEDULES:
            raise reading.error(scheduled, f"one of {', '.join(_WRITTEN_SCHEDULES.values())}")
        schedule, several, lost = _SCHEDULES[key]
        if lost:
            reading.not_modelled(scheduled.name, lost)
    blocks = blocks_of(model) if (model := model_of(reading.parsed.settings)) else 0
    counts = _listed_blocks(reading, listed, points, blocks)
    if counts:
        chunks = len(counts) // stages
        if len(counts) % stages or (chunks > 1) != several:
            wanted = f"a number of parts that suits {stages} ranks and the schedule"
            raise reading.error(listed or points, wanted)  # type: ignore[arg-type]
        return _pipeline(schedule, chunks, "uniform", "-".join(map(str, counts)))
    chunks = _USUAL_CHUNKS if several else 1
    if layers and several:
        chunks = _chunks(reading, layers, blocks + sum(ends), stages) if blocks else chunks
        if not blocks:
            name = "parallelism.pipeline_parallel_layers_per_stage"
            reading.not_modelled(
                name, "the number of layers is not known: 2 chunks per rank are modeled"
            )
    return _pipeline(schedule, chunks, *_layout(reading, ends, blocks, chunks * stages))


def _pipeline(schedule: str, chunks: int, layout: str = "uniform", listed: str = "") -> Fields:
    return {
        "pp_schedule": schedule,
        "pipeline_interleaving": chunks,
        "pp_layout": layout,
        "stage_blocks": listed,
        "first_stage_blocks": 0,
        "last_stage_blocks": 0,
    }


def _listed_blocks(
    reading: Reading, listed: Setting | None, points: Setting | None, blocks: int
) -> list[int]:
    """Return the blocks of each part of a model, from a list of its modules or of its split points."""
    if listed is not None and listed.value:
        parts: list[Any] = listed.value if isinstance(listed.value, list) else [None]
        if not all(isinstance(part, list) for part in parts):
            raise reading.error(listed, "a list of the modules of each part")
        return [sum(bool(_LAYER.fullmatch(str(name))) for name in part) for part in parts]
    if points is None or not points.value:
        return []
    names = points.value.split(",") if isinstance(points.value, str) else points.value
    if not isinstance(names, list):
        raise reading.error(points, "names of layers, such as layers.4")
    matches = [_LAYER.fullmatch(str(name).strip()) for name in names]
    if not all(matches):
        raise reading.error(points, "names of layers, such as layers.4")
    if not blocks:
        reading.not_modelled(
            points.name, "the number of layers is not known: equal parts are modeled"
        )
        return []
    cuts = [0, *(int(match[1]) for match in matches if match), blocks]
    return [after - before for before, after in pairwise(cuts)]


def _chunks(reading: Reading, layers: int, counted: int, stages: int) -> int:
    """Return the chunks per rank for a number of layers per chunk, counting embedding and head as the file states."""
    parts = math.ceil(counted / layers)
    if parts % stages:
        name = "parallelism.pipeline_parallel_layers_per_stage"
        wanted = f"a number of layers that gives {stages} ranks equal numbers of parts"
        raise indivisible(reading, name, f"{wanted} ({parts} parts of {counted} layers)", layers)
    return parts // stages


def _layout(reading: Reading, ends: tuple[int, ...], blocks: int, parts: int) -> tuple[str, str]:
    """Return the layout and the list of stages as torchtitan distributes layers: the first parts have one more."""
    # Our layouts cover even distributions; anything else needs an explicit list of blocks.
    uneven = blocks and blocks % parts
    if ends in _ENDS and not (ends == (0, 0) and uneven):
        return _ENDS[ends], ""
    if not blocks:
        name = "parallelism.pipeline_parallel_first_stage_less_layers"
        reading.not_modelled(
            name, "the number of layers is not known: embedding and head count as one layer each"
        )
        return _ENDS[1, 1], ""
    each, more = divmod(blocks + sum(ends), parts)
    counts = [each + (part < more) for part in range(parts)]
    counts[0] -= ends[0]
    counts[-1] -= ends[1]
    return "uniform", "-".join(map(str, counts))


def _write_pipeline(writing: Writing) -> Fields:
    if writing["pipeline_par"] == 1:
        return {}
    chunks = writing["pipeline_interleaving"]
    schedule = _WRITTEN_SCHEDULES.get((writing["pp_schedule"], chunks > 1))
    if schedule is None:
        raise writing.refuse("pp_schedule", "1f1b, gpipe without chunks, zbv, dualpipev")
    for name in ("first_stage_blocks", "last_stage_blocks"):
        if writing[name]:
            raise writing.refuse(name, "0", "stage_blocks lists all stages")
    result: Fields = {}
    if schedule != "1F1B":
        result["parallelism.pipeline_parallel_schedule"] = schedule
    if listed := writing["stage_blocks"]:
        if ListsOfCounts.place_of_modules(listed) is not None:
            raise writing.refuse("stage_blocks", "counts without m (MTP modules)")
        if "0" in listed.split("-")[1:-1]:
            hint = "only the first and the last part may have no layer"
            raise writing.refuse("stage_blocks", "counts of at least 1", hint)
        return {
            **result,
            "parallelism.module_fqns_per_model_part": _modules(listed),
        }
    layout = {name: ends for ends, name in _ENDS.items()}
    if writing["pp_layout"] not in layout:
        raise writing.refuse("pp_layout", ", ".join(layout), "both_as_blocks is the nearest")
    ends = layout[writing["pp_layout"]]
    for place, count in zip(("first", "last"), ends, strict=True):
        if count != 1:
            result[f"parallelism.pipeline_parallel_{place}_stage_less_layers"] = count
    if chunks > _USUAL_CHUNKS:
        name = "parallelism.pipeline_parallel_layers_per_stage"
        result[name] = _layers_per_part(writing, sum(ends), chunks * writing["pipeline_par"])
    return result


def _layers_per_part(writing: Writing, ends: int, parts: int) -> int:
    """Return the layers per part with which torchtitan creates a number of parts, for a model that it knows."""
    if writing.model is not None and flavor_of(writing.model) is not None:
        counted = writing.model.num_blocks + ends
        layers = math.ceil(counted / parts)
        if math.ceil(counted / layers) == parts:
            return layers
    hint = "stage_blocks lists all chunks"
    raise writing.refuse("pipeline_interleaving", "2, or chunks with equal numbers of layers", hint)


def _modules(listed: str) -> list[list[str]]:
    """Return the modules of each part of a model, given the number of blocks of each part."""
    parts: list[list[str]] = []
    first = 0
    for count in map(int, listed.split("-")):
        parts.append([f"layers.{number}" for number in range(first, first + count)])
        first += count
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "output"]
    return parts


PIPELINE = row(
    " ".join(_pipeline("1f1b", 1)),
    under(
        "parallelism",
        "pipeline_parallel_schedule module_fqns_per_model_part pipeline_parallel_first_stage_less_layers "
        "pipeline_parallel_last_stage_less_layers pipeline_parallel_layers_per_stage",
    ),
    _read_pipeline,
    _write_pipeline,
)
"""Row of the schedule, chunks and layout of a pipeline."""
