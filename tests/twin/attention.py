"""The attention of a block: projections, scores and weighted values."""

from .communication import TPComm, copied
from .context import after_core, before_core
from .layers import Flags, Layer
from .operators import (
    batch_matmul,
    converted,
    dropout,
    flash,
    fork,
    linear,
    norm,
    rotary,
    sigmoid,
    softmax,
)
from .run import Run


def key_heads(run: Run, ranks: int = 0) -> int:
    """Key heads on one of so many ranks, by default of TP: its share, or one that it has together with others."""
    heads = 1 if run.execution.attention_type == "multiquery" else run.model.key_heads
    return -(-heads // (ranks or run.execution.tensor_par))


def projected_widths(run: Run) -> tuple[int, int]:
    """Return the width of the queries and of the keys (or values) on one rank."""
    model, t = run.model, run.execution.tensor_par
    queries = (1 + model.attention_gate) * model.attn_heads * model.attn_size // t
    if run.rules.one_key_value_head:
        return queries, key_heads(run) * model.attn_size
    # [O22] In multiquery every TP rank has the one key and value head.
    one = run.execution.attention_type == "multiquery"
    return queries, model.attn_size if one else queries


def latent_projections(run: Run) -> list[Layer]:
    """Return what makes queries, keys and values of the stream by way of latents.

    Each TP rank makes the latents of its tokens from whole weights. It gathers those of all tokens
    and makes its heads from them. What a latent is cut from stays as long as the latent does.
    """
    model, t = run.model, run.execution.tensor_par
    kept = Flags(recompute=run.full_recompute, stores_activation=not run.drops_inputs)
    layers = [fork(run, "AttnBlock_Latent_Fork", run.residual, 2, kept, run.operand_bytes)]
    queries = model.attn_heads * model.attn_size // t
    both = model.attn_heads * (model.qk_nope_head_dim + model.v_head_dim) // t
    if model.q_lora_rank:
        layers += _by_latent(run, "AttnBlock_Query", model.q_lora_rank, 0, queries)
    else:
        layers += _all_queries(run, queries)
    turned = model.qk_rope_head_dim
    return layers + _by_latent(run, "AttnBlock_KV", model.kv_lora_rank, turned, both)


def _up(run: Run) -> Flags:
    """Treatment of a product whose input is gathered."""
    stored = not run.regathers_attention and not run.drops_inputs
    return Flags(recompute=run.redoes_heads, stores_activation=stored)


def _all_queries(run: Run, width: int) -> list[Layer]:
    h, tokens = run.model.hidden, run.tokens
    counts = h * width, tokens * h, tokens * width
    name, stream = "AttnBlock_Query", run.element_bytes
    layers = converted(run, f"{name}_Cast", counts, stream, normed=True, side="gather")
    again = Flags(recomm=run.regathers_attention, stores_activation=False)
    gather = TPComm(run, "AttnBlock_F", "gather", again, outermost=True)
    flags = _up(run)
    if not run.sequence_par:  # the stream is whole, and kept
        flags = Flags(recompute=run.redoes_heads, stores_activation=False, reuses_activation=True)
    product = linear(run, name, tokens, h, width, flags)
    return [*layers, *copied(run, gather), product]


def _by_latent(run: Run, name: str, rank: int, beside: int, width: int) -> list[Layer]:
    """Go down to a latent and to some elements beside it, and up to so many columns."""
    own, tokens, h = run.residual // run.model.hidden, run.tokens, run.model.hidden
    down = rank + beside
    shared = Flags(recompute=run.full_recompute, stores_activation=False, reuses_activation=True)
    counts = h * down, own * h, own * down
    layers = converted(run, f"{name}_Down_Cast", counts, run.element_bytes, normed=True)
    layers.append(linear(run, f"{name}_Down", own, h, down, shared))
    flags = Flags(recompute=run.redoes_norm)
    size = run.result_bytes
    layers.append(norm(run, f"{name}_Norm", own * rank, rank, flags, element=size))
    layers[-1].activation_space = size * own * down
    layers[-2].whole = layers[-1].whole = True
    counts = rank * width, tokens * rank, tokens * width
    layers += converted(run, f"{name}_Up_Cast", counts, size, normed=True, side="gather")
    redo = run.regathers_attention
    stored = redo or not run.rules.gathered_input_once
    flags = Flags(recomm=redo, stores_activation=stored and not run.drops_inputs)
    gather = TPComm(run, f"{name}_F", "gather", flags, count=tokens * down)
    gather.activation_space = gather.activation_space * rank / down
    return [*layers, *copied(run, gather), linear(run, f"{name}_Up", tokens, rank, width, _up(run))]


def _latent_heads(run: Run) -> list[Layer]:
    """Turn queries and the key part of all heads; write keys of both parts."""
    model, size = run.model, run.result_bytes
    heads = model.attn_heads // run.execution.tensor_par
    again = Flags(recompute=run.redoes_heads)
    nope, rope = heads * model.qk_nope_head_dim, model.qk_rope_head_dim
    turned = run.tokens * heads * rope + run.tokens * rope
    read, written = run.tokens * (nope + rope), run.tokens * (nope + heads * rope)
    joined = Layer(
        run,
        "AttnBlock_Key_Join",
        again,
        flops=(0, run.tokens * heads * rope, 0),
        moved=(size * (read + written), size * (read + written), 0),
        inputs=read,
        outputs=written,
        grads=size * written,
    )
    return [rotary(run, "AttnBlock_Rotary", turned, again), joined]


def attention_core(run: Run) -> list[Layer]:
    """Return what is between the projections."""
    model = run.model
    again = Flags(recompute=run.redoes_operators)
    width = model.attn_heads * model.attn_size // run.execution.tensor_par
    _, keys = projected_widths(run)
    turned = run.tokens * (width + keys)
    layers = _latent_heads(run) if model.kv_lora_rank else []
    if model.qk_norm != "none":
        gains = 2 if model.qk_norm == "head" else model.attn_heads + model.key_heads
        size = run.result_bytes
        weights = gains * model.attn_size
        layers.append(norm(run, "AttnBlock_QK_Norm", turned, weights, again, element=size))
    if model.rotary:
        layers.append(rotary(run, "AttnBlock_Rotary", turned * model.rotary, again))
    if run.execution.attn_impl == "flash":
        heads, own = model.attn_heads // run.head_ranks, key_heads(run, run.head_ranks)
        core = Flags(recompute=run.recomputes_attention)
        kernel = flash(run, "AttnBlock_Flash", heads, own, core)
        _sinks(run, kernel)
        if run.by_operator:
            size = 1 if run.execution.fp8_attention else run.result_bytes
            kernel.remade = size * run.tokens * key_heads(run) * model.attn_size
        if run.drops_heads:
            kernel.remade = kernel.activation_space - 4 * kernel.queries
        exchanged = run.execution.context_par > 1 and run.execution.cp_comm in ("a2a", "a2a_p2p")
        if run.execution.fp8_attention and run.execution.fp8_recipe == "delayed":
            kernel.activation_space += kernel.outputs  # written in 8 bits, and kept so
        elif run.operand_bytes < run.result_bytes and not (exchanged or model.attention_gate):
            kernel.activation_space += kernel.output_space  # the product keeps a narrower one
        narrowed = [_in_8_bits(run, kernel, core)] if run.execution.fp8_attention else []
        layers += [*before_core(run, key_heads(run), own), *narrowed, kernel, *after_core(run, own)]
    else:
        own = key_heads(run, run.head_ranks)
        layers += [*before_core(run, key_heads(run), own), *_eager(run), *after_core(run, own)]
    if model.attention_gate:
        layers.append(sigmoid(run, "AttnBlock_Gate", run.tokens * width, again))
    return layers


def _in_8_bits(run: Run, kernel: Layer, flags: Flags) -> Layer:
    """Convert what a kernel reads in each pass; what it writes in 8 bits is converted back."""
    assert run.recipe is not None
    model, wide = run.model, run.result_bytes
    tokens = kernel.queries / (model.attn_heads // run.head_ranks)
    own = tokens * key_heads(run, run.head_ranks)
    read = kernel.queries * model.attn_size + own * (model.attn_size + model.value_size)
    looks = wide if run.recipe.looks else 0
    back = 3 if run.execution.fp8_recipe == "delayed" else 0
    kernels = 1 + bool(looks) + bool(back)
    layer = Layer(
        run,
        "AttnBlock_Flash_Cast",
        flags,
        moved=(
            (looks + wide + 1) * read + back * kernel.outputs,
            (looks + wide + 1) * kernel.outputs + back * read,
            0,
        ),
        inputs=read,
    )
    layer.kernels = (kernels, kernels, 0)
    return layer


def _sinks(run: Run, layer: Layer) -> None:
    """Give each head of this rank a learned term of the sum in its softmax."""
    if run.model.attention_sinks:
        layer.weights = run.model.attn_heads // run.execution.tensor_par
        layer.weight_space = run.element_bytes * layer.weights


def _eager(run: Run) -> list[Layer]:
    """Scores, probabilities and weighted values, each in memory."""
    model, ex, again = run.model, run.execution, run.recomputes_attention
    value = model.value_size
    s, d, heads = model.seq_size, model.attn_size, model.attn_heads // run.head_ranks
    products = ex.microbatch_size * heads
    scores = heads * s**2 * ex.microbatch_size
    # [O22] Published is a key and a value per query head, in multiquery too.
    one = run.rules.one_key_value_head
    factors = ex.microbatch_size * key_heads(run, run.head_ranks) if one else products
    unstored = Flags(recompute=again, stores_output=not again)
    mask = Flags(recompute=again, stores_activation=not again)
    weighted = Flags(recompute=again if run.rules.values_recomputed else run.full_recompute)
    if model.dropout:
        first = probabilities = unstored
        dropped = [dropout(run, "AttnBlock_Multihead_DropOut", scores, mask)]
    else:  # probabilities are the saved input of the next product
        first = Flags(recompute=again)
        probabilities = Flags(
            recompute=again,
            stores_output=not again,
            stores_activation=False,
            reuses_activation=True,
        )
        dropped = []
    normalized = softmax(run, "AttnBlock_Multihead_SoftMax", scores, probabilities)
    _sinks(run, normalized)
    name = "AttnBlock_Multihead"
    key_query = batch_matmul(run, f"{name}_Key_Query", (products, s, d, s), factors, first)
    sums = batch_matmul(run, f"{name}_Attn", (products, s, s, value), factors, weighted)
    if run.drops_heads:
        key_query.remade = run.result_bytes * (products * s * d + factors * d * s)
        sums.remade = run.result_bytes * factors * s * value
    return [key_query, normalized, *dropped, sums]
