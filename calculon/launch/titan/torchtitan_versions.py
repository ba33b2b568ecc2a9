"""Settings of torchtitan in the names of an older version, which the file to be changed uses.

Sources: pytorch/torchtitan, ``torchtitan/config_manager.py`` (2024) and ``torchtitan/config/job_config.py`` (2025).
"""

from collections.abc import Container, Mapping
from typing import Any

from calculon.launch.dialect import Fields, Setting
from calculon.launch.titan.torchtitan_files import CHECKPOINT, OLDER_SECTIONS
from calculon.launch.titan.torchtitan_kernels import LENGTH, TOKENS
from calculon.launch.titan.torchtitan_words import CONVERTERS

STEP_TOKENS = "training.num_tokens_per_train_step"
PASSES = "parallelism.num_pp_microbatches"

_GRAPHS = "training.disable_cuda_graphs"
_SEQUENCES = ("seq_len", "local_batch_size", "batch_size", "global_batch_size")
_MODES: dict[Any, Fields] = {
    "FullAC": {"mode": "full"},
    "SelectiveAC": {"mode": "selective", "selective_ac_option": "op"},
    None: {"mode": "none"},
}
_COMPILE, _COMPONENTS = "compile.enable", "compile.components"
_CONVERTERS = {"Float8LinearConverter": "float8", "MXFP8LinearConverter": "mx"}
_ASYNC = "enable_async_tensor_parallel"


def in_version_of(settings: Fields, stated: Mapping[str, Setting]) -> Fields:
    """Return settings in the names of a file's version.

    Args:
        settings: Settings as :data:`calculon.launch.titan.torchtitan.TORCHTITAN` writes them.
        stated: Settings of the file.

    >>> stated = {"training.seq_len": Setting("training.seq_len", 2048)}
    >>> in_version_of({LENGTH: 4096, TOKENS: 8192}, stated)
    {'training.seq_len': 4096, 'training.local_batch_size': 2}
    """
    # Only older versions count sequences; newer files already have these names.
    if not any(f"training.{name}" in stated for name in _SEQUENCES):
        return settings
    found = _in_sequences(settings, stated)
    if CHECKPOINT in found and CHECKPOINT not in stated:
        mode = _MODES[found.pop(CHECKPOINT)]
        found |= {f"{CHECKPOINT}.{name}": value for name, value in mode.items()}
    if "optimizer.name" in stated:  # in TOML
        found = _with_converters(found, stated)
    if "training.compile" in stated and found.get(_COMPONENTS) == ["model"]:
        del found[_COMPONENTS]
        found["training.compile"] = found.pop(_COMPILE)
    if f"compile.{_ASYNC}" in found and _COMPILE not in stated:
        found[f"parallelism.{_ASYNC}"] = found.pop(f"compile.{_ASYNC}")
    return {_in_section(name, stated): value for name, value in found.items()}


def _in_sequences(settings: Fields, stated: Container[str]) -> Fields:
    """Return settings that count sequences in place of tokens, without settings of CUDA graphs."""
    counted = (LENGTH, TOKENS, STEP_TOKENS, PASSES, _GRAPHS)
    result = {name: value for name, value in settings.items() if name not in counted}
    length = settings.get(LENGTH)
    if length is None:
        return result
    micro, passes = settings[TOKENS] // length, settings.get(PASSES, 1)
    local = "batch_size" if "training.batch_size" in stated else "local_batch_size"
    result |= {"training.seq_len": length, f"training.{local}": micro * passes}
    if STEP_TOKENS in settings:
        result["training.global_batch_size"] = settings[STEP_TOKENS] // length
    if PASSES in settings and micro > 1:
        result["parallelism.pipeline_parallel_microbatch_size"] = micro
    return result


def _with_converters(settings: Fields, stated: Mapping[str, Setting]) -> Fields:
    """Return settings with 8-bit products as a list of converters, after the file's other converters."""
    made = [name for name in _CONVERTERS if f"converters.{name}" in settings]
    if not made:
        return settings
    listed = stated["model.converters"].value if "model.converters" in stated else []
    kept = [one for one in (listed if isinstance(listed, list) else []) if one not in CONVERTERS]
    found = {name: v for name, v in settings.items() if not name.startswith("converters.")}
    return {**found, "model.converters": [*kept, *(_CONVERTERS[name] for name in made)]}


def _in_section(name: str, stated: Container[str]) -> str:
    """Return the name of a parallelism option in the section that a file uses."""
    section, _, option = name.partition(".")
    if section != "parallelism" or name in stated:
        return name
    for older in OLDER_SECTIONS:
        if f"{older}.{option}" in stated:
            return f"{older}.{option}"
    return name
