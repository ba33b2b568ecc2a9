"""accelerate (FSDP, DeepSpeed): its YAML configuration, with arguments of the transformers trainer in a comment.

Sources: huggingface.co/docs/accelerate: FSDP 1 and 2 (usage_guides/fsdp, concept_guides/fsdp1_vs_fsdp2), parallelism
(concept_guides/context_parallelism, ``ParallelismConfig``), DeepSpeed (usage_guides/deepspeed); transformers,
``TrainingArguments``. The configuration states neither the batch nor activation recomputation (gradient checkpointing):
these are trainer arguments. They are read from a file that states them, and written as a comment, which is read back.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.launch.deepspeed import TRAINER_BATCH, check_sections, count_unless_auto
from calculon.launch.dialect import Dialect, Fields, Parsed, Reading, Setting, Writing, plain
from calculon.launch.rows import IgnoredValues, first_names, ignored_values, row, switch
from calculon.launch.texts.name_patterns import names_in, under
from calculon.launch.texts.tree import nested
from calculon.launch.texts.yaml_config import plain as value_of
from calculon.launch.texts.yaml_config import settings_in, yaml_lines

_FSDP, _PARALLEL, _DEEPSPEED = "fsdp_config", "parallelism_config", "deepspeed_config"
_STRATEGIES = {
    "FULL_SHARD": ("fsdp", True, False),
    "SHARD_GRAD_OP": ("fsdp", False, False),
    "NO_SHARD": ("0", True, False),
    "HYBRID_SHARD": ("fsdp", True, True),
    "HYBRID_SHARD_ZERO2": ("fsdp", False, True),
}
"""Sharding strategies of FSDP 1, numbered from 1: ``zero_stage``, ``reshard_after_forward``, and hybrid sharding."""

_NUMBERED = {str(number): name for number, name in enumerate(_STRATEGIES, 1)}
_TYPES = {"NO", "MULTI_GPU", "FSDP", "DEEPSPEED"}
_DEGREES = "tp_size cp_size sp_size dp_replicate_size dp_shard_size"
_PRECISIONS = {"no": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "bfloat16"}
_BACKENDS = {"TE": "delayed", "AO": "tensorwise"}
"""FP8 recipes by backend: Transformer Engine uses delayed scaling, torchao per-tensor scaling of the current tensor."""

_EXCHANGES = {"allgather": "all_gather", "alltoall": "p2p"}
"""Communication methods of context parallelism; accelerate's alltoall is a ring that passes keys and values on."""

_OPTIMIZERS = {
    "adamw_torch_fused": ("adam", "fused"),
    "adamw_torch": ("adam", "foreach"),
    "adamw_apex_fused": ("adam", "fused"),
    "adamw_hf": ("adam", "loop"),
    "adamw_bnb_8bit": ("adam_8bit", "fused"),
    "adamw_8bit": ("adam_8bit", "fused"),
    "lion_32bit": ("lion", "fused"),
    "adafactor": ("adafactor", "fused"),
    "sgd": ("sgd", "fused"),
}
_LENGTHS = ("max_length", "max_seq_length", "cutoff_len", "sequence_len")
"""Names of the sequence length in TRL, older versions of TRL, LLaMA-Factory and Axolotl."""

_MICRO = ("per_device_train_batch_size", "micro_batch_size")
_STEPS = ("gradient_accumulation_steps", f"{_DEEPSPEED}.gradient_accumulation_steps")
_ARGUMENTS = re.compile(r"#\s*arguments of the training script:(?P<flags>.*)")
_FLAG = re.compile(r"--(?P<name>\w+)[ =](?P<value>\S+)")
_OF_TRAINERS = names_in("""
    per_device_train_batch_size gradient_accumulation_steps gradient_checkpointing max_length max_grad_norm
    max_steps save_steps optim use_liger_kernel activation_offloading
""")
"""Settings that are written as arguments of the training script."""


def parse(text: str, file: str, variables: Mapping[str, str]) -> Parsed:
    """Return the settings of a YAML file by path, such as ``fsdp_config.fsdp_version``, and arguments in comments.

    Version 1 of ``parallelism_config`` repeats the section's name in its keys; the short form is used here.
    """
    found: dict[str, Setting] = {}
    for name, leaf in settings_in(text, file, variables).leaves():
        # Keys of parallelism_config carry a prefix in files (``parallelism_config_tp_size``) that the Python class
        # lacks.
        short = name.replace(f"{_PARALLEL}.{_PARALLEL}_", f"{_PARALLEL}.")
        found[short] = Setting(short, leaf.value, f"{file}:{leaf.line}")
    for number, line in enumerate(text.splitlines(), 1):
        for flag in _FLAG.finditer(said["flags"] if (said := _ARGUMENTS.match(line)) else ""):
            found[flag["name"]] = Setting(flag["name"], value_of(flag["value"]), f"{file}:{number}")
    stated = found.get("num_processes")
    procs = stated.value if stated is not None and isinstance(stated.value, int) else None
    return check_sections(Parsed(file, found, procs), (_FSDP, _PARALLEL, _DEEPSPEED))


def recognizes(text: str, file: str) -> bool:
    """Return true for a configuration of accelerate."""
    if file.endswith((".toml", ".py", ".sh")) or text.lstrip().startswith("{"):
        return False
    names = {line.partition(":")[0] for line in text.splitlines() if ":" in line}
    return not names.isdisjoint(("distributed_type", _FSDP, _PARALLEL))


def render(settings: Mapping[str, Any], processors: int, head: Sequence[str]) -> str:
    """Return a YAML file, with the arguments of the training script in a comment."""
    arguments = {name: value for name, value in settings.items() if name in _OF_TRAINERS}
    lines = [f"# {line}" for line in head]
    if arguments:
        flags = (f"--{name} {plain(value)}" for name, value in arguments.items())
        lines.append(f"# arguments of the training script: {' '.join(flags)}")
    # Without a machine shape, 8 processors per node is the usual size.
    machines = processors // 8 if processors % 8 == 0 else 1
    rest = {_spelled(name): value for name, value in settings.items() if name not in arguments}
    whole = {"compute_environment": "LOCAL_MACHINE", "num_machines": machines, **nested(rest)}
    return "\n".join([*lines, *yaml_lines(whole, _value), ""])


def _spelled(name: str) -> str:
    """Return the name of a setting as files spell it; arguments of the training script get dashes."""
    if name in _OF_TRAINERS:
        return f"--{name}"
    return name.replace(f"{_PARALLEL}.", f"{_PARALLEL}.{_PARALLEL}_")


def _value(value: object) -> str:
    return f"'{value}'" if value in ("no", "NO") else plain(value)


def _kind(source: Reading | Writing) -> str:
    """Return the distributed type: NO, MULTI_GPU (DDP), FSDP or DEEPSPEED."""
    if isinstance(source, Writing):
        stage = source["zero_stage"]
        if source["num_procs"] == 1:
            return "NO"
        return "FSDP" if stage == "fsdp" else "MULTI_GPU" if stage == "0" else "DEEPSPEED"
    found = source.setting("distributed_type")
    if found is None:
        sections = {"FSDP": _FSDP, "DEEPSPEED": _DEEPSPEED}
        stated = source.parsed.settings
        # Older configurations omit the type: a section with settings implies it.
        kinds = (k for k, name in sections.items() if any(n.startswith(name) for n in stated))
        return next(kinds, "MULTI_GPU")
    kind = "NO" if found.value is False else str(found.value).upper()
    if kind not in _TYPES:
        hint = "use the format megatron-lm" if kind == "MEGATRON_LM" else ""
        raise source.error(found, "FSDP, DEEPSPEED, MULTI_GPU or NO", hint)
    return kind


def _read_degrees(reading: Reading) -> Fields:
    kind = _kind(reading)
    count_unless_auto(reading, "num_processes")
    processors = 1 if kind == "NO" and reading.num_procs is None else reading.processors()
    stated = reading.parsed.num_procs
    if isinstance(stated, int) and stated != processors:
        wanted = f"{processors:,} processors, as requested"
        raise SpecError(reading.parsed.file, Problem("num_processes", wanted, f"{stated:,}"))
    tensor, context, sequence, replicas = (
        count_unless_auto(reading, f"{_PARALLEL}.{name}_size", default=1)
        for name in ("tp", "cp", "sp", "dp_replicate")
    )
    shards = reading.count(f"{_PARALLEL}.dp_shard_size")
    parts = context * sequence
    rest = tensor * parts * replicas
    product = f"tp {tensor} x cp {context} x sp {sequence} x dp_replicate {replicas}"
    if processors % rest or (shards and shards > 0 and rest * shards != processors):
        found = f"{rest * (shards or 1):,} ({product}{f' x dp_shard {shards}' if shards else ''})"
        raise SpecError(
            reading.parsed.file, Problem(_PARALLEL, f"degrees of {processors:,} processors", found)
        )
    return {
        "num_procs": processors,
        "tensor_par": tensor,
        "context_par": parts,
        "pipeline_par": 1,
        "data_par": processors // (tensor * parts),
        **_sharding(reading, kind, replicas),
        **_exchange(reading, context, sequence),
    }


def _sharding(reading: Reading, kind: str, replicas: int) -> Fields:
    """Return the sharding: by the strategy of FSDP 1, the device mesh of FSDP 2, or the ZeRO stage."""
    tensor = reading.count(f"{_PARALLEL}.tp_size", default=1) or 1
    ranks = reading.processors() // tensor if kind != "NO" else 1
    stage, kept, group = "0", True, 0
    if kind == "FSDP":
        stage, kept, by_node = _strategy(reading)
        nodes = count_unless_auto(reading, "num_machines", default=1)
        group = ranks // replicas if replicas > 1 else ranks // nodes if by_node else 0
    elif kind == "DEEPSPEED":
        file = reading.setting(f"{_DEEPSPEED}.deepspeed_config_file")
        if file is not None:
            reading.not_modelled(
                file.name, "settings of that file: import it with the format deepspeed"
            )
        stage = str(count_unless_auto(reading, f"{_DEEPSPEED}.zero_stage", default=2, least=0))
        if stage not in ("0", "1", "2", "3"):
            found = reading.stated(f"{_DEEPSPEED}.zero_stage", default=stage)
            raise reading.error(found, "0, 1, 2 or 3")
    # A single rank has nothing to shard, whatever the configuration says.
    stage = stage if ranks > 1 else "0"
    return {
        "zero_stage": stage,
        "optimizer_sharding": stage != "0",
        "data_par_overlap": ranks > 1 and stage in ("0", "3", "fsdp"),
        "dp_shard": group if stage == "fsdp" and 1 < group < ranks else 0,
        "reshard_after_forward": kept if stage == "fsdp" else True,
    }


def _strategy(reading: Reading) -> tuple[str, bool, bool]:
    """Return the ZeRO stage, if weights are resharded after the forward pass, and if only nodes are sharded."""
    stated = reading.stated(f"{_FSDP}.fsdp_sharding_strategy", default="FULL_SHARD")
    resharded = reading.setting(f"{_FSDP}.fsdp_reshard_after_forward")
    reading.setting(f"{_FSDP}.fsdp_version")
    if resharded is not None and isinstance(resharded.value, str):
        stated, resharded = resharded, None  # FSDP 1 also accepts the strategy under this name
    name = str(stated.value).upper()
    name = _NUMBERED.get(name, name)
    if name not in _STRATEGIES:
        raise reading.error(stated, f"one of {', '.join(_STRATEGIES)}")
    stage, kept, by_node = _STRATEGIES[name]
    if resharded is not None:
        kept = bool(resharded.value)
    return stage, kept, by_node


def _exchange(reading: Reading, context: int, sequence: int) -> Fields:
    """Return the communication of context parallelism: ring, all-gather, or all-to-all (Ulysses)."""
    method = reading.stated(f"{_PARALLEL}.cp_comm_strategy", default="allgather")
    backend = reading.get(f"{_PARALLEL}.cp_backend", f"{_PARALLEL}.sp_backend", default="torch")
    if context * sequence == 1:
        return {"cp_comm": "p2p"}
    if sequence > 1 or backend == "deepspeed":
        return {"cp_comm": "a2a"}
    return {"cp_comm": _EXCHANGES[reading.choice(method, _EXCHANGES)]}


def _write_degrees(writing: Writing) -> Fields:
    kind = _kind(writing)
    if writing["pipeline_par"] > 1:
        raise writing.refuse("pipeline_par", "1: accelerate has no pipeline parallelism")
    result: Fields = {"distributed_type": kind, "num_processes": writing["num_procs"]}
    tensor, context, data = writing["tensor_par"], writing["context_par"], writing["data_par"]
    ranks = context * data
    # With context parallelism, FSDP shards over the context ranks too.
    shards = (writing["dp_shard"] or ranks) // context
    if kind == "FSDP":
        result[f"{_FSDP}.fsdp_version"] = 2
        result[f"{_FSDP}.fsdp_reshard_after_forward"] = bool(writing["reshard_after_forward"])
        result[f"{_FSDP}.fsdp_auto_wrap_policy"] = "TRANSFORMER_BASED_WRAP"
    elif kind == "DEEPSPEED":
        if writing["zero_stage"] not in ("1", "2", "3"):
            raise writing.refuse("zero_stage", "0, 1, 2, 3, fsdp")
        result[f"{_DEEPSPEED}.zero_stage"] = int(writing["zero_stage"])
    if tensor * context > 1 or writing["dp_shard"]:
        ulysses = writing["cp_comm"] == "a2a" and context > 1
        sizes = {
            "dp_replicate_size": data // shards,
            "dp_shard_size": shards,
            "tp_size": tensor,
            ("sp_size" if ulysses else "cp_size"): context,
        }
        result |= {f"{_PARALLEL}.{name}": value for name, value in sizes.items()}
        if writing["cp_comm"] == "p2p" and context > 1:
            result[f"{_PARALLEL}.cp_comm_strategy"] = "alltoall"
        if ulysses:
            result[f"{_PARALLEL}.sp_backend"] = "deepspeed"
    return result


def _read_batch(reading: Reading) -> Fields:
    micro = count_unless_auto(reading, *_MICRO)
    if micro is None:
        micro = TRAINER_BATCH
        reading.notes.append(
            f"{_MICRO[0]} is an argument of the training script: its default, {TRAINER_BATCH}, is used"
        )
    steps = count_unless_auto(reading, *_STEPS, default=1)
    length = count_unless_auto(reading, *_LENGTHS, default=0, least=0)
    return {
        "microbatch_size": micro,
        "batch_size": micro * steps * reading.execution["data_par"],
        "seq_length": length,
    }


def _write_batch(writing: Writing) -> Fields:
    micro = writing["microbatch_size"]
    found = {_MICRO[0]: micro, _STEPS[0]: writing["batch_size"] // (micro * writing["data_par"])}
    return {**found, _LENGTHS[0]: writing["seq_length"]} if writing["seq_length"] else found


def _read_precision(reading: Reading) -> Fields:
    found = reading.setting("mixed_precision")
    for name in ("bf16", "fp16"):
        if reading.get(name) is True and found is None:
            return {"datatype": _PRECISIONS[name], "fp8_recipe": "none"}
    chosen = "no"
    if found is not None and found.value not in (False, None):
        chosen = str(found.value).lower()
        if chosen not in _PRECISIONS:
            raise reading.error(found, f"one of {', '.join(_PRECISIONS)}")
    backend = reading.stated("fp8_config.backend", "fp8_config.fp8_backend", default="TE")
    recipe = "none"
    if chosen == "fp8":
        name = str(backend.value).upper()
        if name not in _BACKENDS:
            reading.not_modelled(backend.name, "treated as Transformer Engine")
        recipe = _BACKENDS.get(name, "delayed")
    return {"datatype": _PRECISIONS[chosen], "fp8_recipe": recipe}


def _write_precision(writing: Writing) -> Fields:
    names = first_names(_PRECISIONS)
    datatype, recipe = writing["datatype"], writing["fp8_recipe"]
    if datatype not in names:
        raise writing.refuse("datatype", "bfloat16, float16, float32")
    if recipe == "none":
        return {"mixed_precision": names[datatype]}
    backends = first_names(_BACKENDS)
    if recipe not in backends or datatype != "bfloat16":
        raise writing.refuse("fp8_recipe", "none, delayed, tensorwise")
    return {"mixed_precision": "fp8", "fp8_config.backend": backends[recipe]}


def _read_recompute(reading: Reading) -> Fields:
    of_fsdp = reading.switch(f"{_FSDP}.fsdp_activation_checkpointing")
    again = of_fsdp or reading.switch("gradient_checkpointing")
    if not again and "gradient_checkpointing" not in reading.parsed.settings:
        reading.notes.append(
            "gradient_checkpointing is an argument of the training script: treated as off"
        )
    away = reading.switch("activation_offloading")
    return {"activation_recompute": "full" if again else "none", "activations_offload": away}


def _write_recompute(writing: Writing) -> Fields:
    if writing["activation_recompute"] not in ("full", "none"):
        raise writing.refuse("activation_recompute", "full, none")
    full = writing["activation_recompute"] == "full"
    found: Fields = {"gradient_checkpointing": full}
    if full and _kind(writing) == "FSDP":  # FSDP needs its own activation checkpointing
        found = {f"{_FSDP}.fsdp_activation_checkpointing": True}
    return {**found, "activation_offloading": True} if writing["activations_offload"] else found


def _read_prefetch(reading: Reading) -> Fields:
    found = reading.stated(f"{_FSDP}.fsdp_backward_prefetch", default="BACKWARD_PRE")
    value = str(found.value).upper()
    if value in ("BACKWARD_POST", "2"):
        reading.not_modelled(
            found.name, "weights are gathered after the previous pass: treated as BACKWARD_PRE"
        )
    none = value in ("NO_PREFETCH", "NONE", "3")
    return {"fsdp_prefetch": 0 if none and reading.execution["zero_stage"] == "fsdp" else 1}


def _write_prefetch(_: Writing) -> Fields:
    """Return no settings: the flag only affects FSDP 1, and FSDP 2 is written."""
    return {}


def _read_compile(reading: Reading) -> Fields:
    backend = reading.get("dynamo_config.dynamo_backend", "dynamo_backend", default="NO")
    compiled = str(backend).upper() not in ("NO", "FALSE", "NONE") or reading.switch(
        "torch_compile"
    )
    return {"fusion": "compile" if compiled else "none"}


def _read_optimizer(reading: Reading) -> Fields:
    found = reading.stated("optim", "optimizer", default="adamw_torch_fused")
    kind = str(found.value)
    if kind not in _OPTIMIZERS:
        reading.not_modelled(found.name, "treated as AdamW")
    ours = _OPTIMIZERS.get(kind, ("adam", "fused"))
    return dict(zip(("optimizer", "optimizer_impl"), ours, strict=True))


def _write_optimizer(writing: Writing) -> Fields:
    name = first_names(_OPTIMIZERS).get((writing["optimizer"], writing["optimizer_impl"]))
    if name is None:
        raise writing.refuse("optimizer", "adam, adam_8bit, lion, adafactor, sgd")
    return {} if name in ("adamw_torch_fused", "adamw_apex_fused") else {"optim": name}


def _read_clipping(reading: Reading) -> Fields:
    """Read gradient clipping, which the trainer enables by default."""
    clipped = reading.get("max_grad_norm", f"{_DEEPSPEED}.gradient_clipping", default=True)
    return {"grad_clip": bool(clipped)}


def _read_offload(reading: Reading) -> Fields:
    state = reading.get(f"{_DEEPSPEED}.offload_optimizer_device", default="none")
    weights = reading.stated(f"{_DEEPSPEED}.offload_param_device", default="none")
    of_fsdp = reading.stated(f"{_FSDP}.fsdp_offload_params", default=False)
    if of_fsdp.value is True:
        effect = "weights, gradients and optimizer state in host memory: counted as device memory"
        reading.not_modelled(of_fsdp.name, effect)
    if weights.value in ("cpu", "nvme"):
        reading.not_modelled(
            weights.name, "sharded weights in host memory: counted as device memory"
        )
    return {
        "optimizer_offload": state in ("cpu", "nvme") and reading.execution["zero_stage"] != "0"
    }


def _write_offload(writing: Writing) -> Fields:
    if not writing["optimizer_offload"]:
        return {}
    if _kind(writing) != "DEEPSPEED":
        raise writing.refuse("optimizer_offload", "false without DeepSpeed ZeRO")
    return {f"{_DEEPSPEED}.offload_optimizer_device": "cpu"}


def _read_campaign(reading: Reading) -> Fields:
    result: Fields = {}
    steps, length = (
        count_unless_auto(reading, "max_steps", least=-1),
        reading.execution["seq_length"],
    )
    if steps and steps > 0 and length:
        result["tokens"] = steps * reading.execution["batch_size"] * length
    interval = reading.get("save_steps", default=0)
    if isinstance(interval, int) and interval > 0:  # a value below 1 is a share of all steps
        result["save_interval"] = interval
    return result


def _write_campaign(writing: Writing) -> Fields:
    result: Fields = {}
    length = writing["seq_length"]
    if (tokens := writing.campaign.get("tokens")) and length:
        result["max_steps"] = -(-int(tokens) // (writing["batch_size"] * length))
    if interval := writing.campaign.get("save_interval"):
        result["save_steps"] = int(interval)
    return result


_IGNORED_VALUES: IgnoredValues = {
    "attn_implementation": (
        ("flash_attention_2", "flash_attention_3", "sdpa"),
        "eager attention, which materializes the scores",
    ),
    f"{_FSDP}.fsdp_forward_prefetch": ((False, None), "weights are prefetched one block earlier"),
    f"{_FSDP}.fsdp_auto_wrap_policy": (
        ("TRANSFORMER_BASED_WRAP", None),
        "FSDP units that are not blocks",
    ),
    "fp8_config.opt_level": ((None,), "optimizer states in 8 bits"),
    "packing": ((False,), "several documents per sequence: see packed_percent"),
    "use_peft": ((False,), "parameter-efficient fine-tuning: few weights are trained"),
    "load_in_4bit": ((False,), "weights in 4 bits"),
    "load_in_8bit": ((False,), "weights in 8 bits"),
    "use_cpu": ((False,), "training on a CPU"),
}

_QUIET_FSDP = """
    fsdp_cpu_ram_efficient_loading fsdp_state_dict_type fsdp_sync_module_states fsdp_use_orig_params
    fsdp_transformer_layer_cls_to_wrap fsdp_min_num_params fsdp_limit_all_gathers
"""
_QUIET_DEEPSPEED = """
    zero3_init_flag zero3_save_16bit_model deepspeed_multinode_launcher deepspeed_hostfile
    deepspeed_moe_layer_cls_names offload_*_nvme_path deepspeed_inclusion_filter deepspeed_exclusion_filter
    seq_parallel_*
"""
_OF_RUNS = """
    model_name_or_path dataset* learning_rate lr_scheduler* warmup_* weight_decay logging_* report_to output_dir
    seed num_train_epochs eval_* save_* adam_*
"""
"""Trainer options without effect on the time or memory of a step."""

_NO_EFFECT = f"""
    compute_environment debug downcast_bf16 enable_cpu_affinity machine_rank main_process_ip main_process_port
    main_training_function rdzv_backend same_network tpu_* gpu_ids num_machines commands command_file
    fp8_config.* dynamo_config.* {_PARALLEL}.cp_* {_PARALLEL}.sp_*
    {under(_FSDP, _QUIET_FSDP)} {under(_DEEPSPEED, _QUIET_DEEPSPEED)} {_OF_RUNS}
"""


ACCELERATE = Dialect(
    name="accelerate",
    title="accelerate",
    version="1.11 (2025), with transformers 4.57",
    preset="huggingface",
    rows=(
        row(
            "num_procs tensor_par context_par pipeline_par data_par zero_stage optimizer_sharding "
            "data_par_overlap dp_shard reshard_after_forward cp_comm",
            f"distributed_type num_processes {under(_PARALLEL, _DEGREES)} {_FSDP}.fsdp_version "
            f"{_FSDP}.fsdp_reshard_after_forward {_DEEPSPEED}.zero_stage "
            f"{under(_PARALLEL, 'cp_comm_strategy sp_backend')}",
            _read_degrees,
            _write_degrees,
        ),
        row(
            "microbatch_size batch_size seq_length",
            f"{_MICRO[0]} {_STEPS[0]} {_LENGTHS[0]}",
            _read_batch,
            _write_batch,
        ),
        row(
            "datatype fp8_recipe",
            "mixed_precision fp8_config.backend",
            _read_precision,
            _write_precision,
        ),
        row(
            "activation_recompute activations_offload",
            f"gradient_checkpointing {_FSDP}.fsdp_activation_checkpointing",
            _read_recompute,
            _write_recompute,
        ),
        row("fsdp_prefetch", f"{_FSDP}.fsdp_backward_prefetch", _read_prefetch, _write_prefetch),
        row(
            "fusion",
            "dynamo_config.dynamo_backend",
            _read_compile,
            lambda writing: (
                {"dynamo_config.dynamo_backend": "INDUCTOR"}
                if writing["fusion"] == "compile"
                else {}
            ),
        ),
        row("optimizer optimizer_impl", "optim", _read_optimizer, _write_optimizer),
        row(
            "grad_clip",
            "max_grad_norm",
            _read_clipping,
            lambda writing: {} if writing["grad_clip"] else {"max_grad_norm": 0},
        ),
        switch("use_liger_kernel", "ce_impl", on="fused", off="eager"),
        row(
            "optimizer_offload",
            f"{_DEEPSPEED}.offload_optimizer_device",
            _read_offload,
            _write_offload,
        ),
        row(
            "tokens save_interval",
            "max_steps save_steps",
            _read_campaign,
            _write_campaign,
            "campaign",
        ),
        ignored_values(_IGNORED_VALUES),
    ),
    no_effect=_NO_EFFECT,
    not_modelled={"another launcher": "mpirun_config.*", "CPU kernels": "ipex_config.*"},
    parse=parse,
    render=render,
    recognizes=recognizes,
    suffix=".yaml",
    language=lambda text, file: "yaml",
    spelled=_spelled,
)
"""YAML configurations of accelerate."""
