"""What drafts tokens, and how many: as options of each engine say it."""

import json

from calculon.launch.dialect import read
from calculon.launch.dialects import ENGINES
from calculon.launch.engines.engine_commands import command_text, commanded
from calculon.serving.engine_scripts import deployment_defaults
from tests.cases import for_each

DEFAULTS = deployment_defaults() | {"num_procs": 1, "max_batch": 8}
KIND, STEPS, BRANCHES, DRAFTED, MODEL = (
    f"--speculative-{name}"
    for name in ("algorithm", "num-steps", "eagle-topk", "num-draft-tokens", "draft-model-path")
)
TYPE, MODULES, LENGTH = (
    f"speculative_config.{name}"
    for name in ("decoding_type", "num_nextn_predict_layers", "max_draft_len")
)


def _json(**fields):
    return {"--speculative-config": json.dumps(fields)}


@for_each(
    ("engine", "draft", "tokens", "expected"),
    [
        *((engine, "none", None, {}) for engine in ENGINES),
        ("vllm", "mtp", None, _json(method="mtp")),
        ("vllm", "ngram", 4, _json(method="ngram", num_speculative_tokens=4)),
        ("sglang", "mtp", None, {KIND: "NEXTN"}),
        # a chain: each step drafts a token, and the model verifies one more
        ("sglang", "mtp", 3, {KIND: "NEXTN", STEPS: 3, BRANCHES: 1, DRAFTED: 3 + 1}),
        ("sglang", "ngram", 4, {KIND: "NGRAM", DRAFTED: 4}),
        ("tensorrt-llm", "mtp", None, {TYPE: "MTP"}),
        ("tensorrt-llm", "mtp", 3, {TYPE: "MTP", MODULES: 3}),
        ("tensorrt-llm", "ngram", 4, {TYPE: "NGram", LENGTH: 4}),
    ],
)
def test_drafts_are_written_and_read(engine, draft, tokens, expected):
    dialect, drawn = ENGINES[engine], DEFAULTS | {"draft": draft, "draft_tokens": tokens}
    settings = commanded(dialect, drawn, DEFAULTS).settings
    assert {name: settings[name] for name in settings if "speculative" in name} == expected
    assert _read(engine, command_text(dialect, drawn, DEFAULTS)) == (draft, tokens, [])


def _read(engine, text, file="run.sh"):
    """Return what drafts, how many tokens, and the options that are not modelled."""
    launch = read(ENGINES[engine], text, file)
    found = DEFAULTS | launch.deployment
    return found["draft"], found["draft_tokens"], [one.name for one, _ in launch.not_modelled]


@for_each(
    ("options", "expected"),
    [
        (f"{KIND} EAGLE {STEPS} 2", ("mtp", 2, [])),
        (f"{KIND} NEXTN {MODEL} m", ("mtp", None, [])),
        (f"{KIND} EAGLE {MODEL} m {STEPS} 2", ("none", None, [KIND])),
        (f"{KIND} STANDALONE {STEPS} 2", ("none", None, [KIND])),
        (f"{KIND} NEXTN {STEPS} 3 {BRANCHES} 2 {DRAFTED} 8", ("mtp", 3, [BRANCHES])),
        ("decoding_type: MTP, max_draft_len: 2", ("mtp", 2, [])),
        ("decoding_type: MTP, num_nextn_predict_layers: 1, max_draft_len: 2", ("mtp", 1, [])),
        ("decoding_type: Lookahead, max_draft_len: 2", ("none", None, [TYPE])),
    ],
)
def test_other_options_draft_by_modules_or_are_not_modelled(options, expected):
    if options.startswith(KIND):
        assert _read("sglang", f"sglang serve --model m {options}") == expected
    else:
        text = f"speculative_config: {{{options}}}"
        assert _read("tensorrt-llm", text, "config.yaml") == expected
