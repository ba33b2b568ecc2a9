"""A file without a stated format finds its dialect, and what is ours is none."""

from functools import partial

import pytest

from calculon.errors import SpecError
from calculon.launch.dialects import recognised
from calculon.launch.launch_files import is_launch_file, launched_execution, read_launch_file
from calculon.spec import catalog


def test_what_is_ours_is_of_none():
    paths = [
        path
        for kind in (*catalog.KINDS, "preset", "study")
        for path in list(catalog.names(kind).values())[::7]
        if path.suffix != ".gz"
    ]
    assert [path for path in paths if recognised(path.read_text(), str(path))] == []
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
        "work_group: amd\nexp_name: pretrain\nmodules:\n  pre_trainer:\n    framework: megatron\n"
        "    overrides:\n      micro_batch_size: 2\n      tensor_model_parallel_size: 1\n",
    ),
    "model_config.yaml": (
        "MODEL_ARGS",
        "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\nMODEL_ARGS:\n"
        "  --tensor-model-parallel-size: 2\n  --micro-batch-size: 4\n  --global-batch-size: 32\n",
    ),
}
"""Files of launchers that are not read, as short as those of their repositories can be."""


def test_a_file_of_a_launcher_that_is_not_read_is_refused_by_name(tmp_path):
    as_another = partial(read_launch_file, dialect="megatron-bridge", num_procs=8)
    for name, (title, text) in OTHERS.items():
        path = tmp_path / name
        path.write_text(text)
        for read in (read_launch_file, as_another, launched_execution, is_launch_file):
            with pytest.raises(
                SpecError, match=f"found a file of .*{title}.*, which is not read"
            ) as caught:
                read(str(path))
            assert len(caught.value.problems) == 1
