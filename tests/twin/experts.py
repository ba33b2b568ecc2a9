"""A mixture of experts in place of the MLP: router, copies of rows, products of the experts, shared experts."""

from .communication import Copies, Exchange, TPComm, copied
from .copies_of_tokens import ENTRY
from .copies_of_tokens import NAMES as LIBRARIES
from .layers import Flags, Layer, Side
from .operators import activation, converted, elementwise, linear
from .run import Run
from .system import launched

NAMES = {
    "gelu": "GeLU",
    "relu": "ReLU",
    "squared_relu": "ReLU2",
    "swiglu": "SwiGLU",
    "geglu": "GeGLU",
}


_ROUTED = tuple(
    f"MlpBlock_{name}"
    for name in ("Permute", "Dispatch", "Sort", "Experts", "Unsort", "Combine", "Unpermute")
)  # layers whose sizes follow from the routing


def router(run: Run) -> Layer:
    """Score all experts in 4 bytes for the tokens of this rank."""
    model, tokens = run.model, run.residual // run.model.hidden
    weights = model.hidden * model.num_experts + (model.num_experts if model.router_bias else 0)
    scores = 4 * tokens * model.num_experts
    flops = 2 * tokens * model.hidden * model.num_experts
    moved = run.element_bytes * tokens * model.hidden + scores + 4 * weights
    layer = Layer(
        run,
        "MlpBlock_Router",
        Flags(recompute=run.full_recompute),
        kind="router",
        engine="matrix",
        flops=(flops, flops, flops),
        moved=(moved, moved, moved),
        inputs=tokens * model.hidden,
        outputs=tokens * model.num_experts,
        weights=weights,
        output_space=scores,
        grads=scores,
    )
    layer.product = 1, tokens, model.hidden, model.num_experts
    layer.kernels = 3, 2, 2  # with conversions to 4 bytes
    return layer


def routed(run: Run) -> list[Layer]:
    """Return the experts that the router chooses among, with the collectives around them."""
    model, plain = run.model, Flags(recompute=run.full_recompute)
    function = NAMES[model.activation]
    gathers = run.execution.moe_dispatcher == "allgather"
    split = run.sequence_par
    rows, inner = run.expert_rows, model.inner_width // run.width_par
    width = inner * (2 if model.gated else 1)
    again = Flags(
        recompute=run.full_recompute,
        stores_activation=run.full_recompute or not run.redoes_expert_function,
    )
    sent, size = _sent(run), run.result_bytes
    before: list[Layer] = []
    after: list[Layer] = []
    if not split:  # every tensor-parallel rank has all tokens
        scores = run.tokens * model.num_experts
        before.append(TPComm(run, "MlpBlock_Routing", "gather", sent, count=scores, element=4))
        count = run.tokens * model.row_width
        before.append(TPComm(run, "MlpBlock_F", "gather", sent, count=count, element=size))
        reduced = TPComm(
            run, "MlpBlock_G", "reduce", sent, count=count, element=size, outermost=True
        )
        after.append(reduced)
    if gathers:
        before, after = [*before, *_gathered_tokens(run)], [*_summed_tokens(run), *after]
    elif run.execution.moe_dispatcher in LIBRARIES:
        before, after = [*before, *_dispatched_copies(run)], [*_combined_copies(run), *after]
    else:
        before, after = [*before, *_dispatched_rows(run)], [*_combined_rows(run), *after]
    layers = [
        router(run),
        _choice(run),
        *_into_latents(run),
        *before,
        *_padded(run, "MlpBlock_Experts_Pad", 2),
        *grouped(run, "MlpBlock_Experts1", rows, model.row_width, width, width, plain),
        _function(run, rows * model.inner_width // run.width_par),
        *grouped(run, "MlpBlock_Experts2", rows, inner, model.row_width, model.row_width, again),
        *_biased(run, rows),
        *_padded(run, "MlpBlock_Experts_Unpad", 1),
        *after,
        *_out_of_latents(run),
    ]
    if run.redoes_experts:
        again_as_a_whole(layers)
    for layer in layers:
        layer.routed = layer.name.startswith(_ROUTED) or layer.name == f"MlpBlock_{function}"
    return [_readers(run), *layers]


def _into_latents(run: Run) -> list[Layer]:
    """Narrow what a rank has of the norm's output; the fork keeps it, but in the width that products read."""
    if not run.model.moe_latent:
        return []
    wide, narrow, own = run.model.hidden, run.model.moe_latent, run.residual // run.model.hidden
    counts = wide * narrow, own * wide, own * narrow
    flags = Flags(recompute=run.full_recompute, stores_activation=not run.redoes_norm)
    if run.operand_bytes >= run.result_bytes:
        flags = Flags(recompute=run.full_recompute, stores_activation=False, reuses_activation=True)
    name = "MlpBlock_Latent_Down"
    made = linear(run, name, own, wide, narrow, flags)
    made.whole = True
    return [*converted(run, f"{name}_Cast", counts, run.element_bytes, normed=True), made]


def _out_of_latents(run: Run) -> list[Layer]:
    """Widen the sums of each token."""
    if not run.model.moe_latent:
        return []
    wide, narrow, own = run.model.hidden, run.model.moe_latent, run.residual // run.model.hidden
    counts = wide * narrow, own * narrow, own * wide
    name = "MlpBlock_Latent_Up"
    made = linear(run, name, own, narrow, wide, Flags(recompute=run.full_recompute))
    made.whole = True
    return [*converted(run, f"{name}_Cast", counts, run.result_bytes, apart=True), made]


def again_as_a_whole(layers: list[Layer]) -> None:
    """Let layers be computed and communicate once more, from what the first of them reads."""
    for layer in layers:
        sends = isinstance(layer, (TPComm, Exchange))
        layer.flags = Flags(
            recompute=not sends,
            recomm=sends,
            stores_activation=False,
            reuses_activation=layer.flags.reuses_activation,
        )


def _sent(run: Run) -> Flags:
    return Flags(recomm=run.full_recompute, stores_activation=False)


def _gathered_tokens(run: Run) -> list[Layer]:
    """Gather scores, marks and tokens, over tensor ranks or over all that have the experts once; copy own rows."""
    model, size = run.model, run.result_bytes
    tokens = run.tokens * run.expert_ranks // run.execution.tensor_par
    inside = run.width_team if run.execution.expert_par == 1 else run.alone
    layers: list[Layer] = []
    if run.sequence_par:
        count = tokens * model.num_experts
        marks = TPComm(
            run, "MlpBlock_Routing", "gather", _sent(run), count=count, element=4, team=inside
        )
        marks.gathered = marks.message / 4 * 5  # a byte marks what is chosen
        marks.traffic["fw"] = 2 * marks.gathered
        hidden = TPComm(
            run,
            "MlpBlock_F",
            "gather",
            _sent(run),
            count=tokens * model.row_width,
            element=size,
            team=inside,
        )
        layers = [marks, *copied(run, hidden)]
    scores, elements = tokens * model.num_experts, tokens * model.row_width
    return [
        *layers,
        _over_all(run, "MlpBlock_EP_Routing", (5 * scores, 4 * scores), scores, gathers=True),
        _over_all(run, "MlpBlock_EP_F", (size * elements, size * elements), elements, gathers=True),
        _copies(run, "MlpBlock_Permute", elements, run.expert_rows, widens=True),
    ]


def _summed_tokens(run: Run) -> list[Layer]:
    """Add own rows of every token up, reduce the sums, and leave each rank its tokens."""
    size = run.result_bytes
    elements = run.tokens * run.expert_ranks // run.execution.tensor_par * run.model.row_width
    inside = run.width_team if run.execution.expert_par == 1 else run.alone
    layers = [
        _copies(run, "MlpBlock_Unpermute", elements, run.expert_rows, widens=False),
        _over_all(
            run, "MlpBlock_EP_G", (size * elements, size * elements), elements, gathers=False
        ),
    ]
    if run.sequence_par:
        reduce = TPComm(
            run, "MlpBlock_G", "reduce", _sent(run), count=elements, element=size, team=inside
        )
        layers += copied(run, reduce)
    return layers


def _over_all(
    run: Run, name: str, sizes: tuple[float, float], count: float, *, gathers: bool
) -> Layer:
    """Gather or reduce over all ranks that have the experts once, if each has some."""
    team = run.experts_team if run.execution.expert_par > 1 else run.alone
    both = ("all_gather", "reduce_scatter") if gathers else ("reduce_scatter", "all_gather")
    standing = max(sizes) if gathers and sizes[0] != sizes[1] else sizes[1]
    part = min(standing, sizes[1]) / team.ranks if team.ranks > 1 else 0
    layer = Exchange(run, name, team, both, sizes, count=count, saved=part, grads=part)
    layer.inputs, layer.output_space = layer.outputs, part * team.ranks
    return layer


def _dispatched_rows(run: Run) -> list[Layer]:
    """Copy tokens to rows, exchange them over experts, gather them over parts of experts, and sort them."""
    ex, model = run.execution, run.model
    spread = run.experts_team if ex.expert_par > 1 else run.alone
    numbers = model.num_experts * run.expert_ranks
    counts = Exchange(
        run,
        "MlpBlock_Counts",
        spread,
        ("all_gather", None),
        (8 * numbers, 8 * numbers),
        count=numbers,
        grads=0,
    )
    counts.output_space = 8 * counts.outputs
    counts.kernels = 10, 0, 0  # sums, the exchange, and copies to the host
    return [
        counts,
        _copies(run, "MlpBlock_Permute", run.latents, run.own_rows, widens=True),
        *_exchanged(run, "MlpBlock_Dispatch", dispatches=True),
        *_rows_of_peers(run, "MlpBlock_Rows_F", "gather"),
        _order(run, "MlpBlock_Sort"),
    ]


def _combined_rows(run: Run) -> list[Layer]:
    return [
        _order(run, "MlpBlock_Unsort"),
        *_rows_of_peers(run, "MlpBlock_Rows_G", "reduce"),
        *_exchanged(run, "MlpBlock_Combine", dispatches=False),
        _copies(run, "MlpBlock_Unpermute", run.latents, run.own_rows, widens=False),
    ]


def _dispatched_copies(run: Run) -> list[Layer]:
    """Send a copy to each rank with an expert of a token, which makes rows of it."""
    elements = run.arrived * run.model.row_width
    return [
        *_copied(run, "MlpBlock_Dispatch", dispatches=True),
        _copies(run, "MlpBlock_Permute", elements, run.expert_rows, widens=True),
    ]


def _combined_copies(run: Run) -> list[Layer]:
    elements = run.arrived * run.model.row_width
    return [
        _copies(run, "MlpBlock_Unpermute", elements, run.expert_rows, widens=False),
        *_copied(run, "MlpBlock_Combine", dispatches=False),
    ]


def _copied(run: Run, name: str, *, dispatches: bool) -> list[Layer]:
    """Send copies with 12 bytes for each expert of the token; a combine knows from the dispatch where they go."""
    h, entries = run.model.row_width, ENTRY * run.model.experts_per_token
    there, back = _widths_sent(run, dispatches=dispatches)
    spread = run.execution.expert_par > 1
    arrived = run.arrived if spread else 0
    tokens = run.residual // run.model.hidden
    sent = tokens * run.most_loaded
    return [
        *_converted(run, name, (tokens * spread + arrived) * h, (there, back)),
        Copies(
            run,
            name,
            (sent * (h * there + entries), sent * (h * back + entries)),
            arrived=arrived,
            kernels=(3, 1, 0) if dispatches else (1, 2, 0),
            saved=arrived * entries if dispatches else 0,
        ),
    ]


def _rows_of_peers(run: Run, name: str, side: Side) -> list[Layer]:
    """Return the collective over ranks with other parts of the same experts, each with tokens of its own."""
    if not run.sequence_par:
        return []
    count = run.expert_rows * run.model.row_width
    size, team = run.result_bytes, run.width_team
    return [TPComm(run, name, side, _sent(run), count=count, element=size, team=team)]


def _exchanged(run: Run, name: str, *, dispatches: bool) -> list[Layer]:
    """Send rows with a score of 4 bytes each; the busiest rank receives the most."""
    ex, h, result = run.execution, run.model.row_width, run.result_bytes
    there, back = _widths_sent(run, dispatches=dispatches)
    spread = ex.expert_par > 1
    received = run.received_rows if spread else 0
    layers = _converted(run, name, (run.own_rows * spread + received) * h, (there, back))
    sizes = received * (h * there + 4), received * (h * back + 4)
    team = run.ep_team if spread else run.alone
    exchange = Exchange(
        run,
        name,
        team,
        ("all_to_all", "all_to_all"),
        sizes,
        count=received * h,
        saved=result * received * h if dispatches else 0,
    )
    if dispatches:  # scores apart from rows
        exchange.kernels = 2, 2, 0
    return [*layers, exchange]


def _widths_sent(run: Run, *, dispatches: bool) -> tuple[float, float]:
    """Return bytes of an element that is sent, and of its gradient."""
    widths = {"same": run.result_bytes, "float8": 1 + 4 / 128, "bfloat16": 2}
    out, home = widths[run.execution.dispatch_dtype], widths[run.execution.combine_dtype]
    return (out, home) if dispatches else (home, out)


def _converted(run: Run, name: str, count: float, widths: tuple[float, float]) -> list[Layer]:
    """Convert so many elements to what is sent, and back, if any is narrower than results."""
    result = run.result_bytes
    if min(widths) >= result:
        return []
    moved = [count * (result + one) if one < result else 0 for one in widths]
    cast = Layer(
        run,
        f"{name}_Cast",
        Flags(recompute=run.full_recompute),
        moved=(moved[0], moved[1], 0),
        inputs=count,
    )
    return [cast]


def _joins(run: Run, asked: bool) -> bool:
    """Say whether operators run as one kernel: if any do, and if this is `asked` for."""
    return asked and run.execution.fusion in ("compile", "max")


def _order(run: Run, name: str) -> Layer:
    """Copy rows of several ranks into the order of several experts."""
    ex = run.execution
    ranks = run.expert_ranks if run.sequence_par else ex.expert_par
    some = ranks > 1 and run.model.num_experts > ex.expert_par
    count = run.expert_rows * run.model.row_width if some else 0
    again = Flags(recompute=run.full_recompute)
    layer = elementwise(run, name, again, count, "", (0, 0), (2, 2), grads=0)
    if some:
        kernels = 1 if _joins(run, ex.moe_permute_fusion) else 2
        layer.kernels = kernels, kernels, 0
    return layer


def _padded(run: Run, name: str, kernels: int) -> list[Layer]:
    """Copy the rows of experts to places of a multiple of 16 rows, or back, for products in fewer than 16 bits."""
    ex = run.execution
    if run.recipe is None or ex.moe_pad_to_capacity or ex.moe_dispatcher in LIBRARIES:
        return []
    count, again = run.expert_rows * run.model.row_width, Flags(recompute=run.full_recompute)
    layer = elementwise(run, name, again, count, "", (0, 0), (2, 2), grads=0)
    layer.kernels = kernels, kernels, 0
    return [layer]


def _readers(run: Run) -> Layer:
    """Add up the gradients of those that read the norm's output, which is kept once."""
    shared = run.model.shared_feedforward > 0
    kept = not run.redoes_norm or run.full_recompute
    if shared:  # whose first product has it, or the gather before that
        whole = run.sequence_par and not run.regathers_shared
        kept = (run.redoes_shared or whole) and not run.redoes_norm
    users, size = (3 if shared else 2), run.result_bytes
    return Layer(
        run,
        "MlpBlock_Experts_Fork",
        Flags(recompute=run.full_recompute, stores_activation=kept),
        flops=(0, users * run.residual, 0),
        moved=(0, (users + 1) * size * run.residual, 0),
        inputs=run.residual,
        saved=size * run.residual,
    )


def _choice(run: Run) -> Layer:
    """Probabilities, the best of them, and how many tokens each expert has: three passes."""
    model, tokens = run.model, run.residual // run.model.hidden
    scores = tokens * model.num_experts
    layer = Layer(
        run,
        "MlpBlock_TopK",
        Flags(recompute=run.full_recompute),
        flops=(10 * scores, 10 * scores, 0),
        moved=(3 * 4 * scores, 3 * 4 * scores, 0),
        inputs=scores,
        outputs=scores,
        output_space=4 * scores,
        saved=4 * scores + 12 * tokens * model.experts_per_token,
        grads=4 * scores,
    )
    fused = _joins(run, run.execution.moe_router_fusion)
    # scores, choice and counts, and those of the loss that balances loads
    sigmoid = model.router_bias and not model.expert_bias  # whose bias is of the logits
    alone = (34, 27, 0) if sigmoid else (22, 10, 0)
    layer.kernels = (5, 4, 0) if fused else alone
    return layer


def _copies(run: Run, name: str, tokens: float, count: float, *, widens: bool) -> Layer:
    """Copy elements of tokens to so many rows of experts, or add the rows of each token up."""
    size = run.result_bytes
    rows = count * run.model.row_width
    moved, result = size * (tokens + rows), rows if widens else tokens
    layer = Layer(
        run,
        name,
        Flags(recompute=run.full_recompute),
        flops=(0, rows, 0) if widens else (rows, 0, 0),
        moved=(moved, moved, 0),
        inputs=tokens if widens else rows,
        outputs=result,
        grads=size * result,
    )
    kernels = 3 if _joins(run, run.execution.moe_permute_fusion) else 6
    layer.kernels = kernels, kernels, 0
    return layer


def _function(run: Run, count: float) -> Layer:
    """The function of the MLP, and its product with the scores: one FLOP forward, two backward."""
    name = f"MlpBlock_{NAMES[run.model.activation]}"
    layer = activation(run, name, Flags(recompute=run.redoes_expert_function), count)
    layer.work["fw"] += count
    layer.work["agrad"] += 2 * count
    return layer


def grouped(
    run: Run, name: str, rows: float, n: int, k: int, columns: int, flags: Flags
) -> list[Layer]:
    """Multiply rows by the weights of their experts; each pass reads or writes those of all of them."""
    model, read, wrote = run.model, run.operand_bytes, run.result_bytes
    bias = columns if model.expert_bias else 0
    experts = model.num_experts // run.execution.expert_par
    weights = sum(n * k + bias for _ in range(experts))
    counts = weights, rows * n, rows * k
    flops = 2 * rows * n * k
    operands = read * rows * n + wrote * rows * k
    held = run.weight_bytes * weights
    into_inputs = held + operands
    into_weights = into_inputs
    if read < wrote:  # a gradient in the width of results, another converted
        into_inputs = held + wrote * rows * n + read * rows * k
        into_weights = wrote * weights + read * rows * n + read * rows * k
    layer = Layer(
        run,
        name,
        flags,
        kind="grouped",
        engine="matrix",
        flops=(flops, flops, flops),
        moved=(held + operands, into_inputs, into_weights),
        inputs=rows * n,
        outputs=rows * k,
        weights=weights,
        saved=read * rows * n,
        grads=wrote * rows * k,
    )
    layer.product = experts, rows / experts, n, k
    layers = [*converted(run, f"{name}_Cast", counts, run.result_bytes), layer]
    ex = run.execution
    whole = launched(ex.launch_mode, ex.fusion) == "graph" and not ex.moe_pad_to_capacity
    for each in layers:
        each.loop = 1 if whole else experts
    return layers


def _biased(run: Run, rows: float) -> list[Layer]:
    """Add the bias of each expert, times the score of the row, to its rows: in 4 bytes, one expert after the other."""
    if not run.model.expert_bias:
        return []
    size, count = run.result_bytes, rows * run.model.row_width
    ahead = (
        4,  # product of bias and score
        size + 4 + 4,  # sum
        4 + 4,  # of all experts in one tensor
        4 + size,
    )
    back = (
        size + 4,
        4 + size,  # of the rows
        4 + 4 + 4,  # of the biases: product and sum
        4 + 4 + 4,  # of the scores
    )
    layer = Layer(
        run,
        "MlpBlock_Experts_Bias",
        Flags(recompute=run.full_recompute),
        flops=(2 * count, 4 * count, 0),
        moved=(sum(ahead) * count, sum(back) * count, 0),
        inputs=count,
        outputs=count,
    )
    layer.kernels, layer.rounds = (2, 5, 0), run.model.num_experts // run.execution.expert_par
    return [layer]


def gate(run: Run) -> list[Layer]:
    """Scale what shared experts add by a number per token."""
    size, count, plain = run.result_bytes, run.residual, Flags(recompute=run.full_recompute)
    layers = []
    if run.model.shared_gate:
        weights = run.model.hidden
        moved = size * (3 * count + weights), size * (2 * count + weights)
        layers.append(
            Layer(
                run,
                "Shared_Gate",
                plain,
                flops=(3 * count, 4 * count, 2 * count),
                moved=(moved[0], moved[1], moved[1]),
                inputs=2 * count,
                outputs=count,
                weights=weights,
                saved=size * count,
                grads=size * count,
            )
        )
    return layers


def shared_sum(run: Run) -> Layer:
    """Add what shared experts make."""
    flags = Flags(recompute=run.full_recompute or run.redoes_experts)
    return elementwise(
        run, "Shared_Sum", flags, run.residual, "", (1, 0), (3, 0), inputs=2, grads=0
    )
