"""Detection of unsupported launchers, so that their files are not mistaken for a supported format."""

import re
from collections.abc import Mapping

_SETTING = re.compile(r"^([A-Za-z]\w*)[ \t]*:", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+(\w+)", re.MULTILINE)

_PRIMUS = "Primus without Megatron-LM"
_MEGATRON = re.compile(r"^\s+framework:[ \t]*megatron\b", re.MULTILINE)

_SETTINGS: Mapping[str, tuple[set[str], ...]] = {
    "LitGPT": ({"out_dir", "train"},),
    "Axolotl": ({"base_model", "sequence_len"}, {"base_model", "micro_batch_size"}),
    "Nanotron": ({"parallelism", "tokens"},),
    "OLMo-core": ({"train_module", "trainer"}, {"train_module", "data_loader"}),
    _PRIMUS: ({"exp_name", "modules"},),
}
"""Top-level settings of YAML files; any of the sets is sufficient. Sources: configurations in these repositories."""

_PACKAGES = {
    "litgpt": "LitGPT",
    "axolotl": "Axolotl",
    "nanotron": "Nanotron",
    "olmo_core": "OLMo-core",
    "primus": "Primus",
}
"""Packages that Python files of these launchers import."""

_OTHER_KINDS = (".sh", ".slurm", ".sbatch", ".toml", ".json")


def other_format(text: str, file: str) -> str:
    r"""Return the name of the unsupported launcher that a file belongs to; empty if there is none.

    >>> other_format("out_dir: out\ntrain:\n  micro_batch_size: 4\n", "pretrain.yaml")
    'LitGPT'
    """
    if file.endswith(_OTHER_KINDS):
        return ""
    if file.endswith(".py"):
        found = (_PACKAGES.get(name, "") for name in _IMPORT.findall(text))
        return next(filter(None, found), "")
    outermost = {*_SETTING.findall(text)}
    names = (name for name, sets in _SETTINGS.items() if any(one <= outermost for one in sets))
    other = next(names, "")
    return "" if other == _PRIMUS and _MEGATRON.search(text) else other
