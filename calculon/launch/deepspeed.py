"""DeepSpeed (ZeRO): its JSON configuration, alone or completed by the transformers trainer (``auto``).

Sources: deepspeed.ai/docs/config-json; huggingface.co/docs/transformers/deepspeed (values of ``auto``). The
configuration does not state the model, the sequence length, pipeline parallelism or the number of processors: the
training script does.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, overload

from calculon.base.errors import Problem, SpecError
from calculon.base.units import MIB
from calculon.declarations.fields import shown
from calculon.declarations.named_values import DATATYPE_BYTES
from calculon.declarations.parse import parse as parse_document
from calculon.launch.dialect import Dialect, Fields, Parsed, Reading, Setting, Writing
from calculon.launch.rows import IgnoredValues, first_names, ignored_values, row
from calculon.launch.texts.name_patterns import under
from calculon.launch.texts.tree import flat, nested

AUTO = "auto"
"""Value that the transformers trainer replaces."""

TRAINER_BATCH = 8
"""Default microbatch size of the transformers trainer."""

_ZERO = "zero_optimization"
_BATCH, _MICRO, _STEPS = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
)
_BUCKET = f"{_ZERO}.reduce_bucket_size"
_USUAL_BUCKET = 500_000_000
"""Default bucket size in gradient elements that are reduced together."""

_OPTIMIZERS = {"adam": "adam", "adamw": "adam", "fusedadam": "adam", "lion": "lion", "muon": "muon"}
_WRITTEN_OPTIMIZERS = {"adam": "AdamW", "lion": "Lion", "muon": "Muon"}
_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "bfp16": "bfloat16"}
_SECTIONS = {"float16": "fp16", "bfloat16": "bf16"}

_SEQUENCES = (
    "sequence_parallel_size",
    "sequence_parallel.size",
    "sequence_parallel.ulysses.degree",
)
_TENSOR = "tensor_parallel.autotp_size"
_EXPERT = "expert_parallel.autoep_size"


_SCALING = """
    auto_cast loss_scale loss_scale_window initial_scale_power hysteresis min_loss_scale consecutive_hysteresis
    master_weights_and_grads
"""
"""Loss scaling options."""

_HOUSEKEEPING = """
    contiguous_gradients allgather_partitions allgather_bucket_size sub_group_size round_robin_gradients
    offload_*.pin_memory offload_*.buffer_* offload_*.nvme_path offload_*.fast_init offload_*.pipeline_*
    offload_*.max_in_cpu cpu_offload_* gather_16bit_weights_on_model_save stage3_gather_*
    ignore_missing_optim_state load_from_fp32_weights elastic_checkpoint memory_efficient_linear log_trace_*
    legacy_stage1 use_multi_rank_bucket_allreduce mics_hierarchical_* leaf_module*
"""
"""ZeRO options without a modeled effect on a step."""


_OBJECTS = (
    *(_ZERO, f"{_ZERO}.offload_optimizer", f"{_ZERO}.offload_param", "bf16", "fp16", "optimizer"),
    *("tensor_parallel", "expert_parallel", "sequence_parallel", "activation_checkpointing"),
)
"""Sections that rows read."""


def parse(text: str, file: str, variables: Mapping[str, str]) -> Parsed:
    """Return the settings of a JSON file by path, such as ``zero_optimization.stage``."""
    raw = parse_document(text.encode(), file, ".json")
    if not isinstance(raw, Mapping):
        raise SpecError(file, Problem("", "an object", type(raw).__name__))
    found = {name: Setting(name, value, file) for name, value in flat(raw)}
    # Names that begin with an underscore are comments by convention.
    kept = {name: one for name, one in found.items() if not name.startswith("_")}
    return check_sections(Parsed(file, kept), _OBJECTS)


def recognizes(text: str, file: str) -> bool:
    """Return true for a DeepSpeed configuration."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(raw, dict) and not {_ZERO, _BATCH, _MICRO, _STEPS}.isdisjoint(raw)


def render(settings: Mapping[str, Any], processors: int, head: Sequence[str]) -> str:
    """Return a JSON file; comments are an entry that DeepSpeed ignores."""
    return json.dumps({"_comment": list(head), **nested(settings)}, indent=2) + "\n"


@overload
def count_unless_auto(reading: Reading, *names: str, default: int, least: int = 1) -> int: ...


@overload
def count_unless_auto(
    reading: Reading, *names: str, default: int | None = None, least: int = 1
) -> int | None: ...


def count_unless_auto(
    reading: Reading, *names: str, default: int | None = None, least: int = 1
) -> int | None:
    """Return a count of at least `least`; ``auto`` counts as not stated."""
    auto = reading.get(*names) == AUTO
    return default if auto else reading.count(*names, default=default, least=least)


def check_sections(parsed: Parsed, names: Sequence[str]) -> Parsed:
    """Return the parsed file after checking that some names are sections and not values.

    Raises:
        SpecError: For a name with a plain value.
    """
    for name in names:
        found = parsed.settings.get(name)
        if found is not None and found.value not in (None, {}):
            raise SpecError(found.place, Problem(name, "named settings", shown(found.value)))
    return parsed


def _read_degrees(reading: Reading) -> Fields:
    """Read degrees and batch: the three batch fields and the number of processors must agree."""
    tensor = count_unless_auto(reading, _TENSOR, default=1)
    parts = count_unless_auto(reading, *_SEQUENCES, default=1)
    stages = count_unless_auto(reading, "pipeline.stages", default=1)
    batch, micro, steps = (count_unless_auto(reading, name) for name in (_BATCH, _MICRO, _STEPS))
    rest = tensor * parts * stages
    split = f"tensor {tensor} x sequence {parts} x pipeline {stages}"
    # The three batch fields determine the number of data-parallel replicas if nothing states the processors.
    if reading.num_procs is None and batch and micro and steps and batch % (micro * steps) == 0:
        processors = batch // (micro * steps) * rest
    else:
        processors = reading.processors()
    if processors % rest:
        wanted = f"a divisor of {processors:,} processors"
        raise SpecError(reading.parsed.file, Problem("degrees", wanted, f"{rest:,} ({split})"))
    data = processors // rest
    if micro is None and batch is None:
        micro = TRAINER_BATCH
        reading.notes.append(
            f"{_MICRO} comes from the training script: {TRAINER_BATCH} is used, the transformers default"
        )
    if micro is None:
        micro = (batch or 0) // ((steps or 1) * data)
    elif steps is None:
        steps = max(1, batch // (micro * data)) if batch else 1
    steps = steps or 1
    product = micro * steps * data
    if not micro or (batch is not None and batch != product):
        words = f"{_MICRO} {micro} x {_STEPS} {steps} x data {data} = {product:,}"
        place = reading.parsed.file
        raise SpecError(
            place,
            Problem(_BATCH, words, f"{batch:,}", f"data is {processors:,} processors / ({split})"),
        )
    return {
        "num_procs": processors,
        "tensor_par": tensor,
        "context_par": parts,
        "pipeline_par": stages,
        "data_par": data,
        "microbatch_size": micro,
        "batch_size": product,
        "cp_comm": "a2a" if parts > 1 else "p2p",
    }


def _write_degrees(writing: Writing) -> Fields:
    if writing["pipeline_par"] > 1:
        hint = "pipeline stages are defined in the training script (PipelineModule)"
        raise writing.refuse("pipeline_par", "1", hint)
    if writing["context_par"] > 1 and writing["cp_comm"] != "a2a":
        raise writing.refuse("cp_comm", "a2a: Ulysses")
    micro, data = writing["microbatch_size"], writing["data_par"]
    steps = writing["batch_size"] // (micro * data)
    result = {_BATCH: writing["batch_size"], _MICRO: micro, _STEPS: steps}
    if writing["tensor_par"] > 1:
        result[_TENSOR] = writing["tensor_par"]
    if writing["context_par"] > 1:
        result[_SEQUENCES[0]] = writing["context_par"]
    return result


def _read_experts(reading: Reading) -> Fields:
    experts = count_unless_auto(reading, _EXPERT, default=1)
    if not reading.switch("expert_parallel.enabled", default=True):
        experts = 1
    # DeepSpeed shards experts by expert parallelism only, never within an expert.
    split = experts > 1 and reading.execution["tensor_par"] > 1
    return {"expert_par": experts, "expert_tensor_par": 1 if split else 0}


def _write_experts(writing: Writing) -> Fields:
    if writing["expert_par"] == 1:
        return {}
    return {"expert_parallel.enabled": True, _EXPERT: writing["expert_par"]}


def _read_sharding(reading: Reading) -> Fields:
    stage = reading.count(f"{_ZERO}.stage", default=0)
    if stage not in range(4):
        raise reading.error(reading.stated(f"{_ZERO}.stage", default=stage), "0, 1, 2 or 3")
    ranks = reading.execution["data_par"] * reading.execution["context_par"]
    stage = stage if ranks > 1 else 0
    overlap = reading.get(f"{_ZERO}.overlap_comm")
    # DeepSpeed overlaps by default with ZeRO-3 only.
    overlaps = stage == 3 if overlap in (None, AUTO) else bool(overlap)
    group = reading.count(f"{_ZERO}.mics_shard_size", default=-1) or -1
    ahead = count_unless_auto(
        reading,
        f"{_ZERO}.stage3_prefetch_bucket_size",
        f"{_ZERO}.prefetch_bucket_size",
        default=1,
        least=0,
    )
    return {
        "zero_stage": str(stage),
        "optimizer_sharding": stage > 0,
        "data_par_overlap": overlaps and stage > 0,
        "dp_shard": group if stage == 3 and 1 < group < ranks else 0,
        "fsdp_prefetch": 0 if stage == 3 and ahead == 0 else 1,
    }


def _write_sharding(writing: Writing) -> Fields:
    if writing["zero_stage"] not in ("0", "1", "2", "3"):
        raise writing.refuse("zero_stage", "0, 1, 2, 3", "stage 3 is the nearest to fsdp")
    stage = int(writing["zero_stage"])
    result: Fields = {f"{_ZERO}.stage": stage}
    if writing["data_par_overlap"] != (stage == 3):
        result[f"{_ZERO}.overlap_comm"] = bool(writing["data_par_overlap"])
    if writing["dp_shard"]:
        result[f"{_ZERO}.mics_shard_size"] = writing["dp_shard"]
    if writing["fsdp_prefetch"] == 0:
        result[f"{_ZERO}.stage3_prefetch_bucket_size"] = 0
    return result


def _read_datatype(reading: Reading) -> Fields:
    chosen = ""
    for section in ("bf16", "bfloat16", "fp16"):
        found = reading.setting(f"{section}.enabled")
        if found is None or found.value is False:
            continue
        if found.value not in (True, AUTO):
            raise reading.error(found, "true, false or auto")
        if not chosen:
            chosen = "float16" if section == "fp16" else "bfloat16"
            if found.value == AUTO:
                reading.notes.append(
                    f"{found.name} is auto, so the training script decides: treated as true"
                )
    return {"datatype": chosen or "float32"}


def _write_datatype(writing: Writing) -> Fields:
    datatype = writing["datatype"]
    if datatype == "float32":
        return {}
    if datatype not in _SECTIONS:
        raise writing.refuse("datatype", "float16, bfloat16, float32")
    return {f"{_SECTIONS[datatype]}.enabled": True}


def _usual_gradients(datatype: str, zero_stage: str) -> str:
    """Return the default type of gradients: as the weights, or 4 bytes for bfloat16 without ZeRO.

    Source: DeepSpeed up to 0.17, runtime/engine.py, get_data_types.
    """
    return "float32" if datatype == "bfloat16" and zero_stage == "0" else datatype


def _read_gradients(reading: Reading) -> Fields:
    """Read the types of gradients."""
    datatype = reading.execution["datatype"]
    usual = _usual_gradients(datatype, reading.execution["zero_stage"])
    added = reading.setting("data_types.grad_accum_dtype")
    kept = usual if added is None or added.value in (None, AUTO) else _type(reading, added)
    sent = reading.setting("communication_data_type")
    reduced = "same" if sent is None or sent.value in (None, AUTO) else _type(reading, sent)
    return {"grad_dtype": kept, "grad_comm_dtype": "same" if reduced == datatype else reduced}


def _type(reading: Reading, setting: Setting) -> str:
    if str(setting.value) not in _TYPES:
        raise reading.error(setting, f"one of {', '.join(_TYPES)}")
    return _TYPES[str(setting.value)]


def _write_gradients(writing: Writing) -> Fields:
    datatype = writing["datatype"]
    usual = _usual_gradients(datatype, writing["zero_stage"])
    written = first_names(_TYPES)
    result: Fields = {}
    for name, setting, left_out in (
        ("grad_dtype", "data_types.grad_accum_dtype", (usual,)),
        ("grad_comm_dtype", "communication_data_type", ("same", datatype)),
    ):
        if writing[name] not in left_out:
            if writing[name] not in written:
                raise writing.refuse(name, "float32, float16, bfloat16")
            result[setting] = written[writing[name]]
    return result


def _read_bucket(reading: Reading) -> Fields:
    """Read the bucket size, which matters if gradients are reduced during the backward pass."""
    elements = count_unless_auto(reading, _BUCKET, default=_USUAL_BUCKET, least=0)
    split = reading.execution["zero_stage"] in ("1", "2") and reading.execution["data_par_overlap"]
    if not split or not elements or reading.get(_BUCKET) == AUTO:
        return {"ddp_bucket_mib": 0}
    return {"ddp_bucket_mib": math.ceil(elements * _bytes(reading.execution) / MIB)}


def _bytes(execution: Mapping[str, Any]) -> int:
    kind = execution["grad_comm_dtype"]
    return DATATYPE_BYTES[execution["datatype"] if kind == "same" else kind]


def _write_bucket(writing: Writing) -> Fields:
    size, width = writing["ddp_bucket_mib"], _bytes(writing.execution)
    if not size and writing["zero_stage"] in ("1", "2") and writing["data_par_overlap"]:
        usual = math.ceil(_USUAL_BUCKET * width / MIB)
        hint = f"--set execution.ddp_bucket_mib={usual}"
        raise writing.refuse("ddp_bucket_mib", f"{usual}, the default, or another size", hint)
    return {_BUCKET: size * int(MIB) // width} if size else {}


def _read_offload(reading: Reading) -> Fields:
    state = reading.stated(f"{_ZERO}.offload_optimizer.device", default=None)
    older = reading.get(f"{_ZERO}.cpu_offload")
    weights = reading.stated(f"{_ZERO}.offload_param.device", default=None)
    for found in (state, weights):
        if found.value not in ("cpu", "nvme", "none", None):
            raise reading.error(found, "cpu, nvme or none")
        if found.value == "nvme":
            reading.not_modelled(found.name, "offload to NVMe: counted as host memory")
    if weights.value in ("cpu", "nvme"):
        reading.not_modelled(
            weights.name, "sharded weights in host memory: counted as device memory"
        )
    away = state.value in ("cpu", "nvme") or older is True
    ratio = reading.stated(f"{_ZERO}.offload_optimizer.ratio", default=1)
    if ratio.value != 1:
        reading.not_modelled(
            ratio.name, "partial offload of the optimizer state: all of it is counted as offloaded"
        )
    return {
        "optimizer_offload": away and reading.execution["zero_stage"] != "0",
        "weight_offload": False,
    }


def _write_offload(writing: Writing) -> Fields:
    if writing["weight_offload"]:
        raise writing.refuse(
            "weight_offload", "false: DeepSpeed only offloads weights that ZeRO-3 shards"
        )
    return {f"{_ZERO}.offload_optimizer.device": "cpu"} if writing["optimizer_offload"] else {}


def _read_recompute(reading: Reading) -> Fields:
    section = "activation_checkpointing."
    names = [name for name in reading.parsed.settings if name.startswith(section)]
    cpu = reading.switch(f"{section}cpu_checkpointing")
    if reading.switch(f"{section}partition_activations"):
        effect = "checkpoints are partitioned over tensor-parallel ranks: counted in full"
        reading.not_modelled(f"{section}partition_activations", effect)
    # The section only tunes checkpoints that the training script makes: its presence suggests that it does.
    if not names:
        reading.notes.append(
            "activation recomputation is set in the training script: treated as none"
        )
    return {
        "activation_recompute": "full" if names else "none",
        "activations_offload": cpu,
    }


def _write_recompute(writing: Writing) -> Fields:
    if writing["activation_recompute"] not in ("full", "none"):
        raise writing.refuse("activation_recompute", "full, none")
    if writing["activation_recompute"] == "none":
        return {}
    return {"activation_checkpointing.cpu_checkpointing": bool(writing["activations_offload"])}


def _read_optimizer(reading: Reading) -> Fields:
    found = reading.stated("optimizer.type", default="adamw")
    kind = str(found.value).lower()
    loose = reading.get("optimizer.params.torch_adam") is True
    if kind == "sgd":
        momentum = reading.get("optimizer.params.momentum", default=0)
        return {"optimizer": "sgd_momentum" if momentum else "sgd", "optimizer_impl": "fused"}
    if kind not in _OPTIMIZERS:
        reading.not_modelled(found.name, "treated as AdamW")
    ours = _OPTIMIZERS.get(kind, "adam")
    return {"optimizer": ours, "optimizer_impl": "foreach" if loose else "fused"}


def _write_optimizer(writing: Writing) -> Fields:
    kind, way = writing["optimizer"], writing["optimizer_impl"]
    if kind not in _WRITTEN_OPTIMIZERS:
        raise writing.refuse("optimizer", ", ".join(_WRITTEN_OPTIMIZERS))
    result: Fields = {} if kind == "adam" else {"optimizer.type": _WRITTEN_OPTIMIZERS[kind]}
    if way == "fused":
        return result
    if way != "foreach" or kind != "adam":
        raise writing.refuse("optimizer_impl", "fused, foreach of adam")
    return {"optimizer.type": "AdamW", "optimizer.params.torch_adam": True}


def _read_clipping(reading: Reading) -> Fields:
    return {"grad_clip": bool(reading.get("gradient_clipping"))}


_IGNORED_VALUES: IgnoredValues = {
    f"{_ZERO}.zero_hpz_partition_size": (
        (0, 1),
        "a secondary weight partition per group (hpZ), which the backward pass gathers",
    ),
    f"{_ZERO}.zero_quantized_weights": ((False,), "8-bit all-gather of weights"),
    f"{_ZERO}.zero_quantized_gradients": ((False,), "4-bit all-to-all of gradients"),
    f"{_ZERO}.zero_quantized_nontrainable_weights": ((False,), "frozen weights in 8 bits"),
    f"{_ZERO}.reduce_scatter": ((True, AUTO), "all-reduce instead of reduce-scatter of gradients"),
    f"{_ZERO}.stage3_max_live_parameters": (
        (10**9, AUTO),
        "limit of gathered weights: two blocks are assumed",
    ),
    f"{_ZERO}.stage3_param_persistence_threshold": (
        (0, 100_000, AUTO),
        "small weights are not sharded",
    ),
    f"{_ZERO}.stage3_max_reuse_distance": (
        (10**9, AUTO),
        "gathered weights are kept for reuse: two blocks are assumed",
    ),
    "compile.disable": ((True,), "compiled kernels"),
    "compile.enabled": ((False,), "compiled kernels"),
    "compile.deepcompile": ((False,), "compiled kernels and prefetching"),
    "torch_autocast.enabled": ((False,), "32-bit weights, cast for each product"),
    "data_efficiency.enabled": ((False,), "growing sequence lengths, or dropped tokens"),
    "curriculum_learning.enabled": ((False,), "growing sequence lengths"),
    "progressive_layer_drop.enabled": ((False,), "skipped layers"),
    "elasticity.enabled": ((False,), "a batch size that depends on the number of processors"),
    "hybrid_engine.enabled": ((False,), "generation between steps"),
    "sparse_gradients": ((False,), "sparse embedding gradients"),
    "flops_profiler.enabled": ((False,), "profiling slows steps"),
    "wall_clock_breakdown": ((False,), "synchronization for timers"),
    "amp.enabled": ((False,), "Apex mixed precision"),
    "sequence_parallel.tiling.enabled": ((False,), "tiled MLP and loss, which need less memory"),
}

_NO_EFFECT = f"""
    optimizer.params.* scheduler.* steps_per_print dump_state tensorboard.* wandb.* csv_monitor.*
    monitor_config.* comms_logger.* comms_config.* zero_allow_untested_optimizer zero_force_ds_cpu_optimizer
    aio.* checkpoint.* activation_checkpointing.* expert_parallel.preset_model autotuning.*
    expert_parallel.load_balance_coeff sequence_parallel.* compile.backend prescale_gradients
    gradient_predivide_factor seq_parallel_communication_data_type flops_profiler.*
    communication_data_type_scaler memory_breakdown ignore_unused_*
    {under("fp16", _SCALING)} {under("bf16", _SCALING)} {under("bfloat16", _SCALING)}
    {under(_ZERO, _HOUSEKEEPING)}
"""

_NOT_MODELLED = {
    "compressed layers": "compression_training.*",
    "sparse attention": "sparse_attention.*",
    "tensor-parallel sharding of layers": "tensor_parallel.*",
    "delayed gradients": f"{_ZERO}.zenflow.*",
    "gathered weights that are kept": f"{_ZERO}.max_live_parameters {_ZERO}.max_reuse_distance",
    "growing sequence lengths, or dropped tokens": "data_efficiency.*",
    "growing sequence lengths": "curriculum_learning.*",
    "a batch size that depends on the number of processors": "elasticity.*",
    "generation between steps": "hybrid_engine.*",
    "distribution of layers over pipeline stages": "pipeline.*",
}

DEEPSPEED = Dialect(
    name="deepspeed",
    title="DeepSpeed",
    version="0.17 (2025)",
    preset="deepspeed",
    rows=(
        row(
            "num_procs tensor_par context_par pipeline_par data_par microbatch_size batch_size cp_comm",
            f"{_BATCH} {_MICRO} {_STEPS} {_TENSOR} {_SEQUENCES[0]}",
            _read_degrees,
            _write_degrees,
        ),
        row("expert_par expert_tensor_par", _EXPERT, _read_experts, _write_experts),
        row(
            "zero_stage optimizer_sharding data_par_overlap dp_shard fsdp_prefetch",
            under(_ZERO, "stage overlap_comm mics_shard_size stage3_prefetch_bucket_size"),
            _read_sharding,
            _write_sharding,
        ),
        row("datatype", "bf16.enabled fp16.enabled", _read_datatype, _write_datatype),
        row(
            "grad_dtype grad_comm_dtype",
            "data_types.grad_accum_dtype communication_data_type",
            _read_gradients,
            _write_gradients,
        ),
        row("ddp_bucket_mib", _BUCKET, _read_bucket, _write_bucket),
        row(
            "optimizer_offload weight_offload",
            f"{_ZERO}.offload_optimizer.device",
            _read_offload,
            _write_offload,
        ),
        row(
            "activation_recompute activations_offload",
            "activation_checkpointing.cpu_checkpointing",
            _read_recompute,
            _write_recompute,
        ),
        row(
            "optimizer optimizer_impl",
            "optimizer.type optimizer.params.torch_adam",
            _read_optimizer,
            _write_optimizer,
        ),
        row(
            "grad_clip",
            "gradient_clipping",
            _read_clipping,
            lambda writing: {"gradient_clipping": 1.0} if writing["grad_clip"] else {},
        ),
        ignored_values(_IGNORED_VALUES),
    ),
    no_effect=_NO_EFFECT,
    not_modelled=_NOT_MODELLED,
    parse=parse,
    render=render,
    recognizes=recognizes,
    suffix=".json",
    not_in_file=("seq_length",),
    language=lambda text, file: "json",
)
"""JSON configurations of DeepSpeed."""
