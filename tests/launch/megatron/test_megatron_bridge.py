"""Megatron-Bridge and NeMo: public configurations are read whole, and what is written is read again."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculon import inputs
from calculon.errors import SpecError
from calculon.estimate import estimate
from calculon.launch.dialect import Dialect, Launch, read, settings_of, write
from calculon.launch.dialects import read_launch
from calculon.launch.megatron.megatron_bridge import MEGATRON_BRIDGE, NEMO_1
from calculon.launch.megatron.megatron_lm import MEGATRON_LM
from calculon.presets import find_preset
from calculon.search.driver import search
from calculon.spec.model import Model
from tests.draws import draws
from tests.launch.laws import SCRIPTS, launch_of

BOTH = (MEGATRON_BRIDGE, NEMO_1)


def test_names_of_both_are_those_of_settings_that_megatron_lm_has():
    flags = {name for row in MEGATRON_LM.rows for name in row.settings}
    for dialect in BOTH:
        assert {row.fields for row in MEGATRON_LM.rows} <= {row.fields for row in dialect.rows}
    assert flags


_MODELS = {name: inputs.model(name) for name in ("llama3-8B", "mixtral-8x7B", "deepseek-v3")}
_VARIED = (
    *("zero_stage", "data_par_overlap", "overlap_param_gather", "activation_recompute"),
    *("recompute_modules", "moe_dispatcher", "tensor_par_comm_type", "ce_impl", "mesh_order"),
    *("p2p_overlap", "cp_comm", "pp_layout", "optimizer_offload", "expert_tensor_par", "tp_async"),
)


@st.composite
def executions(draw):
    """Draw an execution as Megatron-LM may run it, and its model."""
    preset = find_preset(draw(st.sampled_from(("megatron-lm", "megatron-lm-ub"))))
    model = _MODELS[draw(st.sampled_from(sorted(_MODELS)))]
    degrees = {
        name: draw(st.sampled_from((1, 2, 4)))
        for name in ("tensor_par", "pipeline_par", "context_par", "data_par")
    }
    fields = {**degrees, "microbatch_size": draw(st.sampled_from((1, 2)))}
    fields["batch_size"] = 8 * fields["microbatch_size"] * degrees["data_par"]
    fields["datatype"] = draw(st.sampled_from(("bfloat16", "float16")))
    fields["fp8_recipe"] = draw(st.sampled_from(("none", "delayed", "tensorwise", "mxfp8")))
    fields["expert_par"] = draw(st.sampled_from((1, 2))) if model.has_experts else 1
    if degrees["pipeline_par"] > 1:
        fields["pipeline_interleaving"] = draw(st.sampled_from((1, 2)))
    for name in draw(st.lists(st.sampled_from(_VARIED), max_size=4, unique=True)):
        entry = preset.entries[name]
        fields[name] = draw(st.sampled_from(entry.runs or entry.tries or (entry.value,)))
    return fields, preset.name, model


def _execution(fields, preset):
    try:
        return inputs.execution(fields, edition="corrected", preset=preset)
    except SpecError:
        return None  # values that do not go together


@settings(max_examples=draws(60), deadline=None)
@given(executions())
def test_what_is_written_is_read_again(drawn):
    fields, preset, model = drawn
    execution = _execution(fields, preset)
    if execution is None:
        return
    for dialect in BOTH:
        try:
            text = write(dialect, execution.to_dict(), model)
        except SpecError:
            continue  # what one of them cannot say
        again = read(dialect, text, "again.yaml")
        said = replace(execution, seq_length=model.seq_size)  # which launchers always state
        for name in dialect.fields:
            assert again.execution[name] == getattr(said, name), name
        whole = inputs.execution(again.execution, edition="corrected")
        assert replace(whole, preset=said.preset) == said
        assert inputs.model(again.model) == _comparable(model, again)


@pytest.mark.parametrize(("model", "processors"), [("llama3-8B", 8), ("mixtral-8x7B", 16)])
def test_every_plan_that_a_search_finds_can_be_written(model, processors):
    fix = {"tensor_par": [1, 2], "microbatch_size": 1, "optimizer_offload": False}
    found = search(
        model, "h100_80g_sxm", processors, 64, "bfloat16", top=40, preset="megatron-lm", fix=fix
    )
    assert len(found) == 40
    for one in (found[rank] for rank in range(0, 40, 4)):
        for dialect in BOTH:
            text, refused = _written(dialect, one.execution.to_dict(), one.model)
            assert refused <= _UNSAYABLE[dialect.name]
            if refused:
                continue
            again = read(dialect, text, "x.yaml")
            told = inputs.execution(again.execution, edition="corrected")
            assert told == replace(one.execution, seq_length=one.model.seq_size)


def _written(dialect, execution, model):
    """Return the text of an execution, or the fields that its launcher cannot say."""
    try:
        return write(dialect, execution, model), set()
    except SpecError as error:
        return "", {problem.field for problem in error.problems}


_UNSAYABLE = {"megatron-bridge": {"tp_async"}}
_UNSAYABLE["nemo"] = {"tp_async", "activation_recompute", "recompute_modules", "ep_overlap"}
"""Fields of plans of Megatron-LM for which these have no setting, or not for all values."""


def _comparable(model: Model, launch: Launch) -> Model:
    """Return a model as flags say it: with sequences of this run."""
    length = launch.execution["seq_length"] or model.seq_size
    heads = {"kv_heads": 0} if model.kv_heads == model.attn_heads else {}
    return inputs.model({**model.to_dict(), "seq_size": length, **heads})


@pytest.mark.parametrize("dialect", BOTH, ids=lambda one: one.name)
def test_a_round_trip_changes_no_statistic(dialect: Dialect):
    fields = {"tensor_par": 4, "pipeline_par": 2, "data_par": 8, "batch_size": 128, "num_procs": 64}
    execution = inputs.execution(fields, edition="corrected", preset="megatron-lm")
    model, system = inputs.model("llama3-8B"), inputs.system("h100_80g_sxm")
    again = read(dialect, write(dialect, execution.to_dict(), model), "again.yaml")
    stated = inputs.execution(again.execution, edition="corrected")
    assert estimate(model, stated, system).stats == estimate(model, execution, system).stats


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
    path = SCRIPTS / "megatron_bridge" / "llama3_70b_32gpu_h100.py"
    launch = launch_of(path)
    (degree,) = (one for one in launch.used if one.name == "model.tensor_model_parallel_size")
    line = int(degree.place.rpartition(":")[2])
    assert "tensor_model_parallel_size" in path.read_text().splitlines()[line - 1]


def test_a_wrong_value_is_told_in_the_name_of_the_file():
    text = "model: {tensor_model_parallel_size: many}\ntrain: {micro_batch_size: 1}\n"
    with pytest.raises(
        SpecError, match=r"my.yaml:1: model.tensor_model_parallel_size: expected a whole"
    ):
        read(MEGATRON_BRIDGE, text, "my.yaml", num_procs=8)


def test_what_neither_can_say_is_refused_with_the_nearest():
    fields = {"tensor_par": 2, "pipeline_par": 1, "data_par": 4, "batch_size": 8, "tp_async": False}
    execution = inputs.execution(fields, edition="corrected", preset="megatron-lm").to_dict()
    for dialect in BOTH:
        with pytest.raises(SpecError, match="tp_async: expected true, the nearest that"):
            settings_of(dialect, execution)
