"""Files of launchers: found by looking, and taken wherever an execution is."""

import json
import warnings
from functools import partial

import pytest

import calculon
from calculon import inputs
from calculon.base.errors import SpecError
from calculon.declarations import catalog
from calculon.declarations.decode import SpecWarning
from calculon.inputs import Changed
from calculon.launch.dialect import read
from calculon.launch.dialects import recognized
from calculon.launch.launch_files import (
    is_launch_file,
    launched_execution,
    lost_settings,
    read_launch_file,
)
from calculon.launch.megatron.megatron_lm import MEGATRON_LM
from tests.helpers import ROOT

SCRIPT = ROOT / "examples/launch/llama3-8b.sh"


def test_a_script_is_an_execution_and_a_model():
    launch = read_launch_file(str(SCRIPT))
    assert launch.dialect is MEGATRON_LM
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpecWarning)
        of_script = calculon.estimate(launch.model, str(SCRIPT), "h100")
    of_fields = calculon.estimate("llama3-8B", launch.execution, "h100")
    assert of_script.stats == of_fields.stats


def test_what_is_lost_is_told(tmp_path):
    script = tmp_path / "lost.sh"
    script.write_text(SCRIPT.read_text())
    with pytest.warns(SpecWarning, match="--no-masked-softmax-fusion: changes the result"):
        inputs.execution(str(script))


def test_changes_are_made_to_what_a_script_says(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("python x.py --micro-batch-size 1 --bf16 --tensor-model-parallel-size 2")
    with pytest.raises(SpecError, match="processors: expected a number"):
        inputs.execution(str(script))
    changed = Changed(str(script), {"num_procs": 16})
    assert inputs.execution(changed).data_par == 8


def test_what_is_neither_is_told_as_before(tmp_path):
    other = tmp_path / "run.sh"
    other.write_text("echo hello")
    with pytest.raises(SpecError):
        inputs.execution(str(other))
    with pytest.raises(SpecError, match="none that is recognized"):
        read_launch_file(str(other))
    binary = tmp_path / "x.sh"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="UTF-8"):
        read_launch_file(str(binary))


def test_a_stated_dialect_is_not_looked_for(tmp_path):
    script = tmp_path / "flags.txt"
    script.write_text("--bf16 --micro-batch-size 2")
    assert recognized(script.read_text(), str(script)) is None
    found = read_launch_file(str(script), "megatron-lm", num_procs=4).execution
    assert found["microbatch_size"] == 2


def test_few_lost_settings_are_named_and_others_counted():
    text = "python x.py --bf16 --micro-batch-size 1 --aa 1 --bb 1 --cc 1 --dd --ee"
    words = lost_settings(read(MEGATRON_LM, text, "x.sh", num_procs=1))
    assert words.startswith("--aa, --bb, --cc and 2 more")
    none = read(MEGATRON_LM, "python x.py --micro-batch-size 1", "x.sh", num_procs=1)
    assert lost_settings(none) == ""


def test_everything_of_a_file_is_plain_data():
    document = json.loads(json.dumps(read_launch_file(str(SCRIPT)).to_dict()))
    counts = {kind: len(document[kind]) for kind in ("used", "ignored", "not_modelled", "unknown")}
    assert counts["unknown"] == 0
    assert sum(counts.values()) == len(MEGATRON_LM.parse(SCRIPT.read_text(), "x", {}).settings)


def test_what_is_ours_is_of_none():
    paths = [
        path
        for kind in (*catalog.KINDS, "preset", "study")
        for path in list(catalog.names(kind).values())[::7]
        if path.suffix != ".gz"
    ]
    assert [path for path in paths if recognized(path.read_text(), str(path))] == []
    assert [path for path in paths if launched_execution(str(path))] == []


OTHERS = {
    "litgpt.yaml": (
        "LitGPT",
        "model_name: tiny-llama-1.1b\nout_dir: out/pretrain\nprecision: bf16-mixed\n"
        "train:\n  global_batch_size: 512\n  micro_batch_size: 4\n",
    ),
    "axolotl.yml": (
        "Axolotl",
        "base_model: meta-llama/Llama-3.1-8B\ndatasets:\n  - path: some/data\n"
        "sequence_len: 4096\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\n",
    ),
    "nanotron.yaml": (
        "Nanotron",
        "general:\n  project: debug\nparallelism:\n  dp: 2\n  tp: 2\n  pp: 2\n"
        "tokens:\n  micro_batch_size: 2\n  sequence_length: 4096\n",
    ),
    "olmo.yaml": (
        "OLMo-core",
        "run_name: OLMo\ndata_loader:\n  global_batch_size: 4194304\n"
        "train_module:\n  rank_microbatch_size: 8192\ntrainer:\n  save_folder: out\n",
    ),
    "OLMo-7B.py": (
        "OLMo-core",
        "from olmo_core.data import NumpyDataLoaderConfig\nloader = NumpyDataLoaderConfig(\n"
        "    global_batch_size=1024 * 4096, seed=1)\nmicro_batch_size = 2\n",
    ),
    "primus.yaml": (
        "Primus",
        "work_group: amd\nexp_name: pretrain\nmodules:\n  pre_trainer:\n    framework: torchtitan\n"
        "    overrides:\n      training:\n        local_batch_size: 2\n",
    ),
}
"""Files of launchers that are not read, as short as those of their repositories can be."""


def test_a_file_of_a_launcher_that_is_not_read_is_refused_by_name(tmp_path):
    as_another = partial(read_launch_file, dialect="megatron-bridge", num_procs=8)
    for name, (title, text) in OTHERS.items():
        path = tmp_path / name
        path.write_text(text)
        for call in (read_launch_file, as_another, launched_execution, is_launch_file):
            with pytest.raises(
                SpecError, match=f"found a file of .*{title}.*, which is not supported"
            ) as caught:
                call(str(path))
            assert len(caught.value.problems) == 1
