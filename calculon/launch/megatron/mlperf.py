"""MLPerf Training: configurations of NVIDIA's language-model benchmarks, shell files of environment variables.

Common files next to a configuration are read where it sources them; of missing ones, the published values are used
(:mod:`calculon.launch.megatron.mlperf_words`, which names all sources). ``conf/custom.yaml`` of the benchmarks turns
variables into settings of NeMo and Megatron-LM, and has their defaults; ``pretrain.py`` sets the rest: bf16, gradients
in bf16, and Adam.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.declarations import catalog
from calculon.declarations.fields import spec_fields
from calculon.declarations.model import Model
from calculon.launch.dialect import (
    Dialect,
    Fields,
    Parsed,
    Reading,
    Row,
    Setting,
    Unresolved,
    Writing,
)
from calculon.launch.megatron.megatron_lm import MEGATRON_LM, ROWS
from calculon.launch.megatron.mlperf_words import (
    BENCHMARKS,
    DEEPSEEK,
    GPT3,
    LLAMA_8B,
    LLAMA_405B,
    LORA,
    NO_EFFECT,
    NOT_MODELLED,
    PUBLISHED,
)
from calculon.launch.renaming import Alias, Name, as_switch, opposite, renamed
from calculon.launch.rows import row
from calculon.launch.texts.near_files import file_near
from calculon.launch.texts.reading_budget import LARGEST_NUMBER
from calculon.launch.texts.shell import run
from calculon.launch.texts.shell_flags import plain_value, switched
from calculon.launch.texts.shell_quotes import word_of

BENCHMARK = "benchmark"
"""Setting with the benchmark, which follows from variables, or from the names of the file and its folder."""

_NODES, _PER_NODE = "DGXNNODES", "DGXNGPU"
_SEGMENT = "SEGMENT"
"""Nodes that the batch system places together; it is computed from the degrees."""
_SEQUENCES, _MICRO = "MINIBS", ("MICRO_BATCH_SIZE", "MBS")
_SIZE = "MODEL_SIZE"


def _benchmarks(names: str, value: Any) -> Name:
    """Return a default of some benchmarks, as a name that comes after all others."""
    return Name(BENCHMARK, lambda found, _: value if found in names.split() else None)


def _on(name: str, *others: str) -> Alias:
    """Return a switch that is on by default."""
    names = tuple(Name(one, as_switch) for one in (name, *others))
    return Alias(names, default=True, absent=False)


def _off(name: str, *others: str) -> Alias:
    """Return a switch that is off by default; it is written, because a common file may turn it on."""
    return Alias(tuple(Name(one, as_switch) for one in (name, *others)), absent=False)


def _means(name: str, value: str) -> Name:
    """Return a switch that means `value` for a setting with several values."""

    def here(stated: Any, reading: Reading) -> str | None:
        on = as_switch(stated)
        if not isinstance(on, bool):
            raise reading.error(reading.stated(name, default=stated), "True or False")
        return value if on else None

    return Name(name, here, lambda _: True)


def _none(value: Any, _: Reading) -> Any:
    """Return a value; ``null`` means that there is none, and 0 chunks are none, too."""
    return None if value in ("null", 0) else value


def _attention(value: Any, reading: Reading) -> Any:
    """Return the switch of 8-bit attention, for which Transformer Engine can select 16 bits."""
    return as_switch(value) and reading.get("NVTE_DPA_FP8_RECIPE") != "F16"


def _joined(value: Any) -> Any:
    return ",".join(value) if isinstance(value, list) else value


_LLAMA = f"{LLAMA_8B} {LLAMA_405B}"

_NAMES: Mapping[str, Alias] = {
    "--tensor-model-parallel-size": Alias((Name("TENSOR_MODEL_PARALLEL"), Name("TP")), absent=1),
    "--pipeline-model-parallel-size": Alias(
        (Name("PIPELINE_MODEL_PARALLEL"), Name("PP")), absent=1
    ),
    "--context-parallel-size": Alias(
        (Name("CONTEXT_PARALLEL"), Name("CP"), _benchmarks(_LLAMA, 4)), absent=1
    ),
    "--num-virtual-stages-per-pipeline-rank": Alias(
        (Name("INTERLEAVED_PIPELINE", _none), _benchmarks(f"{GPT3} {_LLAMA}", 12)), absent="null"
    ),
    "--pipeline-model-parallel-layout": Alias((Name("PIPELINE_LAYOUT"),)),
    "--account-for-embedding-in-pipeline-split": _off("ASYM_PP_EMBED"),
    "--account-for-loss-in-pipeline-split": _off("ASYM_PP_LOSS"),
    "--use-tp-pp-dp-mapping": _off("TP_PP_DP_MAPPING"),
    "--no-overlap-p2p-communication": Alias((opposite("OVERLAP_P2P_COMM"),)),
    "--expert-model-parallel-size": Alias((Name("EXPERT_PARALLEL"),)),
    "--moe-token-dispatcher-type": Alias(
        (Name("MOE_TOKEN_DISPATCHER_TYPE"), Name("EXPERT_PARALLEL", lambda _, __: "alltoall"))
    ),
    "--moe-flex-dispatcher-backend": Alias((Name("MOE_FLEX_DISPATCHER_BACKEND"),)),
    "--moe-router-fusion": Alias((Name("MOE_ROUTER_FUSION", as_switch),)),
    "--moe-permute-fusion": Alias((Name("MOE_PERMUTE_FUSION", as_switch),)),
    "--overlap-moe-expert-parallel-comm": Alias(
        (Name("OVERLAP_MOE_EXPERT_PARALLEL_COMM", as_switch),)
    ),
    "--delay-wgrad-compute": Alias((Name("DELAY_WGRAD_COMPUTE", as_switch),)),
    "--sequence-parallel": _on("SEQ_PARALLEL", "SP"),
    "--tp-comm-overlap": _off("TP_COMM_OVERLAP"),
    "--bf16": Alias((), default=True),
    "--fp8-format": Alias((_means("FP8", "hybrid"),), absent=False),
    "--fp8-recipe": Alias(
        (Name("FP8_RECIPE"), _benchmarks(_LLAMA, "tensorwise"), _benchmarks(DEEPSEEK, "mxfp8"))
    ),
    "--fp4-format": Alias((_means("FP4", "e2m1"),), absent=False),
    "--fp4-recipe": Alias((Name("FP4_RECIPE"),)),
    "--fp8-param-gather": _off("FP8_PARAM_GATHER", "FP8_PARAMS"),
    "--fp8-dot-product-attention": Alias((Name("FP8_DPA", _attention),), absent=False),
    "NVTE_NVFP4_DISABLE_RHT": Alias((Name("NVTE_NVFP4_DISABLE_RHT"),), absent=0),
    "NVTE_NVFP4_DISABLE_STOCHASTIC_ROUNDING": Alias(
        (Name("NVTE_NVFP4_DISABLE_STOCHASTIC_ROUNDING"),)
    ),
    "NVTE_NVFP4_DISABLE_2D_QUANTIZATION": Alias((Name("NVTE_NVFP4_DISABLE_2D_QUANTIZATION"),)),
    "CUDA_LAUNCH_BLOCKING": Alias((Name("CUDA_LAUNCH_BLOCKING"),)),
    "--use-distributed-optimizer": _on("USE_DIST_OPTIMIZER"),
    "--overlap-grad-reduce": _on("OVERLAP_GRAD_REDUCE"),
    "--overlap-param-gather": _on("OVERLAP_PARAM_GATHER"),
    "--ddp-bucket-size": Alias((Name("BUCKET_SIZE"),)),
    "--grad-reduce-in-bf16": Alias((), default=True),
    "--no-gradient-accumulation-fusion": Alias((opposite("GRAD_ACCUM_FUSION"),)),
    "--cross-entropy-loss-fusion": _on("CROSS_ENTROPY_LOSS_FUSION"),
    "--transformer-impl": Alias(
        (Name("TRANSFORMER_ENGINE", lambda on, _: None if as_switch(on) is True else "local"),)
    ),
    "--no-rope-fusion": Alias((opposite("APPLY_ROPE_FUSION"),)),
    "--cuda-graph-impl": Alias(
        (_means("MCORE_CUDA_GRAPH", "local"), Name("CUDA_GRAPH_IMPLEMENTATION")), absent=False
    ),
    "--external-cuda-graph": Alias((Name("LAYER_CUDA_GRAPH", as_switch),)),
    "--cuda-graph-scope": Alias(
        (Name("CUDA_GRAPH_SCOPE", there=_joined), _means("FULL_CUDA_GRAPH", "full_iteration"))
    ),
    "--recompute-granularity": Alias(
        (
            Name("ACT_CKPT_GRANULARITY", _none),
            Name("RECOMPUTE_MODULES", lambda _, __: "selective"),
        )
    ),
    "--recompute-method": Alias((Name("ACT_CKPT_METHOD", _none),)),
    "--recompute-num-layers": Alias((Name("ACT_CKPT_NUM_LAYERS", _none),)),
    "--recompute-modules": Alias((Name("RECOMPUTE_MODULES", there=_joined),)),
}
"""Variables by the flag of Megatron-LM; all other flags have no variable."""


def _spelled(flag: str) -> Alias:
    return _NAMES.get(flag, Alias(()))


def _batch(reading: Reading) -> Fields:
    """Read the microbatch, and the batch: ``MINIBS`` is its number of sequences per replica."""
    micro = reading.count(*_MICRO, default=1, least=1)
    each = reading.setting(_SEQUENCES)
    if each is None:
        hint = "the file that states it is missing, or this is no language-model benchmark"
        raise SpecError(
            reading.parsed.file, Problem(_SEQUENCES, "sequences per replica", "none", hint)
        )
    count = reading.count(_SEQUENCES, default=1, least=1)
    if count % micro:
        raise reading.error(each, f"a multiple of {micro} (sequences per microbatch)")
    return {"microbatch_size": micro, "batch_size": count * reading.execution["data_par"]}


def _write_batch(writing: Writing) -> Fields:
    return {
        _SEQUENCES: writing["batch_size"] // writing["data_par"],
        _MICRO[0]: writing["microbatch_size"],
    }


_SHAPE = {
    "num_blocks": ("OVERWRITTEN_NUM_LAYERS", "NUM_LAYERS"),
    "hidden": ("HIDDEN_SIZE",),
    "feedforward": ("FFN_HIDDEN_SIZE",),
    "attn_heads": ("NUM_ATTENTION_HEADS",),
}
"""Variables that change the shape of a benchmark's model, by its fields."""


def _model(reading: Reading) -> Fields:
    """Read the model of the benchmark, or its shape if variables change it."""
    name = str(reading.get(BENCHMARK, default=""))
    reading.used.add(_SIZE)
    if name not in BENCHMARKS:
        reading.notes.append("neither the file nor its name tells the benchmark: state the model")
        return {}
    benchmark = BENCHMARKS[name]
    if name == LORA:
        reading.notes.append(
            "adapters (LoRA) are not modeled: this trains all weights; samples are packed to 8,192 tokens"
        )
    known = _shape(benchmark.model)
    stated = {field: reading.count(*names, least=1) for field, names in _SHAPE.items()}
    changes = {field: n for field, n in stated.items() if n is not None and n != known[field]}
    if "hidden" in changes:  # as the benchmark's conf/custom.yaml, unless stated
        changes.setdefault("feedforward", 4 * changes["hidden"])
    shape = {**known, **benchmark.changes, **changes}
    if changes.keys() & {"hidden", "attn_heads"}:
        shape["attn_size"] = shape["hidden"] // shape["attn_heads"]
    return shape if benchmark.changes or changes else {"name": benchmark.model}


def _shape(model: str) -> Fields:
    """Return the fields of a model of the catalog."""
    known = catalog.load("model", model)[1]
    names = {one.name for one in spec_fields(Model)}
    fields = known if isinstance(known, Mapping) else {}
    return {name: value for name, value in fields.items() if name in names}


def _write_model(writing: Writing) -> Fields:
    # Models are known by their shape: files of models have other names, and sequences may have another length.
    for name, one in BENCHMARKS.items():
        shape = _shape(one.model).items()
        if all(getattr(writing.model, field) == v for field, v in shape if field != "seq_size"):
            return {BENCHMARK: name, **({_SIZE: one.size} if one.size else {})}
    wanted = (
        f"a model of an MLPerf benchmark: {', '.join(one.model for one in BENCHMARKS.values())}"
    )
    raise SpecError("model", Problem("", wanted, "another model"))


def parse(text: str, file: str, variables: Mapping[str, str]) -> Parsed:
    """Return the variables that a configuration and the common files that it sources set."""
    texts, notes = {file: text}, []
    benchmark = _benchmark_of(text, file)

    def source(name: str) -> str | None:
        """Return the text of a common file next to the configuration, else its published values."""
        near = file_near(name, file, ".sh")
        if near is not None:
            texts[near.path] = near.text
            return near.text
        published = PUBLISHED.get((benchmark, name)) or PUBLISHED.get(("", name))
        told = published or _told_by_name(name)
        if told is None:
            return None
        which = "published values" if published else "values in its name"
        notes.append(f"{name} is not there: the {which} are used ({told})")
        texts[f"{name} ({which})"] = told.replace(" ", "\n")
        # Every configuration begins with the common file.
        return told if published else f"source ./{_COMMON_FILE}\n{told}"

    script = run(text, file, variables, source)
    notes += [f"{one} is not read" for one in script.sourced]
    places, settings = _places(texts), dict[str, Setting]()
    for name, value in script.variables.items():
        if name.isidentifier() and isinstance(value, str) and value:
            known = script.open(value) or switched(plain_value(value))
            settings[name] = Setting(name, known, places.get(name, file))
    size = settings.get(_SIZE)
    sizes = {one.size: name for name, one in BENCHMARKS.items() if one.size}
    benchmark = sizes.get(str(size.value), "") if size else benchmark
    if benchmark:
        settings[BENCHMARK] = Setting(BENCHMARK, benchmark, size.place if size else file)
    counts = [settings.pop(name, None) for name in (_NODES, _PER_NODE)]
    settings.pop(_SEGMENT, None)
    return Parsed(file, settings, _processors(counts), tuple(notes))


_ASSIGNED = re.compile(r"""^[ \t]*(?::[ \t]*"?\$\{)?(?:export[ \t]+)?([A-Za-z_]\w*)(?::?=|\+=)""")


def _places(texts: dict[str, str]) -> dict[str, str]:
    """Return the last line that sets each variable."""
    found: dict[str, str] = {}
    # Common files first: their values are overridden by the file that sources them.
    for file in reversed(texts):
        for number, line in enumerate(texts[file].splitlines(), 1):
            if match := _ASSIGNED.match(line):
                found[match[1]] = f"{file}:{number}"
    return found


def _benchmark_of(text: str, file: str) -> str:
    """Return the benchmark that the name, the text or the folder of a file tells; empty if none does."""
    path = Path(file)
    for words in (f"{path.name}\n{text}", str(path.parent)):
        for name, one in BENCHMARKS.items():
            if re.search(one.pattern, words, re.MULTILINE | re.IGNORECASE):
                return name
    return "" if "EXPERT_PARALLEL" in text else LLAMA_405B


_COMMON_FILE = "config_common.sh"
_SIZES = re.compile(
    r"config_\w+?_(\d+)x(\d+)x(\d+)xtp(\d+)pp(\d+)(?:ep(\d+))?cp(\d+)_?(8b)?\w*\.sh"
)
_IN_NAME = (
    *(_NODES, _PER_NODE, _SEQUENCES, "TENSOR_MODEL_PARALLEL", "PIPELINE_MODEL_PARALLEL"),
    *("EXPERT_PARALLEL", "CONTEXT_PARALLEL", _SIZE),
)
"""Variables in the names of configurations: ``config_GB200_Nx4xMxtpXppYcpZ.sh`` (training_results_v6.0, Azure)."""


def _told_by_name(name: str) -> str | None:
    """Return the variables that the name of a configuration tells; None for other names."""
    found = _SIZES.fullmatch(name)
    if found is None:
        return None
    told = zip(_IN_NAME, found.groups(), strict=True)
    return " ".join(f"{variable}={value}" for variable, value in told if value)


def _processors(counts: Sequence[Setting | None]) -> int | Unresolved | None:
    """Return the number of processors: nodes, 1 by default, times processors of a node, 8 by default."""
    if not any(counts):
        return None
    total = 1
    for one, default in zip(counts, (1, 8), strict=True):
        value = default if one is None else one.value
        if isinstance(value, Unresolved):
            return value
        if not isinstance(value, int) or not 1 <= value < LARGEST_NUMBER:
            return Unresolved(str(value))
        total *= value
    return total


def render(settings: Mapping[str, Any], num_procs: int, head: Sequence[str]) -> str:
    """Return a configuration for nodes with up to 8 processors."""
    # A divisor keeps all nodes equal.
    per_node = max(one for one in range(1, 9) if num_procs % one == 0)
    counts = {_NODES: num_procs // per_node, _PER_NODE: per_node}
    benchmark = settings.get(BENCHMARK)
    lines = [f"# {one}" for one in (*head, *([f"benchmark {benchmark}"] if benchmark else ()))]
    lines += [f"source $(dirname ${{BASH_SOURCE[0]}})/{_COMMON_FILE}", ""]
    exported = {name: value for name, value in settings.items() if name != BENCHMARK}
    lines += [
        f"export {name}={word_of(str(value))}" for name, value in {**exported, **counts}.items()
    ]
    lines += [
        "",
        "export DGXSYSTEM=$(basename $(readlink -f ${BASH_SOURCE[0]}) | sed 's/^config_//' | sed 's/\\.sh$//' )",
    ]
    return "\n".join(lines) + "\n"


_COMMON = re.compile(r"^[ \t]*source[ \t]+.*BASH_SOURCE.*/config_\w+\.sh", re.MULTILINE)
_OWN = re.compile(
    r"^[ \t]*export (MINIBS|DGXNNODES|DGXSYSTEM|TENSOR_MODEL_PARALLEL|PIPELINE_MODEL_PARALLEL|CONTEXT_PARALLEL)=",
    re.MULTILINE,
)
_SURE = 2
"""Least number of marks."""


def recognizes(text: str, file: str) -> bool:
    """Return true for a configuration: it sources common files, or exports several variables of the benchmarks."""
    if file.endswith((".py", ".yaml", ".yml", ".toml", ".json")):
        return False
    return len({*_OWN.findall(text)}) + bool(_COMMON.search(text)) >= _SURE


def _with_capacity(one: Row) -> Row:
    """Return a row that also writes graphs of whole iterations for dropless experts.

    Configurations state the capacity of a rank (MOE_EXPERT_RANK_CAPACITY_FACTOR), which flags of Megatron-LM lack.
    """
    if "launch_mode" not in one.fields:
        return one

    def write(writing: Writing) -> Fields:
        if writing["launch_mode"] == "graph" and writing["moe_dispatcher"] == "hybridep":
            return {"CUDA_GRAPH_IMPLEMENTATION": "local", "CUDA_GRAPH_SCOPE": "full_iteration"}
        return one.write(writing)

    return replace(one, write=write)


MLPERF = Dialect(
    name="mlperf",
    title="MLPerf Training",
    version="5.1 (2025-11)",
    preset="megatron-lm",
    rows=(
        *(
            _with_capacity(renamed(one, _spelled))
            for one in ROWS
            if one.subject == "execution" and not {"batch_size", "seq_length"} & {*one.fields}
        ),
        row("microbatch_size batch_size", f"{_SEQUENCES} {' '.join(_MICRO)}", _batch, _write_batch),
        row(
            "name",
            " ".join((BENCHMARK, _SIZE, *chain(*_SHAPE.values()))),
            _model,
            _write_model,
            subject="model",
        ),
    ),
    no_effect=NO_EFFECT,
    not_modelled=NOT_MODELLED,
    parse=parse,
    render=render,
    recognizes=recognizes,
    presets=MEGATRON_LM.presets,
    not_in_file=("seq_length",),
)
