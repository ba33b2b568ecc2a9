"""torchtitan: its TOML configurations up to 2025, and its Python recipes since 2026.

Sources: pytorch/torchtitan, ``torchtitan/config/job_config.py`` and ``train_configs/*.toml`` (2024, 2025),
``torchtitan/config/configs.py`` and ``models/*/config_registry.py`` (2026). The version of August 2026, which counts
tokens in place of sequences, is the one that is written.
"""

from calculon.base.errors import Problem, SpecError
from calculon.declarations.presets import COMMON, find_preset, lacking, refused
from calculon.launch.dialect import Dialect, Fields, Reading, Writing
from calculon.launch.rows import ignored_values, named, row
from calculon.launch.texts.name_patterns import under
from calculon.launch.titan.torchtitan_files import (
    flavor_of,
    indivisible,
    language,
    model_of,
    option_name,
    parallel,
    parse,
    recognizes,
    render,
)
from calculon.launch.titan.torchtitan_kernels import KERNELS, LENGTH, TOKENS
from calculon.launch.titan.torchtitan_pipeline import PIPELINE
from calculon.launch.titan.torchtitan_versions import PASSES, STEP_TOKENS, in_version_of
from calculon.launch.titan.torchtitan_words import IGNORED_VALUES, NO_EFFECT, NOT_MODELLED

_NAME = "torchtitan"

_EXCHANGES = {"allgather": "all_gather", "alltoall": "p2p"}
"""Communication methods of context parallelism; torchtitan's alltoall is a ring that passes keys and values on."""


def _read_degrees(reading: Reading) -> Fields:
    tensor, pipeline, context, replicas = (
        reading.count(*parallel(name), default=1, least=1)
        for name in (
            *("tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree"),
            "data_parallel_replicate_degree",
        )
    )
    sharding = (*parallel("data_parallel_shard_degree"), "training.data_parallel_degree")
    shards = reading.count(*sharding, default=-1)
    rest = tensor * pipeline * context * replicas
    product = f"tensor {tensor} x pipeline {pipeline} x context {context} x replicas {replicas}"
    if shards == -1:  # -1 stands for all remaining processors
        processors = reading.processors()
        if processors % rest:
            raise _contradiction(reading, f"a divisor of {processors:,} processors", rest, product)
        shards = processors // rest
    elif shards < 1:
        raise reading.error(
            reading.stated(*sharding, default=shards), "a whole number of at least 1"
        )
    processors = rest * shards
    if reading.num_procs not in (None, processors):
        product = f"{product} x shards {shards}"
        raise _contradiction(reading, f"{reading.num_procs:,} processors", processors, product)
    ranks = replicas * shards * context
    split = shards * context > 1
    return {
        "num_procs": processors,
        "tensor_par": tensor,
        "pipeline_par": pipeline,
        "context_par": context,
        "data_par": replicas * shards,
        "zero_stage": "fsdp" if split else "0",
        "dp_shard": shards * context if split and replicas > 1 else 0,
        "optimizer_sharding": split,
        "data_par_overlap": ranks > 1,
    }


def _contradiction(reading: Reading, wanted: str, found: int, product: str) -> SpecError:
    """Return the error of degrees that do not match the number of processors."""
    place = reading.parsed.file
    return SpecError(place, Problem("parallelism", wanted, f"{found:,} ({product})"))


def _write_degrees(writing: Writing) -> Fields:
    context, data, shard = writing["context_par"], writing["data_par"], writing["dp_shard"]
    ranks = context * data
    if ranks > 1 and not writing["data_par_overlap"]:
        raise writing.refuse("data_par_overlap", "true: FSDP and DDP always overlap")
    if writing["zero_stage"] == "fsdp" and ranks > 1:
        shards = (shard or ranks) // context
    elif writing["zero_stage"] == "0" and (context == 1 or ranks == 1):
        shards = 1
    else:
        raise writing.refuse("zero_stage", "fsdp, or 0 without context parallelism")
    found = {
        "tensor_parallel_degree": writing["tensor_par"],
        "pipeline_parallel_degree": writing["pipeline_par"],
        "context_parallel_degree": context,
        "data_parallel_replicate_degree": data // shards,
    }
    kept = {f"parallelism.{name}": value for name, value in found.items() if value != 1}
    return {"parallelism.data_parallel_shard_degree": shards, **kept}


def _read_experts(reading: Reading) -> Fields:
    experts = reading.count(*parallel("expert_parallel_degree"), default=1, least=1)
    width = reading.setting(*parallel("expert_tensor_parallel_degree"))
    tensor = reading.execution["tensor_par"]
    if experts == 1 or tensor == 1 or width is None:
        split = 1 if experts > 1 and tensor > 1 else 0
    elif width.value not in (1, tensor):
        raise reading.error(width, f"1, or tensor_parallel_degree={tensor}")
    else:
        split = 1 if width.value == 1 else 0
    return {"expert_par": experts, "expert_tensor_par": split}


def _write_experts(writing: Writing) -> Fields:
    experts, width = writing["expert_par"], writing["expert_tensor_par"] or writing["tensor_par"]
    if experts == 1 and width != writing["tensor_par"]:
        raise writing.refuse("expert_tensor_par", "0: experts are sharded like other layers")
    if experts > 1 and width != 1:
        raise writing.refuse(
            "expert_tensor_par", "1: expert parallelism uses the ranks of tensor parallelism"
        )
    return {} if experts == 1 else {"parallelism.expert_parallel_degree": experts}


def _read_batch(reading: Reading) -> Fields:
    """Read sequence length, microbatch and batch: in tokens since August 2026, in sequences before."""
    tokens = any(name in reading.parsed.settings for name in (TOKENS, STEP_TOKENS, LENGTH, PASSES))
    older = ("local_batch_size", "batch_size", "global_batch_size", "seq_len")
    stated = [name for key in older if (name := f"training.{key}") in reading.parsed.settings]
    if tokens and stated:
        found = reading.parsed.settings[stated[0]]
        raise reading.error(
            found, "no value, as the file counts tokens", "use the names of one version"
        )
    return _read_tokens(reading) if tokens else _read_sequences(reading)


def _read_tokens(reading: Reading) -> Fields:
    length = reading.count(LENGTH, "model.seq_len", default=2048, least=1)
    tokens = reading.count(TOKENS, default=16384, least=1)
    passes = reading.count(PASSES, default=1, least=1)
    passes = passes if reading.execution["pipeline_par"] > 1 else 1
    if tokens % length:
        raise indivisible(reading, TOKENS, f"a multiple of max_context_length={length:,}", tokens)
    at_once = tokens * passes * reading.execution["data_par"]
    step = reading.count(STEP_TOKENS, default=-1)
    step = at_once if step < 0 else step
    if step % at_once:
        product = f"{tokens:,} x {passes} x data {reading.execution['data_par']}"
        raise indivisible(reading, STEP_TOKENS, f"a multiple of {at_once:,} ({product})", step)
    if step > at_once and reading.execution["pipeline_par"] > 1:
        reading.not_modelled(STEP_TOKENS, _refilled(step // at_once))
    return _batch(tokens // length, step // length, length)


def _read_sequences(reading: Reading) -> Fields:
    length = reading.count("training.seq_len", default=2048, least=1)
    local = reading.count("training.local_batch_size", "training.batch_size", default=8, least=1)
    each = reading.count(*parallel("pipeline_parallel_microbatch_size"), default=1, least=1)
    passes = reading.count(*parallel("pipeline_parallel_microbatches"))
    micro = local
    if reading.execution["pipeline_par"] > 1:
        micro = local // passes if passes else each
        if micro < 1 or local % micro:
            wanted = f"a multiple of the {passes or each} of the pipeline's microbatches"
            raise indivisible(reading, "training.local_batch_size", wanted, local)
    at_once = local * reading.execution["data_par"]
    step = reading.count("training.global_batch_size", default=-1)
    step = at_once if step < 0 else step
    if step % at_once:
        product = f"{local:,} x data {reading.execution['data_par']}"
        wanted = f"a multiple of {at_once:,} ({product})"
        raise indivisible(reading, "training.global_batch_size", wanted, step)
    if step > at_once and reading.execution["pipeline_par"] > 1:
        reading.not_modelled("training.global_batch_size", _refilled(step // at_once))
    return _batch(micro, step, length)


def _batch(micro: int, batch: int, length: int) -> Fields:
    return {"microbatch_size": micro, "batch_size": batch, "seq_length": length}


def _refilled(times: int) -> str:
    return f"{times} pipeline fills and drains per step: one is modeled"


def _write_batch(writing: Writing) -> Fields:
    length = writing["seq_length"] or (writing.model.seq_size if writing.model else 0)
    if not length:
        raise writing.refuse(
            "seq_length", "a stated length, as torchtitan counts tokens", "or a model"
        )
    micro, batch, data = writing["microbatch_size"], writing["batch_size"], writing["data_par"]
    if batch % (micro * data):
        raise writing.refuse("batch_size", f"a multiple of microbatch {micro} x data {data}")
    found = {TOKENS: micro * length, LENGTH: length}
    passes = batch // (micro * data)
    if writing["pipeline_par"] > 1:
        return {**found, PASSES: passes}
    return found if passes == 1 else {**found, STEP_TOKENS: batch * length}


def _read_sequence_parallel(reading: Reading) -> Fields:
    on = reading.switch("parallelism.enable_sequence_parallel", default=True)
    return {"tensor_par_comm_type": "rs_ag" if on and reading.execution["tensor_par"] > 1 else "ar"}


def _write_sequence_parallel(writing: Writing) -> Fields:
    kind = writing["tensor_par_comm_type"]
    if writing["tensor_par"] == 1 or kind == "rs_ag":
        return {}
    if kind != "ar":
        raise writing.refuse("tensor_par_comm_type", "rs_ag, ar")
    return {"parallelism.enable_sequence_parallel": False}


def _read_context(reading: Reading) -> Fields:
    method = reading.stated(*parallel("context_parallel_rotate_method"), default="allgather")
    balancer = reading.stated("parallelism.context_parallel_load_balancer", default="headtail")
    if reading.execution["context_par"] == 1:
        return {"cp_comm": "p2p", "cp_balance": "zigzag"}
    exchange = reading.choice(method, _EXCHANGES)
    if balancer.value == "ptrr":
        reading.not_modelled(balancer.name, "treated as headtail")
    elif balancer.value not in ("headtail", None):
        raise reading.error(balancer, "headtail, ptrr or None")
    return {
        "cp_comm": _EXCHANGES[exchange],
        "cp_balance": "contiguous" if balancer.value is None else "zigzag",
    }


def _write_context(writing: Writing) -> Fields:
    if writing["context_par"] == 1:
        return {}
    if writing["cp_comm"] != "all_gather":
        raise writing.refuse("cp_comm", "all_gather, the only method since 2026")
    if writing["cp_balance"] == "zigzag":
        return {}
    if writing["cp_balance"] != "contiguous":
        raise writing.refuse("cp_balance", "zigzag, contiguous")
    return {"parallelism.context_parallel_load_balancer": None}


def _read_reshard(reading: Reading) -> Fields:
    found = reading.stated(*parallel("fsdp_reshard_after_forward"), default="default")
    policy = found.value
    if policy not in ("default", "always", "never"):
        raise reading.error(found, "default, always or never")
    # With a pipeline, FSDP keeps gathered weights by default, as every microbatch would gather them again.
    usual = reading.execution["pipeline_par"] == 1 or reading.execution["zero_stage"] != "fsdp"
    kept = policy == "never" and reading.execution["zero_stage"] == "fsdp"
    return {"reshard_after_forward": usual if policy == "default" else not kept}


def _write_reshard(writing: Writing) -> Fields:
    if writing["zero_stage"] != "fsdp" or writing["reshard_after_forward"] == (
        writing["pipeline_par"] == 1
    ):
        return {}
    policy = "always" if writing["reshard_after_forward"] else "never"
    return {"parallelism.fsdp_reshard_after_forward": policy}


def _read_clipping(reading: Reading) -> Fields:
    return {"grad_clip": bool(reading.get("training.max_norm", default=True))}


def _write_clipping(writing: Writing) -> Fields:
    if not writing["grad_clip"]:
        raise writing.refuse("grad_clip", "true: torchtitan always clips gradients")
    return {}


def _read_model(reading: Reading) -> Fields:
    reading.setting("model.name")
    reading.setting("model.flavor")
    name = model_of(reading.parsed.settings)
    return {"name": name} if name else {}


def _write_model(writing: Writing) -> Fields:
    names = flavor_of(writing.model) if writing.model is not None else None
    return {} if names is None else {"model.name": names[0], "model.flavor": names[1]}


def _read_campaign(reading: Reading) -> Fields:
    result: Fields = {}
    if steps := reading.count("training.steps"):
        result["tokens"] = steps * reading.execution["batch_size"] * reading.execution["seq_length"]
    saves = reading.switch("checkpoint.enable") or reading.switch("checkpoint.enable_checkpoint")
    if saves and (interval := reading.count("checkpoint.interval", default=500)):
        result["save_interval"] = interval
    if str(reading.get("checkpoint.async_mode", default="disabled")).lower() != "disabled":
        result["async_save"] = True
    return result


def _write_campaign(writing: Writing) -> Fields:
    result: Fields = {}
    length = writing["seq_length"] or (writing.model.seq_size if writing.model else 0)
    if tokens := writing.campaign.get("tokens"):
        result["training.steps"] = -(-int(tokens) // (writing["batch_size"] * length))
    if interval := writing.campaign.get("save_interval"):
        result["checkpoint.interval"] = int(interval)
    if writing.campaign.get("async_save"):
        result["checkpoint.async_mode"] = "async"
    return result


def _read_preset(reading: Reading) -> Fields:
    """Write out all fields if the configuration exceeds a limit of torchtitan's preset, which only allows defaults."""
    preset = find_preset(_NAME)
    complete = preset.completed({"training": True, **reading.execution})
    if not any(any(broken(preset, complete.__getitem__)) for broken in (lacking, refused)):
        return {}
    del complete["attn_kernel"]  # the system chooses it
    return {**complete, "preset": COMMON}


_ROWS = (
    row(
        "num_procs tensor_par pipeline_par context_par data_par zero_stage dp_shard "
        "optimizer_sharding data_par_overlap",
        under(
            "parallelism",
            "data_parallel_shard_degree data_parallel_replicate_degree tensor_parallel_degree "
            "pipeline_parallel_degree context_parallel_degree",
        ),
        _read_degrees,
        _write_degrees,
    ),
    row("name", "model.name model.flavor", _read_model, _write_model, "model"),
    row(
        "expert_par expert_tensor_par",
        "parallelism.expert_parallel_degree",
        _read_experts,
        _write_experts,
    ),
    named(
        "model.moe_comm_backend",
        "moe_dispatcher",
        {"standard": "alltoall", "deepep": "deepep", "hybridep": "hybridep"},
        "standard",
    ),
    row(
        "microbatch_size batch_size seq_length",
        f"{TOKENS} {LENGTH} {STEP_TOKENS} {PASSES}",
        _read_batch,
        _write_batch,
    ),
    PIPELINE,
    row(
        "tensor_par_comm_type",
        "parallelism.enable_sequence_parallel",
        _read_sequence_parallel,
        _write_sequence_parallel,
    ),
    row(
        "cp_comm cp_balance",
        "parallelism.context_parallel_load_balancer",
        _read_context,
        _write_context,
    ),
    row(
        "reshard_after_forward",
        "parallelism.fsdp_reshard_after_forward",
        _read_reshard,
        _write_reshard,
    ),
    named(
        "training.mixed_precision_param",
        "datatype",
        {"bfloat16": "bfloat16", "float32": "float32"},
        "bfloat16",
    ),
    named(
        "training.mixed_precision_reduce",
        "grad_comm_dtype",
        {"float32": "float32", "bfloat16": "bfloat16"},
        "float32",
    ),
    *KERNELS,
    row("grad_clip", "training.max_norm", _read_clipping, _write_clipping),
    row(
        "tokens save_interval async_save",
        "training.steps checkpoint.interval checkpoint.async_mode",
        _read_campaign,
        _write_campaign,
        "campaign",
    ),
    row("", "", _read_preset),
    ignored_values(IGNORED_VALUES),
)

TORCHTITAN = Dialect(
    name=_NAME,
    title="torchtitan",
    version="its main branch of August 2026",
    preset=_NAME,
    rows=_ROWS,
    no_effect=NO_EFFECT,
    not_modelled=NOT_MODELLED,
    parse=parse,
    render=render,
    recognizes=recognizes,
    suffix=".py",
    language=language,
    named=option_name,
    in_version_of=in_version_of,
)
"""Launch dialect of torchtitan."""
