"""Files of torchtitan: TOML for versions up to 2025, Python since 2026; none of them is executed."""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.declarations import catalog
from calculon.declarations.fields import shown
from calculon.declarations.model import Model
from calculon.launch.dialect import Fields, Language, Parsed, Reading, Setting
from calculon.launch.texts.near_files import file_near
from calculon.launch.texts.python_config import Call, held, read_configuration, short_name
from calculon.launch.texts.python_syntax import parsed
from calculon.launch.texts.reading_budget import reading, too_large
from calculon.launch.texts.shell_flags import PROGRAM, parse_script
from calculon.launch.texts.tree import CALLS, TARGET, Leaf, Tree, flat

MODELS: Mapping[tuple[str, str], str] = {
    ("llama3", "8B"): "llama3-8B",
    ("llama3", "70B"): "llama3-70B",
    ("llama3", "405B"): "llama3.1-405B",
    ("llama2", "7B"): "llama2-7B",
    ("llama2", "13B"): "llama2-13B",
    ("llama2", "70B"): "llama2-70B",
    ("llama4", "17bx16e"): "llama4-scout",
    ("llama4", "17bx128e"): "llama4-maverick",
    ("deepseek_v3", "16B"): "deepseek-v2-lite",
    ("deepseek_v3", "671B"): "deepseek-v3",
    ("deepseek_v3", "kimi_k2"): "kimi-k2",
    ("qwen3", "0.6B"): "qwen3-0.6B",
    ("qwen3", "1.7B"): "qwen3-1.7B",
    ("qwen3", "4B"): "qwen3-4B",
    ("qwen3", "8B"): "qwen3-8B",
    ("qwen3", "14B"): "qwen3-14B",
    ("qwen3", "32B"): "qwen3-32B",
    ("qwen3", "30B-A3B"): "qwen3-30B-a3B",
    ("qwen3", "235B-A22B"): "qwen3-235B-a22B",
    ("gpt_oss", "20b"): "gpt-oss-20b",
    ("gpt_oss", "120b"): "gpt-oss-120b",
}
"""Models of torchtitan (``name``, ``flavor``) in the catalog.

Its DeepSeek-V3 16B has the shape of DeepSeek-V2-Lite: 27 blocks of 2048, 64 experts of 1408, 6 experts per token.
"""

_FAMILIES = tuple(dict.fromkeys(name for name, _ in MODELS))
_OF_MODELS = re.compile(r"torchtitan\.models\.(\w+)")
_SECTION = re.compile(r"\s*\[\s*([\w.\"-]+)\s*\]")
_KEY = re.compile(r"\s*([\w-]+)\s*=")
_DOTTED = re.compile(r"\s*([\w.\"-]+)\s*=")
_DIGITS = re.compile(r"[0-9_]{4000}")
_DEEPEST = 100
"""Largest number of nested tables."""

_TABLE = re.compile(
    r"^[ \t]*\[[ \t]*\"?(model|parallelism|training|activation_checkpoint|experimental)\"?[ \t]*[.\]]",
    re.MULTILINE,
)
"""Tables of which a TOML file of torchtitan has several."""

_SCRIPT = re.compile(
    r"^[^#\n]*(?:run_train\.sh|-m torchtitan\.train|torchtitan/train\.py)", re.MULTILINE
)
"""Command that starts torchtitan."""

_SCRIPTS = (".sh", ".slurm", ".sbatch")

_SAID = ("CONFIG_FILE", "CONFIG", "job.config_file", "config")
"""Variables and options that name a configuration in another file."""

_MADE_BY = ("model_registry", "build_model_config")
_QUANTIZED = re.compile(r"(?:model|model_converters)\.(?:converters|quantization)\.")

CHECKPOINT = "activation_checkpoint"

_ONLY_READ = ("llama2", "kimi_k2")
"""Names and flavors of versions before 2026, and of forks."""

OLDER_SECTIONS = ("training", "experimental")
"""Sections that held the parallelism options until 2025."""

_SHAPE = ("hidden", "num_blocks", "attn_heads", "feedforward", "vocab", "num_experts")
"""Fields that identify a model among torchtitan's."""


def parallel(option: str) -> tuple[str, ...]:
    """Return the names of a parallelism option in all versions."""
    return tuple(f"{section}.{option}" for section in ("parallelism", *OLDER_SECTIONS))


def indivisible(reading: Reading, name: str, wanted: str, found: int) -> SpecError:
    """Return the error of a count that is not divisible."""
    stated = reading.parsed.settings.get(name)
    place = stated.place if stated is not None and stated.place else reading.parsed.file
    return SpecError(place, Problem(name, wanted, f"{found:,}"))


def parse(text: str, file: str, variables: Mapping[str, str]) -> Parsed:
    """Return the settings of a configuration by section and option, such as ``parallelism.tensor_parallel_degree``.

    In a Python file with several configurations, the variable ``recipe`` selects one.
    """
    kind = language(text, file)
    if kind == "shell":
        return _of_script(text, file, variables)
    return _of_python(text, file, variables) if kind == "python" else _of_toml(text, file)


def language(text: str, file: str) -> Language:
    """Return the language of a launch text."""
    if file.endswith(_SCRIPTS) or _SCRIPT.search(text):
        return "shell"
    if file.endswith(".py") or (not file.endswith(".toml") and _is_python(text)):
        return "python"
    return "toml"


def recognizes(text: str, file: str) -> bool:
    """Return true for a configuration of torchtitan."""
    if file.endswith(_SCRIPTS) or _SCRIPT.search(text):
        return bool(_SCRIPT.search(text))
    if not file.endswith(".py") and len(set(_TABLE.findall(text))) > 1:
        return True  # even with errors, which the parser reports
    return "torchtitan" in text and (file.endswith(".py") or _is_python(text))


def model_of(settings: Mapping[str, Setting]) -> str:
    """Return the catalog name of a file's model; empty if there is none."""
    said = (settings.get(f"model.{key}") for key in ("name", "flavor"))
    name, flavor = (str(one.value) if one is not None else "" for one in said)
    return MODELS.get((name, flavor), "")


def blocks_of(name: str) -> int:
    """Return the number of blocks of a catalog model."""
    return int(_document(name)["num_blocks"])


def mixes(name: str) -> bool:
    """Return true if a catalog model is a mixture of experts; false for an empty name."""
    return bool(name) and int(_document(name).get("num_experts", 0)) > 1


def flavor_of(model: Model) -> tuple[str, str] | None:
    """Return the names of a model in torchtitan; None if it has no model of this shape."""
    shape = {key: getattr(model, key) for key in _SHAPE}
    for names, ours in MODELS.items():
        one = _document(ours)
        if not {*names}.isdisjoint(_ONLY_READ):
            continue
        if all(one.get(key, 0) == value for key, value in shape.items()):
            return names
    return None


@cache
def _document(name: str) -> Mapping[str, Any]:
    result = catalog.load("model", name)[1]
    assert isinstance(result, Mapping)
    return result


def _is_python(text: str) -> bool:
    """Return true for a Python text with a function or an import."""
    try:
        tree = parsed(text, "")
    except SpecError:
        return False
    kinds = (ast.FunctionDef, ast.ImportFrom, ast.Import)
    return any(isinstance(one, kinds) for one in tree.body)


def _of_script(text: str, file: str, variables: Mapping[str, str]) -> Parsed:
    """Return the options of a command line, which override the configuration that it names."""
    found = parse_script(
        text, file, variables, is_flag=_is_option, name_of=option_name, environment=_SAID
    )
    options, notes, below = dict(found.settings), list(found.notes), {}
    said = [one for name in _SAID if (one := options.pop(name, None)) is not None]
    for named in dict.fromkeys(str(one.value) for one in said):
        configuration = _configuration_near(named, file)
        if configuration is None:
            notes.append(f"{said[0].place or file}: {named} is not read")
        else:
            below = dict(configuration.settings)
    options.pop(PROGRAM, None)
    settings = below | dict(map(_switched, options.items()))
    return Parsed(file, settings, found.num_procs or _counted(text), tuple(notes))


def _configuration_near(named: str, file: str) -> Parsed | None:
    """Return the settings of a configuration that a script names, if it is in the script's folder or below."""
    found = file_near(named, file, ".toml")
    return None if found is None else _of_toml(found.text, found.path)


def _switched(item: tuple[str, Setting]) -> tuple[str, Setting]:
    """Return an option that is switched off under its usual name: ``--checkpoint.no-enable``."""
    name, one = item
    section, dot, option = name.partition(".")
    if not option.startswith("no_") or one.value is not True:
        return item
    name = f"{section}{dot}{option.removeprefix('no_')}"
    return name, Setting(name, value=False, place=one.place)


def _counted(text: str) -> int | None:
    """Return the number of processors passed to ``run_train.sh``: ``NGPU=8``, on ``NNODES`` nodes."""
    per_node, nodes = (re.search(rf"\b{name}=[\"']?(\d+)", text) for name in ("NGPU", "NNODES"))
    return int(per_node[1]) * (int(nodes[1]) if nodes else 1) if per_node else None


def _is_option(name: str) -> bool:
    return "." in name or name in ("module", "config")


def option_name(word: str) -> str:
    """Return the name of an option: ``--training.seq-len=4096`` is ``training.seq_len``."""
    return word.partition("=")[0].removeprefix("--").replace("-", "_")


def _of_toml(text: str, file: str) -> Parsed:
    with reading(file) as budget:
        budget.spend_tokens(text)
        lines = _lines(text, file)
        wanted = "TOML" if file.endswith(".toml") else "TOML, or Python"
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SpecError(file, Problem("", wanted, str(error))) from None
        except ValueError:  # a number with more digits than Python converts
            raise _of_digits(text, file, lines) from None
        found = {
            name: Setting(name, value, f"{file}:{lines[name]}" if name in lines else file)
            for name, value in flat(tables)
            if value != {}
        }
    return Parsed(file, found)


def _of_digits(text: str, file: str, lines: Mapping[str, int]) -> SpecError:
    """Return the error of the first number with too many digits."""
    longest = _DIGITS.search(text)
    number = text.count("\n", 0, longest.start() if longest else 0) + 1
    return too_large(f"{file}:{number}", next((n for n, at in lines.items() if at == number), ""))


def _lines(text: str, file: str) -> dict[str, int]:
    """Return the lines of a TOML file's options by name, for options written one per line.

    Raises:
        SpecError: For a name with more parts than the parser supports.
    """
    result, section = {}, ""
    for number, line in enumerate(text.splitlines(), 1):
        if begun := _SECTION.match(line):
            section = begun[1].replace('"', "") + "."
        elif key := _KEY.match(line):
            result[section + key[1]] = number
        name = begun or _DOTTED.match(line)
        if name and name[1].count(".") > _DEEPEST:
            wanted = f"a name of at most {_DEEPEST} parts"
            raise SpecError(f"{file}:{number}", Problem(shown(name[1]), wanted, "more"))
    return result


def _of_python(text: str, file: str, variables: Mapping[str, str]) -> Parsed:
    one = read_configuration(text, file, variables)
    root, notes = one.root, list(one.notes)
    given = root.positional
    if short_name(root.name) == "apply_transforms" and given and isinstance(given[0], Call):
        root = given[0]
        if len(given) > 1:
            root["transforms"] = held(given[1], one.root.line)
    made_by = short_name(root.name) if root.name else ""
    if made_by[:1].islower():
        module = one.imports.get(root.name, "another file")
        notes.append(f"{file}:{root.line}: settings made by {root.name} of {module} are not read")
        # Factory functions take the sequence length directly; in their result it is a setting of the model.
        if "seq_len" in root:
            root["model"] = registry = Call(seq_len=root.pop("seq_len"))
            registry[TARGET] = Leaf(_MADE_BY[0], root.line)
    model = root.pop("model_spec", None) or root.get("model")
    found = {_renamed(each.name): each for each in _settings(root, file)}
    if isinstance(model, Call) and short_name(model.name) in _MADE_BY:
        found.pop("model", None)
        for each in _settings(model, file, "model"):
            found[_renamed(each.name)] = each
        found |= _model_names(model, one.name, one.imports, f"{file}:{model.line}")
    settings = {n: Setting(n, s.value, s.place) for n, s in found.items()}
    _state_operators(settings)
    return Parsed(file, settings, notes=tuple(notes))


def _state_operators(settings: dict[str, Setting]) -> None:
    """Make selective recomputation explicit: Python recipes mean the recomputation of operators by default."""
    mode, option = f"{CHECKPOINT}.mode", f"{CHECKPOINT}.selective_ac_option"
    stated = settings.get(mode)
    if CHECKPOINT not in settings and (stated is None or stated.value == "selective"):
        settings.setdefault(option, Setting(option, "op", stated.place if stated else ""))


def _settings(root: Tree, file: str, section: str = "") -> Iterator[Setting]:
    """Yield the constants of a configuration, and the class of each part unless its name implies it.

    ``training=TrainingConfig(steps=10)`` only yields ``training.steps``, ``loss=Chunked.Config(n=8)`` yields ``loss``
    and ``loss.n``; each element of a list is switched on by its name.
    """
    for path, leaf in root.leaves(section):
        place = f"{file}:{leaf.line}"
        above, _, last = path.rpartition(".")
        if last != TARGET:
            if CALLS not in path.split("."):
                yield Setting(path, leaf.value, place)
            continue
        key, kind = above.rpartition(".")[2].partition("#")[0], short_name(str(leaf.value))
        usual = ("config", f"{key.replace('_', '')}config")
        if above and above != section and kind.lower() not in usual:
            yield Setting(above, True if kind == key else kind, place)


def _renamed(name: str) -> str:
    return _QUANTIZED.sub("converters.", name)


def _model_names(
    made: Call, function: str, imports: Mapping[str, str], place: str
) -> dict[str, Setting]:
    """Return name and flavor of a model, from the module that creates it or from the name of the function."""
    result = {}
    if made.positional and isinstance(made.positional[0], str):
        result["model.flavor"] = Setting("model.flavor", made.positional[0], place)
    module = _OF_MODELS.match(imports.get(made.name, ""))
    families = (one for one in _FAMILIES if function.startswith(one))
    if name := module[1] if module else next(families, ""):
        result["model.name"] = Setting("model.name", name, place)
    return result


_IMPORTS = {
    "CompileConfig": "torchtitan.config",
    "ParallelismConfig": "torchtitan.config",
    "TrainingConfig": "torchtitan.config",
    "FullAC": "torchtitan.distributed.activation_checkpoint",
    "SelectiveAC": "torchtitan.distributed.activation_checkpoint",
    "Float8LinearConverter": "torchtitan.components.quantization",
    "MXFP8LinearConverter": "torchtitan.components.quantization",
    "NVFP4LinearConverter": "torchtitan.components.quantization",
    "Trainer": "torchtitan.trainer",
}
"""Modules of the classes that a recipe uses."""

_SECTIONS = {
    "training": "TrainingConfig",
    "parallelism": "ParallelismConfig",
    "compile": "CompileConfig",
}
_FUNCTION = re.compile(r"\W+")


def render(settings: Mapping[str, Any], processors: int, head: Sequence[str]) -> str:
    """Return a function that changes a torchtitan configuration, or any configuration, to the given settings."""
    name, flavor = (settings.get(f"model.{key}") for key in ("name", "flavor"))
    base = _FUNCTION.sub("_", f"{name}_{flavor}").lower() if name else ""
    used = {"Trainer", *(kind for part, kind in _SECTIONS.items() if _section(settings, part))}
    body = []
    for section, kind in _SECTIONS.items():
        if given := _section(settings, section):
            body += [f"    config.{section} = {kind}("]
            body += [f"        {key}={value!r}," for key, value in given.items()] + ["    )"]
    made = {k: v for k, v in settings.items() if k.startswith("converters.") and k.count(".") == 1}
    converters = [key.partition(".")[2] for key in made]
    recompute = settings.get("activation_checkpoint")
    used |= {*converters, *([recompute] if recompute else [])}
    written = f"{recompute}.Config()" if recompute else "None"
    body += [f"    config.activation_checkpoint = {written}"]
    if implementation := settings.get("optimizer.implementation"):
        body += [f"    config.optimizer.implementation = {implementation!r}"]
    if "checkpoint.interval" in settings:
        body += ["    config.checkpoint.enable = True"]
        body += [f"    config.checkpoint.interval = {settings['checkpoint.interval']!r}"]
    lines = [f"# {line}" for line in head]
    nodes = f"NNODES={processors // 8} NGPU=8" if processors % 8 == 0 else f"NGPU={processors}"
    lines += [f"# {nodes} MODULE=<this file> CONFIG={base or 'any'}_planned ./run_train.sh", ""]
    modules: dict[str, list[str]] = {}
    for kind in sorted(used):
        modules.setdefault(_IMPORTS[kind], []).append(kind)
    if name:
        modules[f"torchtitan.models.{name}"] = ["model_registry"]
        modules[f"torchtitan.models.{name}.config_registry"] = [base]
    lines += [f"from {module} import {', '.join(modules[module])}" for module in sorted(modules)]
    lines += ["", "", *_opened(base, flavor, _registry(settings, converters))]
    return "\n".join([*lines, *body, "    return config", ""])


def _section(settings: Mapping[str, Any], section: str) -> Fields:
    start = f"{section}."
    return {k.removeprefix(start): v for k, v in settings.items() if k.startswith(start)}


def _registry(settings: Mapping[str, Any], converters: Sequence[str]) -> str:
    """Return the keyword arguments of the model registry."""
    given = []
    if backend := settings.get("model.moe_comm_backend"):
        given += [f"moe_comm_backend={backend!r}"]
    if converters:
        each = []
        for one in converters:
            parts = _section(settings, f"converters.{one}")
            each += [f"{one}.Config({', '.join(f'{k}={v!r}' for k, v in parts.items())})"]
        given += [f"converters=[{', '.join(each)}]"]
    return "".join(f", {one}" for one in given)


def _opened(base: str, flavor: str | None, given: str) -> list[str]:
    """Return the first lines of the function: for a model of torchtitan, or for any model that is passed in."""
    if base:
        return [
            f"def {base}_planned() -> Trainer.Config:",
            f"    config = {base}()",
            f"    config.model_spec = model_registry({flavor!r}{given})",
        ]
    return [
        "def any_planned(config: Trainer.Config, model_registry, flavor) -> Trainer.Config:",
        f"    config.model_spec = model_registry(flavor{given})",
    ]
