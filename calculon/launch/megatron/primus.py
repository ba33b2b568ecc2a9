"""Primus, AMD's launcher: Megatron-LM's arguments in YAML, with underscores, next to the name of a model file.

An unlisted flag is an argument of the same name: ``--num-query-groups`` is ``num_query_groups``. Switches that turn
something off have the name of what they turn off: ``--no-rope-fusion`` is ``apply_rope_fusion: false``. Sources:
AMD-AGI/Primus of 2026-08, ``examples/megatron/configs``, ``primus/configs/modules/megatron`` (defaults of
``pre_trainer.yaml``, ``trainer_base.yaml`` and ``primus_turbo.yaml``), ``primus/configs/models/megatron``.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from calculon.base.errors import Problem
from calculon.launch.dialect import Dialect, Fields, Parsed, Reading, Setting
from calculon.launch.megatron.megatron_bridge import model_of
from calculon.launch.megatron.megatron_lm import MEGATRON_LM, ROWS
from calculon.launch.megatron.megatron_requirements import broken
from calculon.launch.megatron.megatron_words import NO_EFFECT, NOT_MODELLED
from calculon.launch.renaming import Alias, Name, as_switch, opposite, renamed, when
from calculon.launch.rows import row
from calculon.launch.texts.name_patterns import names_in
from calculon.launch.texts.tree import Tree
from calculon.launch.texts.yaml_config import settings_in

OVERRIDES = ("modules", "pre_trainer", "overrides")
"""Path of the arguments in a file."""

MODEL = "model"
"""Setting next to the arguments: the file of the model."""

_WHOLE_MODEL = "language_model.yaml"
"""Base of all model files, which states no shape."""


def _on(name: str) -> Alias:
    """Return an argument that is on by default in Primus and off in Megatron-LM."""
    return Alias((Name(name, as_switch),), default=True, absent=False)


_ON = "use_distributed_optimizer sequence_parallel swiglu"
_OFF_SWITCHES = {
    "--no-gradient-accumulation-fusion": "gradient_accumulation_fusion",
    "--no-rope-fusion": "apply_rope_fusion",
    "--no-async-tensor-model-parallel-allreduce": "async_tensor_model_parallel_allreduce",
    "--no-overlap-p2p-communication": "overlap_p2p_comm",
    "--no-position-embedding": "add_position_embedding",
}
"""Switches by the argument that they turn off."""

_DEEPEP, _EXPERTS = "use_turbo_deepep", "expert_model_parallel_size"


def _dispatcher(value: Any, reading: Reading) -> Any:
    """Return the dispatcher, which Primus-Turbo replaces by its own."""
    return "flex" if reading.get(_DEEPEP) is True else value


def _of_experts(value: Any) -> Name:
    """Return the expert parallelism as a name: the model files state `value` for models with experts."""
    return Name(_EXPERTS, lambda ranks, _: value if ranks != 1 else None)


_NAMES: Mapping[str, Alias] = {
    **{f"--{name.replace('_', '-')}": _on(name) for name in _ON.split()},
    **{flag: Alias((opposite(name),)) for flag, name in _OFF_SWITCHES.items()},
    "--disable-bias-linear": Alias((opposite("add_bias_linear"),), default=True, absent=True),
    "--bf16": _on("bf16"),
    "--untie-embeddings-and-output-weights": _on("untie_embeddings_and_output_weights"),
    "--fp8-format": Alias((Name("fp8"),)),
    "--fp4-format": Alias((Name("fp4"),)),
    "--moe-token-dispatcher-type": Alias(
        (
            Name("moe_token_dispatcher_type", _dispatcher),
            when(_DEEPEP, wanted=True, on="flex"),
            _of_experts("alltoall"),
        )
    ),
    "--moe-grouped-gemm": Alias((Name("moe_grouped_gemm", as_switch), _of_experts(True))),
    "--moe-enable-deepep": Alias((when(_DEEPEP, wanted=True), Name("moe_enable_deepep"))),
}
"""Flags whose argument has another name or another default."""


def _spelled(flag: str) -> Alias:
    """Return the argument of a flag; none for environment variables and the program."""
    if flag in _NAMES:
        return _NAMES[flag]
    if not flag.startswith("--"):
        return Alias(())
    return Alias((Name(flag.lstrip("-").replace("-", "_")),))


_OF_PRIMUS = """
    stderr_sink_level log_* wandb_* disable_wandb disable_tensorboard disable_last_saving auto_continue_train
    disable_scaling_patches turbo_deepep_num_cu turbo_deepep_use_comm_stream enable_primus_turbo trainable
    moe_router_force_load_balancing multiprocessing_context dump_pp_data use_turbo_autotune
"""
"""Arguments of Primus without effect on the time and memory of a step, or whose effect is that of the next table."""

_TURBO = {
    "kernels of Primus-Turbo": "use_turbo_* turbo_* moe_use_fused_router_with_aux_score use_sink_attention sink_* "
    "moe_use_legacy_grouped_gemm no_fp8_weight_transpose_cache te_precision_config_file mxfp4_*",
}

_RECOMPUTE = "recompute_"
_OF_RECOMPUTATION = {"--recompute-granularity", "--recompute-method", "--recompute-num-layers"}

_USUAL = "usual."
"""Prefix of switches that no row reads and that are off, as by default."""

_ROWS = tuple(renamed(one, _spelled) for one in ROWS)
_KNOWN = frozenset(name for one in _ROWS for name in one.settings)
_OF_SHAPE = frozenset(name for one in _ROWS if one.subject == "model" for name in one.settings) - {
    "max_position_embeddings",
    "seq_length",
}
"""Arguments that describe the model; the length of its sequences is part of the execution."""


def _arguments(flags: str) -> str:
    """Return patterns of arguments for patterns of flags, without arguments that a row reads."""
    names = (name.name for flag in names_in(flags) for name in _spelled(flag).names[:1])
    return " ".join(name for name in names if name not in _KNOWN)


_REFERENCE = re.compile(r"\$\{(\w+):([^}]*)\}")
_STARTED = re.compile(r"^#.*\bNNODES=(\d+) GPUS_PER_NODE=(\d+)", re.MULTILINE)
_OUTERMOST = re.compile(r"^modules[ \t]*:", re.MULTILINE)
_TRAINER = re.compile(rf"^[ \t]+{OVERRIDES[1]}[ \t]*:", re.MULTILINE)
_MEGATRON = re.compile(r"^[ \t]+framework:[ \t]*megatron\b", re.MULTILINE)


def parse(text: str, file: str, variables: Mapping[str, str]) -> Parsed:
    """Return the arguments of a configuration by name; ``${NAME:value}`` has the value if no variable replaces it."""
    resolved = _REFERENCE.sub(lambda found: variables.get(found[1], found[2]), text)
    tree = settings_in(resolved, file, variables)
    trainer = tree.at(OVERRIDES[:-1])
    overrides = tree.at(OVERRIDES)
    settings: dict[str, Setting] = {}
    for part, names in ((trainer, (MODEL,)), (overrides, None)):
        for path, leaf in part.leaves() if isinstance(part, Tree) else ():
            if leaf.value is not None and (names is None or path in names):
                known = path in _KNOWN or leaf.value is not False
                settings[path if known else f"{_USUAL}{path}"] = Setting(
                    path, leaf.value, f"{file}:{leaf.line}"
                )
    started = _STARTED.search(text)
    procs = int(started[1]) * int(started[2]) if started else None
    return Parsed(file, settings, procs)


def _named_model(reading: Reading) -> Fields:
    """Read the model file: a model of the catalog, unless the arguments state a whole shape."""
    stated = reading.setting(MODEL)
    if stated is None or reading.model.get("num_blocks"):
        return {}
    reading.model.clear()
    found = model_of(str(stated.value).removesuffix(".yaml"))
    for name in _OF_SHAPE & reading.parsed.settings.keys() if found else ():
        reading.not_modelled(name, f"{found} is taken as the catalog has it")
    if found:
        return {"name": found}
    reading.notes.append(f"the shape is in {stated.value} of Primus: state the model yourself")
    return {}


def render(settings: Mapping[str, Any], num_procs: int, head: Sequence[str]) -> str:
    """Return a configuration whose arguments include the shape of the model."""
    import yaml  # only to write it

    # Nodes have up to 8 processors; a divisor keeps all nodes equal.
    per_node = max(one for one in range(1, 9) if num_procs % one == 0)
    run = f"NNODES={num_procs // per_node} GPUS_PER_NODE={per_node} EXP=THIS_FILE"
    lines = [f"# {one}" for one in (*head, f"{run} bash examples/run_pretrain.sh")]
    trainer = {
        "framework": "megatron",
        "config": "pre_trainer.yaml",
        MODEL: settings.get(MODEL, _WHOLE_MODEL),
        "overrides": {name: value for name, value in settings.items() if name != MODEL},
    }
    document = {"exp_name": "plan", "workspace": "./output", "modules": {"pre_trainer": trainer}}
    body = yaml.safe_dump(document, sort_keys=False, default_flow_style=False, width=100)
    return "\n".join((*lines, "", body))


def refused(text: str, num_procs: int) -> list[Problem]:
    """Return the requirements on recomputation that a configuration violates.

    Other requirements depend on switches and environment variables that Primus sets itself.
    """
    settings = parse(text, "configuration", {}).settings
    stated = {name: one.value for name, one in settings.items() if name.startswith(_RECOMPUTE)}
    return [
        Problem("", f"a combination that Primus accepts: {one.rule}", found)
        for one, found in broken(stated, num_procs)
        if one.flags <= _OF_RECOMPUTATION
    ]


def recognizes(text: str, file: str) -> bool:
    """Return true for a configuration of Primus that trains with Megatron-LM."""
    if file.endswith((".sh", ".py", ".toml", ".json")):
        return False
    return all(one.search(text) for one in (_OUTERMOST, _TRAINER, _MEGATRON))


PRIMUS = Dialect(
    name="primus",
    title="Primus",
    version="2026-08",
    preset="megatron-lm",
    rows=(
        *(renamed(one, _spelled) for one in ROWS),
        row("name", MODEL, _named_model, subject="model"),
    ),
    no_effect=f"{_arguments(NO_EFFECT)} {_OF_PRIMUS} {_USUAL}*",
    not_modelled={
        **{effect: _arguments(flags) for effect, flags in NOT_MODELLED.items()},
        **_TURBO,
    },
    parse=parse,
    render=render,
    recognizes=recognizes,
    refused=refused,
    suffix=".yaml",
    presets=MEGATRON_LM.presets,
    language=lambda text, file: "yaml",
    named=lambda name: name.removeprefix(f"{'.'.join(OVERRIDES)}."),
    spelled=lambda name: name if name == MODEL else f"{'.'.join(OVERRIDES)}.{name}",
)
