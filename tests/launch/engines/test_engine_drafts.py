"""What drafts tokens, and how many: as options of each engine say it."""

from calculon.launch.dialect import read
from calculon.launch.dialects import ENGINES
from calculon.launch.engines.engine_commands import command_text, commanded
from calculon.serving.engine_scripts import deployment_defaults
from tests.cases import for_each

DEFAULTS = deployment_defaults() | {"num_procs": 1, "max_batch": 8}
KIND = "--speculative-algorithm"
STEPS, BRANCHES, DRAFTED = (
    f"--speculative-{name}" for name in ("num-steps", "eagle-topk", "num-draft-tokens")
)


@for_each(
    ("engine", "draft", "tokens", "expected"),
    [
        *((engine, "none", None, {}) for engine in ENGINES),
        ("vllm", "mtp", None, {"--speculative-config": '{"method": "mtp"}'}),
        (
            "vllm",
            "ngram",
            4,
            {"--speculative-config": '{"method": "ngram", "num_speculative_tokens": 4}'},
        ),
        ("sglang", "mtp", None, {KIND: "NEXTN"}),
        # a chain: each step drafts a token, and the model verifies one more
        ("sglang", "mtp", 3, {KIND: "NEXTN", STEPS: 3, BRANCHES: 1, DRAFTED: 3 + 1}),
        ("sglang", "ngram", 4, {KIND: "NGRAM", DRAFTED: 4}),
        ("tensorrt-llm", "mtp", None, {"decoding_type": "MTP"}),
        ("tensorrt-llm", "mtp", 3, {"decoding_type": "MTP", "num_nextn_predict_layers": 3}),
        ("tensorrt-llm", "ngram", 4, {"decoding_type": "NGram", "max_draft_len": 4}),
    ],
)
def test_drafts_are_written_and_read(engine, draft, tokens, expected):
    dialect, drawn = ENGINES[engine], DEFAULTS | {"draft": draft, "draft_tokens": tokens}
    settings = commanded(dialect, drawn, DEFAULTS).settings
    found = {name: value for name, value in settings.items() if "speculative" in name}
    assert {name.removeprefix("speculative_config."): found[name] for name in found} == expected
    launch = read(dialect, command_text(dialect, drawn, DEFAULTS), "run.sh")
    again = DEFAULTS | launch.deployment
    assert (again["draft"], again["draft_tokens"]) == (draft, tokens)
    assert not launch.not_modelled


@for_each(
    ("options", "draft", "tokens", "not_modelled"),
    [
        (f"{KIND} EAGLE {STEPS} 2", "mtp", 2, []),
        (f"{KIND} NEXTN --speculative-draft-model-path m", "mtp", None, []),
        (f"{KIND} EAGLE --speculative-draft-model-path m {STEPS} 2", "none", None, [KIND]),
        (f"{KIND} STANDALONE {STEPS} 2", "none", None, [KIND]),
        (f"{KIND} NEXTN {STEPS} 3 {BRANCHES} 2 {DRAFTED} 8", "mtp", 3, [BRANCHES]),
    ],
)
def test_sglang_drafts_by_modules_unless_eagle_has_a_model(options, draft, tokens, not_modelled):
    launch = read(ENGINES["sglang"], f"sglang serve --model m {options}", "run.sh")
    again = DEFAULTS | launch.deployment
    assert (again["draft"], again["draft_tokens"]) == (draft, tokens)
    assert [one.name for one, _ in launch.not_modelled] == not_modelled


@for_each(
    ("options", "draft", "tokens"),
    [
        ("decoding_type: MTP, max_draft_len: 2", "mtp", 2),
        ("decoding_type: MTP, num_nextn_predict_layers: 1, max_draft_len: 2", "mtp", 1),
        ("decoding_type: Lookahead, max_draft_len: 2", "none", None),
    ],
)
def test_tensorrt_llm_drafts_with_as_many_modules_as_stated(options, draft, tokens):
    text = f"speculative_config: {{{options}}}\n"
    launch = read(ENGINES["tensorrt-llm"], text, "config.yaml")
    again = DEFAULTS | launch.deployment
    assert (again["draft"], again["draft_tokens"]) == (draft, tokens)
    assert bool(launch.not_modelled) == (draft == "none")
