"""Rows that engines share: degrees of parallelism, number types, fixed behavior, and shares of memory."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import GIB
from calculon.launch import rows
from calculon.launch.dialect import Fields, Reading, Row, Setting, Writing
from calculon.launch.engines.engine_files import CHECKPOINT, COMMENTED
from calculon.launch.rows import by_name
from calculon.launch.server import RankBytes

OF_HOST = ("graph_tokens", "request_time", "pass_host", "sequence_host", "async_host")
"""Fields of graphs and host time, which an engine runs without an option that is read."""

OF_EXPERTS = ("routing", "expert_kernels", "exchange", "balanced_prompts")
"""Fields of experts and of attention data parallelism, which an engine runs without an option that is read."""

MEMORY_SHARE = "memory_share"
"""Field that states what the share of memory of a deployment is a share of."""

WIDE = ("bfloat16", "float16")
"""16-bit types, one of which an engine computes in."""

_WIDE_NAMES = {"auto": "bfloat16", "bfloat16": "bfloat16", "half": "float16", "float16": "float16"}
DIGITS = 6
"""Decimals of a share of the free memory: a millionth is less than a block of the cache."""

_FEWEST, _MOST = 2, 15
"""Range of decimals of a share of total memory."""

_EXACT = 1e-9
"""Relative rounding error of a share that was written and read."""

_NARROW = ("fp8", "fp4", "awq", "gptq", "int4", "int8", "w4a16", "w8a8", "mxfp4", "nvfp4")
"""Words in the names of checkpoints with quantized weights."""


row = partial(rows.row, subject="deployment")
"""Make a row of deployment fields, as :func:`calculon.launch.rows.row`."""


def number(setting: str, name: str, default: int) -> Row:
    """Return the row of a whole number, as :func:`calculon.launch.rows.number`."""
    return replace(rows.number(setting, name, default), subject="deployment")


def always(field: str, value: Any) -> Row:
    """Return the row of a field for which an engine always runs the same value."""

    def write(writing: Writing) -> Fields:
        if writing[field] != value:
            raise writing.refuse(field, str(value), f"--set {field}={value}")
        return {}

    return row(field, "", lambda reading: {field: value}, write)


def option(setting: str, field: str, on: Any, off: Any) -> Row:
    """Return the row of a switch for a field with two possible values; not written if off."""

    def write(writing: Writing) -> Fields:
        if writing[field] not in (on, off):
            raise writing.refuse(field, f"{off}, {on}", f"--set {field}={off}")
        return {setting: True} if writing[field] == on else {}

    return row(
        field, setting, lambda reading: {field: on if reading.switch(setting) else off}, write
    )


@dataclass(frozen=True, slots=True)
class Degrees:
    """Settings of processors and degrees of parallelism of an engine.

    Attributes:
        tensor, pipeline, copies: Settings of tensor parallelism, pipeline parallelism, and of copies of the model or
            attention ranks with their own requests; `copies` is empty if there is none.
        further: Settings that the functions ask for.
        read_split: Function from the stated ranks and copies to ``tensor_par`` (all ranks of a stage),
            ``attn_data_par``, ``expert_par``, and the remaining copies of the model.
        write_split: Function that returns the settings of these three fields.
    """

    tensor: str
    pipeline: str
    copies: str
    further: tuple[str, ...]
    read_split: Callable[[Reading, int, int], tuple[int, int, int, int]]
    write_split: Callable[[Writing], Fields]

    def row(self) -> Row:
        """Return the row of all degrees."""
        named = (self.tensor, self.pipeline, self.copies, f"{COMMENTED}replicas", *self.further)
        fields = "num_procs tensor_par pipeline_par attn_data_par expert_par"
        return row(fields, " ".join(named), self._read, self._write)

    def _read(self, reading: Reading) -> Fields:
        ranks, stages = (_least_one(reading, name) for name in (self.tensor, self.pipeline))
        stated = _least_one(reading, self.copies) if self.copies else 1
        split, attention, groups, copies = self.read_split(reading, ranks, stated)
        each = split * stages
        # A command starts one replica; the number of replicas is only in our comment.
        procs = reading.asked_procs or each * copies * _least_one(reading, f"{COMMENTED}replicas")
        if procs % each:
            wanted = f"a multiple of {split} x {stages} = {each:,} (tensor x pipeline parallel)"
            raise SpecError(reading.parsed.file, Problem("processors", wanted, f"{procs:,}"))
        for name, value in (("attn_data_par", attention), ("expert_par", groups)):
            if split % value:
                wanted = f"a divisor of {self.tensor} {split}"
                raise SpecError(reading.parsed.file, Problem(name, wanted, str(value)))
        return {
            "num_procs": procs,
            "tensor_par": split,
            "pipeline_par": stages,
            "attn_data_par": attention,
            "expert_par": groups,
        }

    def _write(self, writing: Writing) -> Fields:
        found = self.write_split(writing)
        if writing["pipeline_par"] > 1:
            found[self.pipeline] = writing["pipeline_par"]
        copies = writing["num_procs"] // (writing["tensor_par"] * writing["pipeline_par"])
        return found | ({f"{COMMENTED}replicas": copies} if copies > 1 else {})


def _least_one(reading: Reading, name: str) -> int:
    value = reading.count(name, default=1)
    if value < 1:
        raise reading.error(reading.stated(name, default=value), "at least 1")
    return value


@dataclass(frozen=True, slots=True)
class TypeNames:
    """Names of number types of an engine.

    dtype, weights, cache: Settings of the 16-bit type, of quantized weights, and of the KV cache; `weights` is empty if
        only the checkpoint determines it.
        quantized: Pairs of types of weights and experts, each with a text of the engine's names, of which the first is
            written; ``wide`` is the 16-bit type and ``same`` the type of the other weights.
        caches: Types of the KV cache, with a text of the engine's names.
    """

    dtype: str
    weights: str
    cache: str
    quantized: Mapping[tuple[str, str], str]
    caches: Mapping[str, str]

    def row(self) -> Row:
        """Return the row of all types."""
        commented = [COMMENTED + name for name in ("weights_dtype", "experts_dtype", "head_dtype")]
        settings = (self.dtype, self.cache, self.weights, *commented, CHECKPOINT)
        fields = "weights_dtype experts_dtype head_dtype kv_dtype"
        return row(fields, " ".join(settings), self._read, self._write)

    def _read(self, reading: Reading) -> Fields:
        stated = reading.setting(self.dtype)
        wide = "bfloat16" if stated is None else _WIDE_NAMES[reading.choice(stated, _WIDE_NAMES)]
        weights, experts = self._weights(reading)
        weights = wide if weights == "wide" else weights
        commented = {
            name: reading.get(COMMENTED + name) for name in ("weights_dtype", "experts_dtype")
        }
        stated = reading.setting(self.cache)
        cache = wide
        if stated is not None and stated.value != "auto":
            caches = by_name(self.caches)
            cache = caches[reading.choice(stated, caches)]
        return {
            "weights_dtype": commented["weights_dtype"] or weights,
            "experts_dtype": commented["experts_dtype"] or experts,
            "head_dtype": reading.get(f"{COMMENTED}head_dtype") or wide,
            "kv_dtype": cache,
        }

    def _weights(self, reading: Reading) -> tuple[str, str]:
        """Return the types of weights and experts; types that only the checkpoint states are reported."""
        stated = reading.setting(self.weights) if self.weights else None
        if stated is not None and stated.value not in (None, "auto"):
            if types := by_name(self.quantized).get(str(stated.value)):
                return types
            effect = "types of weights that only the checkpoint states: set them with --set weights_dtype=..."
            reading.not_modelled(stated.name, effect)
        elif f"{COMMENTED}weights_dtype" not in reading.parsed.settings:
            reading.notes += _narrow(reading)
        return "wide", "same"

    def _write(self, writing: Writing) -> Fields:
        weights, experts, head = (writing[f"{n}_dtype"] for n in ("weights", "experts", "head"))
        # One 16-bit type serves all layers that are not quantized: take it from the first field that names one.
        wide = next(
            (name for name in (head, weights, writing["kv_dtype"]) if name in WIDE), WIDE[0]
        )
        result: Fields = {} if wide == WIDE[0] else {self.dtype: wide}
        pair = ("wide" if weights == wide else weights), experts
        if pair in self.quantized and self.weights:
            result[self.weights] = self.quantized[pair].split()[0]
        elif pair != ("wide", "same"):
            result[f"{COMMENTED}weights_dtype"] = weights
            result |= {f"{COMMENTED}experts_dtype": experts} if experts != "same" else {}
        result |= {f"{COMMENTED}head_dtype": head} if head != wide else {}
        if writing["kv_dtype"] == wide:
            return result
        if writing["kv_dtype"] not in self.caches:
            wanted = ", ".join(dict.fromkeys((wide, *self.caches)))
            raise writing.refuse("kv_dtype", wanted, f"--set kv_dtype={wide}")
        return result | {self.cache: self.caches[writing["kv_dtype"]].split()[0]}


def _narrow(reading: Reading) -> list[str]:
    """Return a note if the name of a checkpoint indicates quantized weights that no setting states."""
    name = reading.parsed.settings.get(CHECKPOINT)
    words_found = (
        [] if name is None else [word for word in _NARROW if word in str(name.value).lower()]
    )
    if name is None or not words_found:
        return []
    text = f"{name.value}: the name says {words_found[0].upper()}, but no setting states the weight types"
    return [f"{text}; set them with --set weights_dtype=..."]


def memory_share(
    setting: str,
    base: str,
    default: float | None,
    cache_in: Callable[[RankBytes, float], float],
    share_of: Callable[[RankBytes, float], float],
) -> Row:
    """Return the row of the memory share of an engine, which may refer to total or free memory.

    If the share leaves more for the KV cache than our reserve allows, the reserve is reduced.

    Args:
        setting: Name of the setting.
        base: What it is a share of, in the words of the field ``memory_share``.
        default: Default of the engine; None if it depends on other settings.
        cache_in: Function from the memory of a rank and the share to the bytes of the KV cache.
        share_of: Function from the memory of a rank and the bytes of the KV cache to the share.
    """
    reserve = f"{COMMENTED}reserve_gib"

    def read(reading: Reading) -> Fields:
        stated = reading.setting(setting)
        kept = {} if (commented := reading.get(reserve)) is None else {"reserve_gib": commented}
        share = default if stated is None else share_in(reading, stated)
        if share is None:  # the engine computes it, as its preset does
            return kept
        if reading.server is None:
            own = {} if stated is None else {MEMORY_SHARE: base, "memory_fraction": share}
            return {**own, **kept}
        rank = reading.server.rank(reading.deployment | kept)
        cache = cache_in(rank, share)
        if cache <= 0:
            wanted = f"a share that leaves memory for the KV cache on {reading.server.system}"
            raise reading.error(stated or Setting(setting, share), wanted)
        # The engine leaves less in reserve than we assume: believe the engine.
        if cache > rank.free * (1 + _EXACT):
            left = max(0.0, rank.free + rank.reserve - cache)
            return {MEMORY_SHARE: "free", "memory_fraction": 1.0, "reserve_gib": left / GIB}
        fraction = round(min(1.0, cache / rank.free), DIGITS)
        return {MEMORY_SHARE: "free", "memory_fraction": fraction, **kept}

    def write(writing: Writing) -> Fields:
        if writing[MEMORY_SHARE] == base:
            return {setting: writing["memory_fraction"]}
        if writing.server is None:
            return {}
        rank = writing.server.rank(writing.execution)
        if rank.free <= 0:
            raise writing.refuse(
                "memory_fraction", f"none: the model does not fit on {writing.server.system}"
            )
        return {setting: _written(rank, writing["memory_fraction"], cache_in, share_of)}

    return row("memory_fraction", f"{setting} {reserve}", read, write)


def _written(
    rank: RankBytes,
    fraction: float,
    cache_in: Callable[[RankBytes, float], float],
    share_of: Callable[[RankBytes, float], float],
) -> float:
    """Return the share of total memory with the fewest decimals that reproduce the share of free memory."""
    share = share_of(rank, fraction * rank.free)
    # Engines print the share back: as few decimals as possible keep commands readable.
    for digits in range(_FEWEST, _MOST):
        short = round(share, digits)
        cache = cache_in(rank, short) / rank.free
        if cache <= 1 + _EXACT and round(cache, DIGITS) == round(fraction, DIGITS):
            return short
    return share


def share_in(reading: Reading, stated: Setting) -> float:
    """Return a share of memory; SpecError for an invalid one."""
    value = stated.value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise reading.error(stated, "a number above 0, of at most 1")
    return float(value)


def only_read(settings: str, read: Callable[[Reading], Fields]) -> Row:
    """Return the row of settings that are read; a field that differs from the engine's default is kept in a comment."""
    return row("", settings, read)


def largest_graph(setting: str) -> Row:
    """Return the row of the largest pass that an engine launches as a graph; 0 leaves it to the engine."""

    def read(reading: Reading) -> Fields:
        found = reading.count(setting, default=0) or 0
        return {"graph_tokens": found} if found > 0 else {}

    return only_read(setting, read)


def overlapped_host(on: str, off: str) -> Row:
    """Return the row of the switches for host work during a pass; an empty name stands for a switch that is missing."""

    def read(reading: Reading) -> Fields:
        found: Fields = {}
        for name, value in ((on, True), (off, False)):
            if name in reading.parsed.settings:
                found["async_host"] = value == reading.switch(name)
        return found

    return only_read(" ".join(filter(None, (on, off))), read)


def passed_on(*fields: str) -> Row:
    """Return the row of fields that are written as a comment, because no flag expresses them."""

    def read(reading: Reading) -> Fields:
        found = {name: reading.get(COMMENTED + name) for name in fields}
        return {name: value for name, value in found.items() if value is not None}

    return row("", " ".join(COMMENTED + name for name in fields), read)
