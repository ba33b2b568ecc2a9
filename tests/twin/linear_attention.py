"""Attention without scores: a product, a short convolution, a state that passes from chunk to chunk, a gated norm."""

from .context import Parts
from .counted_states import inner
from .fields import Model
from .layers import Flags, Layer
from .operators import activation
from .run import Run

TOKENS_OF_CHUNK = 64


def prefix(model: Model) -> str:
    return {"gated_delta": "Delta", "mamba2": "Mamba", "lightning": "Lightning"}[
        model.linear_attention
    ] + "Block"


def own_groups(run: Run) -> int:
    """Groups of a rank: its share, or one that others have, too."""
    return -(-run.model.ssm_groups // run.execution.tensor_par)


def groups_of_token(run: Run) -> int:
    """Groups of a token that some rank computes with, where each has all tokens of some heads."""
    c = run.execution.context_par
    return c * -(-run.model.ssm_groups // (run.execution.tensor_par * c))


def convolved(run: Run, groups: int) -> int:
    """Columns of a rank that pass the convolution, if it has so many groups."""
    model, t = run.model, run.execution.tensor_par
    own = inner(model) // t
    if model.linear_attention == "gated_delta":
        return 2 * (model.linear_key_heads * model.linear_key_dim // t) + own
    if model.linear_attention == "mamba2":
        return own + 2 * groups * model.ssm_state
    return 3 * own


def columns(run: Run, groups: int | None = None) -> int:
    """Columns of the first product on a rank, or what is sent of them with other groups."""
    groups = own_groups(run) if groups is None else groups
    model, t = run.model, run.execution.tensor_par
    scalars = {
        "gated_delta": 2 * (model.linear_value_heads // t),  # decay and step
        "mamba2": model.ssm_heads // t,  # step
        "lightning": 0,
    }[model.linear_attention]
    return convolved(run, groups) + inner(model) // t + scalars


def exchanged(run: Run, name: str, width: int, again: bool) -> list[Layer]:
    """Exchange parts of sequences for heads, or heads for parts."""
    if run.execution.context_par == 1:
        return []
    layer = Parts(run, name, ("all_to_all", "all_to_all"), run.tokens * width)
    layer.flags = Flags(recomm=again, stores_activation=False)
    return [layer]


def state_layers(run: Run) -> list[Layer]:
    """Return what is between both products."""
    model = run.model
    again = Flags(recompute=run.full_recompute)
    name = prefix(model)
    if model.linear_attention == "lightning":
        count = run.tokens * convolved(run, 0)
        first = activation(run, f"{name}_SiLU", again, count, kind="silu")
    else:
        first = _convolution(run, f"{name}_Conv", again)
    middle = {"gated_delta": _delta, "mamba2": _mamba, "lightning": _lightning}
    state = middle[model.linear_attention](run, f"{name}_State", again)
    norm = _norm(run, f"{name}_Norm")
    sent, width = columns(run, groups_of_token(run)), inner(model) // run.execution.tensor_par
    return [
        *exchanged(run, f"{name}_Heads_In", sent, run.full_recompute),
        first,
        state,
        norm,
        *exchanged(run, f"{name}_Heads_Out", width, norm.flags.recompute),
    ]


def _convolution(run: Run, name: str, flags: Flags) -> Layer:
    """Convolve every column over some tokens, then SiLU; that of Mamba-2 has biases, and is not kept."""
    model, size = run.model, run.result_bytes
    count = run.tokens * convolved(run, groups_of_token(run))
    mamba = model.linear_attention == "mamba2"
    taps = model.ssm_conv if mamba else model.linear_conv
    channels = convolved(run, own_groups(run))
    weights = channels * taps + (channels if mamba else 0)
    forward = size * count + size * weights + size * count
    backward = size * (count + count + count) + 2 * size * weights
    layer = Layer(
        run,
        name,
        flags,
        flops=((2 * taps + 5) * count, (2 * taps + 8) * count, 2 * taps * count),
        moved=(forward, backward + (forward if mamba else 0), 0),
        inputs=count,
        outputs=count,
        weights=weights,
        saved=size * count,
        grads=size * count,
    )
    layer.kernels = (1, 2, 0) if mamba else (1, 1, 0)
    return layer


def _state(
    run: Run,
    name: str,
    flags: Flags,
    *,
    flops: float,
    read: float,
    written: float,
    handed: float,
    saved: float,
    weights: int,
) -> Layer:
    """Write and read a state, all by token; the backward pass does so again, with two gradients of each product."""
    size, n = run.result_bytes, run.tokens
    forward = size * read + size * written + 2 * handed  # handed on: written, then read
    backward = size * (read + written) + size * read + 2 * handed + 2 * handed
    return Layer(
        run,
        name,
        flags,
        engine="linear",
        flops=(n * flops, n * flops * 5 / 2, 0),
        moved=(n * forward, n * backward, 0),
        inputs=n * read,
        outputs=n * written,
        weights=weights,
        saved=n * saved,
        grads=size * n * written,
    )


def _delta(run: Run, name: str, flags: Flags) -> Layer:
    model, t, size = run.model, run.execution.tensor_par, run.result_bytes
    k, v = model.linear_key_dim, model.linear_value_dim
    heads, key_heads = model.linear_value_heads // t, model.linear_key_heads // t
    chunk = min(TOKENS_OF_CHUNK, model.seq_size)
    read = key_heads * k + key_heads * k + heads * v + heads + heads
    state, inverse = k * v / chunk, chunk
    return _state(
        run,
        name,
        flags,
        flops=heads * 8 * k * v + heads * chunk * 5 * k + heads * chunk * 3 * v,
        read=read,
        written=heads * v,
        handed=size * heads * (state + k + v + v + inverse),
        saved=size * (read + heads * inverse),
        weights=heads + heads,
    )


def _mamba(run: Run, name: str, flags: Flags) -> Layer:
    model, t, size = run.model, run.execution.tensor_par, run.result_bytes
    heads, n, groups = model.ssm_heads // t, model.ssm_state, groups_of_token(run)
    width = inner(model) // t
    chunk = min(model.ssm_chunk, model.seq_size)
    inside = 2 * chunk * groups * n + 2 * chunk * width
    return _state(
        run,
        name,
        flags,
        flops=2 * width * n + 2 * width * n + inside,
        read=width + groups * n + groups * n + heads,
        written=width,
        handed=4 * width * n / chunk + 4 * groups * chunk,
        saved=size * heads + 4 * heads,
        weights=3 * heads,
    )


def _lightning(run: Run, name: str, flags: Flags) -> Layer:
    model, size = run.model, run.result_bytes
    heads, d = model.attn_heads // run.execution.tensor_par, model.attn_size
    chunk = min(TOKENS_OF_CHUNK, model.seq_size)
    return _state(
        run,
        name,
        flags,
        flops=2 * heads * d * d + 2 * heads * d * d + heads * chunk * d + heads * chunk * d,
        read=3 * heads * d,
        written=heads * d,
        handed=0,
        saved=3 * size * heads * d,
        weights=0,
    )


def _norm(run: Run, name: str) -> Layer:
    """Normalize, times the SiLU of a gate."""
    model, size = run.model, run.result_bytes
    width = inner(model) // run.execution.tensor_par
    count, gains = run.tokens * width, width
    again = run.full_recompute
    if model.linear_attention == "gated_delta":
        gains, again = model.linear_value_dim, run.redoes_delta_norm
    return Layer(
        run,
        name,
        Flags(recompute=again),
        flops=(10 * count, 18 * count, 3 * count),
        moved=(3 * size * count + size * gains, 5 * size * count + 2 * size * gains, 0),
        inputs=2 * count,
        outputs=count,
        weights=gains,
        saved=2 * size * count,
        grads=size * count,
    )
