"""torchtitan: TOML of earlier versions and Python since 2026, in and out."""

import ast

import pytest

import calculon
from calculon import inputs
from calculon.launch.dialect import read, write
from calculon.launch.dialects import recognized
from calculon.launch.titan.torchtitan import TORCHTITAN
from calculon.launch.titan.torchtitan_files import MODELS, flavor_of, parse
from tests.cases import for_each
from tests.launch.laws import collected, launch_of, not_refused, plain_execution

SPLIT = """
[model]
name = "llama3"
flavor = "8B"
[training]
{training}
[parallelism]
{parallelism}
"""


def _toml(training="local_batch_size = 8\nseq_len = 8192", parallelism="", procs=8):
    text = SPLIT.format(training=training, parallelism=parallelism)
    return read(TORCHTITAN, text, "train.toml", num_procs=procs)


def _read(name):
    (path,) = (path for path in collected("torchtitan") if path.name.startswith(name))
    return launch_of(path)


def test_a_file_of_2025():
    launch = _read("llama3_405b_2025")
    found = launch.execution
    assert (found["tensor_par"], found["data_par"]) == (8, 128 // 8)
    assert (found["microbatch_size"], found["batch_size"]) == (2, 2 * 128 // 8)
    assert found["tensor_par_overlap"] == "ring"  # enable_async_tensor_parallel
    assert (found["fp8_recipe"], found["fp8_param_gather"]) == ("tensorwise", True)
    assert launch.model == {"name": "llama3.1-405B"}
    assert launch.campaign == {"tokens": 3000 * 32 * 8192}


def test_both_generations_of_one_configuration_are_one_execution():
    older, newer = _read("llama3_405b_2025"), _read("llama3_405b_2026")
    different = {n for n, v in newer.execution.items() if older.execution[n] != v}
    assert different == {"compile_scope"}  # the loss is compiled, too


def test_a_file_of_2024_has_its_degrees_in_other_sections():
    found = _read("llama3_70b_4d_2024").execution
    assert [found[f"{axis}_par"] for axis in ("tensor", "context", "pipeline")] == [8, 2, 2]
    assert found["data_par"] == 64 // (8 * 2 * 2)
    assert found["batch_size"] == 16 * found["data_par"]
    assert found["microbatch_size"] == 1
    assert not found["reshard_after_forward"]  # as usual with a pipeline


def test_tokens_are_counted_since_2026():
    found = _read("qwen3_14b").execution
    assert (found["microbatch_size"], found["batch_size"]) == (4, 4 * 64)
    assert found["launch_mode"] == "graph"


def test_a_configuration_that_is_derived_from_another_says_so():
    launch = _read("llama3_fsdp2_tp2_pp2")
    assert launch.execution["batch_size"] == 1 * 8 * 2  # microbatches x replicas
    assert any("llama3_debugmodel_float8" in note for note in launch.notes)


def test_the_optimizer_is_fused_unless_a_file_says_otherwise():
    """The older option is a switch; the newer one names what applies updates, and counts if both are given."""
    rows = [
        ("", "fused"),
        ("fused = true", "fused"),
        ("fused = false", "foreach"),
        ('fused = true\nimplementation = "foreach"', "foreach"),
        ('fused = false\nimplementation = "fused"', "fused"),
    ]
    for optimizer, expected in rows:
        found = _toml(parallelism=f"[optimizer]\n{optimizer}").execution
        assert found["optimizer_impl"] == expected, optimizer


def test_replicas_and_shards():
    rows = [
        ("data_parallel_replicate_degree = 8\ndata_parallel_shard_degree = 1", ("0", 0, True)),
        ("data_parallel_replicate_degree = 2", ("fsdp", 4, True)),
        ("data_parallel_shard_degree = 8", ("fsdp", 0, True)),
        ("tensor_parallel_degree = 8\ndata_parallel_shard_degree = 1", ("0", 0, False)),
    ]
    for parallelism, fields in rows:
        found = _toml(parallelism=parallelism).execution
        assert tuple(found[n] for n in ("zero_stage", "dp_shard", "data_par_overlap")) == fields


def _pipeline(*settings):
    """Return the settings of two stages."""
    return "".join(f"pipeline_parallel_{one}\n" for one in ("degree = 2", *settings))


@for_each(
    ("parallelism", "layout"),
    [
        (_pipeline(), ("both_as_blocks", "", 1)),
        (
            _pipeline("first_stage_less_layers = 0", "last_stage_less_layers = 0"),
            ("uniform", "", 1),
        ),
        (_pipeline("last_stage_less_layers = 2"), ("uniform", "17-15", 1)),
        (_pipeline('schedule = "Interleaved1F1B"'), ("both_as_blocks", "", 2)),
        (
            _pipeline('schedule = "Interleaved1F1B"', "layers_per_stage = 6"),
            ("both_as_blocks", "", 3),
        ),
        (_pipeline('split_points = ["layers.20"]'), ("uniform", "20-12", 1)),
    ],
)
def test_layouts_of_stages(parallelism, layout):
    """Llama 3 8B has 32 layers: 34 with embedding and head, 17 for each of two stages; 18 and 17 of 35."""
    found = _toml(parallelism=parallelism).execution
    names = ("pp_layout", "stage_blocks", "pipeline_interleaving")
    assert tuple(found[name] for name in names) == layout


def test_contradictions_have_both_numbers():
    of_training = [
        (
            "local_batch_size = 3\nglobal_batch_size = 32",
            r"a multiple of 24 \(3 x data 8\), found 32",
        ),
        (
            "num_tokens_per_microbatch_per_dp_rank = 5000\nmax_context_length = 4096",
            "a multiple of max_context_length=4,096, found 5,000",
        ),
        ("seq_len = 4096\nmax_context_length = 4096", "as the file counts tokens"),
        ('seq_len = "long"', "train.toml:6: training.seq_len: expected a whole number"),
    ]
    of_parallelism = [
        ("tensor_parallel_degree = 3", "a divisor of 8 processors, found 3"),
        (
            "tensor_parallel_degree = 2\ndata_parallel_shard_degree = 2",
            r"expected 8 processors, found 4 \(tensor 2 x",
        ),
        ('fsdp_reshard_after_forward = "sometimes"', "default, always or never"),
        (_pipeline('schedule = "x"'), "1F1B"),
        (
            _pipeline('schedule = "Interleaved1F1B"', "layers_per_stage = 5"),
            r"equal numbers of parts \(7 parts of 34 layers",
        ),
        ("tensor_parallel_degree = 2\nenable_async_tensor_parallel = true", "comp"),
    ]
    assert not_refused(_toml, of_training) == []
    assert not_refused(lambda text: _toml(parallelism=text), of_parallelism) == []


def test_what_torchtitan_runs_against_its_habits_runs_here():
    text = 'pipeline_parallel_degree = 2\nfsdp_reshard_after_forward = "always"'
    launch = _toml(parallelism=text)
    assert launch.execution["base"] == "common"
    found = calculon.estimate("llama3-8B", dict(launch.execution), "h100_80g_sxm").execution
    assert found.reshard_after_forward
    usual = inputs.execution(dict(_toml(parallelism="pipeline_parallel_degree = 2").execution))
    theirs = {"preset", "attn_kernel", "reshard_after_forward"}
    assert {n for n, v in found.to_dict().items() if v != usual.to_dict()[n]} <= theirs


def test_factors_of_rows_are_the_nearest_to_those_of_tensors():
    text = write(
        TORCHTITAN,
        plain_execution("torchtitan", fp8_recipe="tensorwise").to_dict(),
        inputs.model("llama3-8B"),
    )
    launch = read(TORCHTITAN, text, "planned.py")
    assert launch.execution["fp8_recipe"] == "tensorwise"
    ((setting, effect),) = launch.not_modelled
    assert setting.value == "rowwise"
    assert "row-wise scales" in effect


def test_the_file_is_a_function_that_torchtitan_imports():
    one = plain_execution("torchtitan")
    text = write(TORCHTITAN, one.to_dict(), inputs.model("llama3-8B"), {"tokens": 10**9})
    tree = ast.parse(text)
    (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    assert function.name == "llama3_8b_planned"
    assert "NNODES=2 NGPU=8" in text
    assert "its main branch of August 2026" in text
    steps = -(-(10**9) // (64 * 8192))
    assert f"steps={steps}," in text


def test_a_model_that_it_does_not_have_is_handed_in():
    text = write(TORCHTITAN, plain_execution("torchtitan").to_dict(), inputs.model("mistral-7B"))
    assert "def any_planned(config: Trainer.Config, model_registry, flavor)" in text
    launch = read(TORCHTITAN, text, "planned.py")
    assert launch.model == {}
    assert launch.execution["pipeline_par"] == 2


def test_models_are_found_by_their_shape():
    names = [one for one in MODELS if one[0] != "llama2" and one[1] != "kimi_k2"]
    assert [flavor_of(inputs.model(MODELS[one])) for one in names] == names


# Command lines, and the configuration that they name

TOML = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 8192\nlocal_batch_size = 1\n'


def _run(tmp_path, command, toml=TOML):
    if toml:
        (tmp_path / "llama3_8b.toml").write_text(toml)
    script = tmp_path / "run.sh"
    assert recognized(command, str(script)) is TORCHTITAN
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
    assert any("there.toml is not read" in note for note in launch.notes)


@pytest.mark.parametrize("name", ["train.toml", "", "<stdin>"])
def test_tables_of_torchtitan_are_recognized_without_a_name(name):
    text = TOML + "[parallelism]\ntensor_parallel_degree = 2\n"
    assert recognized(text, name) is TORCHTITAN


OPERATORS = {"activation_checkpoint.selective_ac_option": "op"}
"""What recipes in Python mean where they say nothing of recomputation."""


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
        **OPERATORS,
    }
    assert {found[name].place for name in ("loss", "loss.n")} == {"config.py:5"}


def test_a_model_is_known_by_what_makes_it():
    text = """
from torchtitan.models.llama3 import model_registry
def tuned(seq_len=4096):
    spec = model_registry("8B", seq_len=seq_len)
    config = Trainer.Config(model_spec=spec, loss=Loss.Config(size=vocabulary(spec)))
    return apply_transforms(config{transforms})
"""
    transforms = {
        "transforms.Float8": True,
        "transforms.Float8.recipe": "rowwise",
    }
    for more, added in (("", {}), (', [Float8.Config(recipe="rowwise")]', transforms)):
        found = parse(text.format(transforms=more), "config.py", {"seq_len": "8192"}).settings
        assert {name: one.value for name, one in found.items()} == added | {
            **OPERATORS,
            "model.name": "llama3",
            "model.flavor": "8B",
            "model.seq_len": 8192,
            "loss": "Loss",
            "loss.size": "vocabulary",
        }
