"""Public files of launchers: each is recognized, none of its settings is lost, and it says what can run."""

from pathlib import Path

import pytest

from calculon import inputs
from calculon.base.errors import SpecError
from calculon.launch.dialect import read, write
from calculon.launch.dialects import ENGINES, FORMATS, recognized, recognized_engine
from calculon.plan.plan import Plan
from calculon.plan.rules.all_rules import REASONS, check
from calculon.serving.records.deployment import Deployment
from tests.launch.laws import SCRIPTS, collected, execution_of, launch_of, lost

FOLDERS = {name.replace("-", "_"): name for name in FORMATS}
CONFIGURATIONS = ("torchtitan", "deepspeed", "accelerate")
TRAINING = [folder for folder, name in FOLDERS.items() if name not in ENGINES]
MODELS = {"examples_autoep_zero1": "qwen3-30B-a3B"}
"""Models of files that do not describe them, if it is not Llama 3 8B."""
OPEN = "parallelism.num_pp_microbatches"
"""The only setting of configurations that is open."""


def test_every_folder_is_of_a_format_and_every_file_says_its_source():
    assert {path.name for path in SCRIPTS.iterdir()} == FOLDERS.keys()
    files = [path for folder in FOLDERS for path in collected(folder)]
    marks = ("# Source: ", '"_source": "github.com/')
    silent = [path for path in files if not any(one in path.read_text()[:400] for one in marks)]
    assert silent == []


def test_files_find_their_dialect():
    wrong = []
    for folder, name in FOLDERS.items():
        for path in collected(folder):
            found = [one(path.read_text(), str(path)) for one in (recognized, recognized_engine)]
            if [one.name for one in found if one] != [name] or launch_of(path).dialect.name != name:
                wrong.append(f"{path}: {found}")
    assert wrong == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_setting_is_lost_and_none_is_unknown(folder):
    assert [line for path in collected(folder) for line in lost(path)] == []


@pytest.mark.parametrize("folder", CONFIGURATIONS)
def test_configurations_leave_nothing_open(folder):
    left = {one.name for path in collected(folder) for one in launch_of(path).unresolved}
    assert left <= {OPEN}


def _unlike_a_run(path: Path) -> str:
    """Return what an execution lacks to run, but for memory."""
    launch, one = launch_of(path), execution_of(path)
    model = inputs.model(
        launch.model.get("name") or launch.model or MODELS.get(path.stem, "llama3-8B")
    )
    degrees = one.tensor_par * one.context_par * one.pipeline_par * one.data_par
    if not degrees == one.num_procs == launch.execution["num_procs"]:
        return f"{path.name}: {degrees} processors"
    if path.parent.name not in CONFIGURATIONS:  # of others, some files show a part of a model
        return ""
    reason = REASONS[int(check(model, inputs.system("b200_sxm"), Plan.of(one))[0])]
    return "" if reason in ("", "mem1_capacity") else f"{path.name}: {reason}"


@pytest.mark.parametrize("folder", TRAINING)
def test_files_are_executions_that_run_but_for_memory(folder):
    wrong = [_unlike_a_run(path) for path in collected(folder)]
    assert [line for line in wrong if line] == []


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder not in TRAINING])
def test_files_of_engines_are_deployments(folder):
    for path in collected(folder):
        launch = launch_of(path)
        assert not launch.execution
        assert Deployment(**{n: v for n, v in launch.deployment.items() if n != "reserve_gib"})


UNSAID = {
    "bloom_176b.slurm": "the nearest",  # DeepSpeed's optimizer
    "bert_340m.sh": "layers, .* found --num-layers 24",  # on 16 stages
}
"""Files that their launcher cannot express as it is today."""


@pytest.mark.parametrize("folder", ["megatron_lm", "megatron_bridge", "nemo", "mlperf"])
def test_files_are_written_and_read_again(folder):
    different = []
    for path in collected(folder):
        launch, fields = launch_of(path), execution_of(path).to_dict()
        model = inputs.model(launch.model) if launch.model and folder == "megatron_lm" else None
        if path.name in UNSAID:
            with pytest.raises(SpecError, match=UNSAID[path.name]):
                write(launch.dialect, fields, model)
            continue
        again = read(
            launch.dialect, write(launch.dialect, fields, model), f"x{launch.dialect.suffix}"
        )
        if again.execution != launch.execution or (model and again.model != launch.model):
            different.append(path.name)
    assert different == []
