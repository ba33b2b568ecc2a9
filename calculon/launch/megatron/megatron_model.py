"""Megatron-LM: the flags of the model (grouped-query and latent attention, MoE, hybrids) and of the whole run.

Source: NVIDIA/Megatron-LM of 2026-08, ``arguments.py``, ``transformer_config``: names and defaults.
"""

import re
from dataclasses import replace
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.declarations.fields import shown, spec_fields
from calculon.declarations.model import Model
from calculon.launch.dialect import Fields, Parsed, Reading, Row, Setting, Writing
from calculon.launch.rows import row
from calculon.launch.texts.shell_flags import PROGRAM

VOCABULARIES = {"GPT2BPETokenizer": 50_257, "Llama2Tokenizer": 32_000}
"""Vocabulary sizes of tokenizers with a fixed vocabulary."""

NO_VOCABULARY = "the tokenizer determines the vocabulary: state vocab in the model, or --vocab-size"
"""Note on a model whose vocabulary the flags do not determine."""

_NEEDED = ("--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length")
_SHARES = ("--hybrid-attention-ratio", "--hybrid-mlp-ratio")
_OTHER_SHAPES = {
    "--heterogeneous-layers-config-path": "heterogeneous blocks",
    "--heterogeneous-layers-config-encoded-json": "heterogeneous blocks",
    "--experimental-attention-variant": "an experimental attention variant",
    "--decoder-seq-length": "an encoder and a decoder",
    "--decoder-num-layers": "an encoder and a decoder",
}
"""Flags of models that model files cannot express, and a description of each."""


def _shape(reading: Reading) -> Fields:
    """Read the model; empty if the flags describe none, with a note if the reason is not obvious."""
    blocks, hidden, heads = (reading.count(name) for name in _NEEDED[:3])
    sequence = reading.count("--seq-length", "--encoder-seq-length")
    every: Fields = {}
    for part in (_widths, _kinds, _experts, _latents, _linear, _vocabulary):
        every |= part(reading, hidden or 1, heads or 1, blocks or 1)
    strange = next(
        (what for name, what in _OTHER_SHAPES.items() if reading.get(name) is not None), ""
    )
    if any(reading.get(name) for name in _SHARES) and "layer_pattern" not in every:
        strange = "a hybrid model whose block order follows from ratios"
    program = str(reading.get(PROGRAM, default=""))
    if not strange and re.search("t5|vision|multimodal|vlm|retro|ict", program):
        strange = f"the model of {program}"
    if strange:
        reading.notes.append(f"no model file is written: {strange}")
    if strange or not (blocks and hidden and heads and sequence) or "moe_layer_freq" not in every:
        return {}
    causal = {"causal": False} if "bert" in program else {}
    every |= {"num_blocks": blocks, "hidden": hidden, "attn_heads": heads, "seq_size": sequence}
    if not every["vocab"]:
        reading.notes.append(NO_VOCABULARY)
    return _stated(every | causal)


def _stated(every: Fields) -> Fields:
    """Return the fields that differ from their default, in the order of model files."""
    plain = Model(hidden=1, feedforward=1, seq_size=1, attn_heads=1, attn_size=1, num_blocks=1)
    needed = ("hidden", "feedforward", "seq_size", "attn_heads", "attn_size", "num_blocks")
    names = [field.name for field in spec_fields(Model)]
    return {
        name: every[name]
        for name in names
        if name in every and (name in needed or every[name] != getattr(plain, name))
    }


def _widths(reading: Reading, hidden: int, heads: int, _blocks: int) -> Fields:
    gated = reading.switch("--swiglu")
    # Megatron-LM's default gives a gated MLP about as many parameters as a plain one, in multiples of 64.
    usual = 64 * int(4 * hidden * 2 / 3 / 64) if gated else 4 * hidden
    grouped = reading.switch("--group-query-attention")
    groups = reading.count("--num-query-groups", default=1) if grouped else heads
    reading.used.add("--num-query-groups")
    return {
        "feedforward": reading.count("--ffn-hidden-size", default=usual),
        "attn_size": reading.count("--kv-channels", default=max(1, hidden // heads)),
        "kv_heads": 0 if groups == heads else groups,
    }


def _kinds(reading: Reading, _hidden: int, _heads: int, _blocks: int) -> Fields:
    activations = {name: reading.switch(flag) for name, flag in _ACTIVATIONS.items()}
    activations["geglu"] = reading.switch("--glu-activation") or activations["geglu"]
    biased = not reading.switch("--disable-bias-linear")
    rms = str(reading.get("--normalization", default="LayerNorm")) == "RMSNorm"
    kept = [reading.get(name, default=0.1) for name in ("--attention-dropout", "--hidden-dropout")]
    window = reading.get("--window-size")
    left = re.match(
        r"\(?(\d+)", " ".join(map(str, window)) if isinstance(window, list) else str(window)
    )
    return {
        "activation": next((name for name, on in activations.items() if on), "gelu"),
        "norm": "rmsnorm" if rms else "layernorm",
        "qk_norm": "head" if reading.switch("--qk-layernorm") else "none",
        "qkv_bias": reading.switch("--add-qkv-bias") or biased,
        "out_bias": biased,
        "mlp_bias": biased,
        "dropout": any(kept),
        "sliding_window": int(left[1]) + 1 if left else 0,
        "full_attention_every": reading.count("--window-attn-skip-freq", default=0) if left else 0,
        "attention_sinks": reading.get("--softmax-type", default="vanilla") == "learnable",
        "attention_gate": reading.switch("--attention-output-gate"),
        **_positions(reading),
    }


def _positions(reading: Reading) -> Fields:
    kind = reading.get("--position-embedding-type", default="learned_absolute")
    turned = reading.switch("--use-rotary-position-embeddings") or kind in ("rope", "yarn", "mrope")
    share = reading.get("--rotary-percent", default=1.0)
    rows = reading.count("--max-position-embeddings", default=0)
    table = (
        kind == "learned_absolute" and not turned and not reading.switch("--no-position-embedding")
    )
    share = float(share) if isinstance(share, (int, float)) else 1.0
    return {
        "rotary": share if turned else 0.0,
        "positions": rows if table else 0,
        "embedding_norm": reading.switch("--embed-layernorm"),
    }


_MOE = {
    "experts_per_token": ("--moe-router-topk", 2),
    "expert_feedforward": ("--moe-ffn-hidden-size", 0),
    "shared_feedforward": ("--moe-shared-expert-intermediate-size", 0),
    "router_groups": ("--moe-router-num-groups", 0),
    "router_group_topk": ("--moe-router-group-topk", 0),
    "moe_latent": ("--moe-latent-size", 0),
}
_MOE_SWITCHES = {
    "shared_gate": "--moe-shared-expert-gate",
    "router_bias": "--moe-router-enable-expert-bias",
}
"""Numbers of a mixture-of-experts model with their flags and defaults, and its switches."""


def _experts(reading: Reading, _hidden: int, _heads: int, blocks: int) -> Fields:
    experts = reading.count("--num-experts", default=0)
    found: Fields = {
        name: reading.count(flag, default=usual) for name, (flag, usual) in _MOE.items()
    }
    found |= {name: reading.switch(flag) for name, flag in _MOE_SWITCHES.items()}
    reading.switch("--moe-grouped-gemm")
    pattern = expert_pattern(reading.get("--moe-layer-freq", default=1), blocks)
    if not experts:
        return {"moe_layer_freq": 1}
    if pattern is None:
        reading.notes.append("no model file is written: the order of MoE blocks is not regular")
        return {}
    first, every = pattern
    mixed = first > 0 or every > 1
    linear = not reading.switch("--disable-bias-linear")
    return found | {
        "num_experts": experts,
        "expert_bias": linear,
        "mlp_bias": linear and mixed,
        "first_k_dense": first,
        "moe_layer_freq": every,
    }


_MAX_BLOCKS = 10_000


def expert_pattern(value: Any, blocks: int) -> tuple[int, int] | None:
    """Return the leading dense blocks, and the period of MoE blocks after them; None for other patterns.

    >>> expert_pattern("([0]*3+[1]*58)", 61), expert_pattern(2, 32)
    ((3, 1), (0, 2))
    """
    if isinstance(value, int):
        return 0, max(1, value)
    text = re.sub(r"[\s'\",]", "", value if isinstance(value, str) else "".join(map(str, value)))
    text = re.sub(r"\[([01]+)\]", r"(\1)", text)
    # Nested lists and repetitions are expanded from the inside out, as Python would evaluate the text.
    while found := re.search(r"\(([01]*)\)(?:\*(\d+))?", text.replace("+", "")):
        count = int(found[2] or 1)
        # The text is untrusted: a repetition count may be huge.
        if count * len(found[1]) > _MAX_BLOCKS:
            return None
        text = text.replace("+", "")
        text = text[: found.start()] + found[1] * count + text[found.end() :]
    if not re.fullmatch("[01]+", text) or "1" not in text[:blocks] or len(text) < blocks:
        return None
    text = text[:blocks]
    # Try the shortest period first: it is the simplest description of the pattern.
    for every in range(1, blocks + 1):
        for first in {text.index("1"), max(0, text.index("1") - every + 1)}:
            if all(
                (c == "1") == (i >= first and (i - first + 1) % every == 0)
                for i, c in enumerate(text)
            ):
                return first, every
    return None


_LATENTS = {
    "kv_lora_rank": ("--kv-lora-rank", 32),
    "qk_nope_head_dim": ("--qk-head-dim", 128),
    "qk_rope_head_dim": ("--qk-pos-emb-head-dim", 64),
    "v_head_dim": ("--v-head-dim", 128),
}


def _latents(reading: Reading, _hidden: int, _heads: int, _blocks: int) -> Fields:
    latent = reading.switch("--multi-latent-attention")
    found: Fields = {"q_lora_rank": reading.count("--q-lora-rank", default=0)}
    found |= {name: reading.count(flag, default=usual) for name, (flag, usual) in _LATENTS.items()}
    if not latent:
        return {}
    width = found["qk_nope_head_dim"] + found["qk_rope_head_dim"]
    other = {"kv_heads": 0, "qk_norm": "none", "rotary": 0.0, "qkv_bias": False, "positions": 0}
    return found | other | {"attn_size": width}


_STATES = {
    "ssm_head_dim": ("--mamba-head-dim", 64),
    "ssm_state": ("--mamba-state-dim", 128),
    "ssm_groups": ("--mamba-num-groups", 8),
}


def _linear(reading: Reading, hidden: int, _heads: int, _blocks: int) -> Fields:
    """Read a hybrid model: the pattern has one letter per block, with M for Mamba-2."""
    pattern = str(reading.get("--hybrid-override-pattern", "--hybrid-layer-pattern", default=""))
    found = {name: reading.count(flag, default=usual) for name, (flag, usual) in _STATES.items()}
    heads = reading.count("--mamba-num-heads", default=2 * hidden // (found["ssm_head_dim"] or 1))
    reading.switch("--is-hybrid-model")
    pattern = pattern.partition("/")[0].replace("|", "")
    if not pattern:
        return {}
    kinds: Fields = {"layer_pattern": pattern, "norms": 2}
    if "M" in pattern:
        kinds |= {"linear_attention": "mamba2", "ssm_heads": heads, **found}
    return kinds | {"positions": 0}


def _vocabulary(reading: Reading, _hidden: int, _heads: int, _blocks: int) -> Fields:
    kind, merges = reading.get("--tokenizer-type"), "--merge-file" in reading.parsed.settings
    stated = reading.count("--vocab-size", "--padded-vocab-size", "--pad-vocab-size-to")
    tied = not reading.switch("--untie-embeddings-and-output-weights")
    modules = reading.count("--mtp-num-layers", default=0)
    if kind is None and merges:
        kind = "GPT2BPETokenizer"
    words = stated or VOCABULARIES.get(str(kind), 0)
    return {"vocab": words, "tied": tied and words > 0, "mtp_layers": modules if words else 0}


def _write_shape(writing: Writing) -> Fields:
    """Write the model, and refuse fields that do not survive being read back."""
    model = writing.model
    assert model is not None
    result: Fields = {}
    for part in (_write_widths, _write_kinds, _write_experts, _write_latents, _write_vocabulary):
        result |= part(model)
    result["--seq-length"] = length = writing["seq_length"] or model.seq_size
    if not model.positions:  # without a position table the flag only limits sequence lengths
        result["--max-position-embeddings"] = max(length, model.seq_size)
    if not model.causal:
        result[PROGRAM] = "pretrain_bert.py"
    stated = {name: Setting(name, value) for name, value in result.items()}
    # Reading back is the only complete check: flags interact, and the model has fields that no flag expresses.
    again = Model(**_shape(Reading(Parsed("model", stated))))
    same = replace(
        model,
        seq_size=again.seq_size,
        kv_heads=0 if model.kv_heads == model.attn_heads else model.kv_heads,
    )
    wrong = [
        Problem(
            name, f"{shown(actual)}, the nearest that {writing.dialect} can express", shown(value)
        )
        for name in (field.name for field in spec_fields(Model))
        if (actual := getattr(again, name)) != (value := getattr(same, name))
    ]
    if wrong:
        raise SpecError(model.name, wrong)
    return result


def _write_widths(model: Model) -> Fields:
    result: Fields = {
        "--num-layers": model.num_blocks,
        "--hidden-size": model.hidden,
        "--ffn-hidden-size": model.feedforward,
        "--num-attention-heads": model.attn_heads,
    }
    if model.kv_heads not in (0, model.attn_heads):
        result |= {"--group-query-attention": True, "--num-query-groups": model.kv_heads}
    if not model.latent:
        result["--kv-channels"] = model.attn_size
    return result


_ACTIVATIONS = {"swiglu": "--swiglu", "squared_relu": "--squared-relu", "geglu": "--quick-geglu"}


def _write_kinds(model: Model) -> Fields:
    biased = model.out_bias or model.mlp_bias or model.expert_bias
    turned = {"--position-embedding-type": "rope"}
    if model.rotary not in (0.0, 1.0):
        turned |= {"--rotary-percent": model.rotary}  # type: ignore[dict-item]
    found: Fields = {"--normalization": "RMSNorm"} if model.norm == "rmsnorm" else {}
    if model.activation in _ACTIVATIONS:
        found[_ACTIVATIONS[model.activation]] = True
    if not model.dropout:
        found |= {"--attention-dropout": 0.0, "--hidden-dropout": 0.0}
    if model.positions:
        found["--max-position-embeddings"] = model.positions
    else:
        found |= turned if model.rotary or model.latent else {"--position-embedding-type": "none"}
    if model.sliding_window:
        found["--window-size"] = f"{model.sliding_window - 1},0"
        if model.full_attention_every:
            found["--window-attn-skip-freq"] = model.full_attention_every
    flags = {
        "--disable-bias-linear": not biased,
        "--add-qkv-bias": model.qkv_bias and not biased,
        "--qk-layernorm": model.qk_norm != "none" or model.latent,
        "--attention-output-gate": model.attention_gate,
    }
    sinks = {"--softmax-type": "learnable"} if model.attention_sinks else {}
    return found | {name: True for name, on in flags.items() if on} | sinks


def _write_experts(model: Model) -> Fields:
    if not model.num_experts:
        return {}
    result: Fields = {"--num-experts": model.num_experts}
    flags = {name: flag for name, (flag, _) in _MOE.items()} | _MOE_SWITCHES
    result |= {flag: value for name, flag in flags.items() if (value := getattr(model, name))}
    if model.experts_per_token == 1 and not model.router_bias:
        result["--moe-router-pre-softmax"] = True
    if model.router_bias:
        result["--moe-router-score-function"] = "sigmoid"  # no other score function supports a bias
    if (model.first_k_dense or model.moe_layer_freq > 1) and not model.in_parts:
        bits = "".join("01"[model.expert_block(number)] for number in range(model.num_blocks))
        runs = (result[0] for result in re.finditer(r"0+|1+", bits))
        result["--moe-layer-freq"] = f"({'+'.join(f'[{run[0]}]*{len(run)}' for run in runs)})"
    return result


def _write_latents(model: Model) -> Fields:
    result: Fields = {}
    if model.latent:
        result["--multi-latent-attention"] = True
        result |= {"--q-lora-rank": model.q_lora_rank} if model.q_lora_rank else {}
        result |= {flag: getattr(model, name) for name, (flag, _) in _LATENTS.items()}
    if model.layer_pattern:
        result |= {"--is-hybrid-model": True, "--hybrid-override-pattern": model.layer_pattern}
    if model.linear_attention == "mamba2":
        result["--mamba-num-heads"] = model.ssm_heads
        result |= {flag: getattr(model, name) for name, (flag, _) in _STATES.items()}
    return result


def _write_vocabulary(model: Model) -> Fields:
    result: Fields = {}
    if not model.vocab:
        return result
    result["--vocab-size"] = model.vocab
    if not model.tied:
        result["--untie-embeddings-and-output-weights"] = True
    return result | ({"--mtp-num-layers": model.mtp_layers} if model.mtp_layers else {})


_READ_BY_SHAPE = f"""
    {" ".join(_NEEDED)} --ffn-hidden-size --kv-channels --group-query-attention --num-query-groups
    --swiglu --squared-relu --quick-geglu --normalization --disable-bias-linear --add-qkv-bias --qk-layernorm
    --attention-dropout --hidden-dropout --position-embedding-type --use-rotary-position-embeddings --rotary-percent
    --max-position-embeddings --window-size --window-attn-skip-freq --softmax-type
    --num-experts {" ".join(flag for flag, _ in _MOE.values())} {" ".join(_MOE_SWITCHES.values())} --moe-layer-freq
    --multi-latent-attention --q-lora-rank {" ".join(flag for flag, _ in _LATENTS.values())}
    --hybrid-override-pattern --is-hybrid-model --mamba-num-heads {" ".join(flag for flag, _ in _STATES.values())}
    --vocab-size --untie-embeddings-and-output-weights --mtp-num-layers --tokenizer-type --padded-vocab-size
    --pad-vocab-size-to --attention-output-gate --glu-activation --embed-layernorm --no-position-embedding
    --encoder-seq-length --hybrid-layer-pattern {" ".join(_SHARES)} {PROGRAM}
"""

MODEL = Row(
    tuple(field.name for field in spec_fields(Model)),
    tuple(_READ_BY_SHAPE.split()),
    _shape,
    _write_shape,
    subject="model",
)


_RAMP = re.compile(r"[\d_]+")
_STEP = re.compile(r"(?P<start>\d+(?:\.\d+)?)(?P<unit>[KMBT]?):(?P<batch>\d+)")
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


def _linear_ramp(reading: Reading) -> list[int] | None:
    """Return start, increment and samples of a batch size ramp."""
    found = reading.setting("--rampup-batch-size")
    if found is None or found.value is None:
        return None
    words = found.value if isinstance(found.value, list) else str(found.value).split()
    texts = [str(word) for word in words]
    if len(texts) != 3 or not all(map(_RAMP.fullmatch, texts)):
        raise reading.error(found, "three whole numbers: initial batch, increment, samples")
    return [int(text) for text in texts]


def batch_schedule(reading: Reading) -> list[tuple[int, int]]:
    """Return tokens and the batch from there on: ``--step-batch-size-schedule "0:768 250B:1536"``.

    K, M, B and T are powers of 1000; thresholds count tokens if the sequence length is stated, as here. Source:
    Megatron-LM, pull request 4411, 2026.
    """
    found = reading.setting("--step-batch-size-schedule")
    if found is None or found.value is None:
        return []
    words = found.value if isinstance(found.value, list) else str(found.value).split()
    steps = [_STEP.fullmatch(str(word)) for word in words]
    known = [step for step in steps if step is not None]
    if len(known) < len(steps):
        raise reading.error(found, 'tokens and batches such as "0:768 250B:1536"')
    return [(round(float(s["start"]) * _UNITS[s["unit"]]), int(s["batch"])) for s in known]


def _run(reading: Reading) -> Fields:
    """Read the tokens of a run, the steps between checkpoints, and the batch size ramp."""
    result: Fields = {}
    sequence = reading.execution.get("seq_length") or 0
    samples, steps = reading.count("--train-samples"), reading.count("--train-iters")
    tokens, ramp = reading.count("--train-tokens"), _linear_ramp(reading)
    if samples and sequence:
        tokens = samples * sequence
    elif steps and sequence and not ramp:
        tokens = steps * reading.execution["batch_size"] * sequence
    if tokens:
        result["tokens"] = tokens
    if ramp is not None:
        result["batch_ramp"] = ramp
    if schedule := batch_schedule(reading):
        result["batch_schedule"] = schedule
    if interval := reading.count("--save-interval"):
        result["save_interval"] = interval
    if reading.switch("--async-save"):
        result["async_save"] = True
    return result


def _write_run(writing: Writing) -> Fields:
    found: Fields = {}
    sequence = writing["seq_length"] or (writing.model.seq_size if writing.model else 0)
    if sequence and (tokens := writing.campaign.get("tokens")):
        found["--train-samples"] = -(-int(tokens) // sequence)
    if ramp := writing.campaign.get("batch_ramp"):
        found["--rampup-batch-size"] = ramp
    if schedule := writing.campaign.get("batch_schedule"):
        found["--step-batch-size-schedule"] = " ".join(f"{start}:{n}" for start, n in schedule)
    if interval := writing.campaign.get("save_interval"):
        found["--save-interval"] = interval
    return found | ({"--async-save": True} if writing.campaign.get("async_save") else {})


CAMPAIGN = row(
    "tokens save_interval batch_ramp batch_schedule async_save",
    "--train-samples --train-iters --train-tokens --rampup-batch-size --step-batch-size-schedule "
    "--save-interval --async-save",
    _run,
    _write_run,
    subject="campaign",
)
