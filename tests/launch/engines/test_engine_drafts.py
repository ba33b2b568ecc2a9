"""Draft methods and numbers of draft tokens, as options of each engine."""

from calculon.launch.dialect import Parsed, Reading, Setting, Writing
from calculon.launch.engines.engine_drafts import SGLANG_DRAFTS, TENSORRT_LLM_DRAFTS, VLLM_DRAFTS
from tests.cases import for_each

KIND, STEPS, BRANCHES, DRAFTED, MODEL = (
    f"--speculative-{name}"
    for name in ("algorithm", "num-steps", "eagle-topk", "num-draft-tokens", "draft-model-path")
)
CONFIG = VLLM_DRAFTS.settings[0]
TYPE, MODULES, LENGTH = TENSORRT_LLM_DRAFTS.settings[:3]


@for_each(
    ("row", "settings", "draft", "tokens", "form"),
    [
        *((row, {}, "none", None, "") for row in (VLLM_DRAFTS, SGLANG_DRAFTS, TENSORRT_LLM_DRAFTS)),
        (VLLM_DRAFTS, {CONFIG: '{"method": "mtp"}'}, "mtp", None, ""),
        (VLLM_DRAFTS, {CONFIG: '{"method": "ngram", "num_speculative_tokens": 4}'}, "ngram", 4, ""),
        (VLLM_DRAFTS, {CONFIG: '{"method": "deepseek_mtp"}'}, "mtp", None, "another"),
        (VLLM_DRAFTS, {CONFIG: '{"method": "eagle3"}'}, "none", None, "lost"),
        (SGLANG_DRAFTS, {KIND: "NEXTN"}, "mtp", None, ""),
        # a chain: each step drafts a token, and the model verifies one more
        (SGLANG_DRAFTS, {KIND: "NEXTN", STEPS: 3, BRANCHES: 1, DRAFTED: 3 + 1}, "mtp", 3, ""),
        (SGLANG_DRAFTS, {KIND: "NGRAM", DRAFTED: 4}, "ngram", 4, ""),
        (SGLANG_DRAFTS, {KIND: "EAGLE", STEPS: 2}, "mtp", 2, "another"),
        (SGLANG_DRAFTS, {KIND: "NEXTN", MODEL: "m", STEPS: 2}, "mtp", 2, "another"),
        (SGLANG_DRAFTS, {KIND: "EAGLE", MODEL: "m", STEPS: 2}, "none", None, "lost"),
        (SGLANG_DRAFTS, {KIND: "STANDALONE", STEPS: 2}, "none", None, "lost"),
        (SGLANG_DRAFTS, {KIND: "NEXTN", STEPS: 3, BRANCHES: 2, DRAFTED: 8}, "mtp", 3, "lost"),
        (TENSORRT_LLM_DRAFTS, {TYPE: "MTP"}, "mtp", None, ""),
        (TENSORRT_LLM_DRAFTS, {TYPE: "MTP", MODULES: 3}, "mtp", 3, ""),
        (TENSORRT_LLM_DRAFTS, {TYPE: "NGram", LENGTH: 4}, "ngram", 4, ""),
        (TENSORRT_LLM_DRAFTS, {TYPE: "MTP", LENGTH: 2}, "mtp", 2, "another"),
        (TENSORRT_LLM_DRAFTS, {TYPE: "MTP", MODULES: 1, LENGTH: 2}, "mtp", 1, "another"),
        (TENSORRT_LLM_DRAFTS, {TYPE: "Lookahead", LENGTH: 2}, "none", None, "lost"),
    ],
)
def test_drafts_are_read_and_written(row, settings, draft, tokens, form):
    """Settings of another form are read and never written; of lost ones a part is not modeled."""
    reading = Reading(Parsed("x", {name: Setting(name, one) for name, one in settings.items()}))
    fields = row.read(reading)
    assert (fields["draft"], fields["draft_tokens"]) == (draft, tokens)
    assert bool(reading.lost) == (form == "lost")
    if not form:
        assert row.write(Writing("engine", fields)) == settings
