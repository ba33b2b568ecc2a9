"""Sequence and token limits of engines with continuous batching, which mix chunked prefill with decode in a pass."""

from calculon.launch.dialect import Fields, Reading, Writing


def sequences_of_ranks(reading: Reading, setting: str, default: int) -> Fields:
    """Return ``max_batch`` from a setting that holds for each attention rank with its own requests.

    The default is `default`, or fewer if the token budget is smaller.
    """
    d = reading.deployment
    # With speculative decoding a sequence has its drafted tokens in a pass as well as its next one.
    drafted = int(d.get("draft_tokens") or 1) if d.get("draft", "none") != "none" else 0
    fitting = max(1, min(default, d["token_budget"] // (1 + drafted)))
    own = reading.count(setting, default=fitting) or fitting
    return {"max_batch": own * d["attn_data_par"]}


def sequences_of_rank(writing: Writing) -> int:
    """Return the sequences of each attention rank with its own requests; SpecError if they do not divide evenly."""
    most, ranks = writing["max_batch"], writing["attn_data_par"]
    if most % ranks:
        hint = f"--set max_batch={max(1, most // ranks) * ranks}"
        raise writing.refuse("max_batch", f"a multiple of attn_data_par={ranks}", hint)
    return int(most // ranks)


def written_sequences(writing: Writing, setting: str) -> Fields:
    """Return the setting of the largest batch; SpecError for an unlimited batch, which engines lack."""
    if writing["max_batch"] == 0:
        hint = "--set max_batch=N; calculon serve shows how many fit"
        raise writing.refuse("max_batch", "at least 1", hint)
    return {setting: sequences_of_rank(writing)}


def written_budget(writing: Writing, setting: str) -> Fields:
    """Return the setting of the token budget; SpecError for separate prefill passes, which these engines lack."""
    if writing["token_budget"] == 0:
        hint = "--set token_budget=8192"
        raise writing.refuse("token_budget", "passes that mix decode with chunks of prompts", hint)
    return {setting: writing["token_budget"]}
