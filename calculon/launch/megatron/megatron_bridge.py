"""Megatron-Bridge and NeMo: configurations that start Megatron-LM's code, with the rows of Megatron-LM.

Recipes in Python, overrides in YAML, and command-line overrides (``model.sequence_parallel=true``) are read; overrides
in YAML are written. NeMo 2 recipes have Megatron-Bridge's names under ``trainer.strategy``.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.declarations import catalog
from calculon.declarations.spellings.catalog_words import meaning
from calculon.launch.dialect import (
    Dialect,
    Fields,
    Language,
    Parsed,
    Reading,
    Row,
    Setting,
    Unresolved,
)
from calculon.launch.megatron.megatron_bridge_words import (
    IGNORED,
    NEMO_IGNORED,
    NEMO_NOT_MODELLED,
    NOT_MODELLED,
    ON_BY_DEFAULT,
)
from calculon.launch.megatron.megatron_lm import MEGATRON_LM, ROWS
from calculon.launch.megatron.megatron_model import NO_VOCABULARY
from calculon.launch.megatron.megatron_names import BRIDGE, NEMO, PRECISION, spelled
from calculon.launch.renaming import Alias, renamed
from calculon.launch.rows import row
from calculon.launch.texts import yaml_config
from calculon.launch.texts.name_patterns import any_of, names_in
from calculon.launch.texts.python_config import read_configuration
from calculon.launch.texts.shell import run
from calculon.launch.texts.shell_flags import parse_script
from calculon.launch.texts.tree import TARGET, Leaf, Tree

_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:\.\w+)+)=(.*)", re.DOTALL)
_SECTIONS = re.compile(
    r"\A(model|train|optimizer|ddp|scheduler|checkpoint|dataset|logger|rng)_config\."
)
_AROUND = re.compile(rf"\A(?:\+*|(?:{'|'.join(yaml_config.AROUND)})\.)")
_STARTED = re.compile(r"--nproc[-_]per[-_]node[= ](\d+)(?:.*--nnodes[= ](\d+))?")
_IN_NAME = re.compile(r"_(\d+)gpus?_")

_MOVED = (
    (f"trainer.strategy.{TARGET}", f"strategy.{TARGET}"),
    ("trainer.strategy.ddp.", "ddp."),
    ("trainer.strategy.", "model."),
    ("trainer.callbacks.MegatronCommOverlapCallback.", "comm_overlap."),
    ("trainer.plugins.grad_reduce_in_fp32", f"{PRECISION}.grad_reduce_in_fp32"),
    ("trainer.plugins.fp8", f"{PRECISION}.fp8"),
    ("trainer.plugins.precision", PRECISION),
    (f"trainer.plugins.{TARGET}", f"{PRECISION}.{TARGET}"),
    ("model.config.", "model."),
    ("optim.config.", "optimizer."),
    ("data.global_batch_size", "train.global_batch_size"),
    ("data.micro_batch_size", "train.micro_batch_size"),
    ("trainer.max_steps", "train.train_iters"),
)
"""Prefixes of names in NeMo 2, and their counterparts in Megatron-Bridge."""


def _canonical(path: str) -> str:
    """Return a name as Megatron-Bridge spells it today.

    >>> _canonical("trainer.strategy.context_parallel_size"), _canonical("model_config.seq_length")
    ('model.context_parallel_size', 'model.seq_length')
    """
    path = _SECTIONS.sub(r"\1.", path)
    for old, new in _MOVED:
        if path.startswith(old):
            return new + path[len(old) :]
    return path


def _is_python(text: str, file: str) -> bool:
    return file.endswith(".py") or bool(
        re.search(r"^(def |import |from |cfg\.)", text, re.MULTILINE)
    )


def _is_shell(text: str, file: str) -> bool:
    return file.endswith((".sh", ".slurm", ".sbatch")) or text.startswith("#!")


def language(text: str, file: str) -> Language:
    """Return the language of a launch text."""
    return "shell" if _is_shell(text, file) else "python" if _is_python(text, file) else "yaml"


def parse(
    text: str, file: str, variables: Mapping[str, str], *, rename: Callable[[str], str]
) -> Parsed:
    """Return the settings of a recipe, of YAML overrides, or of a command line, and the number of processors."""
    if _is_shell(text, file):
        return _parse_command(text, file, variables, rename)
    notes: tuple[str, ...] = ()
    if _is_python(text, file):
        configuration = read_configuration(text, file, variables)
        tree: Tree = configuration.root
        notes = configuration.notes
    else:
        tree = yaml_config.settings_in(text, file, variables)
    settings: dict[str, Setting] = {}
    for path, leaf in tree.leaves():
        if leaf.value is not None:
            settings[rename(path)] = Setting(path, leaf.value, f"{file}:{leaf.line}")
    _name_precision(settings)
    _name_recipe(settings)
    return Parsed(file, _without_usual(settings), _processors(tree, text), notes)


_OWN = ("_pretrain_common", "ConfigContainer", "megatron.bridge.training.config.ConfigContainer")
"""Constructors of configurations that start without a recipe."""

RECIPE = "recipe"


def _name_recipe(settings: dict[str, Setting]) -> None:
    """Move the recipe from another file, on which a configuration is based, to a separate setting."""
    made = settings.get(TARGET)
    if made is not None and str(made.value) not in _OWN and "_config" in str(made.value):
        settings[RECIPE] = settings.pop(TARGET)


def _without_usual(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return settings by name; settings at their default that no row reads get the prefix ``usual.``."""
    result, on = {}, any_of(names_in(ON_BY_DEFAULT))
    for name, setting in settings.items():
        usual = setting.value is True if on.match(name) else setting.value in _OFF
        known = not usual or name in _KNOWN
        result[name if known else f"usual.{name}"] = setting
    return result


_OFF: tuple[Any, ...] = (False, 0, [], "none")


def _name_precision(settings: dict[str, Setting]) -> None:
    """Set the precision by name if a function of that name creates it: ``bf16_mixed()``."""
    constructor = settings.get(f"{PRECISION}.{TARGET}")
    name = "" if constructor is None else str(constructor.value).rpartition(".")[2]
    if (
        constructor is not None
        and PRECISION not in settings
        and name.endswith(("_mixed", "-mixed"))
    ):
        settings[PRECISION] = Setting(constructor.name, name, constructor.place)
        del settings[f"{PRECISION}.{TARGET}"]


def _parse_command(
    text: str, file: str, variables: Mapping[str, str], rename: Callable[[str], str]
) -> Parsed:
    """Return the overrides that a script passes to a command."""
    script = run(text, file, variables)
    settings: dict[str, Setting] = {}
    for command in script.commands:
        for word in command.words:
            if found := _OVERRIDE.fullmatch(word):
                value = script.open(found[2]) or yaml_config.plain(found[2])
                settings[rename(found[1])] = Setting(found[1], value, f"{file}:{command.line}")
    if not settings:
        wanted = "overrides such as model.tensor_model_parallel_size=4"
        raise SpecError(file, Problem("", wanted, "none"))
    started = parse_script(text, file, variables)
    return Parsed(file, settings, started.num_procs, started.notes)


def _processors(tree: Tree, text: str) -> int | Unresolved | None:
    """Return the processors: nodes times devices of a trainer, or from a command in a comment or the recipe's name."""
    sizes = [tree.at(("trainer", name)) for name in ("num_nodes", "devices")]
    values = [size.value for size in sizes if isinstance(size, Leaf)]
    # A command in a comment, and a recipe's name, only document a run: the trainer's own settings come first.
    for size in values:
        if isinstance(size, Unresolved):
            return size
    if len(values) == len(sizes) and all(isinstance(size, int) for size in values):
        return int(values[0] * values[1])
    comments = "\n".join(line for line in text.splitlines() if line.lstrip().startswith("#"))
    if found := _STARTED.search(comments):
        return int(found[1]) * int(found[2] or 1)
    names = {int(one) for one in _IN_NAME.findall(" ".join(re.findall(r"^def (\w+)", text, re.M)))}
    return names.pop() if len(names) == 1 else None


def render(
    settings: Mapping[str, Any], num_procs: int, head: Sequence[str], *, started: Sequence[str]
) -> str:
    """Return a YAML file of overrides."""
    import yaml  # only to write it

    # Nodes have up to 8 processors; a divisor keeps all nodes equal.
    per_node = max(one for one in range(1, 9) if num_procs % one == 0)
    words = {"per_node": per_node, "nodes": num_procs // per_node}
    tree: Fields = {}
    # Sections that recipes omit must name their constructor.
    for path, value in _counted_in_steps(settings).items():
        *names, last = path.split(".")
        below = tree
        for name in names:
            below = below.setdefault(name, {})
            if names[0] in _MADE and TARGET not in below:
                below[TARGET] = _MADE[names[0]]
        below[last] = value
        below |= _BESIDE.get(path, {})
    if "trainer" in tree:
        tree["trainer"] = {"num_nodes": words["nodes"], "devices": per_node, **tree["trainer"]}
    lines = [f"# {one}" for one in (*head, *(one.format(**words) for one in started))]
    body = yaml.safe_dump(tree, sort_keys=False, default_flow_style=False, width=100)
    return "\n".join((*lines, "", body))


def _counted_in_steps(settings: Mapping[str, Any]) -> Fields:
    """Convert sample counts to steps, as NeMo's trainers count steps."""
    result = dict(settings)
    if (samples := result.pop("trainer.max_samples", None)) is not None:
        result["trainer.max_steps"] = -(-samples // result["model.global_batch_size"])
    return result


_MADE = {
    PRECISION: "megatron.bridge.training.mixed_precision.MixedPrecisionConfig",
    "comm_overlap": "megatron.bridge.training.comm_overlap.CommOverlapConfig",
}
"""Parts of a configuration that recipes omit or state by name, with the classes that create them."""


_BESIDE: Mapping[str, Fields] = {
    "model.gated_linear_unit": {"activation_func": "silu"},
    "model.cpu_offloading_num_layers": {"cpu_offloading": True},
}
"""Settings that some settings require."""


def _rows(names: Mapping[str, Alias]) -> Iterator[Row]:
    """Yield the rows of Megatron-LM under other names."""
    return (renamed(one, partial(spelled, names)) for one in ROWS)


_NAMED_BY = (
    *("model.hf_model_id", f"model.{TARGET}", RECIPE, "run.name", "name", "model.tokenizer.type"),
    "tokenizer.tokenizer_model",
)
_TASK = re.compile(r"_(pretrain|sft|peft|finetune)\w*|ModelProvider|Config|Model")


def model_of(text: str) -> str:
    """Return the catalog model that a text names; empty if there is none.

    >>> model_of("AutoBridge.from_hf_pretrained('meta-llama/Meta-Llama-3-70B').to_megatron_provider")
    'llama3-70B'
    >>> model_of("Llama31ModelProvider405B"), model_of("GPTModelProvider")
    ('llama3.1-405B', '')
    """
    known = catalog.names("model")
    quoted = re.search(r"['\"]([^'\"]+)['\"]", text)
    text_name = quoted[1] if quoted else _TASK.sub(" ", text).strip()
    for word in (
        text_name,
        text_name.rpartition("/")[2],
        text_name.rpartition("/")[2].removesuffix("-Base"),
    ):
        # A name without a number is a family, not a model.
        if not re.search(r"\d", word):
            return ""
        if word.lower() in known:
            return word.lower()
        if len(names := meaning("model", word, known).names) == 1:
            return names[0]
    return ""


def _named_model(reading: Reading) -> Fields:
    """Read the name of a model without a stated shape, or the missing vocabulary of a model with a known shape."""
    words = [str(found.value) for name in _NAMED_BY if (found := reading.setting(name)) is not None]
    model = next(filter(None, map(model_of, words)), "")
    stated = reading.model.get("num_blocks")
    if not model or (stated and reading.model.get("vocab")):
        return {}
    if not stated and reading.parsed.settings.get("model.num_layers") is None:
        reading.model.clear()
        return {"name": model}
    known = catalog.load("model", model)[1]
    shape = ("num_blocks", "hidden", "attn_heads")
    # Only an identical shape makes the vocabulary of the named model credible.
    if not isinstance(known, Mapping) or any(known.get(n) != reading.model.get(n) for n in shape):
        return {}
    reading.notes[:] = [note for note in reading.notes if note != NO_VOCABULARY]
    reading.notes.append(f"the vocabulary is taken from {model}, which has the same shape")
    return {name: known[name] for name in ("vocab", "tied") if name in known}


_NAMED = row("name", " ".join(_NAMED_BY), _named_model, subject="model")

_KNOWN = frozenset(
    chain.from_iterable(one.settings for names in (BRIDGE, NEMO) for one in _rows(names))
)

_STATED = re.compile(
    r"(?<![-\w])(?:[\w.]+\.)?(tensor_model_parallel_size|pipeline_model_parallel_size|"
    r"context_parallel_size|micro_batch_size|global_batch_size)\s*[:=]"
)
_OLD = re.compile(r"^\s+(encoder_seq_length|megatron_amp_O2|activations_checkpoint_\w+)\s*:", re.M)
_BATCH_BELOW = re.compile(r"^\s+micro_batch_size\s*:", re.MULTILINE)
_TRAIN = re.compile(r"^\s*train(_config)?\s*:", re.MULTILINE)


def _is_nemo(text: str, file: str) -> bool:
    """Return true for a configuration of NeMo before 2.0."""
    del file
    batch = _BATCH_BELOW.search(text) and not _TRAIN.search(text)
    return bool(_OLD.search(text) or ("model.encoder_seq_length=" in text)) or bool(
        batch and re.search(r"^trainer\s*:", text, re.MULTILINE)
    )


def _is_bridge(text: str, file: str) -> bool:
    """Return true for a recipe or overrides of Megatron-Bridge, or a recipe of NeMo 2."""
    return bool(_STATED.search(text)) and not _is_nemo(text, file)


MEGATRON_BRIDGE = Dialect(
    name="megatron-bridge",
    title="Megatron-Bridge",
    version="0.6 (2026-08)",
    preset="megatron-lm",
    rows=(*_rows(BRIDGE), _NAMED),
    no_effect=IGNORED,
    not_modelled=NOT_MODELLED,
    parse=partial(parse, rename=_canonical),
    render=partial(
        render,
        started=(
            "torchrun --nproc_per_node {per_node} --nnodes {nodes} RECIPE.py --config-file THIS_FILE",
        ),
    ),
    recognizes=_is_bridge,
    suffix=".yaml",
    presets=MEGATRON_LM.presets,
    language=language,
    named=lambda name: _canonical(_AROUND.sub("", name)),
    sections=_MADE,
)

NEMO_1 = Dialect(
    name="nemo",
    title="NeMo",
    version="1.23 (2024)",
    preset="megatron-lm",
    rows=(*_rows(NEMO), _NAMED),
    no_effect=NEMO_IGNORED,
    not_modelled=NEMO_NOT_MODELLED,
    parse=partial(parse, rename=str),
    render=partial(render, started=("python megatron_gpt_pretraining.py --config-name THIS_FILE",)),
    recognizes=_is_nemo,
    suffix=".yaml",
    presets=MEGATRON_LM.presets,
    language=language,
    named=lambda name: _AROUND.sub("", name),
)
