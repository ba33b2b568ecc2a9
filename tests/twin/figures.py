"""Figures that people quote, which only the corrected edition has."""

from dataclasses import replace

from .batch import Batch
from .copies_of_tokens import NAMES
from .counted_states import counted_flops, linear_parameters
from .fields import Execution, Model
from .memory_error import fits
from .multiplied import latent_matrices, products
from .run import Run


def parameters(model: Model) -> int:
    """Count the parameters, of a model of the published fields as published."""
    h, f = model.hidden, model.feedforward
    width = model.attn_heads * model.attn_size
    if model.plain:  # biases everywhere, two norms, 51200 words and learned positions
        block = 2 * h * f + f + h + 4 * h * width + 3 * width + h + 2 * 2 * h
        return model.num_blocks * block + (51200 + model.seq_size) * h
    blocks = sum(block_parameters(kind) for kind in model.kinds())
    norm = norm_parameters(model)
    if not model.vocab:
        return blocks
    embedding = (model.vocab + model.positions) * h + norm * model.embedding_norm
    head = norm + (0 if model.tied else model.vocab * h) + model.vocab * model.head_bias
    return blocks + embedding + head


def norm_parameters(model: Model) -> int:
    """Count the gains and biases of a norm of the stream."""
    return {"layernorm": 2, "layernorm_plain": 0}.get(model.norm, 1) * model.hidden


def block_parameters(model: Model) -> int:
    """Count the parameters of one of equal blocks."""
    h, f = model.hidden, model.feedforward
    width, keys = model.attn_heads * model.attn_size, model.key_heads * model.attn_size
    norm = norm_parameters(model)
    inner = width + 2 * keys
    gains = {"none": 0, "head": 2 * model.attn_size, "full": width + keys}[model.qk_norm]
    attention = h * inner + inner * model.qkv_bias + width * h + h * model.out_bias + gains
    if model.kv_lora_rank:
        attention = latent_matrices(model) + model.q_lora_rank + model.kv_lora_rank
        attention += h * model.out_bias
    columns = f * (2 if model.gated else 1)
    mlp = h * columns + f * h + (columns + h) * model.mlp_bias
    if model.mixes:
        mlp = mixture_parameters(model)
    attention += model.attn_heads * model.attention_sinks
    attention += (h + model.qkv_bias) * width * model.attention_gate
    if model.linear:
        attention = linear_parameters(model)
    if model.layer_pattern:
        return norm + (mlp if model.layer_pattern[0] in "-E" else attention)
    return {
        "block": attention + mlp + model.norms * norm,
        "attention": attention,
        "mlp": mlp,
        "linear": h * h + h * model.mlp_bias,
    }[model.part]


def mixture_parameters(model: Model) -> int:
    """Count router, experts and shared experts."""
    h, columns = model.hidden, 2 if model.gated else 1
    router = h * model.num_experts + (model.num_experts if model.router_bias else 0)
    shared = (columns + 1) * h * model.shared_feedforward + (h if model.shared_gate else 0)
    each = (columns + 1) * model.row_width * model.inner_width
    if model.expert_bias:
        each += columns * model.inner_width + model.row_width
    shared += 2 * h * model.moe_latent
    return router + model.num_experts * each + shared


def padding(model: Model, ex: Execution) -> int:
    """Count the parameters of words that fill up the vocabulary: to a multiple on every rank."""
    rows = ex.vocab_pad_multiple
    while rows * ex.tensor_par < model.vocab:
        rows += ex.vocab_pad_multiple
    words = rows * ex.tensor_par - model.vocab if model.vocab else 0
    tables = 1 if model.tied else 2
    return words * (tables * model.hidden + model.head_bias)


def flops_per_token(model: Model, keys: float, *, training: bool) -> float:
    """Count the products of a token with weights, and with so many keys and values."""
    kinds = model.kinds()
    further = model.mtp_layers if training else 0
    worked = [*kinds, *model.module_kinds() * further]
    made = sum(products(kind, keys) for kind in worked)
    states = sum(counted_flops(kind) for kind in worked if kind.linear)
    heads = (1 + further) * model.hidden * model.vocab + further * 2 * model.hidden**2
    forward = 2 * (made + heads) + states
    return 3 * forward if training else forward


def _of_experts(run: Run) -> dict[str, float]:
    """Return rows of experts, those that are dropped, and bytes on both sides of the dispatch."""
    ex, h = run.execution, run.model.row_width
    if not (run.model.mixes and run.model.num_experts > 1):
        return {"expert_rows": 0, "dropped_fraction": 0, "dispatch_space": 0}
    sides = (run.own_rows + run.expert_rows) * h
    if ex.moe_dispatcher == "allgather":
        sides = run.latents + run.tokens * run.expert_ranks / ex.tensor_par * h
    elif ex.moe_dispatcher in NAMES:
        sides = (run.arrived + run.expert_rows) * h
    ranks = run.expert_ranks if run.sequence_par else ex.expert_par
    return {
        "expert_rows": run.expert_rows,
        "dropped_fraction": run.dropped,
        "dispatch_space": run.result_bytes * sides if ranks > 1 else 0,
    }


def figures(batch: Batch) -> dict[str, float]:
    """Return the figures of a batch, in order."""
    run, ex, model, block = batch.run, batch.execution, batch.run.model, batch.block
    if ex.attention_type == "multiquery":
        model = replace(model, kv_heads=1)
    rate = ex.batch_size * model.seq_size / batch.total_time
    each = rate / ex.num_procs
    whole = flops_per_token(model, run.document, training=ex.training)
    seen = flops_per_token(model, model.mean_keys(run.document), training=ex.training)
    executed: float = model.num_blocks * block.matrix_flops
    of_embedding_head, modules = (0.0, 0.0), 0.0
    ends = batch.embedding_head
    if ends is not None:
        executed += ends.embedding.matrix_flops + ends.head.matrix_flops
        of_embedding_head, modules = ends.whole, ends.module_time
        of_embedding_head = of_embedding_head[0], of_embedding_head[1] - modules
        if ends.module is not None:
            executed += run.modules * ends.module.matrix_flops
            modules += run.modules * batch.of_kind["module"].block.whole_time
    executed *= run.microbatches / run.ranks
    return {
        "parameters": parameters(model),
        "padded_parameters": parameters(model) + padding(model, ex),
        "tokens_per_second": rate,
        "tokens_per_second_per_proc": each,
        "model_flops_per_token": whole,
        "model_flops_per_second_per_proc": whole * each,
        "mfu": whole * each / batch.peak,
        "mfu_causal": seen * each / batch.peak,
        "hfu": executed / batch.total_time / batch.peak,
        "block_act_bytes_per_token": batch.block_activation / run.tokens,
        "embedding_time": run.microbatches * of_embedding_head[0],
        "head_time": run.microbatches * of_embedding_head[1],
        "mtp_time": run.microbatches * modules,
        "host_time": run.host,
        "host_wait_time": run.microbatches * model.num_blocks * block.host_wait / run.ranks,
        "copy_time": batch.copy_time,
        "gathered_space": batch.memory.gathered,
        "comm_buffer_space": batch.memory.passing,
        "fragment_space": batch.memory.fragments,
        "reserved_space": batch.memory.reserved,
        "expert_weight_space": batch.memory.expert_weight,
        "expert_optimizer_space": batch.memory.expert_optimizer,
        "cp_comm_link_time": batch.cp_time,
        "ep_comm_link_time": batch.ep_time,
        "cp_comm_exposed_time": batch.cp_exposed_time,
        "ep_comm_exposed_time": batch.ep_exposed_time,
        "ep_scale_up_bytes": batch.ep_bytes[0],
        "ep_nic_bytes": batch.ep_bytes[1],
        **_of_experts(run),
        "fits": fits(ex.preset, ex.zero_stage, run.model.mixes, run.system.usable1 / batch.tier1),
    }
