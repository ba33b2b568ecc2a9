"""What people call models, systems and amounts: none of it is refused, and none of it guessed between two meanings."""

import contextlib
import json
from pathlib import Path

import pytest

from calculon import inputs
from calculon.base.errors import SpecError
from calculon.declarations import catalog
from calculon.declarations.spellings.catalog_words import aliases
from tests.draws import some
from tests.helpers import document

MODELS = {
    "llama3-70B": (
        *("llama-3-70b", "llama3 70b", "Llama 3 70B", "llama_3_70b", "llama3:70b"),
        *("meta-llama/Meta-Llama-3-70B", "meta-llama/Meta-Llama-3-70B-Instruct", "llama-3.1-70b"),
        *("Llama-3.1-70B-Instruct", "llama3_1_70b", "llama31-70b", "meta-llama/Llama-3.1-70B"),
        *("meta-llama/Llama-3.1-70B-Instruct", "Meta-Llama-3.1-70B", "llama-3.3-70b"),
        *("meta-llama/Llama-3.3-70B-Instruct",),
    ),
    "deepseek-v3": ("deepseek-ai/DeepSeek-V3.2", "DeepSeek-R1"),
    "kimi-k2": ("moonshotai/Kimi-K2-Thinking",),
    "qwen3-30B-a3B": ("Qwen/Qwen3-30B-A3B-Thinking-2507", "Qwen3-Coder-30B-A3B-Instruct"),
    "llama1-65B": ("huggyllama/llama-65b",),
    "llama3-8B": (
        *("llama-3-8b", "llama3_8b", "llama31_8b", "meta-llama/Llama-3.1-8B"),
        *("unsloth/Meta-Llama-3.1-8B",),
    ),
    "llama3.1-405B": (
        *("llama-3.1-405b", "llama3_1_405b", "meta-llama/Llama-3.1-405B", "Llama 3.1 405B"),
    ),
    "llama3.2-1B": ("llama-3.2-1b", "meta-llama/Llama-3.2-1B-Instruct", "llama32_1b"),
    "llama2-7B": ("llama-2-7b", "meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-7b-chat-hf"),
    "qwen2.5-7B": (
        *("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B-Instruct", "qwen-2.5-7b", "qwen25-7b", "qwen2_5_7b"),
    ),
    "qwen3-8B": ("Qwen/Qwen3-8B", "qwen-3-8b", "Qwen/Qwen3-8B-Base"),
    "mistral-7B": ("mistral 7b", "mistralai/Mistral-7B-v0.1", "mistralai/Mistral-7B-Instruct-v0.1"),
    "gemma2-27B": ("gemma-2-27b", "google/gemma-2-27b-it", "gemma2_27b"),
    "gpt2-124M": ("GPT-2", "openai-community/gpt2", "gpt-2-124m"),
    "gpt2-1.5B": ("openai-community/gpt2-xl", "GPT2 XL"),
    "gpt3-175B-hf": ("gpt-3", "GPT-3", "gpt-3-175b", "gpt3-175b", "gpt3_175b"),
    "turing-530B": ("mt-nlg", "MT-NLG-530B", "megatron-turing-530b", "turing_530b"),
    "megatron-1T": ("Megatron 1T",),
    "gopher-280B": ("gopher", "gopher 280b"),
    "bloom-176B": ("bigscience/bloom",),
    "falcon-180B": ("tiiuae/falcon-180B", "falcon-180b-chat"),
    "palm-540B-hf": ("PaLM-540b",),
    "mpt-7B": ("mosaicml/mpt-7b", "mpt-7b-instruct"),
    "phi-3-mini": ("microsoft/Phi-3-mini-4k-instruct", "phi3-mini"),
    "olmo2-7B": ("allenai/OLMo-2-1124-7B", "olmo-2-7b"),
    "nemotron4-15B": ("nemotron-4-15b", "Nemotron 4 15B"),
}

SYSTEMS = {
    "mi300x": ("AMD MI300X", "AMD Instinct MI300X", "mi-300x", "mi300x-192gb"),
    "tpu_v5e": ("tpu-v5e",),
    "tpu_v5p": ("TPUv5p", "tpu-v5p", "Google TPU v5p"),
    "tpu_v6e": ("TPU Trillium", "tpu-v6"),
    "gaudi3": ("Intel Gaudi 3", "habana gaudi3"),
    "trainium2": ("AWS Trainium2",),
    "h100_80g_sxm": (
        *("h100-sxm", "h100sxm", "h100 80g", "H100-80GB-SXM", "h100_80gb_sxm", "NVIDIA H100"),
        *("NVIDIA H100 80GB HBM3",),
    ),
    "h100_94g_nvl": ("h100-94gb-nvl",),
    "a100_40g_sxm": ("A100 40GB SXM4", "NVIDIA A100-SXM4-40GB", "a100 40"),
    "a100_80g_sxm": (
        *("NVIDIA A100-SXM4-80GB", "a100_sxm_80gb", "A100_80G", "a100-80g", "a100 80gb sxm"),
    ),
    "a100_80g_pcie": ("A100 80GB PCIe", "a100-80gb-pcie", "NVIDIA A100 80GB PCIe", "a100 pci-e"),
    "gb200_nvl72": ("gb200nvl72", "NVIDIA GB200"),
    "h100_80g_pcie": ("NVIDIA H100 PCIe", "NVIDIA H100 80GB PCIe", "h100pcie"),
    "a100_40g_pcie": ("NVIDIA A100-PCIE-40GB",),
    "rtx4090": ("RTX-4090", "NVIDIA GeForce RTX 4090", "rtx4090 24gb"),
    "rtx6000_ada": ("NVIDIA RTX 6000 Ada Generation",),
    "aws_p5": ("AWS p5",),
    "gcp_a3_high": ("a3 high",),
    "v100_sxm2_32g": ("Tesla V100-SXM2-32GB", "v100-32"),
}
"""Words beside those that files of the catalog state, by the model or system that they mean."""

FOUND = [
    (kind, text, name)
    for kind, table in (("model", MODELS), ("system", SYSTEMS))
    for name, texts in table.items()
    for text in texts
]

USUAL = [
    ("a100", "a100_80g_sxm", ("a100-40g", "a100-pcie")),
    ("A100 SXM4", "a100_80g_sxm", ("a100-40g",)),
    ("DGX A100", "a100_80g_sxm", ("a100-40g",)),
    ("HGX A100", "a100_80g_sxm", ("a100-40g",)),
    ("a100-pcie", "a100_80g_pcie", ("a100-pcie-40g",)),
    ("h100", "h100_80g_sxm", ("h100-pcie", "h100-nvl")),
    ("gh200", "gh200_96g", ("gh200-144g",)),
    ("trn2", "trainium2", ("trn2-ultra",)),
]
"""Words for several systems: the usual one, and words for the others."""

REFUSED = [
    ("model", "llama-70b", "did you mean llama2-70B or llama3-70B?"),
    ("model", "turing-nlg", "did you mean 'turing-530B'?"),  # that is another one, of 17 billion
    ("model", "mistral-7b-v0.3", "did you mean 'mistral-7B'?"),  # its vocabulary is larger
    ("model", "lama3-8b", "did you mean 'llama3-8B'?"),
    ("model", "phi-3-mini-128k-instruct", "did you mean 'phi-3-mini'?"),
    (
        "model",
        "lama",
        "did you mean lamda, llama2-7B, llama3-8B, llama1-30B",
    ),  # both are spelled so
    ("model", "llama5", "did you mean llama4-scout or llama4-maverick?"),
    ("model", "qwen3", "qwen3-235B-a22B or qwen3-480B-a35B"),  # the whole family
    ("system", "b100", "did you mean b200_sxm or aws_p6_b200?"),
    ("system", "h10", "did you mean h100_80g_sxm, h100_94g_nvl, "),
    ("system", "tpu v5", "did you mean tpu_v5e or tpu_v5p?"),
    ("system", "h1 xx", "catalog"),
    *(("system", name, "see: calculon catalog") for name in ("ascend-910c", "p100")),
    *(("model", name, "see: calculon catalog") for name in ("jamba", "apertus-70b", "mamba-2.8b")),
    ("system", "h100 nvl8", "did you mean 'h100_80g_nvl8'?"),
    ("system", "A100_80E", "did you mean 'a100_80e'?"),
    ("system", "", "catalog"),
    ("system", "x" * 1000, ""),
    ("model", "?" * 50, "see: calculon catalog"),
]


def _name(kind: str, text: str) -> str:
    return Path(catalog.find(kind, text)).stem


def test_what_people_write_is_found(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    wrong = [
        f"{kind} {text!r}: {found}, not {name}"
        for kind, text, name in some(FOUND, 60)
        if (found := Path(catalog.find(kind, text))) != catalog.names(kind)[name]
    ]
    assert not wrong


def test_a_name_has_at_most_100_characters():
    assert _name("model", "llama3 8b".ljust(100)) == "llama3-8B"
    with pytest.raises(SpecError, match="no such file or name"):
        _name("model", "llama3 8b".ljust(101))


def test_a_word_for_several_means_the_usual_one_and_says_so():
    for text, name, others in USUAL:
        assert (text, _name("system", text)) == (text, name)
        assert inputs.system(text).origin.note == f"{text}: {name}; also {', '.join(others)}"
        assert inputs.system(name).origin.note == ""


def test_words_for_the_others_of_a_family_mean_one_of_them_each():
    for name in catalog.names("system"):
        words = (document("systems", name).get("about") or {}).get("usual", [])
        found = {_name("system", word) for word in words}
        assert len(found - {name}) == len(words), name


def test_a_word_for_several_without_a_usual_one_is_refused_with_each_of_them(tmp_path, monkeypatch):
    known = {name: tmp_path / f"{name}.json" for name in ("x1_16g", "x1_32g")}
    for path in known.values():
        path.write_text(json.dumps({"about": {"aliases": ["x1"]}}))
    monkeypatch.setattr(catalog, "names", {"system": known}.__getitem__)
    with pytest.raises(SpecError) as error:
        catalog.find("system", "x1")
    assert str(error.value) == (
        "x1: expected one system of the catalog, found 2 matches. Hint: did you mean x1_16g or x1_32g?"
    )


def test_what_is_not_there_is_refused_with_what_is_near(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for kind, text, hint in REFUSED:
        with pytest.raises(SpecError) as error:
            catalog.find(kind, text)
        assert hint in error.value.hint, text


PUBLISHED = [
    *(("system", name) for name in ("a100_80g", "a100_80e", "h100_80g_nvl8")),
    *(("model", name) for name in ("gpt3-175B", "gpt3-13B", "palm-540B")),
]


def test_a_published_file_beside_a_fuller_one_has_its_exact_name_alone():
    for kind, name in PUBLISHED:
        assert _name(kind, name) == name
        for text in (name.lower(), name.upper(), name.replace("-", " ").replace("_", " ")):
            if text != name:
                with contextlib.suppress(SpecError):
                    assert _name(kind, text) != name


def test_aliases_are_no_names_and_one_meaning_each_but_for_those_of_two():
    usual = {text.lower() for text, *_ in USUAL}
    for kind in ("model", "system"):
        known = catalog.names(kind)
        stated = [(name, alias) for name, path in known.items() for alias in aliases(path)]
        taken = [alias for name, alias in stated if known.get(alias, known[name]) != known[name]]
        assert not taken
        meant = [one for one in stated if one[1] not in usual]
        for name, alias in some(meant, 30):
            assert _name(kind, alias) == name, alias


def test_a_reason_may_stand_beside_an_alias():
    stated = document("models", "llama3-70B")["about"]["aliases"]
    assert aliases(catalog.names("model")["llama3-70B"]) == stated
    assert set(aliases(catalog.names("system")["b200_sxm"]).values()) == {""}
