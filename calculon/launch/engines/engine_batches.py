"""Sequences and tokens of a pass, of engines that mix prompts with decoding and always have a limit of both."""

from calculon.launch.dialect import Fields, Reading, Writing


def sequences_of_ranks(one: Reading, setting: str, default: int) -> Fields:
    """Return ``max_batch`` of a setting that each attention rank with requests of its own has.

    Without it, `default` or as many as a pass has room for.
    """
    d = one.deployment
    drafted = int(d.get("draft_tokens") or 1) if d.get("draft", "none") != "none" else 0
    fitting = max(1, min(default, d["token_budget"] // (1 + drafted)))
    own = one.count(setting, default=fitting) or fitting
    return {"max_batch": own * d["attn_data_par"]}


def sequences_of_rank(one: Writing) -> int:
    """Return the sequences of each attention rank with requests of its own; SpecError where they are not whole."""
    most, ranks = one["max_batch"], one["attn_data_par"]
    if most % ranks:
        hint = f"--set max_batch={max(1, most // ranks) * ranks}"
        raise one.refuse("max_batch", f"a multiple of attn_data_par={ranks}", hint)
    return int(most // ranks)


def written_sequences(one: Writing, setting: str) -> Fields:
    """Return the setting of the most sequences; SpecError for as many as fit, which is none."""
    if one["max_batch"] == 0:
        hint = "--set max_batch=N; calculon serve says how many fit"
        raise one.refuse("max_batch", "1 at least", hint)
    return {setting: sequences_of_rank(one)}


def written_budget(one: Writing, setting: str) -> Fields:
    """Return the setting of the most tokens; SpecError for prompts in passes of their own."""
    if one["token_budget"] == 0:
        hint = "--set token_budget=8192"
        raise one.refuse("token_budget", "passes of decoding and parts of prompts", hint)
    return {setting: one["token_budget"]}
