"""Combinations of flags that Megatron-LM refuses: the table, and the scripts that are exported."""

import re
from fnmatch import fnmatchcase

import pytest

import calculon
from calculon import inputs
from calculon.advise.launch_flags import export_flags
from calculon.base.errors import SpecError
from calculon.declarations.named_values import PRESETS
from calculon.inputs import Changed
from calculon.launch.dialect import read, write
from calculon.launch.megatron import megatron_lm
from calculon.launch.megatron.megatron_lm import MEGATRON_LM, refused
from calculon.launch.megatron.megatron_requirements import requirements
from calculon.launch.texts.name_patterns import names_in
from tests.helpers import refusal
from tests.launch.laws import SCRIPTS, launch_of, not_refused

ROWS = requirements()
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
MOE = {"data_par": 16, "expert_par": 8, "expert_tensor_par": 1}
FSDP = {"zero_stage": "fsdp", "optimizer_sharding": True}
SPLIT = {"optimizer_sharding": True}
TOP_1 = Changed("mixtral-8x7B", {"experts_per_token": 1})


def _plan(changes, preset="megatron-lm"):
    plan = {"base": preset, "tensor_par": 1, "pipeline_par": 1, "context_par": 1, "data_par": 8}
    plan |= changes
    degrees = plan["tensor_par"] * plan["pipeline_par"] * plan["context_par"] * plan["data_par"]
    return inputs.execution(plan | {"num_procs": degrees, "batch_size": 16 * plan["data_par"]})


def _exported(model, changes, preset="megatron-lm"):
    return export_flags(_plan(changes, preset), "megatron-lm", model=model)


# The table


def test_every_row_has_a_rule_of_its_own_and_a_source():
    assert len(ROWS) >= 40
    assert len({one.rule for one in ROWS}) == len(ROWS)
    assert all(
        re.search(r"\.py( at [0-9a-f]{8}|, early 2026|, 2025|, 2026|[;)])", one.source)
        for one in ROWS
    )


def test_rows_are_of_flags_that_the_dialect_knows():
    known = {name for row in MEGATRON_LM.rows for name in row.settings}
    patterns = names_in(" ".join((MEGATRON_LM.no_effect, *MEGATRON_LM.not_modelled.values())))
    names = {name for one in ROWS for name in (*one.when.names, *one.holds.names)}
    flags = {"--" + re.split(r"[.[]", name)[0].replace("_", "-") for name in names}
    strange = {
        flag for flag in flags - known if not any(fnmatchcase(flag, one) for one in patterns)
    }
    follow = {"--world-size", "--data-parallel-size", "--virtual-stages", "--layout-stages"}
    machine = {"--compute-capability", "--" + CONNECTIONS.replace("_", "-")}
    assert strange == follow | machine


REFUSED = [
    ("--tensor-model-parallel-size 2", "CUDA_DEVICE_MAX_CONNECTIONS=1 with tensor"),
    (f"--use-torch-fsdp2 --no-gradient-accumulation-fusion {CONNECTIONS}=1", "unset or above 1"),
    ("--use-torch-fsdp2", "--no-gradient-accumulation-fusion"),
    ("--use-torch-fsdp2 --use-distributed-optimizer", "no --use-distributed-optimizer"),
    ("--use-torch-fsdp2 --expert-model-parallel-size 2", "no expert parallelism"),
    ("--use-torch-fsdp2 --pipeline-model-parallel-size 2", "no pipeline with --use-torch-fsdp2"),
    ("--use-megatron-fsdp", "--ckpt-format fsdp_dtensor"),
    (f"--use-megatron-fsdp --ckpt-format fsdp_dtensor {CONNECTIONS}=1", "unset or above 1"),
    ("--overlap-param-gather --overlap-grad-reduce", "--use-distributed-optimizer or"),
    ("--use-distributed-optimizer --overlap-param-gather", "--overlap-grad-reduce with"),
    ("--fp8-format hybrid --fp8-param-gather", "with --fp8-param-gather"),
    ("--optimizer-cpu-offload", "--use-precision-aware-optimizer with"),
    ("--use-precision-aware-optimizer", "--use-distributed-optimizer with"),
    ("--seq-length 4100 --context-parallel-size 4", "2 x context parallelism"),
    ("--cp-comm-type a2a+p2p --context-parallel-size 4", "--hierarchical-context"),
    ("--num-layers 32 --pipeline-model-parallel-size 3", "divisible by stages and chunks"),
    (
        "--pipeline-model-parallel-layout 'Et|tL' --num-virtual-stages-per-pipeline-rank 2",
        "one of --num-layers-per-virtual",
    ),
    ("--num-experts 8 --expert-model-parallel-size 3", "experts divisible by expert parallelism"),
    ("--num-experts 8 --tensor-model-parallel-size 2", "--sequence-parallel with experts"),
    ("--num-experts 8 --moe-router-topk 1", "--moe-router-pre-softmax"),
    ("--num-experts 8 --moe-router-enable-expert-bias", "--moe-router-score-function sigmoid"),
    ("--recompute-granularity selective --recompute-modules norm moe_act", "--moe-grouped-gemm"),
    ("--recompute-granularity full", "--recompute-method and"),
    ("--moe-shared-expert-overlap", "alltoall or flex with --moe-shared"),
    (
        "--overlap-moe-expert-parallel-comm --expert-model-parallel-size 2 --bf16 "
        "--moe-token-dispatcher-type alltoall --pipeline-model-parallel-size 2",
        "virtual stages with",
    ),
    ("--cpu-offloading-num-layers 4 --pipeline-model-parallel-size 2", "no pipeline with --cpu"),
    ("--cuda-graph-impl local --recompute-granularity full", "no full recomputation with CUDA"),
    ("--train-iters 5 --rampup-batch-size 8 8 100", "--train-samples with"),
    ("--seq-length 8192 --max-position-embeddings 4096", "of at least --seq-length"),
]


def test_what_megatron_refuses_is_found():
    for flags, rule in REFUSED:
        environment = f"export {CONNECTIONS}=1\n" if CONNECTIONS in flags else ""
        words = flags.replace(f"{CONNECTIONS}=1", "")
        script = f"{environment}torchrun pretrain_gpt.py --micro-batch-size 1 {words}"
        assert any(rule in one.expected for one in refused(script, 96)), flags


KNOWN = {
    "bert_340m.sh": {"CUDA_DEVICE_MAX_CONNECTIONS=1 with", "layers, including ends"},
    "gpt3_175b.sh": {"--train-samples with --rampup"},
    "mamba_8b.sh": {"CUDA_DEVICE_MAX_CONNECTIONS=1 with"},
    "nemotron_nano_hybrid.sh": {"CUDA_DEVICE_MAX_CONNECTIONS=1 with"},
}
"""What is wrong with scripts of Megatron-LM itself, some of which are older than the rule."""
OF_MEGATRON = (
    *("deepseek_v3_fsdp.sh", "deepseek_v3_gb200.sh", "llama3_8b_h100_fp8.sh", "mixtral_8x7b.sh"),
    *("t5_220m.sh", *KNOWN),
)


def test_scripts_of_megatron_itself_keep_to_the_table():
    for name in OF_MEGATRON:
        path, known = SCRIPTS / "megatron_lm" / name, KNOWN.get(name, ())
        processors = launch_of(path).execution["num_procs"]
        found = {one.expected for one in refused(path.read_text(), processors)}
        assert len(found) == len(known), name
        assert all(any(rule in one for one in found) for rule in known), name


# Exported scripts, each of which the exporter checks against the table


SET, UNSET = f"export {CONNECTIONS}=1", f"unset {CONNECTIONS}"
FLEX = "--moe-token-dispatcher-type flex"
EXPORTED = {
    "dense": ("llama3-8B", {}, (), (CONNECTIONS, "grouped")),
    "tensor": ("llama3-70B", {"tensor_par": 4}, (SET, "--sequence-parallel"), ()),
    "pipeline": (
        "llama3-70B",
        {"pipeline_par": 4, "pipeline_interleaving": 4},
        ("--num-virtual-stages-per-pipeline-rank 4",),
        (CONNECTIONS,),
    ),
    "context": ("llama3-8B", {"context_par": 4}, (SET,), ()),
    "context in levels": (
        "llama3-8B",
        {"context_par": 4, "cp_comm": "a2a_p2p", "cp_a2a_size": 2},
        (SET, "--hierarchical-context-parallel-sizes 2 2"),
        (),
    ),
    "FSDP2": (
        "llama3-8B",
        FSDP,
        (UNSET, "--use-torch-fsdp2", "--no-gradient-accumulation-fusion"),
        (SET, "--use-distributed-optimizer", "--ckpt-format"),
    ),
    "FSDP2 and tensor": ("llama3-70B", {**FSDP, "tensor_par": 2}, (UNSET,), (SET,)),
    "Megatron-FSDP": (
        "llama3-8B",
        {**SPLIT, "zero_stage": "3"},
        (UNSET, "--ckpt-format fsdp_dtensor", "optim_grads_params", "--overlap-param-gather"),
        (SET,),
    ),
    "DeepEP": (
        "qwen3-30B-A3B",
        {**MOE, "moe_dispatcher": "deepep"},
        ("--moe-grouped-gemm", FLEX, "backend deepep"),
        (),
    ),
    "HybridEP": (
        "deepseek-v3",
        {**MOE, "moe_dispatcher": "hybridep", "pipeline_par": 8, "stage_blocks": "7-8-8-8-8-8-8-6"},
        ("--moe-grouped-gemm", "backend hybridep", "--moe-router-score-function sigmoid"),
        (),
    ),
    "one expert of a token": (TOP_1, MOE, ("--moe-router-pre-softmax",), ()),
    "overlap of experts": (
        "qwen3-30B-A3B",
        {**MOE, "moe_dispatcher": "deepep", "ep_overlap": "1f1b", "delay_wgrad": True},
        (f"export {CONNECTIONS}=32", "--delay-wgrad-compute"),
        (),
    ),
    "overlap of experts and tensor": (
        "qwen3-30B-A3B",
        {**MOE, "moe_dispatcher": "deepep", "ep_overlap": "1f1b", "tensor_par": 2},
        (f"{SET}  # or 32",),
        (),
    ),
    "FP8": ("llama3-70B", {"tensor_par": 4, "fp8_recipe": "delayed"}, ("--fp8-recipe",), ()),
    "optimizer on the host": (
        "llama3-70B",
        {"tensor_par": 4, "optimizer_offload": True},
        ("--optimizer-cpu-offload", "--use-precision-aware-optimizer"),
        (),
    ),
    "optimizer on the host, MXFP8": (
        "llama3-70B",
        {
            "tensor_par": 4,
            "optimizer_offload": True,
            "fp8_recipe": "mxfp8",
            "fp8_param_gather": True,
        },
        ("--offload-optimizer-states",),
        ("--optimizer-cpu-offload",),
    ),
    "activations on the host": (
        "llama3-70B",
        {"tensor_par": 4, "activations_offload": True},
        ("--cpu-offloading-num-layers 79",),
        (),
    ),
    "longer sequences": (
        "llama3-8B",
        {"seq_length": 32768, "context_par": 4},
        ("--max-position-embeddings 32768",),
        (),
    ),
}


def test_plans_are_exported_as_megatron_takes_them():
    for model, changes, stated, absent in EXPORTED.values():
        text = _exported(model, changes)
        lines = text.splitlines()
        assert all(any(one in line for line in lines) for one in stated), text
        assert not any(one in text for one in absent), text
        plan = _plan(changes)
        assert refused(text, plan.num_procs) == []
        again = inputs.execution(read(MEGATRON_LM, text, "run.sh").execution)
        length = {"seq_length": plan.seq_length or inputs.model(model).seq_size}
        assert again.to_dict() == plan.to_dict() | length


KINDS = ("tensor", "pipeline", "context", "DeepEP", "FP8", "FSDP2")
NOT_WRITTEN = {
    **{("torchtitan", kind): "recompute_modules" for kind in KINDS},  # of single operators
    **{(name, "FSDP2"): "data_par_overlap" for name in ("megatron-lm-2021", "deepspeed")},
    **{(name, "pipeline"): "no pipeline with" for name in ("llm-foundry", "huggingface")},
    **{(name, "DeepEP"): "no expert parallelism" for name in ("llm-foundry", "huggingface")},
}
"""Plans of presets that Megatron-LM cannot run, and why."""


def _unlike_what_megatron_takes(kind, preset):
    """Return what is wrong with the script of a kind of plan of a preset."""
    model, changes, _, _ = EXPORTED[kind]
    refusal_of_plan = NOT_WRITTEN.get((preset, kind))
    if refusal_of_plan:
        told = refusal(_exported, model, changes, preset)
        return "" if refusal_of_plan in told else f"{preset}: not refused"
    text = _exported(model, changes, preset)
    broken = refused(text, _plan(changes, preset).num_procs)
    same = ("--moe-grouped-gemm" in text) is (kind == "DeepEP")
    return "" if same and not broken else f"{preset}: {broken}"


@pytest.mark.parametrize("kind", KINDS)
def test_plans_of_every_preset_are_exported_as_megatron_takes_them(kind):
    # Plans of MaxText shard weights in pipelines, overlap without user buffers, and other things of XLA.
    presets = [name for name in PRESETS if name not in ("published", "maxtext")]
    wrong = [_unlike_what_megatron_takes(kind, preset) for preset in presets]
    assert [one for one in wrong if one] == []


def test_plans_that_megatron_refuses_are_not_exported():
    rows = [
        ("llama3-8B", {**FSDP, "grad_fusion": True}, "Hint: change grad_fusion"),
        ("mixtral-8x7B", {"tensor_par": 4, "tensor_par_comm_type": "ar"}, "--sequence-parallel"),
        ("llama3-8B", {"cp_comm": "a2a_p2p", "context_par": 4}, "change cp_comm or cp_a2a_size"),
        ("llama3-8B", {"launch_mode": "graph", "activation_recompute": "full"}, "CUDA graphs"),
        ("mixtral-8x7B", MOE | {"launch_mode": "graph"}, "graph_parts, blocking, found 'graph'"),
        ("llama3-8B", {"optimizer": "muon"}, "with Muon"),
        ("gpt2-124M", FSDP, "--untie-embeddings-and-output-weights with"),
    ]
    assert not_refused(_exported, rows) == []


def test_a_script_without_what_its_plan_needs_is_never_written(monkeypatch):
    monkeypatch.setattr(megatron_lm, "_connections", lambda flags: "")
    with pytest.raises(SpecError, match="CUDA_DEVICE_MAX_CONNECTIONS=1"):
        _exported("llama3-70B", {"tensor_par": 4})


def test_a_dense_plan_of_earlier_releases_is_written_with_their_date():
    dated = _plan({}, "megatron-lm@2024")
    assert not dated.moe_router_fusion  # which earlier releases lack
    one = calculon.estimate(
        "llama3.2-1B", dated.to_dict(), "h100_80g_sxm", preset="megatron-lm@2024"
    )
    assert "planned with megatron-lm@2024" in export_flags(one, "megatron-lm")
    assert "planned with" not in _exported("llama3-8B", {})


def test_a_growing_batch_counts_samples():
    campaign = {"batch_ramp": [16, 16, 5000]}
    fields = _plan({}).to_dict()
    text = write(MEGATRON_LM, fields, None, campaign)
    assert "--train-samples" in text
    assert "--train-iters" not in text
