"""Megatron-Bridge and NeMo: public configurations are read whole, and what is written is read again."""

from calculon.launch.dialects import read_launch
from calculon.launch.megatron.megatron_bridge import MEGATRON_BRIDGE, NEMO_1
from calculon.launch.megatron.megatron_lm import MEGATRON_LM
from tests.launch.laws import SCRIPTS, launch_of

BOTH = (MEGATRON_BRIDGE, NEMO_1)


def test_names_of_both_are_those_of_settings_that_megatron_lm_has():
    for dialect in BOTH:
        assert {row.fields for row in MEGATRON_LM.rows} <= {row.fields for row in dialect.rows}


def test_a_command_line_is_read():
    text = (
        "#!/bin/bash\n#SBATCH --nodes=4\nTP=2\n"
        "torchrun --nproc_per_node=8 --nnodes=4 run_recipe.py --recipe llama3_8b_pretrain_config \\\n"
        "  model.tensor_model_parallel_size=$TP train.micro_batch_size=1 \\\n"
        "  train.global_batch_size=64 ++model.sequence_parallel=true\n"
    )
    launch = read_launch(text, "run.sh")
    assert launch.dialect is MEGATRON_BRIDGE
    said = {"num_procs": 32, "tensor_par": 2, "data_par": 16, "tensor_par_comm_type": "rs_ag"}
    assert said.items() <= launch.execution.items()


def test_settings_are_placed_where_they_stand():
    path = SCRIPTS / "megatron_bridge" / "deepseek_v3_1024gpu_h100.py"
    launch = launch_of(path)
    (degree,) = (one for one in launch.used if one.name == "model.tensor_model_parallel_size")
    line = int(degree.place.rpartition(":")[2])
    assert "tensor_model_parallel_size" in path.read_text().splitlines()[line - 1]


def test_a_plugin_of_precision_is_known_by_its_name():
    path = SCRIPTS / "megatron_bridge" / "nemo2_mixtral_8x7b.py"
    plugin = 'run.Config(nl.MegatronMixedPrecision, precision="bf16-mixed")'
    text = path.read_text()
    assert plugin in text
    launch = read_launch(text.replace(plugin, "bf16_mixed()"), str(path))
    assert launch.execution == launch_of(path).execution
