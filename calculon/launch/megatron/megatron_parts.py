"""Megatron-LM: pipeline parallelism (stages, interleaved schedule), expert parallelism, context parallelism."""

import re

from calculon.base.errors import Problem, SpecError
from calculon.declarations.lists_of_counts import (
    ListsOfCounts,
    chunks_in_letters,
    counts_in_letters,
    unbalanced_parenthesis,
)
from calculon.declarations.named_values import ENDS_AS_BLOCKS, EXCHANGING
from calculon.launch.dialect import Fields, Reading, Setting, Writing
from calculon.launch.rows import first_names, named, number, row

_STAGES = "--num-virtual-stages-per-pipeline-rank"
_BLOCKS = "--num-layers-per-virtual-pipeline-stage"
_MAP = "--pipeline-model-parallel-layout"
_FIRST, _LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
_ENDS = "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"
_METHOD = "--pp-partition-method"


def _layout(reading: Reading) -> Fields:
    """Read the chunks of each stage (interleaved schedule), and their blocks."""
    pipeline = reading.execution["pipeline_par"]
    first, last = reading.count(_FIRST, default=0), reading.count(_LAST, default=0)
    ends = tuple(int(reading.switch(name)) for name in _ENDS)
    if str(reading.get(_METHOD, default="")) == "type:transformer|embedding":
        ends = (1, 1)  # DeepSpeed: embedding and head count as a block each
    stated = reading.setting(_MAP)
    chunks = _chunks(reading, pipeline, sum(ends))
    result: Fields = {
        "pipeline_interleaving": chunks,
        "pp_layout": next((k for k, v in ENDS_AS_BLOCKS.items() if v == ends), "uniform"),
        "first_stage_blocks": first,
        "last_stage_blocks": last,
        "stage_blocks": "",
    }
    if pipeline == 1:
        return result | {
            "pp_layout": "uniform",
            "first_stage_blocks": 0,
            "last_stage_blocks": 0,
            "pipeline_interleaving": 1,
        }
    if stated is None:
        return result
    parts = chunks_in_letters(str(stated.value))
    if parts is None:
        hint = unbalanced_parenthesis(str(stated.value))
        raise reading.error(stated, "letters E, t, m, L and |, as in 'Et*3|(tt|)*29,m|L'", hint)
    if len(parts) % pipeline:
        wanted = f"a multiple of {pipeline} stages ({_PP})"
        raise reading.error(stated, wanted, f"the layout has {len(parts)} stages")
    _check_letters(reading, stated, "".join(parts))
    listed = counts_in_letters("|".join(parts))
    if listed is None:
        raise reading.error(stated, "all m (MTP modules) in one part")
    return result | {
        "pp_layout": "uniform",
        "first_stage_blocks": 0,
        "last_stage_blocks": 0,
        "pipeline_interleaving": len(parts) // pipeline,
        "stage_blocks": listed,
    }


def _check_letters(reading: Reading, stated: Setting, letters: str) -> None:
    """Raise SpecError for a layout without E, blocks, MTP modules and L in order, or with modules the model lacks."""
    if not re.fullmatch("Et*m*L", letters):
        raise reading.error(stated, "E, then all t (blocks), all m (MTP modules), and L")
    if reading.setting("--num-layers", "--encoder-num-layers", "--mtp-num-layers") is None:
        return  # the file does not state the model
    modules, found = reading.count("--mtp-num-layers", default=0), letters.count("m")
    if found != modules:
        wanted = f"{modules} m (MTP modules), as --mtp-num-layers"
        raise reading.error(stated, wanted, f"the layout has {found}")


_PP = "--pipeline-model-parallel-size"


def _chunks(reading: Reading, pipeline: int, ends: int) -> int:
    """Return the chunks per stage: as stated, or computed from the stated blocks per chunk."""
    chunks, each = reading.count(_STAGES), reading.count(_BLOCKS)
    if chunks or not each or pipeline == 1:
        return chunks or 1
    blocks = reading.count("--num-layers", "--encoder-num-layers")
    if not blocks:
        wanted = f"the number of blocks, as {_BLOCKS} {each} sets the size of a chunk"
        raise SpecError(reading.parsed.file, Problem("--num-layers", wanted, "none"))
    if (blocks + ends) % (pipeline * each):
        wanted = f"a divisor of {blocks + ends} blocks / {pipeline} stages"
        raise reading.error(reading.stated(_BLOCKS, default=each), wanted)
    return (blocks + ends) // (pipeline * each)


def _write_layout(writing: Writing) -> Fields:
    found: Fields = {}
    if writing["pipeline_interleaving"] > 1 and not writing["stage_blocks"]:
        found[_STAGES] = writing["pipeline_interleaving"]
    if writing["stage_blocks"]:
        predicted = writing.model.mtp_layers if writing.model else 0
        listed = writing["stage_blocks"]
        counts, place = ListsOfCounts.counts(listed), ListsOfCounts.place_of_modules(listed)
        stages = [f"t*{count}" if count > 1 else "t" * count for count in counts]
        stages[-1 if place is None else place] += "m" * predicted
        return found | {_MAP: f"E{'|'.join(stages)}L"}
    if writing["pp_layout"] == "balanced":
        hint = "stage_blocks lists the blocks of each stage"
        raise writing.refuse("pp_layout", "uniform, or stage_blocks", hint)
    ends = ENDS_AS_BLOCKS.get(writing["pp_layout"], (0, 0))
    found |= {name: True for name, counted in zip(_ENDS, ends, strict=True) if counted}
    outer = {_FIRST: writing["first_stage_blocks"], _LAST: writing["last_stage_blocks"]}
    return found | {name: count for name, count in outer.items() if count}


def _p2p(reading: Reading) -> Fields:
    chunks = reading.execution["pipeline_interleaving"]
    return {"p2p_overlap": chunks > 1 and not reading.switch("--no-overlap-p2p-communication")}


def _write_p2p(writing: Writing) -> Fields:
    alone = writing["pipeline_interleaving"] > 1 and not writing["p2p_overlap"]
    return {"--no-overlap-p2p-communication": True} if alone else {}


LAYOUT = (
    row(
        "pipeline_interleaving pp_layout first_stage_blocks last_stage_blocks stage_blocks",
        f"{_STAGES} {_BLOCKS} {_MAP} {_FIRST} {_LAST} {' '.join(_ENDS)} {_METHOD}",
        _layout,
        _write_layout,
    ),
    row("p2p_overlap", "--no-overlap-p2p-communication", _p2p, _write_p2p),
    named("--use-tp-pp-dp-mapping", "mesh_order", {False: "tp-dp-pp", True: "tp-pp-dp"}, False),
)

_DISPATCHER, _BACKEND = "--moe-token-dispatcher-type", "--moe-flex-dispatcher-backend"
_PLAIN = {"allgather": "allgather", "alltoall": "alltoall", "alltoall_seq": "alltoall"}
_FLEXIBLE = ("deepep", "hybridep")
GROUPED = "--moe-grouped-gemm"
"""Run all experts of a rank in one kernel; without the flag each expert has a separate GEMM, in sequence."""


def _dispatcher(reading: Reading) -> Fields:
    """Read the dispatch of tokens to experts; Megatron-LM uses an all-gather by default."""
    kind = reading.setting(_DISPATCHER)
    backend = reading.setting(_BACKEND)
    if (grouped := reading.setting(GROUPED)) is not None and grouped.value is False:
        reading.not_modelled(GROUPED, "sequential GEMMs per expert; a grouped GEMM is modeled")
    asked = reading.switch("--moe-enable-deepep")
    if kind is None:
        experts = reading.count("--num-experts")
        return {"moe_dispatcher": "allgather" if experts else "alltoall"}
    if reading.choice(kind, (*_PLAIN, "flex")) != "flex":
        return {"moe_dispatcher": _PLAIN[kind.value]}
    found = "deepep" if asked or backend is None else reading.choice(backend, _FLEXIBLE)
    return {"moe_dispatcher": found}


def writes_experts(writing: Writing) -> bool:
    """Return True if the model has experts; without a model, a dispatcher or expert parallelism implies them."""
    spread = writing["moe_dispatcher"] != "alltoall" or writing["expert_par"] > 1
    return writing.model.has_experts if writing.model else spread


def _write_dispatcher(writing: Writing) -> Fields:
    kind, experts = writing["moe_dispatcher"], writes_experts(writing)
    found: Fields = {GROUPED: True} if experts else {}
    if kind in _FLEXIBLE:
        return found | {_DISPATCHER: "flex", _BACKEND: kind}
    spread = kind != "alltoall" or writing["expert_par"] > 1
    return found | ({_DISPATCHER: kind} if experts or spread else {})


_FUSIONS = {
    "--moe-router-fusion": "moe_router_fusion",
    "--moe-permute-fusion": "moe_permute_fusion",
}
"""Flags that fuse operators of MoE layers, and their fields. Off by default in Megatron-LM."""


def _fusions(reading: Reading) -> Fields:
    """Read the fusions of MoE layers; without experts, the fields have their default."""
    fused = {name: reading.switch(flag) for flag, name in _FUSIONS.items()}
    spread = reading.execution["expert_par"] > 1 or reading.setting(_DISPATCHER) is not None
    experts = spread or reading.count("--num-experts") or reading.switch(GROUPED)
    return fused if experts else dict.fromkeys(fused, True)


def _write_fusions(writing: Writing) -> Fields:
    experts = writes_experts(writing)
    return {flag: True for flag, name in _FUSIONS.items() if experts and writing[name]}


def _capacity(reading: Reading) -> Fields:
    factor = reading.stated("--moe-expert-capacity-factor", default=0.0)
    value = factor.value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise reading.error(factor, "a number")
    percent = round(100 * value) if value > 0 else 0
    padded = reading.switch("--moe-pad-expert-input-to-capacity") and percent > 0
    return {"moe_capacity_percent": percent, "moe_pad_to_capacity": padded}


def _write_capacity(writing: Writing) -> Fields:
    if not writing["moe_capacity_percent"]:
        return {}
    result: Fields = {"--moe-expert-capacity-factor": writing["moe_capacity_percent"] / 100}
    if writing["moe_pad_to_capacity"]:
        result["--moe-pad-expert-input-to-capacity"] = True
    return result


def _expert_overlap(reading: Reading) -> Fields:
    """Read the overlap of expert communication; without expert parallelism there is none."""
    spread = reading.execution["expert_par"] > 1
    exchanged = spread and reading.execution["moe_dispatcher"] in EXCHANGING
    paired = reading.switch("--overlap-moe-expert-parallel-comm") and exchanged
    late = reading.switch("--delay-wgrad-compute")
    if late and not paired:
        reading.not_modelled(
            "--delay-wgrad-compute", "delayed weight gradients without 1F1B overlap"
        )
    shared = reading.switch("--moe-shared-expert-overlap") and exchanged and not paired
    return {
        "ep_overlap": "1f1b" if paired else "none",
        "delay_wgrad": late and paired,
        "moe_shared_overlap": shared,
    }


def _write_expert_overlap(writing: Writing) -> Fields:
    flags = {
        "--overlap-moe-expert-parallel-comm": writing["ep_overlap"] == "1f1b",
        "--delay-wgrad-compute": writing["delay_wgrad"],
        "--moe-shared-expert-overlap": writing["moe_shared_overlap"],
    }
    return {name: True for name, on in flags.items() if on}


EXPERTS = (
    number("--expert-model-parallel-size", "expert_par"),
    number("--expert-tensor-parallel-size", "expert_tensor_par", 0),
    row(
        "moe_dispatcher",
        f"{_DISPATCHER} {_BACKEND} --moe-enable-deepep --num-experts {GROUPED}",
        _dispatcher,
        _write_dispatcher,
    ),
    row(
        "moe_capacity_percent moe_pad_to_capacity",
        "--moe-expert-capacity-factor --moe-pad-expert-input-to-capacity",
        _capacity,
        _write_capacity,
    ),
    row("moe_router_fusion moe_permute_fusion", " ".join(_FUSIONS), _fusions, _write_fusions),
    row(
        "ep_overlap delay_wgrad moe_shared_overlap",
        "--overlap-moe-expert-parallel-comm --delay-wgrad-compute --moe-shared-expert-overlap",
        _expert_overlap,
        _write_expert_overlap,
    ),
)

_COMM, _SIZES = "--cp-comm-type", "--hierarchical-context-parallel-sizes"
_EXCHANGES = {"p2p": "p2p", "all_gather": "all_gather", "a2a": "a2a", "a2a+p2p": "a2a_p2p"}


def _context(reading: Reading) -> Fields:
    """Read the communication of context parallelism; without context parallelism there is none."""
    stated, sizes = reading.setting(_COMM), reading.get(_SIZES)
    parts = reading.execution["context_par"]
    kind = "p2p" if stated is None else stated.value
    if isinstance(kind, list) and len(set(kind)) == 1:
        kind = kind[0]  # one entry per block
    if stated is not None and (isinstance(kind, list) or kind not in _EXCHANGES):
        raise reading.error(stated, f"one of {', '.join(_EXCHANGES)}")
    found = _EXCHANGES[str(kind)] if parts > 1 else "p2p"
    inner = sizes[0] if found == "a2a_p2p" and isinstance(sizes, list) else 0
    return {"cp_comm": found, "cp_a2a_size": inner}


def _write_context(writing: Writing) -> Fields:
    if writing["context_par"] == 1 or writing["cp_comm"] == "p2p":
        return {}
    result: Fields = {_COMM: first_names(_EXCHANGES)[writing["cp_comm"]]}
    if writing["cp_comm"] == "a2a_p2p" and writing["cp_a2a_size"]:
        result[_SIZES] = [writing["cp_a2a_size"], writing["context_par"] // writing["cp_a2a_size"]]
    return result


CONTEXT = row("cp_comm cp_a2a_size", f"{_COMM} {_SIZES}", _context, _write_context)
