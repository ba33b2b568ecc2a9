"""Command lines of torchtitan, and the configuration that they name."""

import pytest

from calculon.launch.dialect import read
from calculon.launch.dialects import recognised
from calculon.launch.titan.torchtitan import TORCHTITAN
from calculon.launch.titan.torchtitan_files import parse

TOML = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 8192\nlocal_batch_size = 1\n'


def _run(tmp_path, command, toml=TOML):
    if toml:
        (tmp_path / "llama3_8b.toml").write_text(toml)
    script = tmp_path / "run.sh"
    assert recognised(command, str(script)) is TORCHTITAN
    return read(TORCHTITAN, command, str(script))


def test_options_count_before_those_of_the_configuration(tmp_path):
    launch = _run(
        tmp_path,
        "NGPU=8 NNODES=2 CONFIG_FILE=llama3_8b.toml ./run_train.sh "
        "--parallelism.tensor_parallel_degree 4 --training.local-batch-size=2 --compile.enable",
    )
    found = launch.execution
    assert (found["num_procs"], found["tensor_par"], found["data_par"]) == (16, 4, 4)
    assert (found["microbatch_size"], found["seq_length"]) == (2, 8192)
    assert found["fusion"] == "compile"
    assert launch.model == {"name": "llama3-8B"}
    assert launch.unknown == ()


def test_torchrun_says_the_processors(tmp_path):
    text = """
CONFIG=${CONFIG:-"./llama3_8b.toml"}
torchrun --nnodes=4 --nproc_per_node=8 -m torchtitan.train --job.config_file ${CONFIG} \\
  --parallelism.pipeline_parallel_degree 2 --checkpoint.no-enable
"""
    launch = _run(tmp_path, text)
    assert launch.execution["num_procs"] == 4 * 8
    assert launch.execution["data_par"] == 4 * 8 // 2
    assert [one.name for one in launch.used if one.value is False] == ["checkpoint.enable"]


def test_a_configuration_that_is_elsewhere_is_told(tmp_path):
    launch = _run(
        tmp_path,
        "NGPU=8 CONFIG_FILE=there.toml ./run_train.sh --training.seq_len 4096 --training.steps 10",
    )
    assert launch.execution["seq_length"] == 4096
    assert any("what there.toml says is not read" in note for note in launch.notes)


@pytest.mark.parametrize("name", ["train.toml", "", "<stdin>"])
def test_tables_of_torchtitan_are_recognised_without_a_name(name):
    text = TOML + "[parallelism]\ntensor_parallel_degree = 2\n"
    assert recognised(text, name) is TORCHTITAN


def test_names_of_classes_are_settings_where_they_say_more():
    text = """
def config():
    return Trainer.Config(
        training=TrainingConfig(steps=10),
        loss=Chunked.Config(n=8),
        several=[A.Config(x=1), A.Config(x=2), B()],
        size=measured(8),
    )
"""
    found = parse(text, "config.py", {}).settings
    assert {name: one.value for name, one in found.items()} == {
        "training.steps": 10,
        "loss": "Chunked",
        "loss.n": 8,
        "several.A": True,
        "several.A.x": 1,
        "several.A#2": True,
        "several.A#2.x": 2,
        "several.B": True,
        "size": "measured",
    }
    assert {found[name].place for name in ("loss", "loss.n")} == {"config.py:5"}


def test_a_model_is_known_by_what_makes_it():
    text = """
from torchtitan.models.llama3 import model_registry
def tuned(seq_len=4096):
    spec = model_registry("8B", seq_len=seq_len)
    config = Trainer.Config(model_spec=spec, loss=Loss.Config(size=vocabulary(spec)))
    return apply_transforms(config, [Float8.Config(recipe="rowwise")])
"""
    found = parse(text, "config.py", {"seq_len": "8192"}).settings
    assert {name: one.value for name, one in found.items()} == {
        "model.name": "llama3",
        "model.flavor": "8B",
        "model.seq_len": 8192,
        "loss": "Loss",
        "loss.size": "vocabulary",
        "transforms.Float8": True,
        "transforms.Float8.recipe": "rowwise",
    }
