"""Megatron-LM: pipeline parallelism and stages, expert parallelism, and context parallelism."""

import re

from calculon.base.errors import Problem, SpecError
from calculon.declarations.lists_of_counts import ListsOfCounts
from calculon.declarations.named_values import ENDS_AS_BLOCKS, EXCHANGING
from calculon.launch.dialect import Fields, Reading, Writing
from calculon.launch.rows import first_names, named, number, row

_STAGES = "--num-virtual-stages-per-pipeline-rank"
_BLOCKS = "--num-layers-per-virtual-pipeline-stage"
_MAP = "--pipeline-model-parallel-layout"
_FIRST, _LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
_ENDS = "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"
_METHOD = "--pp-partition-method"
_LONGEST = 20_000
"""Largest length in characters of an expanded layout, which limits malicious input."""


def layout_blocks(text: str) -> list[int] | None:
    """Return the blocks of each stage of a layout; None if it is malformed.

    A stage is a row of letters: ``E`` the embedding, ``t`` a block, ``m`` an MTP module, ``L`` the loss; ``|`` ends a
    stage; ``*n`` repeats a letter or a parenthesis. Source: Megatron-LM, documentation of
    ``--pipeline-model-parallel-layout``.

    >>> layout_blocks("Et*3|(tt|)*2tL")
    [3, 2, 2, 1]
    """
    text = re.sub(r"[\s,'\"]", "", text)
    while found := re.search(r"(?:\(([^()]*)\)|([EtmL|]))\*(\d+)", text):
        part = found[1] if found[1] is not None else found[2]
        # Nested repetitions grow exponentially in the length of the text.
        if len(part) * int(found[3]) > _LONGEST:
            return None
        text = text[: found.start()] + part * int(found[3]) + text[found.end() :]
    text = re.sub(r"[()]", "", text)
    return [one.count("t") for one in text.split("|")] if re.fullmatch(r"[EtmL|]+", text) else None


def _layout(one: Reading) -> Fields:
    """Read the chunks of each stage (interleaved schedule), and their blocks."""
    pipeline = one.execution["pipeline_par"]
    first, last = one.count(_FIRST, default=0), one.count(_LAST, default=0)
    ends = tuple(int(one.switch(name)) for name in _ENDS)
    if str(one.get(_METHOD, default="")) == "type:transformer|embedding":
        ends = (1, 1)  # DeepSpeed: embedding and head count as a block each
    stated = one.setting(_MAP)
    chunks = _chunks(one, pipeline, sum(ends))
    found: Fields = {
        "pipeline_interleaving": chunks,
        "pp_layout": next((k for k, v in ENDS_AS_BLOCKS.items() if v == ends), "uniform"),
        "first_stage_blocks": first,
        "last_stage_blocks": last,
        "stage_blocks": "",
    }
    if pipeline == 1:
        return found | {
            "pp_layout": "uniform",
            "first_stage_blocks": 0,
            "last_stage_blocks": 0,
            "pipeline_interleaving": 1,
        }
    if stated is None:
        return found
    blocks = layout_blocks(str(stated.value))
    if blocks is None:
        raise one.error(stated, "letters E, t, m, L and |, as in 'Et*3|(tt|)*29,m|L'")
    if len(blocks) % pipeline:
        wanted = f"a multiple of {pipeline} stages ({_PP})"
        raise one.error(stated, wanted, f"the layout has {len(blocks)} stages")
    found |= {"pp_layout": "uniform", "first_stage_blocks": 0, "last_stage_blocks": 0}
    found["pipeline_interleaving"] = len(blocks) // pipeline
    # A list cannot express empty stages, which a layout with a separate embedding or loss stage has.
    if min(blocks):
        return found | {"stage_blocks": ListsOfCounts().plain(blocks)}
    one.not_modelled(_MAP, "stages without a block: a balanced layout is used instead")
    return found | {"pp_layout": "balanced"}


_PP = "--pipeline-model-parallel-size"


def _chunks(one: Reading, pipeline: int, ends: int) -> int:
    """Return the chunks per stage: as stated, or computed from the stated blocks per chunk."""
    chunks, each = one.count(_STAGES), one.count(_BLOCKS)
    if chunks or not each or pipeline == 1:
        return chunks or 1
    blocks = one.count("--num-layers", "--encoder-num-layers")
    if not blocks:
        wanted = f"the number of blocks, as {_BLOCKS} {each} sets the size of a chunk"
        raise SpecError(one.parsed.file, Problem("--num-layers", wanted, "none"))
    if (blocks + ends) % (pipeline * each):
        wanted = f"a divisor of {blocks + ends} blocks / {pipeline} stages"
        raise one.error(one.stated(_BLOCKS, default=each), wanted)
    return (blocks + ends) // (pipeline * each)


def _write_layout(one: Writing) -> Fields:
    found: Fields = {}
    if one["pipeline_interleaving"] > 1 and not one["stage_blocks"]:
        found[_STAGES] = one["pipeline_interleaving"]
    if one["stage_blocks"]:
        predicted = one.model.mtp_layers if one.model else 0
        counts = ListsOfCounts.counts(one["stage_blocks"])
        stages = [f"t*{count}" if count > 1 else "t" for count in counts]
        ending = f"{'m' * predicted}L"
        return found | {_MAP: f"E{'|'.join(stages)}{ending}"}
    if one["pp_layout"] == "balanced":
        hint = "stage_blocks lists the blocks of each stage"
        raise one.refuse("pp_layout", "uniform, or stage_blocks", hint)
    ends = ENDS_AS_BLOCKS.get(one["pp_layout"], (0, 0))
    found |= {name: True for name, counted in zip(_ENDS, ends, strict=True) if counted}
    outer = {_FIRST: one["first_stage_blocks"], _LAST: one["last_stage_blocks"]}
    return found | {name: count for name, count in outer.items() if count}


def _p2p(one: Reading) -> Fields:
    chunks = one.execution["pipeline_interleaving"]
    return {"p2p_overlap": chunks > 1 and not one.switch("--no-overlap-p2p-communication")}


def _write_p2p(one: Writing) -> Fields:
    alone = one["pipeline_interleaving"] > 1 and not one["p2p_overlap"]
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
"""Run all experts of a rank in one kernel; without the flag each expert has a GEMM of its own, one after another."""


def _dispatcher(one: Reading) -> Fields:
    """Read the dispatch of tokens to experts; Megatron-LM uses an all-gather by default."""
    kind = one.setting(_DISPATCHER)
    backend = one.setting(_BACKEND)
    if (grouped := one.setting(GROUPED)) is not None and grouped.value is False:
        one.not_modelled(GROUPED, "sequential GEMMs per expert; a grouped GEMM is modelled")
    asked = one.switch("--moe-enable-deepep")
    if kind is None:
        experts = one.count("--num-experts")
        return {"moe_dispatcher": "allgather" if experts else "alltoall"}
    if one.choice(kind, (*_PLAIN, "flex")) != "flex":
        return {"moe_dispatcher": _PLAIN[kind.value]}
    found = "deepep" if asked or backend is None else one.choice(backend, _FLEXIBLE)
    return {"moe_dispatcher": found}


def _write_dispatcher(one: Writing) -> Fields:
    kind = one["moe_dispatcher"]
    spread = kind != "alltoall" or one["expert_par"] > 1
    # Without a model, a dispatcher or expert parallelism implies experts.
    experts = one.model.has_experts if one.model else spread
    found: Fields = {GROUPED: True} if experts else {}
    if kind in _FLEXIBLE:
        return found | {_DISPATCHER: "flex", _BACKEND: kind}
    return found | ({_DISPATCHER: kind} if experts or spread else {})


def _capacity(one: Reading) -> Fields:
    factor = one.stated("--moe-expert-capacity-factor", default=0.0)
    value = factor.value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise one.error(factor, "a number")
    percent = round(100 * value) if value > 0 else 0
    padded = one.switch("--moe-pad-expert-input-to-capacity") and percent > 0
    return {"moe_capacity_percent": percent, "moe_pad_to_capacity": padded}


def _write_capacity(one: Writing) -> Fields:
    if not one["moe_capacity_percent"]:
        return {}
    found: Fields = {"--moe-expert-capacity-factor": one["moe_capacity_percent"] / 100}
    if one["moe_pad_to_capacity"]:
        found["--moe-pad-expert-input-to-capacity"] = True
    return found


def _expert_overlap(one: Reading) -> Fields:
    """Read the overlap of expert communication; without expert parallelism there is none."""
    spread = one.execution["expert_par"] > 1
    exchanged = spread and one.execution["moe_dispatcher"] in EXCHANGING
    paired = one.switch("--overlap-moe-expert-parallel-comm") and exchanged
    late = one.switch("--delay-wgrad-compute")
    if late and not paired:
        one.not_modelled("--delay-wgrad-compute", "delayed weight gradients without 1F1B overlap")
    shared = one.switch("--moe-shared-expert-overlap") and exchanged and not paired
    return {
        "ep_overlap": "1f1b" if paired else "none",
        "delay_wgrad": late and paired,
        "moe_shared_overlap": shared,
    }


def _write_expert_overlap(one: Writing) -> Fields:
    flags = {
        "--overlap-moe-expert-parallel-comm": one["ep_overlap"] == "1f1b",
        "--delay-wgrad-compute": one["delay_wgrad"],
        "--moe-shared-expert-overlap": one["moe_shared_overlap"],
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
    row(
        "ep_overlap delay_wgrad moe_shared_overlap",
        "--overlap-moe-expert-parallel-comm --delay-wgrad-compute --moe-shared-expert-overlap",
        _expert_overlap,
        _write_expert_overlap,
    ),
)

_COMM, _SIZES = "--cp-comm-type", "--hierarchical-context-parallel-sizes"
_EXCHANGES = {"p2p": "p2p", "all_gather": "all_gather", "a2a": "a2a", "a2a+p2p": "a2a_p2p"}


def _context(one: Reading) -> Fields:
    """Read the communication of context parallelism; without context parallelism there is none."""
    stated, sizes = one.setting(_COMM), one.get(_SIZES)
    parts = one.execution["context_par"]
    kind = "p2p" if stated is None else stated.value
    if isinstance(kind, list) and len(set(kind)) == 1:
        kind = kind[0]  # one entry per block
    if stated is not None and (isinstance(kind, list) or kind not in _EXCHANGES):
        raise one.error(stated, f"one of {', '.join(_EXCHANGES)}")
    found = _EXCHANGES[str(kind)] if parts > 1 else "p2p"
    inner = sizes[0] if found == "a2a_p2p" and isinstance(sizes, list) else 0
    return {"cp_comm": found, "cp_a2a_size": inner}


def _write_context(one: Writing) -> Fields:
    if one["context_par"] == 1 or one["cp_comm"] == "p2p":
        return {}
    found: Fields = {_COMM: first_names(_EXCHANGES)[one["cp_comm"]]}
    if one["cp_comm"] == "a2a_p2p" and one["cp_a2a_size"]:
        found[_SIZES] = [one["cp_a2a_size"], one["context_par"] // one["cp_a2a_size"]]
    return found


CONTEXT = row("cp_comm cp_a2a_size", f"{_COMM} {_SIZES}", _context, _write_context)
