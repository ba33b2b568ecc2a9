"""Commands of engines: no option is lost, what is written is read as it was, and shares of memory are converted."""

from random import Random

import pytest

from calculon.base.errors import SpecError
from calculon.base.units import GIB
from calculon.declarations.fields import spec_fields
from calculon.launch.dialect import read
from calculon.launch.dialects import ENGINES, read_launch
from calculon.launch.engines.engine_commands import NOT_IN_ENGINES, command_text, engine_command
from calculon.launch.server import RankBytes, Server
from calculon.serving.engine_scripts import deployment_defaults
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.read_records import read_deployment
from tests.launch.laws import OF_ENGINES, SCRIPTS, launch_of

DEFAULTS = deployment_defaults()
SIZES = {"weights": 20 * GIB, "activation": 2 * GIB, "capacity": 80 * GIB}


def _rank(fields):
    return RankBytes(reserve=GIB * fields.get("reserve_gib", 4.0), **SIZES)


SERVER = Server("h100_80g_sxm", 80 * GIB, _rank)


def test_public_files_say_their_deployment():
    rows = [
        ("vllm/llama70b_fp8_h200.sh", {"tensor_par": 8, "kv_dtype": "float8", "max_batch": 64}),
        ("vllm/llama3.3_70b_recipe.sh", {"num_procs": 1, "max_batch": 512, "token_budget": 8192}),
        ("vllm/qwen3_coder_bf16.sh", {"tensor_par": 8, "max_batch": 1024, "admission": "mean"}),
        ("vllm/qwen3_coder_fp8.sh", {"tensor_par": 8, "attn_data_par": 8, "expert_par": 8}),
        ("sglang/docs_router.sh", {"num_procs": 4, "tensor_par": 2, "kv_block": 1}),
        ("sglang/deepseek_r1_fp8_b200.sh", {"expert_par": 4, "weights_dtype": "float8"}),
        ("sglang/deepseek_r1_fp8_h200.sh", {"max_batch": 256, "token_budget": 0}),
        ("tensorrt_llm/llama3.3_70b.yaml", {"max_batch": 1024, "token_budget": 2048}),
        ("tensorrt_llm/gptoss_mxfp4_b200.sh", {"memory_fraction": 0.85, "token_budget": 20000}),
        ("tensorrt_llm/deepseek_r1_attention_dp.sh", {"attn_data_par": 8, "max_batch": 8 * 1024}),
        ("tensorrt_llm/qwen3.yaml", {"memory_fraction": 0.8, "kv_block": 32}),
    ]
    for name, expected in rows:
        found = launch_of(SCRIPTS / name).deployment
        assert {field: found[field] for field in expected} == expected, name


def test_several_commands_that_start_a_server_are_told():
    path = SCRIPTS / "sglang/deepseek_r1_fp8_h200.sh"
    either = {name: value for name, value in OF_ENGINES.items() if name != "OSL"}
    notes = read_launch(path.read_text(), str(path), variables=either).notes
    assert "2 commands start a server: the one with the most options is used" in notes


def test_narrow_weights_that_only_a_name_says_are_told():
    notes = launch_of(SCRIPTS / "vllm/qwen3_coder_fp8.sh").notes
    assert any("the name says FP8" in one for one in notes)
    wide = launch_of(SCRIPTS / "vllm/qwen3_coder_bf16.sh").notes
    assert not any("the name says" in one for one in wide)


def test_a_configuration_of_drafts_that_is_nested_too_deeply_is_refused(tmp_path):
    deep = '{"a":' * 5_000 + "1" + "}" * 5_000
    script = tmp_path / "run.sh"
    script.write_text(f"vllm serve m -tp 4 --speculative-config '{deep}'\n")
    with pytest.raises(SpecError, match="an object in JSON"):
        read_launch(script.read_text(), str(script))


_DRAFTS: list[dict[str, object]] = [
    *[{}] * 5,
    {"draft": "mtp"},
    {"draft": "mtp", "draft_tokens": 3, "acceptance": 0.7},
    {"draft": "ngram", "draft_tokens": 4, "accepted": 1.5},
    {"draft": "model:llama3-8B", "draft_tokens": 4, "acceptance": 0.7},
]


CHOICES = {one.key: one.declaration.choices for one in spec_fields(Deployment)}
VALUES: dict[str, tuple[object, ...]] = {
    **{name: choices for name, choices in CHOICES.items() if choices and name != "draft"},
    **{"token_budget": (0, 2048, 8192), "kv_block": (1, 16, 32), "reserve_gib": (4.0, 2.5)},
    **{"memory_fraction": (0.5, 0.85, 0.95, 1.0), "graphs": (True, False), "price": (None, 2.5)},
    **{"shared_heads": (True, False), "head_dtype": ("bfloat16", "float8")},
}


def _drawn(random):
    """Draw a deployment; most of its choices are as an engine runs them."""
    split, stages = random.choice([1, 2, 4, 8]), random.choice([1, 1, 2])
    fields = {
        "num_procs": split * stages * random.choice([1, 1, 3]),
        "tensor_par": split,
        "pipeline_par": stages,
        "expert_par": random.choice([1, split]),
        "attn_data_par": random.choice([1, 1, split]),
        "max_batch": random.choice([0, 16, 100, 256]) * 8,
    }
    fields |= {name: random.choice(VALUES[name]) for name in random.sample(sorted(VALUES), 3)}
    return DEFAULTS | fields | random.choice(_DRAFTS)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
def test_what_is_written_is_read_as_it_was(engine):
    random, written = Random(3), 0
    for _ in range(100):
        drawn = _drawn(random)
        try:
            read_deployment({n: value for n, value in drawn.items() if value is not None})
        except SpecError:
            continue  # none that there is
        try:
            changes = engine_command(engine, drawn, DEFAULTS, SERVER).changes
            text = command_text(engine, drawn, DEFAULTS, SERVER)
        except SpecError as error:
            wrong = [one.field for one in error.problems]
            assert wrong
            assert all(drawn[field] != DEFAULTS[field] for field in wrong)
            continue
        written += 1
        replicas = drawn["num_procs"] // (drawn["tensor_par"] * drawn["pipeline_par"])
        assert (f"{replicas} replicas: this script starts one" in text) == (replicas > 1)
        assert all(drawn[field] == DEFAULTS[field] for field in changes)
        launch = read(engine, text, "run.sh", server=SERVER)
        assert not launch.unknown
        assert not launch.not_modelled
        expected = drawn | {field: new for field, (_, new) in changes.items()}
        said = (*engine.fields, *NOT_IN_ENGINES)
        again = DEFAULTS | launch.deployment
        assert read_deployment(launch.deployment)
        assert {name: again[name] for name in said} == {name: expected[name] for name in said}
    assert written >= 20


@pytest.mark.parametrize(
    ("engine", "flag", "held"),
    [
        ("vllm", "--gpu-memory-utilization", ("weights", "activation")),
        ("sglang", "--mem-fraction-static", ("weights",)),
    ],
)
def test_a_share_of_all_memory_is_that_of_the_cache_and_what_it_counts_beside(engine, flag, held):
    rank = _rank({})
    for share in (0.3, 0.9):
        drawn = DEFAULTS | {"num_procs": 1, "max_batch": 8, "memory_fraction": share}
        written = engine_command(ENGINES[engine], drawn, DEFAULTS, SERVER).settings[flag]
        cache = share * rank.free
        assert written * SIZES["capacity"] == pytest.approx(cache + sum(SIZES[n] for n in held))


def test_a_share_of_what_is_free_is_written_as_it_is():
    drawn = DEFAULTS | {"num_procs": 1, "max_batch": 8, "memory_fraction": 0.7}
    settings = engine_command(ENGINES["tensorrt-llm"], drawn, DEFAULTS).settings
    assert settings["kv_cache_config.free_gpu_memory_fraction"] == 0.7


def test_a_cache_beyond_what_is_free_takes_of_the_reserve():
    one = read(ENGINES["vllm"], "vllm serve m --gpu-memory-utilization 0.99", "x.sh", server=SERVER)
    found = one.deployment
    rank = _rank(found)
    assert found["memory_fraction"] == 1
    cache = 0.99 * SIZES["capacity"] - SIZES["weights"] - SIZES["activation"]
    assert rank.free == pytest.approx(cache)


def test_a_share_without_room_for_the_cache_is_refused():
    text = "python -m sglang.launch_server --model-path m --mem-fraction-static 0.2"
    with pytest.raises(SpecError, match="leaves memory for the KV cache on h100_80g_sxm"):
        read(ENGINES["sglang"], text, "x.sh", server=SERVER)
    with pytest.raises(SpecError, match="above 0, of at most 1"):
        read(ENGINES["sglang"], text.replace("0.2", "80"), "x.sh", server=SERVER)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("vllm serve m --max-cudagraph-capture-size 64 --no-async-scheduling", (64, False)),
        ("vllm serve m --async-scheduling", (None, True)),
        ("python -m sglang.launch_server --model-path m --cuda-graph-max-bs 32", (32, None)),
        (
            "python -m sglang.launch_server --model-path m --cuda-graph-max-bs 0 "
            "--disable-overlap-schedule",
            (None, False),
        ),
        ("trtllm-serve m --disable_overlap_scheduler", (None, False)),
    ],
)
def test_the_largest_graph_and_the_overlapped_scheduler_are_read(command, expected):
    """Settings that are not stated, and 0, are left to the engine."""
    (engine,) = (name for name, one in ENGINES.items() if one.recognizes(command, "x.sh"))
    found = read(ENGINES[engine], command, "x.sh")
    assert not found.not_modelled
    assert tuple(map(found.deployment.get, ("graph_tokens", "async_host"))) == expected


def test_the_largest_of_several_graphs_counts():
    text = "cuda_graph_config:\n  batch_sizes: [1, 8, 96]\nmax_batch_size: 8\nmax_num_tokens: 64\n"
    found = read(ENGINES["tensorrt-llm"], text, "x.yaml")
    assert found.deployment["graph_tokens"] == 96


def test_a_share_of_free_memory_needs_model_and_machine():
    one = read(ENGINES["vllm"], "vllm serve m --gpu-memory-utilization 0.8", "x.sh")
    found = (one.deployment["memory_share"], one.deployment["memory_fraction"])
    assert (found, one.not_modelled) == (("total", 0.8), ())
    drawn = DEFAULTS | {"num_procs": 1, "memory_fraction": 0.8}
    with pytest.raises(SpecError, match=r"memory_fraction: expected 0.9.*--system"):
        command_text(ENGINES["vllm"], drawn, DEFAULTS)


@pytest.mark.parametrize(
    ("memory", "system", "expected"),
    [
        (80 * GIB, "h100_80g_sxm", (1024, 8192)),
        (80 * GIB, "a100_80g_sxm", (256, 2048)),
        (48 * GIB, "l40s", (256, 2048)),
    ],
)
def test_defaults_of_vllm_are_those_of_the_machine(memory, system, expected):
    server = Server(system, memory, _rank)
    found = read(ENGINES["vllm"], "vllm serve m", "x.sh", server=server).deployment
    assert (found["max_batch"], found["token_budget"]) == expected


def test_what_an_engine_cannot_say_is_refused_by_field():
    rows = [
        ("vllm", {"token_budget": 0}, "token_budget"),
        ("tensorrt-llm", {"token_budget": 0}, "token_budget"),
        ("vllm", {"expert_par": 2, "tensor_par": 4, "num_procs": 4}, "expert_par"),
        ("vllm", {"kv_dtype": "int8"}, "kv_dtype"),
        ("sglang", {"batching": "static"}, "batching"),
        ("tensorrt-llm", {"shared_heads": False}, "shared_heads"),
    ]
    for engine, changes, field in rows:
        drawn = DEFAULTS | {"num_procs": 1, "max_batch": 8} | changes
        with pytest.raises(SpecError) as error:
            command_text(ENGINES[engine], drawn, DEFAULTS)
        assert [one.field for one in error.value.problems] == [field]


def test_an_open_field_is_as_the_engine_runs_it():
    drawn = DEFAULTS | {"num_procs": 1}
    found = engine_command(ENGINES["vllm"], drawn, DEFAULTS)
    assert found.changes == {
        "admission": ("reserve", "mean"),
        "max_batch": (0, 1024),
        "prefill_graphs": (True, False),
    }
    assert "# admission: vLLM uses 'mean' instead of 'reserve'" in command_text(
        ENGINES["vllm"], drawn, DEFAULTS
    )


def test_values_without_a_meaning_are_refused():
    rows = [
        ("vllm serve m -tp 0", "--tensor-parallel-size: expected at least 1, found 0"),
        ("vllm serve m --dtype float32", "--dtype: expected one of auto"),
        ("sglang serve --model m --tp 4 --ep 3", "expert_par: expected a divisor of --tp-size 4"),
        ("trtllm-serve m --tp_size 4 --ep_size 3", "expert_par: expected a divisor"),
        ("vllm serve m -tp $TP", "--env TP=VALUE"),
    ]
    for text, message in rows:
        with pytest.raises(SpecError, match=message):
            read_launch(text, "x.sh")


def test_processors_are_whole_replicas():
    found = read_launch("vllm serve m -tp 4", "x.sh", num_procs=12).deployment
    assert (found["num_procs"], found["tensor_par"]) == (12, 4)
    with pytest.raises(SpecError, match="processors: expected a multiple of 4 x 1"):
        read_launch("vllm serve m -tp 4", "x.sh", num_procs=6)


def test_options_are_found_in_a_container_and_after_a_module():
    for start in (
        "docker run --gpus all vllm/vllm-openai:v0.11.0 --model m",
        "python -m vllm.entrypoints.openai.api_server --model m",
        "vllm serve m",
    ):
        launch = read_launch(f"{start} --max_num_seqs 7 --unheard-of 3", "x.sh")
        assert launch.deployment["max_batch"] == 7
        assert launch.stated["checkpoint"].value == "m"
        assert [one.name for one in launch.unknown] == ["--unheard-of"]
