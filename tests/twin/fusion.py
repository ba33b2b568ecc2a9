"""Which operators share a kernel, and what products are made of.

A policy changes what an operator moves per element, and how many kernels it launches: `r` bytes of
the residual stream, `c` bytes of what is computed, 4 of what softmax and loss compute in.
"""

from dataclasses import replace

from .layers import PASSES, Flags, Layer
from .run import Run

Moved = tuple[float, float, int, int]
"""Bytes per element forward and backward, kernels forward and backward."""


def fused(layers: list[Layer], run: Run) -> list[Layer]:
    """Return the layers as an execution runs them."""
    policy, scope = run.execution.fusion, run.execution.compile_scope
    joins = policy in ("compile", "max")
    found = []
    reads = joins and scope != "step"  # the first norm of a program finds nothing read before it
    for layer in layers:
        moved = _alone(layer, run) if policy == "none" else None
        compiled = joins or (layer.kind == "loss" and scope == "blocks_and_loss")
        if compiled:
            moved = _joined(layer, run, into_products=policy == "max")
        if reads and layer.kind == "norm" and moved is not None:
            reads = False
            if layer.flags.reuses_activation:
                moved = moved[0] + run.element_bytes, moved[1], 1, moved[3]
        if layer.kind == "rotary" and run.execution.rotary_impl == "complex":
            moved = _complex(run)
        if layer.kind == "rotary" and run.execution.rotary_impl == "unfused":
            moved = _piece_by_piece(run)
        if layer.kind == "loss" and run.execution.ce_impl != "eager":
            moved = None  # it has one form
        if moved is not None:
            _rewrite(layer, moved)
            if layer.kind == "loss" and compiled:  # logits and their gradient, as they are
                held = run.result_bytes * layer.inputs
                layer.activation_space = layer.activation_grad_space = held
            rooted = layer.kind == "norm" and run.model.norm == "rmsnorm"
            if rooted and policy == "none" and run.element_bytes < 4:
                _in_float(layer, run)
        if layer.kind == "activation" and run.execution.fused_activation:
            _again(layer, run)
        found += _as_product(layer, run)
        columns = _bias_columns(layer)
        if policy == "none" and columns:
            found.append(_bias_gradient(layer, run, columns))
    return found


def _complex(run: Run) -> Moved:
    """Two reals of 4 bytes are read and written as one number; what is narrower is widened before, narrowed after."""
    width = run.result_bytes
    wider = width < 4
    moved = 4 + 4 + ((width + 4) + (4 + width) if wider else 0)
    return moved, moved, 1 + 2 * wider, 1 + 2 * wider


def _piece_by_piece(run: Run) -> Moved:
    """Each operator on its own, for queries and for keys, with those that make factors of a few angles."""
    width = run.result_bytes
    ahead = 2 + 1 + 2 + 2 + 3  # times cosine, negated half, joined, times sine, sum
    back = 2 + 1 + 4 + 3 + 2 + 3
    return width * ahead, width * back, 11 + 11, 7 + 7


def _rewrite(layer: Layer, moved: Moved) -> None:
    """Let a layer move so many bytes per element of its result; weights move once in each pass."""
    elements = layer.inputs if layer.kind in ("loss", "fork") else layer.outputs
    forward, backward, first, second = moved
    layer.traffic = {
        "fw": forward * elements + layer.weight_space,
        "agrad": backward * elements + layer.weight_space,
        "wgrad": 0,
    }
    layer.kernels = first, second, 0


def _in_float(layer: Layer, run: Run) -> None:
    """Keep the input of square and root in 4 bytes beside what the product with the gain keeps."""
    if layer.flags.reuses_activation:
        layer.activation_space = 0
        layer.flags = replace(
            layer.flags, reuses_activation=False, stores_activation=not run.redoes_norm
        )
    layer.activation_space += 4 * layer.inputs


def _again(layer: Layer, run: Run) -> None:
    """Compute once more in the backward pass what was not kept [A60]."""
    if run.rules.activations_again:
        layer.traffic["agrad"] += run.result_bytes * (layer.inputs + layer.outputs)
        first, second, _ = layer.kernels or (1, 1, 0)
        layer.kernels = first, second + 1, 0


def _norm_alone(layer: Layer, run: Run) -> Moved:
    """A kernel that reads twice, and one more for gains; or RMSNorm operator by operator in 4 bytes."""
    width = layer.output_space / layer.outputs
    if run.model.norm != "rmsnorm":
        return 3 * width, (7 if layer.weights else 5) * width, 1, 2 if layer.weights else 1
    casts, copied = (2 * (width + 4), 2) if run.element_bytes < 4 else (0, 0)
    square, mean, root, gain = 2 * 4, 4, 2 * 4, 2 * width
    of_gain, of_root, of_mean, of_square = 6 * width, 6 * 4, 4, 7 * 4
    backward = casts + of_gain + of_root + of_mean + of_square + 3 * 4
    return casts + square + mean + root + gain, backward, 6 + copied, 12 + copied


def _alone(layer: Layer, run: Run) -> Moved | None:
    """One kernel for each operator, as PyTorch runs them: reads and writes of each are listed."""
    r, c = run.element_bytes, run.result_bytes
    cast = c + 4 if c < 4 else 0  # scores and logits of fewer bytes are converted
    scaled = masked = c + c
    softmax = scaled + masked + 2 * cast
    kernels = 5 if cast else 3
    function: Moved = (2 * c, 3 * c, 1, 1)
    if layer.inputs > layer.outputs:  # a gate
        function = c + c + 3 * c, 3 * c + 3 * c + 3 * c, 2, 3
    of_loss = 3 if cast else 2
    if layer.kind == "norm":
        return _norm_alone(layer, run)
    # times cosine; negated half, joined, times sine; sum: and back, with two halves put into zeros
    turned = (
        2 * c + c + 2 * c + 2 * c + 3 * c,
        2 * c + c + 2 * (c + c) + 3 * c + 2 * c + 3 * c,
        5,
        9,
    )
    return {
        "softmax": (softmax + 4 + 4, softmax + 4 + 4 + 4, kernels, kernels),
        "activation": function,
        "gate": (c + c + 3 * c, 3 * c + 3 * c + 3 * c, 2, 3),
        "rotary": turned,
        "sum": (r + c + r, r + c if c < r else 0, 1, int(c < r)),
        "loss": (cast + 4 + 4 + 4 + 4, 4 + 4 + 4 + 4 + 4 + cast, of_loss, of_loss),
    }.get(layer.kind)


def _joined(layer: Layer, run: Run, *, into_products: bool) -> Moved | None:
    """Chains in one kernel: what comes in is read, what goes out is written."""
    r, o, c = run.element_bytes, run.operand_bytes, run.result_bytes
    if run.recipe is not None and run.execution.fusion not in run.recipe.joined:
        o = c  # the norm is read again: for its largest value, or by the kernel that converts it
    elif run.recipe is not None and run.recipe.both:
        o += o  # two layouts, each with scales of its own
    gated = layer.inputs > layer.outputs
    function: Moved = (3 * c, 5 * c, 1, 1) if gated else (2 * c, 3 * c, 1, 1)
    turned: Moved = 2 * c, 2 * c, 1, 1
    if into_products:
        function = (c, 4 * c, 0, 0) if gated else (0, c, 0, 0)
        turned = 0, 0, 0, 0
    width = layer.output_space / layer.outputs if layer.outputs else 0
    # The norm after a sum finds its input there, and forks it.
    after_sum = layer.flags.reuses_activation
    norm: Moved = (o, c + 3 * r, 0, 1) if after_sum else (2 * width, 3 * width, 1, 1)
    if layer.weights:  # a sum over tokens of what is read again
        more = c + r if after_sum else 2 * width
        norm = norm[0], norm[1] + more, norm[2], norm[3] + 1
    return {
        "fork": (0, 0, 0, 0),
        "bias": (0, 0, 0, 0),
        "norm": norm,
        "softmax": (4 * c, 3 * c, 1, 1),
        "dropout": (1, 1 + r + c, 0, 1) if layer.branch else (1, 1, 0, 0),
        "activation": function,
        "gate": (3 * c, 5 * c, 1, 1),
        "rotary": turned,
        "sum": (r + c + r, c if c < r else 0, 1, 0),
        "loss": (2 * c, 2 * c, 1, 1),
    }.get(layer.kind)


def _bias_columns(layer: Layer) -> int:
    """Columns with a bias of a product with weights."""
    if layer.kind != "product" or layer.product is None:
        return 0
    return layer.weights - layer.product[2] * layer.product[3]


def _bias_gradient(layer: Layer, run: Run, columns: int) -> Layer:
    """Sum the gradient of the output over the tokens, for the bias."""
    assert layer.product is not None
    count = layer.product[1] * columns
    return Layer(
        run,
        f"{layer.name}_Bias",
        Flags(recompute=layer.flags.recompute),
        flops=(0, 0, count),
        moved=(0, 0, run.result_bytes * count),
        inputs=count,
    )


def _as_product(layer: Layer, run: Run) -> list[Layer]:
    """Multiply and sum on the vector engine, in one kernel or with all products in memory between."""
    form = run.execution.matmul_impl
    if form == "gemm" or layer.kind != "product":
        return [layer]
    layer.engine = "vector"
    if form == "mul_sum_fused":
        return [layer]
    assert layer.product is not None
    _, m, n, k = layer.product
    size = run.result_bytes
    between = size * m * n * k
    sums = (layer.output_space, layer.activation_space, layer.weight_space)
    halves = (m * n * k,) * 3
    for stage, result in zip(PASSES, sums, strict=True):
        layer.traffic[stage] += between - result
        layer.work[stage] = m * n * k
    second = Layer(
        run,
        f"{layer.name}_Sum",
        Flags(recompute=layer.flags.recompute, stores_activation=False),
        kind="product",
        flops=halves,
        moved=(between + sums[0], between + sums[1], between + sums[2]),
        inputs=m * n * k,
        outputs=layer.outputs,
        output_space=layer.output_space,
        saved=between,
    )
    return [layer, second]
