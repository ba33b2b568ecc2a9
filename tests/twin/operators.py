"""The operators that layers are made of: FLOP, bytes moved in each pass, and what is kept."""

from .context import busiest, steps
from .layers import Flags, Layer
from .run import Run

NORMS = {
    "layernorm": ((9, 14, 7), 2),
    "layernorm_no_bias": ((9, 14, 5), 1),
    "layernorm_plain": ((7, 12, 0), 0),
    "rmsnorm": ((4, 7, 3), 1),
}
"""FLOP per element of each pass, and vectors of weights."""

ACTIVATIONS = {
    "gelu": (8, 13),
    "relu": (1, 1),
    "squared_relu": (2, 3),
    "swiglu": (6, 11),
    "geglu": (9, 16),
    "silu": (5, 8),
}
"""FLOP per output forward and backward; the gated ones have two inputs."""


def linear(
    run: Run, name: str, m: int, n: int, k: int, flags: Flags, bias: int | None = None
) -> Layer:
    """Multiply an input (m x n) by weights (n x k); `bias` is of so many columns.

    Operands of fewer bytes than results come with the gradients converted to them.
    """
    read, wrote = run.operand_bytes, run.result_bytes
    weights = n * k + (bias or 0)
    flops = 2 * m * n * k
    converted = read < wrote
    held = run.weight_bytes * weights
    forward = read * m * n + held + wrote * m * k
    inputs = held + (wrote * m * n + read * m * k if converted else read * m * n + wrote * m * k)
    into_weights = (wrote * weights if converted else held) + read * m * n
    into_weights += (read if converted else wrote) * m * k
    layer = Layer(
        run,
        name,
        flags,
        kind="product",
        engine="matrix",
        flops=(flops, flops, flops),
        moved=(forward, inputs, into_weights),
        inputs=m * n,
        outputs=m * k,
        weights=weights,
        saved=read * m * n,
        grads=wrote * m * k,
    )
    layer.product = 1, m, n, k
    return layer


def batch_matmul(
    run: Run, name: str, shape: tuple[int, int, int, int], factors: int, flags: Flags
) -> Layer:
    """Multiply activations: r times (m x n) by one of so many different (n x k)."""
    r, m, n, k = shape
    size, flops = run.result_bytes, 2 * r * m * n * k
    operands, outputs = r * m * n + factors * n * k, r * m * k
    unwritten = operands if run.rules.backward_traffic else 0
    layer = Layer(
        run,
        name,
        flags,
        engine="matrix",
        flops=(flops, 2 * flops, 0),
        moved=(size * (operands + outputs), size * (operands + outputs + unwritten), 0),
        inputs=operands,
        outputs=outputs,
        saved=size * operands,
        grads=size * outputs,
    )
    layer.product, layer.kernels = shape, (1, 2, 0)
    return layer


def norm(
    run: Run, name: str, size: float, weights: int, flags: Flags, *, element: int | None = None
) -> Layer:
    """Normalize, with so many weights; an element has the bytes of the residual stream."""
    element = run.element_bytes if element is None else element
    flops, _ = NORMS[run.model.norm]
    backward = element * (weights + 2 * size)
    unwritten = element * size if run.rules.backward_traffic else 0
    return Layer(
        run,
        name,
        flags,
        kind="norm",
        flops=(flops[0] * size, flops[1] * size, flops[2] * size),
        moved=(
            element * (2 * size + weights),
            backward + unwritten,
            backward if weights else 0,
        ),
        inputs=size,
        outputs=size,
        weights=weights,
        output_space=element * size,
        saved=element * size,
        grads=element * size,
    )


def residual_norm(run: Run, prefix: str, flags: Flags) -> Layer:
    """Normalize the residual stream."""
    name = "RMSNorm" if run.model.norm == "rmsnorm" else "LayerNorm"
    weights = NORMS[run.model.norm][1] * run.model.hidden
    return norm(run, f"{prefix}_{name}", run.residual, weights, flags)


def elementwise(
    run: Run,
    name: str,
    flags: Flags,
    count: float,
    kind: str,
    flops: tuple[float, float],
    moved: tuple[float, float],
    *,
    inputs: int = 1,
    saved: float = 0,
    grads: float = 1,
    size: int | None = None,
) -> Layer:
    """Compute `count` results, each from one element of every input.

    FLOP are per result, forward and backward. Traffic, saved values and gradients are counted in tensors as large as
    the result, whose elements have `size` bytes.
    """
    result = (run.result_bytes if size is None else size) * count
    return Layer(
        run,
        name,
        flags,
        kind=kind,
        flops=(flops[0] * count, flops[1] * count, 0),
        moved=(moved[0] * result, moved[1] * result, 0),
        inputs=inputs * count,
        outputs=count,
        output_space=result,
        saved=saved * result,
        grads=grads * result,
    )


def activation(
    run: Run, name: str, flags: Flags, count: float | None = None, *, kind: str = ""
) -> Layer:
    """Apply the function of the MLP: it reads its input and writes its output, even if fused.

    The backward pass reads what was saved and a gradient, and writes one; published are two passes.
    Fused, one input less is kept per output, and no gradient.
    """
    inputs = 2 if run.model.gated and not kind else 1
    kind = kind or run.model.activation
    if count is None:
        count = run.model.inner_width * run.tokens // run.execution.tensor_par
    kept = inputs - run.execution.fused_activation
    grads = 0 if run.execution.fused_activation else 1
    moved = inputs + 1, inputs + 1 + (inputs if run.rules.backward_traffic else 0)
    flops = ACTIVATIONS[kind]
    return elementwise(
        run, name, flags, count, "activation", flops, moved, inputs=inputs, saved=kept, grads=grads
    )


def softmax(run: Run, name: str, count: int, flags: Flags) -> Layer:
    """Turn scores into probabilities, which are saved in place of them."""
    moved = 2, 3 if run.rules.backward_traffic else 2
    return elementwise(run, name, flags, count, "softmax", (5, 8), moved, saved=1)


def dropout(run: Run, name: str, count: int, flags: Flags, *, element: int | None = None) -> Layer:
    """Drop elements; a mask of one byte per element is kept."""
    size = run.result_bytes if element is None else element
    moved = (2 * size + 1) * count
    return Layer(
        run,
        name,
        flags,
        kind="dropout",
        flops=(count, count, 0),
        moved=(moved, moved, 0),
        inputs=count,
        outputs=count,
        output_space=size * count,
        saved=count,
        grads=(size if run.rules.dropout_gradient else 1) * count,  # [O18]
    )


def fork(run: Run, name: str, count: int, users: int, flags: Flags, size: float) -> Layer:
    """Hand a tensor to several users; the backward pass reads their gradients, writes the sum."""
    return Layer(
        run,
        name,
        flags,
        kind="fork",
        flops=(0, users * count, 0),
        moved=(0, size * count * (users + 1), 0),
        inputs=count,
        saved=size * count,
    )


def add(run: Run, name: str, count: int, flags: Flags) -> Layer:
    """Add a branch to the residual stream."""
    size = run.element_bytes
    return elementwise(run, name, flags, count, "sum", (1, 2), (3, 3), inputs=2, saved=2, size=size)


def late_bias(run: Run, name: str, flags: Flags) -> Layer:
    """Add a bias in place to what was summed over the ranks."""
    count = run.residual if run.execution.tensor_par > 1 else 0
    kind = "bias" if run.model.part == "block" else ""
    return elementwise(run, name, flags, count, kind, (1, 0), (2, 0), grads=0)


def rotary(run: Run, name: str, count: float, flags: Flags) -> Layer:
    """Turn pairs of elements by an angle, and back."""
    return elementwise(run, name, flags, count, "rotary", (6, 6), (2, 2))


def sigmoid(run: Run, name: str, count: float, flags: Flags) -> Layer:
    """Multiply by the sigmoid of as many numbers: four FLOP and one, and backward four, one less it, three products."""
    flops = 4 + 1, 4 + 1 + 3
    return elementwise(run, name, flags, count, "gate", flops, (3, 5), inputs=2, saved=2)


def flash(run: Run, name: str, heads: int, key_heads: int, flags: Flags) -> Layer:
    """Attend in one kernel: two products forward, five backward; scores are never in memory.

    Besides queries, keys and values it keeps 4 bytes per query and head; its backward pass reads
    all of that with output and gradient, and adds query gradients up in 4 bytes.
    """
    width, size = run.model.attn_size, 1 if run.execution.fp8_attention else run.result_bytes
    # All tokens where heads are exchanged, else those of a part, beside keys and values of all.
    every = run.execution.microbatch_size * run.model.seq_size
    tokens = run.tokens * run.near_parts
    found = steps(run)
    more = 0 if found is None else found.count - 1  # that read queries again, and write results
    keys, value = run.model.mean_keys(run.document), run.model.value_size
    queries, results = tokens * heads * width, tokens * heads * value
    own = tokens * key_heads * width + tokens * key_heads * value
    others = every * key_heads * width + every * key_heads * value
    statistic = 4 * tokens * heads
    flops = 2 * tokens * keys * heads * width + 2 * tokens * keys * heads * value
    layer = Layer(
        run,
        name,
        flags,
        kind="attention",
        engine="attention",
        flops=(flops, flops / 2 * 5, 0),
        moved=(
            size * (queries + others + results) + statistic + more * size * (queries + results),
            2 * size * (queries + others + results)
            + statistic
            + 2 * 4 * queries
            + more * (2 * size * (queries + results) + 2 * 4 * queries),
            0,
        ),
        inputs=queries + others,
        outputs=results,
        saved=size * (queries + own) + statistic,
        grads=run.result_bytes * results,
    )
    layer.mean_keys, layer.kernels = keys, (1, 2, 0)
    layer.slowest = run.execution.pack_imbalance_percent / 100 * busiest(run)
    layer.queries = tokens * heads
    layer.steps, layer.rounds = found, 1 + more
    return layer


def cast(
    run: Run, name: str, counts: tuple[float, float, float], source: int, *, alone: bool
) -> Layer:
    """Convert weights, input and gradient of the output of a product to fewer bytes, and back.

    `counts` are elements of weights, input and output. Converted weights are kept for the backward
    pass. The input comes in `source` bytes; converting it, and gradients, takes passes of their own
    only where they stand `alone`: else the kernels that make them write both.
    """
    weights, inputs, outputs = counts
    stored, read, wrote = run.element_bytes, run.operand_bytes, run.result_bytes
    forward: list[float] = [(stored + read) * weights]
    backward: list[float] = []
    if alone and source != read:
        forward.append((source + read) * inputs)
    if alone and source != wrote:
        backward.append((source + wrote) * inputs)
    if alone and read < wrote:
        backward.append((wrote + read) * outputs)
    return _conversions(run, name, counts, forward, backward)


def cast_to_recipe(
    run: Run,
    name: str,
    counts: tuple[float, float, float],
    source: int,
    *,
    normed: bool,
    apart: bool,
    side: str | None,
) -> Layer:
    """Convert the same to 8 or 4 bits, in kernels of their own, in two layouts where gradients need both.

    Input or gradient of the output are gathered on their `side` if the sequence is split. A norm has
    written the input already if it is `normed`. With a factor of its own a tensor is read before.
    """
    weights, inputs, outputs = counts
    stored, wrote, t = run.element_bytes, run.result_bytes, run.execution.tensor_par
    recipe = run.recipe
    assert recipe is not None
    size = recipe.size
    forward: list[float] = []
    backward: list[float] = []
    if recipe.each_microbatch:
        forward.append((stored + recipe.weight_copies * recipe.weight) * weights)
        if recipe.looks:
            forward.append(stored * weights)
    turns = recipe.copies == 2 and not recipe.both
    passes = ((forward, inputs, source, "gather"), (backward, outputs, wrote, "reduce"))
    for moves, count, width, border in passes:
        written_by_norm = normed and border == "gather"
        gathered = side == border and run.sequence_par
        own = count / t if gathered else count
        if turns and (written_by_norm or gathered):
            backward.append(size * count + size * count)  # transposed, whole
        if written_by_norm:
            continue
        layouts = recipe.copies
        if turns and gathered:
            layouts = 1
        if recipe.looks:
            moves.append(width * own)
        if recipe.rotates:
            moves += [(width + size) * own, (width + size) * own]
        else:
            moves.append((width + layouts * size) * own)
    if apart and source != wrote:
        backward.append((source + wrote) * inputs)
    return _conversions(run, name, counts, forward, backward)


def _conversions(
    run: Run,
    name: str,
    counts: tuple[float, float, float],
    forward: list[float],
    backward: list[float],
) -> Layer:
    """Kernels that convert; gradients of weights go back to the stored type."""
    weights, inputs, _ = counts
    back = int(run.result_bytes < run.element_bytes)
    layer = Layer(
        run,
        name,
        Flags(recompute=run.redoes_operators, stores_activation=not run.by_operator),
        moved=(
            sum(forward),
            sum(backward),
            (run.result_bytes + run.element_bytes) * weights * back,
        ),
        inputs=inputs,
        saved=run.operand_bytes * weights,
    )
    if run.recipe is not None:
        layer.activation_space = run.recipe.weight_copies * run.recipe.weight * weights
    layer.kernels = len(forward), len(backward), back
    return layer


def converted(
    run: Run,
    name: str,
    counts: tuple[float, float, float],
    source: int,
    *,
    apart: bool = False,
    normed: bool = False,
    side: str | None = None,
) -> list[Layer]:
    """Convert what a product reads, where it reads less than is stored.

    The kernel that makes its input may do that if chains are fused, unless it stands `apart`.
    """
    if not run.narrow:
        return []
    fuses = run.execution.fusion in ("compile", "max")
    apart = apart or not fuses
    if run.recipe is not None:
        normed = normed and run.execution.fusion in run.recipe.joined
        return [cast_to_recipe(run, name, counts, source, normed=normed, apart=apart, side=side)]
    return [cast(run, name, counts, source, alone=apart)]
