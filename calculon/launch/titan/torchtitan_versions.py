"""Settings of torchtitan in the names of an older version: those of the file that is to be changed.

Sources: pytorch/torchtitan, ``torchtitan/config_manager.py`` (2024) and ``torchtitan/config/job_config.py`` (2025).
"""

from collections.abc import Container
from typing import Any

from calculon.launch.dialect import Fields
from calculon.launch.titan.torchtitan_files import OLDER_SECTIONS
from calculon.launch.titan.torchtitan_kernels import LENGTH, TOKENS

STEP_TOKENS = "training.num_tokens_per_train_step"
PASSES = "parallelism.num_pp_microbatches"

_GRAPHS = "training.disable_cuda_graphs"
_CHECKPOINT = "activation_checkpoint"
_SEQUENCES = ("seq_len", "local_batch_size", "batch_size", "global_batch_size")
_MODES: dict[Any, Fields] = {
    "FullAC": {"mode": "full"},
    "SelectiveAC": {"mode": "selective", "selective_ac_option": "op"},
    None: {"mode": "none"},
}
_COMPILE, _COMPONENTS = "compile.enable", "compile.components"
_ASYNC = "enable_async_tensor_parallel"


def in_version_of(settings: Fields, stated: Container[str]) -> Fields:
    """Return settings in the names that a file has.

    Args:
        settings: Settings as :data:`calculon.launch.titan.torchtitan.TORCHTITAN` writes them.
        stated: The settings of the file.

    >>> in_version_of({LENGTH: 4096, TOKENS: 8192}, {"training.seq_len"})
    {'training.seq_len': 4096, 'training.local_batch_size': 2}
    """
    if not any(f"training.{name}" in stated for name in _SEQUENCES):
        return settings
    found = _in_sequences(settings, stated)
    if _CHECKPOINT in found and _CHECKPOINT not in stated:
        mode = _MODES[found.pop(_CHECKPOINT)]
        found |= {f"{_CHECKPOINT}.{name}": value for name, value in mode.items()}
    if "training.compile" in stated and found.get(_COMPONENTS) == ["model"]:
        del found[_COMPONENTS]
        found["training.compile"] = found.pop(_COMPILE)
    if f"compile.{_ASYNC}" in found and _COMPILE not in stated:
        found[f"parallelism.{_ASYNC}"] = found.pop(f"compile.{_ASYNC}")
    return {_in_section(name, stated): value for name, value in found.items()}


def _in_sequences(settings: Fields, stated: Container[str]) -> Fields:
    """Return settings that count sequences in place of tokens, and state no graphs of steps."""
    counted = (LENGTH, TOKENS, STEP_TOKENS, PASSES, _GRAPHS)
    found = {name: value for name, value in settings.items() if name not in counted}
    length = settings.get(LENGTH)
    if length is None:
        return found
    micro, passes = settings[TOKENS] // length, settings.get(PASSES, 1)
    local = "batch_size" if "training.batch_size" in stated else "local_batch_size"
    found |= {"training.seq_len": length, f"training.{local}": micro * passes}
    if STEP_TOKENS in settings:
        found["training.global_batch_size"] = settings[STEP_TOKENS] // length
    if PASSES in settings and micro > 1:
        found["parallelism.pipeline_parallel_microbatch_size"] = micro
    return found


def _in_section(name: str, stated: Container[str]) -> str:
    """Return the name of an option of parallelism in the section where a file has it."""
    section, _, option = name.partition(".")
    if section != "parallelism" or name in stated:
        return name
    for older in OLDER_SECTIONS:
        if f"{older}.{option}" in stated:
            return f"{older}.{option}"
    return name
