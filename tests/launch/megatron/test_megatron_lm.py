"""Flags of Megatron-LM: read, written, and read again."""

import pytest

from calculon import inputs
from calculon.base.errors import SpecError
from calculon.declarations.lists_of_counts import chunks_in_letters
from calculon.launch.dialect import nearest_settings, read, write
from calculon.launch.megatron.megatron_lm import MEGATRON_LM
from calculon.launch.megatron.megatron_model import expert_pattern
from tests.advise.by_hand import fields_of
from tests.launch.laws import SCRIPTS, launch_of, not_refused

LEAST = "--micro-batch-size 1 --bf16"
"""Flags that every script has."""
FOLDER = SCRIPTS / "megatron_lm"


def _launch(flags, num_procs=8, **variables):
    text = f"torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 1 {LEAST} {flags}"
    return read(MEGATRON_LM, text, "run.sh", num_procs=num_procs, variables=variables)


def _fields(flags, num_procs=8):
    return _launch(flags, num_procs).execution


# What public scripts say

EXPECTED = {
    "gpt3_175b.sh": {"tensor_par": 8, "pipeline_par": 16, "data_par": 1, "datatype": "float16"},
    "llama3_8b_h100_fp8.sh": {
        **{"data_par": 8, "fp8_recipe": "delayed", "fp8_param_gather": True},
        **{"zero_stage": "1", "grad_comm_dtype": "bfloat16", "ce_impl": "fused"},
        **{"tensor_par_comm_type": "ar", "overlap_param_gather": True},
    },
    "mixtral_8x7b.sh": {"pipeline_par": 4, "expert_par": 2, "moe_dispatcher": "alltoall"},
    "bloom_176b.slurm": {
        **{"num_procs": 384, "tensor_par": 4, "pipeline_par": 12, "data_par": 8},
        **{"pp_layout": "both_as_blocks", "launch_mode": "blocking", "zero_stage": "1"},
        **{"activation_recompute": "full", "grad_sums": True, "grad_comm_dtype": "float32"},
    },
    "deepseek_v3_fsdp.sh": {
        **{"zero_stage": "3", "expert_par": 8, "expert_tensor_par": 1, "num_procs": 256},
        **{"moe_dispatcher": "hybridep", "recompute_modules": "norm+mla_up_proj+mlp+moe"},
    },
    "deepseek_v3_gb200.sh": {
        **{"pipeline_par": 4, "pipeline_interleaving": 4, "fp8_recipe": "mxfp8"},
        **{"expert_par": 64, "optimizer_offload": True, "recompute_modules": "mlp"},
    },
    "deepspeed_gpt_175b_azure.sh": {"zero_stage": "3", "activation_recompute": "full"},
    "deepspeed_gpt_1.3b_moe.sh": {"expert_par": 128, "moe_capacity_percent": 100},
    "moonlight_16b_swift.sh": {"tensor_par": 2, "expert_par": 4, "seq_length": 8192},
    "pai_llama3_1.sh": {
        **{"tensor_par": 4, "pipeline_par": 2, "tensor_par_overlap": "ring"},
        **{"activation_recompute": "attn_only", "base": "megatron-lm-ub"},
    },
    "qwen3_30b_slime.sh": {"optimizer_offload": True, "expert_tensor_par": 1},
    "rocm_llama3.sh": {"tensor_par": 8, "grad_fusion": False, "attn_impl": "flash"},
    "sc21_figure_13.sh": {"num_procs": 64, "tensor_par": 8, "activation_recompute": "full"},
    "mamba_8b.sh": {"tensor_par": 4, "data_par": 2, "zero_stage": "1"},
}


def test_public_scripts_say_what_they_say():
    wrong = [
        f"{name}: {field}"
        for name, fields in EXPECTED.items()
        for field, value in fields.items()
        if launch_of(FOLDER / name).execution[field] != value
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "catalog"),
    [
        *(("gpt3_175b.sh", "gpt3-175B"), ("rocm_llama3.sh", "llama3-70B")),
        *(("deepseek_v3_gb200.sh", "deepseek-v3"), ("mixtral_8x7b.sh", "mixtral-8x7B")),
        ("qwen3_30b_slime.sh", "qwen3-30B-A3B"),
    ],
)
def test_models_of_scripts_have_the_shape_of_the_catalog(name, catalog):
    launch = launch_of(FOLDER / name)
    found, known = inputs.model(launch.model), inputs.model(catalog)
    shape = ("hidden", "feedforward", "attn_heads", "attn_size", "num_blocks", "activation")
    shape += (
        "expert_feedforward",
        "num_experts",
        "experts_per_token",
        "kv_lora_rank",
        "mtp_layers",
    )
    for field in shape:
        assert getattr(found, field) == getattr(known, field), field
    assert found.key_value_heads == known.key_value_heads


@pytest.mark.parametrize("name", ["t5_220m.sh", "mamba_8b.sh"])
def test_models_that_no_file_holds_are_told(name):
    launch = launch_of(FOLDER / name)
    assert launch.model == {}
    assert any(note.startswith("no model file is written") for note in launch.notes)


def test_bert_attends_both_ways():
    launch = launch_of(FOLDER / "bert_340m.sh")
    assert launch.model["causal"] is False


# Single flags


def test_absent_flags_mean_the_defaults_of_the_launcher():
    found = _fields("")
    assert found["zero_stage"] == "0"
    assert found["optimizer_sharding"] is False
    assert found["data_par_overlap"] is False
    assert found["batch_size"] == found["data_par"] * found["microbatch_size"]
    assert found["grad_dtype"] == "float32"
    assert found["vocab_pad_multiple"] == 128
    assert found["grad_clip"] is True
    tensor = _fields("--tensor-model-parallel-size 2")
    assert (tensor["tensor_par_comm_type"], tensor["tp_async"]) == ("ar", True)


def test_flags_mean_fields():
    rows = [
        ("--global-batch-size 64", "batch_size", 64),
        ("--clip-grad 0", "grad_clip", False),
        ("--grad-reduce-in-bf16", "grad_dtype", "bfloat16"),
        ("--ddp-bucket-size 40000000", "ddp_bucket_mib", round(40_000_000 * 4 / 2**20)),
        (
            "--ddp-bucket-size 40000000 --grad-reduce-in-bf16",
            "ddp_bucket_mib",
            round(40e6 * 2 / 2**20),
        ),
        ("--use-distributed-optimizer", "zero_stage", "1"),
        ("--use-distributed-optimizer --num-distributed-optimizer-instances 4", "dp_shard", 2),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", "zero_stage", "2"),
        ("--use-torch-fsdp2", "zero_stage", "fsdp"),
        (
            "--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward",
            "reshard_after_forward",
            False,
        ),
        ("--optimizer sgd", "optimizer", "sgd_momentum"),
        ("--optimizer sgd --sgd-momentum 0", "optimizer", "sgd"),
        ("--optimizer muon", "optimizer", "muon"),
        ("--attention-backend unfused", "attn_impl", "eager"),
        ("--transformer-impl local", "attn_impl", "eager"),
        ("--transformer-impl local --use-flash-attn", "attn_impl", "flash"),
        ("--fp8-format hybrid", "fp8_recipe", "delayed"),
        ("--fp8-format e4m3 --fp8-recipe blockwise", "fp8_recipe", "blockwise"),
        ("--fp8-format hybrid --fp8-dot-product-attention", "fp8_attention", True),
        ("--bf16 --fp8-dot-product-attention", "fp8_attention", False),
        ("--fp4-format e2m1", "fp8_recipe", "nvfp4"),
        ("--fp4-format e2m1; export NVTE_NVFP4_DISABLE_RHT=1", "fp8_recipe", "nvfp4_plain"),
        ("--num-experts 8", "moe_dispatcher", "allgather"),
        ("--num-experts 8 --moe-token-dispatcher-type flex", "moe_dispatcher", "deepep"),
        ("--num-experts 8", "moe_router_fusion", False),
        ("--num-experts 8 --moe-router-fusion", "moe_router_fusion", True),
        ("--num-experts 8 --moe-router-fusion", "moe_permute_fusion", False),
        ("--expert-model-parallel-size 2 --moe-permute-fusion", "moe_permute_fusion", True),
        ("--num-layers 8", "moe_router_fusion", True),  # no experts: the default
        ("--no-rope-fusion", "rotary_impl", "unfused"),
        ("--moe-expert-capacity-factor 1.25", "moe_capacity_percent", 125),
        ("--recompute-activations", "activation_recompute", "attn_only"),
        ("--recompute-granularity selective", "activation_recompute", "attn_only"),
        ("--checkpoint-activations", "activation_recompute", "full"),
        ("--make-vocab-size-divisible-by 64", "vocab_pad_multiple", 64),
        ("--use-tp-pp-dp-mapping", "mesh_order", "tp-pp-dp"),
        ("--cuda-graph-impl local", "launch_mode", "graph"),
        ("--cuda-graph-impl local --cuda-graph-scope attn mlp moe", "launch_mode", "graph"),
        (
            "--cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router moe_preprocess",
            "launch_mode",
            "graph_parts",
        ),
        ("--no-gradient-accumulation-fusion", "grad_fusion", False),
        ("--context-parallel-size 8 --cp-comm-type a2a", "cp_comm", "a2a"),
        (
            "--context-parallel-size 8 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 4",
            "cp_a2a_size",
            2,
        ),
        (
            "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 4",
            "p2p_overlap",
            True,
        ),
        (
            "--pipeline-model-parallel-size 2 --num-layers 32 --num-layers-per-virtual-pipeline-stage 4",
            "pipeline_interleaving",
            4,
        ),
        (
            "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et*3|t|t|tL'",
            "stage_blocks",
            "3-1-1-1",
        ),
        (
            "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|(tt|)*2mL'",
            "stage_blocks",
            "1-2-2-0",
        ),
        ("--tensor-model-parallel 2", "tensor_par", 2),
        ("--tensor_model_parallel_size=2", "tensor_par", 2),
        ("--tensor-model-parallel-size 4 --tensor-model-parallel-size 2", "tensor_par", 2),
        ("--sequence-parallel", "tensor_par_comm_type", "ar"),
    ]
    wrong = [
        (flags, found) for flags, field, value in rows if (found := _fields(flags)[field]) != value
    ]
    assert wrong == []


def test_some_blocks_of_each_chunk_recompute():
    flags = "--recompute-granularity full --recompute-method block --recompute-num-layers {}"
    pipeline = (
        "--num-layers 32 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
    )
    found = _fields(pipeline + flags.format(3))
    assert (found["recompute_every"], found["recompute_blocks"]) == (32 // 4, 3)
    whole = _fields(pipeline + flags.format(8))
    assert (whole["recompute_every"], whole["recompute_blocks"]) == (1, 0)
    assert whole["activation_recompute"] == "full"
    assert _fields(pipeline + flags.format(0))["activation_recompute"] == "none"
    one = {"activation_recompute": "full", "recompute_every": 8, "recompute_blocks": 0}
    settings, _ = nearest_settings(MEGATRON_LM, _whole(**one))
    assert settings["--recompute-num-layers"] == 1


def test_what_is_not_modeled_is_told():
    rows = [
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 4",
            "--recompute-num-layers",
        ),
        (
            "--num-layers 30 --pipeline-model-parallel-size 4 --recompute-granularity full "
            "--recompute-method block --recompute-num-layers 3",
            "--recompute-num-layers",
        ),
        (
            "--use-precision-aware-optimizer --exp-avg-dtype fp8 --exp-avg-sq-dtype fp8",
            "--exp-avg-dtype",
        ),
        (
            "--optimizer-cpu-offload --optimizer-offload-fraction 0.5",
            "--optimizer-offload-fraction",
        ),
        ("--cuda-graph-impl local --cuda-graph-scope attn", "--cuda-graph-scope"),
        ("--cuda-graph-impl local --cuda-graph-scope 3", "--cuda-graph-scope"),
        ("--optimizer hybridadam", "--optimizer"),
        ("--fp8-format e4m3 --fp8-recipe custom", "--fp8-recipe"),
        ("--num-experts 8", "--moe-grouped-gemm"),  # one expert after another
    ]
    for flags, lost in rows:
        told = {one.name: effect for one, effect in _launch(flags).not_modelled}
        assert told.get(lost), flags


def test_unknown_flags_are_told_with_their_place():
    (found,) = _launch("--never-heard-of 3").unknown
    assert (found.name, found.value, found.place) == ("--never-heard-of", 3, "run.sh:1")


def test_tokens_follow_from_steps_batch_and_sequence():
    launch = _launch(
        "--train-iters 100 --global-batch-size 64 --seq-length 2048 --save-interval 10"
    )
    assert launch.campaign == {"tokens": 100 * 64 * 2048, "save_interval": 10}
    samples = _launch("--train-samples 500 --seq-length 2048").campaign
    assert samples == {"tokens": 500 * 2048}


def test_contradictions_and_values_without_meaning_are_errors():
    rows = [
        ("--tensor-model-parallel-size 3", r"a multiple of 3 x 1 x 1 = 3 .*found 8"),
        ("--tensor-model-parallel-size -2", r"--tensor-model-parallel-size: expected at least 1"),
        ("--micro-batch-size 0", r"--micro-batch-size: expected at least 1, found 0"),
        ("--global-batch-size 12", r"a multiple of 1 x 8 = 8 .*found 12"),
        ("--tensor-model-parallel-size two", r"a whole number, found 'two'"),
        (
            "--tensor-model-parallel-size $TP",
            r"found \$TP. Hint: set it with calculon import-flags FILE --env TP=VALUE",
        ),
        ("--data-parallel-sharding-strategy all --use-megatron-fsdp", "one of no_shard"),
        ("--moe-token-dispatcher-type ring", "one of allgather"),
        ("--recompute-granularity some", "full or selective"),
        ("--recompute-granularity selective --recompute-modules all", "all is not a module"),
        (
            "--pipeline-model-parallel-layout XYZ --pipeline-model-parallel-size 2",
            "letters E, t, m",
        ),
        (
            "--pipeline-model-parallel-layout 't|t|t' --pipeline-model-parallel-size 2",
            "the layout has 3 stages",
        ),
        (
            "--num-layers-per-virtual-pipeline-stage 3 --pipeline-model-parallel-size 2 --num-layers 32",
            "a divisor",
        ),
        (
            "--num-layers-per-virtual-pipeline-stage 3 --pipeline-model-parallel-size 2",
            "--num-layers",
        ),
        ("--cp-comm-type ring --context-parallel-size 2", "one of p2p"),
        *(
            (f"--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout {more}", wanted)
            for more, wanted in (
                ("'Et|(ttL'", "unbalanced parenthesis at character 4"),
                ("'Et|EtL'", "E, then all t"),
                ("'Et|tmL' --num-layers 2", r"0 m \(MTP modules\), .*the layout has 1"),
                ("'Et|tL' --mtp-num-layers 1", r"1 m \(MTP modules\), .*the layout has 0"),
            )
        ),
    ]
    assert not_refused(_launch, rows) == []


def test_a_script_without_a_microbatch_or_processors_says_so():
    with pytest.raises(SpecError, match="--micro-batch-size"):
        read(MEGATRON_LM, "python x.py --bf16 --num-layers 4", "run.sh", num_procs=8)
    with pytest.raises(SpecError, match="--procs N"):
        read(MEGATRON_LM, f"python x.py {LEAST}", "run.sh")


def test_blocks_with_experts_are_in_regular_order_or_in_none():
    rows = [
        *((1, (0, 1)), (2, (0, 2)), ("([0]*3+[1]*5)", (3, 1)), ("[0]*3+[1]*5", (3, 1))),
        *(("'([1]*8)'", (0, 1)), ("([0]*1+[1]*1)*4", (0, 2)), ("[0,0,1,0,0,1,0,0]", (0, 3))),
        *(("[1,0,0,1,0,0,1,0]", None), ("[0]*8", None), ("([1]*9999)*9999", None), ("x", None)),
    ]
    assert [expert_pattern(value, 8) for value, _ in rows] == [pattern for _, pattern in rows]


def test_layouts_count_blocks():
    rows = [
        ("Et*3|(tt|)*29,m|L", [3, *[2] * 29, 0, 0]),
        ("'Et|t*2|tmL'", [1, 2, 1]),
        ("E|t|L", [0, 1, 0]),
        ("Et|*2(t|)*2L", [1, 0, 1, 1, 0]),
        ("x", None),
        ("t*99999999", None),
        ("Et|(t|tL", None),
        ("Et|t)|tL", None),
        ("Et|)t|(tL", None),
    ]
    for text, blocks in rows:
        chunks = chunks_in_letters(text)
        assert (chunks and [chunk.count("t") for chunk in chunks]) == blocks


def test_modules_before_the_last_chunk_have_a_place():
    flags = "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout"
    for layout, listed in (("'Et|tt|m|L'", "1-2-0m-0"), ("'Et|tt||mL'", "1-2-0-0")):
        launch = _launch(f"{flags} {layout}")
        assert launch.execution["stage_blocks"] == listed
        assert not any("MTP" in effect for _, effect in launch.not_modelled)
    with pytest.raises(SpecError, match="in one part"):
        _launch(f"{flags} 'Et|tt|m|mL'")


def test_weights_in_8_bits_are_not_modeled_with_mtp_modules():
    name = "--fp8-param-gather"
    for modules in (0, 1):
        flags = f"--fp8-format e4m3 --fp8-recipe mxfp8 {name} --mtp-num-layers {modules}"
        launch = _launch(flags)
        assert launch.execution["fp8_param_gather"] == (modules == 0)
        assert (name in [setting.name for setting, _ in launch.not_modelled]) == (modules > 0)


def _whole(**changes):
    """Return the fields of a plan on 8 processors."""
    plan = {"base": "megatron-lm", "tensor_par": 1, "pipeline_par": 1, "data_par": 8}
    return fields_of(inputs.execution(plan | {"num_procs": 8, "batch_size": 8} | changes))


def test_models_are_written_and_read_again():
    for name in ("llama3-70B", "deepseek-v3", "mixtral-8x22B", "gpt3-175B-hf", "qwen3-235B-A22B"):
        model = inputs.model(name)
        text = write(MEGATRON_LM, _whole(tensor_par=8, data_par=1), model)
        found = inputs.model(read(MEGATRON_LM, text, "run.sh").model)
        for field, value in model.to_dict().items():
            if field != "kv_heads" or value != model.attn_heads:
                assert getattr(found, field) == value, (name, field)


def test_models_that_no_flag_describes_are_refused_by_field():
    with pytest.raises(SpecError, match="norms: expected 2"):
        write(MEGATRON_LM, _whole(), inputs.model("gemma2-9B"))


def test_the_rest_of_a_campaign_is_written():
    campaign = {"tokens": 4096 * 1000, "save_interval": 50}
    text = write(MEGATRON_LM, _whole(seq_length=4096), None, campaign)
    assert read(MEGATRON_LM, text, "run.sh").campaign == campaign
