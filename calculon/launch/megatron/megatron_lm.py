"""Megatron-LM: the execution flags of its training scripts.

Sources: NVIDIA/Megatron-LM of 2026-08, ``arguments.py``, ``model_parallel_config``, ``transformer_config``,
``distributed_data_parallel_config``, ``optimizer_config``: names, defaults, and refused combinations. An absent flag
means the launcher's default, whatever recipes usually state.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.declarations.recipes import GATHERED, NO_RECIPE
from calculon.launch.dialect import Dialect, Fields, Parsed, Reading, Setting, Unresolved, Writing
from calculon.launch.megatron.megatron_model import CAMPAIGN, MODEL, batch_schedule
from calculon.launch.megatron.megatron_parts import (
    CONTEXT,
    EXPERTS,
    GROUPED,
    LAYOUT,
    writes_experts,
)
from calculon.launch.megatron.megatron_replicas import RECOMPUTE, REPLICAS
from calculon.launch.megatron.megatron_requirements import CONNECTIONS, broken
from calculon.launch.megatron.megatron_words import ALIASES, NO_EFFECT, NOT_MODELLED
from calculon.launch.rows import number, row, switch
from calculon.launch.texts.shell_flags import PROGRAM, flag_name, parse_script, switched
from calculon.launch.texts.shell_quotes import word_of
from calculon.launch.texts.yaml_config import settings_in

_TP = ("--tensor-model-parallel-size", "--model-parallel-size")
_PP, _CP = "--pipeline-model-parallel-size", "--context-parallel-size"


def _degrees(reading: Reading) -> Fields:
    names = {"tensor_par": _TP, "context_par": (_CP,), "pipeline_par": (_PP,)}
    degrees, product = {}, 1
    for field, flags in names.items():
        value = reading.count(*flags, default=1)
        if value < 1:
            raise SpecError(reading.parsed.file, Problem(flags[0], "at least 1", str(value)))
        degrees[field] = value
        product *= value
    processors = reading.processors()
    if processors % product:
        factors = " x ".join(str(value) for value in degrees.values())
        wanted = f"a multiple of {factors} = {product:,} (tensor x context x pipeline parallel)"
        hint = "calculon import-flags FILE --procs N overrides the number in the file"
        raise SpecError(reading.parsed.file, Problem("processors", wanted, f"{processors:,}", hint))
    return {"num_procs": processors, **degrees, "data_par": processors // product}


def _write_degrees(writing: Writing) -> Fields:
    found = {_TP[0]: writing["tensor_par"], _PP: writing["pipeline_par"]}
    return found if writing["context_par"] == 1 else found | {_CP: writing["context_par"]}


def _batch(reading: Reading) -> Fields:
    micro = reading.count("--micro-batch-size", "--batch-size")
    if micro is None or micro < 1:
        found, hint = "none" if micro is None else str(micro), "Megatron-LM needs it"
        raise SpecError(
            reading.parsed.file, Problem("--micro-batch-size", "at least 1", found, hint)
        )
    least = micro * reading.execution["data_par"]
    schedule = batch_schedule(reading)  # a schedule overrides the flag --global-batch-size
    stated = reading.count("--global-batch-size", default=least)
    batch = max((each for _, each in schedule), default=stated)
    if not batch or batch % least:
        setting = reading.setting("--global-batch-size") or Setting("--global-batch-size", batch)
        wanted = f"a multiple of {micro} x {reading.execution['data_par']:,} = {least:,} (microbatch x replicas)"
        raise reading.error(setting, wanted)
    return {"microbatch_size": micro, "batch_size": batch}


def _write_batch(writing: Writing) -> Fields:
    result: Fields = {"--micro-batch-size": writing["microbatch_size"]}
    if not writing.campaign.get("batch_schedule"):
        result["--global-batch-size"] = writing["batch_size"]
    return result


def _tensor(reading: Reading) -> Fields:
    """Read sequence parallelism and the overlap of tensor-parallel communication; both need tensor parallelism."""
    split = reading.execution["tensor_par"] > 1
    sequence = reading.switch("--sequence-parallel") and split
    overlap = reading.switch("--tp-comm-overlap") and sequence
    reading.used.add("--tp-comm-overlap-cfg")
    if overlap:
        reading.execution["preset"] = "megatron-lm-ub"
        reading.not_modelled(
            "--tp-comm-overlap-cfg", "choice of the overlapped products and their splits"
        )
    alone = reading.switch("--no-async-tensor-model-parallel-allreduce") and not sequence
    return {
        "tensor_par_comm_type": "rs_ag" if sequence else "ar",
        "tensor_par_overlap": "ring" if overlap else "none",
        "tp_user_buffers": overlap,
        "tp_async": split and not overlap and not alone,
    }


def _write_tensor(writing: Writing) -> Fields:
    result: Fields = {}
    if writing["tensor_par_comm_type"] == "rs_ag":
        result["--sequence-parallel"] = True
    if writing["tensor_par_overlap"] != "none":
        result["--tp-comm-overlap"] = True
    elif writing["tensor_par"] > 1 and not writing["tp_async"]:
        result["--no-async-tensor-model-parallel-allreduce"] = True
    return result


def _redo(reading: Reading) -> Fields:
    """Read the regathering of sequence-parallel inputs in the backward pass: products keep the sharded inputs."""
    split = reading.execution["tensor_par_comm_type"] == "rs_ag"
    return {"seq_par_ag_redo": split and reading.execution["activation_recompute"] != "full"}


_RECIPES = ("delayed", "tensorwise", "blockwise", "mxfp8")

_PLAIN_4_BITS = (
    "NVTE_NVFP4_DISABLE_RHT",
    "NVTE_NVFP4_DISABLE_STOCHASTIC_ROUNDING",
    "NVTE_NVFP4_DISABLE_2D_QUANTIZATION",
)
"""Environment variables of Transformer Engine for NVFP4 without rotation (the first one), and its other options."""


def _types(reading: Reading) -> Fields:
    bf16, fp16 = reading.switch("--bf16"), reading.switch("--fp16")
    narrow = (
        reading.get("--fp8-format", "--fp8")
        or reading.switch("--fp8-hybrid")
        or reading.switch("--fp8-e4m3")
    )
    reading.used |= {"--fp8-recipe", "--fp4-recipe", "--fp8-hybrid", "--fp8-e4m3", *_PLAIN_4_BITS}
    recipe = NO_RECIPE
    if reading.get("--fp4-format", "--fp4"):
        plain = reading.get(_PLAIN_4_BITS[0], default=0) == 1
        recipe = "nvfp4_plain" if plain else "nvfp4"
        _known(reading, "--fp4-recipe", ("nvfp4",))
    elif narrow:
        recipe = _known(reading, "--fp8-recipe", _RECIPES) or "delayed"
    gathered = reading.switch("--fp8-param-gather", "--fp8-param") and recipe in GATHERED
    if gathered and reading.count("--mtp-num-layers", default=0):
        gathered = False
        effect = "weights kept in 8 bits by a model with MTP modules: they are kept in the datatype"
        reading.not_modelled("--fp8-param-gather", effect)
    return {
        "datatype": "bfloat16" if bf16 else "float16" if fp16 else "float32",
        "fp8_recipe": recipe,
        "fp8_param_gather": gathered,
    }


def _known(reading: Reading, name: str, recipes: Sequence[str]) -> str | None:
    """Return the recipe that a setting names if it is modeled; report any other recipe."""
    found = reading.get(name)
    if found is not None and str(found) not in recipes:
        reading.not_modelled(name, f"only the recipes {', '.join(recipes)} are modeled")
    return str(found) if str(found) in recipes else None


def _write_types(writing: Writing) -> Fields:
    found: Fields = {}
    flag = {"bfloat16": "--bf16", "float16": "--fp16"}.get(writing["datatype"])
    if flag:
        found[flag] = True
    if writing["fp8_recipe"] in ("nvfp4", "nvfp4_plain"):
        found |= {"--fp4-format": "e2m1", "--fp4-recipe": "nvfp4"}
        plain = writing["fp8_recipe"] == "nvfp4_plain"
        found |= dict.fromkeys(_PLAIN_4_BITS if plain else (), 1)
    elif writing["fp8_recipe"] != NO_RECIPE:
        found |= {"--fp8-format": "hybrid", "--fp8-recipe": writing["fp8_recipe"]}
    return found | ({"--fp8-param-gather": True} if writing["fp8_param_gather"] else {})


_NARROW_ATTENTION = "--fp8-dot-product-attention"


def _narrow_attention(reading: Reading) -> Fields:
    """Read 8-bit attention, which has no effect without a recipe."""
    recipe = reading.execution["fp8_recipe"]
    return {"fp8_attention": reading.switch(_NARROW_ATTENTION) and recipe != NO_RECIPE}


def _write_narrow_attention(writing: Writing) -> Fields:
    return {_NARROW_ATTENTION: True} if writing["fp8_attention"] else {}


def _attention(reading: Reading) -> Fields:
    backend = reading.get("--attention-backend", default="auto")
    local = reading.get("--transformer-impl", default="transformer_engine") == "local"
    if reading.switch("--use-flash-attn", "--use-flash-attn-v2"):
        return {"attn_impl": "flash"}
    stored = backend in ("unfused", "local") or (backend == "auto" and local)
    return {"attn_impl": "eager" if stored else "flash"}


_BLOCKING = "CUDA_LAUNCH_BLOCKING"
"""Environment variable that makes the host wait for each kernel."""


_PARTS = ["attn", "moe_router", "moe_preprocess"]
"""Modules in CUDA graphs of parts of a block with experts: all that do not depend on the routing."""


_LAYERS = ["attn", "mlp", "moe"]
"""Modules in CUDA graphs of whole blocks with experts of fixed capacity."""


def _graphs(reading: Reading) -> Fields:
    scope = reading.get("--cuda-graph-scope", default="full")
    kind = reading.get("--cuda-graph-impl", default="none")
    asked = reading.switch("--enable-cuda-graph") or reading.switch("--external-cuda-graph")
    whole = scope in ("full", "full_iteration", [])
    parts = scope if isinstance(scope, (str, list)) else ()
    if reading.get(_BLOCKING, default=0) == 1:
        return {"launch_mode": "blocking"}
    if asked or kind != "none":
        if whole or "moe" in parts:
            return {"launch_mode": "graph"}
        if "moe_router" in parts:
            return {"launch_mode": "graph_parts"}
        reading.not_modelled("--cuda-graph-scope", "CUDA graphs of parts of a block")
    return {"launch_mode": "auto"}


def _write_graphs(writing: Writing) -> Fields:
    if writing["launch_mode"] == "blocking":
        return {_BLOCKING: 1}
    if writing["launch_mode"] == "graph_parts":
        return {"--cuda-graph-impl": "transformer_engine", "--cuda-graph-scope": _PARTS}
    if writing["launch_mode"] != "graph":
        return {}
    if writing["moe_pad_to_capacity"]:
        return {"--cuda-graph-impl": "transformer_engine", "--cuda-graph-scope": _LAYERS}
    if writes_experts(writing):
        hint = "a plan states no capacity per rank of dropless experts; moe_pad_to_capacity is one per expert"
        raise writing.refuse("launch_mode", "auto, eager, compile, graph_parts, blocking", hint)
    return {"--cuda-graph-impl": "local"}


ROWS = (
    row(
        "num_procs tensor_par context_par pipeline_par data_par",
        f"{' '.join(_TP)} {_PP} {_CP}",
        _degrees,
        _write_degrees,
    ),
    row(
        "microbatch_size batch_size",
        "--micro-batch-size --global-batch-size --batch-size --step-batch-size-schedule",
        _batch,
        _write_batch,
    ),
    *LAYOUT,
    *EXPERTS,
    CONTEXT,
    row(
        "tensor_par_comm_type tensor_par_overlap tp_user_buffers tp_async",
        "--sequence-parallel --tp-comm-overlap --no-async-tensor-model-parallel-allreduce",
        _tensor,
        _write_tensor,
    ),
    RECOMPUTE,
    row("seq_par_ag_redo", "", _redo),
    row(
        "datatype fp8_recipe fp8_param_gather",
        "--bf16 --fp16 --fp8-format --fp8-recipe --fp4-format --fp4-recipe --fp8-param-gather "
        + " ".join(_PLAIN_4_BITS),
        _types,
        _write_types,
    ),
    *REPLICAS,
    row("fp8_attention", _NARROW_ATTENTION, _narrow_attention, _write_narrow_attention),
    row(
        "attn_impl",
        "--attention-backend --use-flash-attn --use-flash-attn-v2 --transformer-impl",
        _attention,
        lambda writing: (
            {} if writing["attn_impl"] == "flash" else {"--attention-backend": "unfused"}
        ),
    ),
    row(
        "launch_mode",
        f"{_BLOCKING} --cuda-graph-impl --cuda-graph-scope --enable-cuda-graph --external-cuda-graph",
        _graphs,
        _write_graphs,
    ),
    switch("--no-rope-fusion", "rotary_impl", "unfused", "real"),
    number("--make-vocab-size-divisible-by", "vocab_pad_multiple", 128),
    number("--seq-length", "seq_length", 0, "--encoder-seq-length"),
    MODEL,
    CAMPAIGN,
)
"""Rows in the order of reading: degrees first, because others depend on them."""

_FLAGS = tuple(dict.fromkeys(name for row in ROWS for name in row.settings))
_CERTAIN = re.compile(
    r"--(tensor[-_]model[-_]parallel[-_]size|pipeline[-_]model[-_]parallel[-_]size|"
    r"micro[-_]batch[-_]size|num[-_]attention[-_]heads|global[-_]batch[-_]size|num[-_]layers)\b"
)
_SURE = 2
"""Least number of flags that only Megatron-LM has."""


def parse(text: str, file: str, variables: Mapping[str, str]) -> Parsed:
    """Return the flags of a Megatron-LM script, with abbreviations completed and other spellings replaced."""
    parsed = (
        _parse_yaml(text, file, variables)
        if _is_yaml(text, file)
        else parse_script(
            text,
            file,
            variables,
            is_flag=lambda name: _written_out(name) in _FLAGS,
            environment=(_BLOCKING, *_PLAIN_4_BITS),
        )
    )
    settings: dict[str, Setting] = {}
    for name, setting in parsed.settings.items():
        full = _written_out(name)
        settings[full] = Setting(full, switched(setting.value), setting.place)
    # An MoE script without the flag runs one GEMM per expert, which rows must be able to notice.
    experts = settings.get("--num-experts")
    if experts is not None and experts.value not in (None, 0, 1):
        settings.setdefault(GROUPED, Setting(GROUPED, False, experts.place))
    return Parsed(parsed.file, settings, parsed.num_procs, parsed.notes)


_ARGUMENTS, _VARIABLES = "MODEL_ARGS", "ENV_VARS"
"""Flags, and environment variables, in configurations of Megatron-LM's functional tests."""


def _is_yaml(text: str, file: str) -> bool:
    """Return true for a configuration of a functional test."""
    return (
        file.endswith((".yaml", ".yml")) and re.search(rf"^{_ARGUMENTS}:", text, re.M) is not None
    )


def _parse_yaml(text: str, file: str, variables: Mapping[str, str]) -> Parsed:
    """Return the flags of a functional test's configuration; switches that are off are not stated."""
    tree = settings_in(text, file, variables)
    read = (_BLOCKING, *_PLAIN_4_BITS)
    found: dict[str, Setting] = {}
    for path, leaf in tree.leaves():
        section, _, name = path.partition(".")
        if section == _ARGUMENTS or (section == _VARIABLES and name in read):
            found[name] = Setting(name, leaf.value, f"{file}:{leaf.line}")
    return Parsed(
        file, {name: one for name, one in found.items() if one.value not in (None, False)}
    )


def _written_out(name: str) -> str:
    """Return the full name of a flag: argparse accepts any unambiguous prefix.

    >>> _written_out("--tensor-model-parallel")
    '--tensor-model-parallel-size'
    """
    name = ALIASES.get(name, name)
    # A short prefix that is unambiguous here may be ambiguous in other versions of Megatron-LM.
    if name in _FLAGS or len(name) < 10:
        return name
    longer = [flag for flag in _FLAGS if flag.startswith(name)]
    return longer[0] if len(longer) == 1 else name


def recognizes(text: str, file: str) -> bool:
    """Return true for a Megatron-LM script, which has several flags that only Megatron-LM has."""
    del file
    return len({flag_name(found[0]) for found in _CERTAIN.finditer(text)}) >= _SURE


_PER_NODE = 8
_TRIAL: dict[str, Any] = {
    "--mock-data": True,
    "--tokenizer-type": "NullTokenizer",
    "--lr": 3e-4,
    "--lr-decay-style": "constant",
    "--eval-iters": 0,
}
"""Flags that make a script runnable and that no plan determines."""

_FORMAT, _SHARDED = "--ckpt-format", "fsdp_dtensor"
_STEPS = 50
"""Steps of a script without a known length."""


def _run_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that no plan determines: data, tokenizer, learning rate, checkpoints, and length of the run."""
    result = dict(_TRIAL)
    if "--use-megatron-fsdp" in flags:
        result[_FORMAT] = _SHARDED
    if flags.keys() & {"--train-samples", "--train-iters"}:
        return result
    if "--rampup-batch-size" in flags:  # a batch ramp is counted in samples
        return result | {"--train-samples": _STEPS * flags["--global-batch-size"]}
    return result | {"--train-iters": _STEPS}


_ROTARY = (
    "# Add --rotary-base (rope_theta of config.json; 10000 without the flag), and the flags of its rope_scaling",
    "# (--use-rope-scaling --rope-scaling-factor, or --rotary-scaling-factor of latent attention).",
)
"""Remark on settings of rotary embeddings, which change the trained model but neither time nor memory."""


def _turned(flags: Mapping[str, Any]) -> bool:
    """Return True if the model has rotary position embeddings."""
    return flags.get("--position-embedding-type") == "rope"


def _connections(flags: Mapping[str, Any]) -> int | None:
    """Return the number of hardware queues of a device: 0 for any number except 1, None if it does not matter.

    With a single queue, kernels start in launch order, so that collectives of tensor and context parallelism start
    before the products that they overlap with (required before Blackwell). FSDP and expert communication need several
    queues. Source: Megatron-LM, ``arguments.py``, ``validate_args``.
    """
    if flags.keys() & {"--use-torch-fsdp2", "--use-megatron-fsdp"}:
        return 0
    if flags.get(_TP[0], 1) != 1 or flags.get(_CP, 1) != 1:
        return 1
    return 32 if "--overlap-moe-expert-parallel-comm" in flags else None


def _connections_line(flags: Mapping[str, Any]) -> str:
    """Return the line that sets the number of hardware queues; empty if it does not matter."""
    queues = _connections(flags)
    if queues is None:
        return ""
    if not queues:
        return f"unset {CONNECTIONS}  # FSDP refuses 1"
    both = queues == 1 and "--overlap-moe-expert-parallel-comm" in flags
    note = "  # or 32, which favors expert communication" if both else ""
    return f"export {CONNECTIONS}={queues}{note}"


def _needed(flags: Mapping[str, Any]) -> Fields:
    """Return other requirements of flags; None marks a setting that must not be stated."""
    found: Fields = {CONNECTIONS: _connections(flags) or None}
    if "--use-megatron-fsdp" in flags:
        return {**found, _FORMAT: _SHARDED}
    return {**found, _FORMAT: None} if flags.get(_FORMAT) == _SHARDED else found


def render(settings: Mapping[str, Any], num_procs: int, head: Sequence[str]) -> str:
    """Return a complete script, for nodes of 8 processors or a single smaller node.

    Raises:
        SpecError: For a combination of flags that Megatron-LM refuses.
    """
    per_node = min(num_procs, _PER_NODE)
    # Processors that do not fill nodes of 8 run one per node, so that the script stays valid.
    whole = num_procs % per_node == 0
    flags = {name: value for name, value in settings.items() if name.startswith("--")}
    said = {name: value for name, value in settings.items() if name not in (*flags, PROGRAM)}
    lines = ["#!/bin/bash", *(f"# {one}" for one in head)]
    lines += filter(None, [_connections_line(flags)])
    lines += [f"export {name}={value}" for name, value in said.items()]
    lines += [""]
    lines += [f"GPUS_PER_NODE={per_node if whole else 1}"]
    lines += [f"NUM_NODES={num_procs // per_node if whole else num_procs}", "", "ARGS=("]
    lines += [f"    {flag} {_text(value)}".rstrip() for flag, value in flags.items()]
    lines += [
        ")",
        "",
        "# Not part of the plan: data, tokenizer, learning rate. Replace these with your own.",
        *(_ROTARY if _turned(flags) else ()),
        "RUN_ARGS=(",
    ]
    run = _run_flags(flags)
    lines += [f"    {flag} {_text(value)}".rstrip() for flag, value in run.items()]
    lines += [
        *(")", ""),
        "torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES \\",
        '    --rdzv_backend c10d --rdzv_endpoint "${MASTER_ADDR:-localhost}:${MASTER_PORT:-29500}" \\',
        f'    {settings.get(PROGRAM, "pretrain_gpt.py")} "${{ARGS[@]}}" "${{RUN_ARGS[@]}}"',
    ]
    text = "\n".join(lines) + "\n"
    if wrong := refused(text, num_procs):
        raise SpecError("execution", wrong)
    return text


def refused(text: str, num_procs: int) -> list[Problem]:
    """Return the requirements of Megatron-LM that a script violates, with the fields to change."""
    found = parse_script(text, "script", {}, environment=(CONNECTIONS,)).settings
    # Requirements on unresolved values cannot be decided here; Megatron-LM will check them.
    known = (one for one in found.values() if not isinstance(one.value, Unresolved))
    values = {_written_out(one.name): one.value for one in known}
    return [
        Problem("", f"a combination that Megatron-LM accepts: {one.rule}", stated, _hint(one.flags))
        for one, stated in broken(values, num_procs)
    ]


def _hint(flags: Collection[str]) -> str:
    """Return the fields of an execution to change for some flags; empty if there are too many fields."""
    of_model = {name for row in ROWS if row.subject == "model" for name in row.settings}
    rows = [row for row in ROWS if row.subject == "execution" and len(row.fields) <= _FEW]
    named = {*flags} - of_model
    fields = [name for row in rows if named & {*row.settings} for name in row.fields]
    return f"change {' or '.join(fields)}" if fields else ""


_FEW = 2
"""Largest number of fields of a row that a hint names: a longer list would not help."""


def _text(value: Any) -> str:
    """Return a value as words of a shell script."""
    if value is True:
        return ""
    if isinstance(value, (list, tuple)):
        return " ".join(map(_text, value))
    return word_of(value)


MEGATRON_LM = Dialect(
    name="megatron-lm",
    title="Megatron-LM",
    version="core_r0.16 (2026-08)",
    preset="megatron-lm",
    rows=ROWS,
    no_effect=NO_EFFECT,
    not_modelled=NOT_MODELLED,
    parse=parse,
    render=render,
    recognizes=recognizes,
    presets=("megatron-lm-ub",),
    language=lambda text, file: "yaml" if _is_yaml(text, file) else "shell",
    named=lambda word: _written_out(flag_name(word.removeprefix(f"{_ARGUMENTS}."))),
    refused=refused,
    needed=_needed,
)
