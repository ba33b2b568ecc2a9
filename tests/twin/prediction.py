"""Modules that predict one more token each, behind the head of the model."""

from copy import copy
from dataclasses import replace

from .block import Block
from .communication import TPComm, copied, hide_input_gradients
from .fusion import fused
from .layers import Flags, Layer
from .operators import converted, fork, linear, residual_norm
from .run import Run
from .transformer import block_layers


def module_layers(run: Run) -> list[Layer]:
    """Join hidden states and embeddings of the tokens that come next, then pass a block."""
    joined = fused(_join(run), run)
    if run.execution.tp_async:
        hide_input_gradients(joined)
    blocks = [block_layers(run.of_kind(kind)) for kind in run.model.module_kinds()]
    return [*joined, *[layer for layers in blocks for layer in layers]]


def _join(run: Run) -> list[Layer]:
    """Normalize both, put them side by side, and multiply by a matrix that is split by columns."""
    h, tokens, size = run.model.hidden, run.tokens, run.element_bytes
    plain = Flags(recompute=run.full_recompute)
    norm = Flags(recompute=run.redoes_norm)
    view = replace(norm, stores_activation=False, reuses_activation=True)
    side_by_side = 2 * run.residual
    bytes_of_copy = size * side_by_side + size * side_by_side  # read, written
    redo = run.regathers_mlp
    width = h // run.execution.tensor_par
    counts = 2 * h * width, tokens * 2 * h, tokens * width
    share = Flags(recomm=redo, stores_activation=redo and not run.drops_inputs)
    kept = replace(plain, stores_activation=not redo and not run.drops_inputs)
    # Ranks that have their own tokens each take them of the gathered columns, and gather gradients.
    again = Flags(recomm=run.full_recompute, stores_activation=False)
    return [
        fork(run, "Mtp_Fork", run.residual, 2, plain, size),
        residual_norm(run, "Mtp_Hidden", view),
        residual_norm(run, "Mtp_Embedding", norm),
        Layer(
            run,
            "Mtp_Concat",
            norm,
            moved=(bytes_of_copy, bytes_of_copy, 0),
            inputs=side_by_side,
        ),
        *converted(run, "Mtp_Product_Cast", counts, size, side="gather"),
        *copied(run, TPComm(run, "Mtp_F", "gather", share, count=2 * run.activation)),
        linear(run, "Mtp_Product", tokens, 2 * h, width, kept),
        TPComm(run, "Mtp_Gather", "spread", again),
    ]


def as_block(own: Block, embedding: Block, count: int) -> Block:
    """Return one of so many modules as a block that looks up and has its share of a copy of the table, but no head."""
    found, share = copy(own), 1 / count
    found.passes_of([(1, own), (share, embedding)])
    optim = found.optim
    found.passes_of([(1, own), (1, embedding)])
    found.optim = optim
    names = ("weight", "weight_kept", "weight_sent", "converted", "copies", "beside")
    for name in (*names, "weight_grad", "optimizer", "weight_grad_unsharded"):
        setattr(found, name, getattr(own, name) + share * getattr(embedding, name))
    found.held = copy(own.held)
    for name in ("whole", "resident", "weight_grad", "optimizer", "step_time"):
        more = share * getattr(embedding.held, name)
        setattr(found.held, name, getattr(own.held, name) + more)
    found.act_working += embedding.act_storage
    found.act_storage += embedding.act_storage
    found.checkpoint *= 2
    return found


def add_losses(head: Block, count: int) -> None:
    """Let the head be used by so many modules of another stage, all of whose logits are kept."""
    head.act_working *= 1 + count
    head.passes_of([(1 + count, copy(head))])


def add_modules(head: Block, embedding: Block, own: Block, count: int) -> None:
    """Let the head be followed by so many modules, each of which looks up, works and uses the head.

    All logits are kept until the losses are known.
    """
    again = own.run.full_recompute
    kept = 2 * own.checkpoint if again else own.act_storage
    looked_up = count * embedding.act_storage
    losses = (1 + count) * head.act_working + looked_up + count * kept
    others = count if again else count - 1
    block = own.act_working + looked_up + others * kept
    moments = (losses, head.act_grad), (block, own.act_grad)
    head.act_working, head.act_grad = moments[losses + head.act_grad <= block + own.act_grad]
    head.act_storage = looked_up + count * kept
    head.weight_copies = count * own.weight_copies
    head.converted = count * own.converted
    head.passes_of([(1, head), *[(count, part) for part in (embedding, head, own)]])
