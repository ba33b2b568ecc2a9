"""Figures that papers quote: tokens per second, utilization (MFU, HFU), and the times of embedding and LM head."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from calculon.architecture.parameters import model_flops_per_token, padding_count, parameter_count
from calculon.base.units import Array, Count, Flops, Seconds
from calculon.cost.copies import copy_time
from calculon.cost.pipeline_stages import PipelineStages
from calculon.cost.prediction_modules import whole_time
from calculon.declarations.model import Model
from calculon.declarations.statistics import Figures
from calculon.plan.schedule import Schedule


def quoted_figures(model: Model, pipeline: PipelineStages, total_time: Seconds) -> Figures:
    """Return the figures of executions whose iterations take `total_time` seconds.

    Source: model FLOP utilization: Chowdhery et al., *PaLM*, arXiv 2204.02311, section 4.1; hardware FLOP utilization,
    here the mean over stages: Korthikanti et al., arXiv 2205.05198, section 6.3.
    """
    stage, schedule = pipeline.mean, pipeline.schedule
    block, columns = stage.block, schedule.columns

    def per_token(*, causal: bool) -> Flops:
        return _of_model(
            model,
            schedule,
            lambda model: model_flops_per_token(
                model,
                training=schedule.training,
                causal=causal,
                seq_length=columns.seq_length,
                packed_percent=columns.packed_percent,
            ),
        )

    count, flops = model_parameters(model, schedule), per_token(causal=False)
    tokens_per_second = schedule.batch_size * schedule.seq_length / total_time
    each = tokens_per_second / schedule.processors
    rate = flops * each
    tokens = schedule.microbatch_size * schedule.seq_length / schedule.context_par
    embedding_head, microbatches = pipeline.mean_embedding_head, schedule.microbatches
    copies = copy_time(pipeline.slowest.layers, pipeline.slowest_schedule, pipeline.embedding_head)
    head = modules = np.zeros(1)
    if embedding_head is not None:
        modules = embedding_head.modules
        head = embedding_head.head - modules
        modules = modules + pipeline.of_modules(whole_time)
    return Figures(
        parameters=count,
        padded_parameters=count
        + padding_count(model, columns.tensor_par, columns.vocab_pad_multiple),
        tokens_per_second=tokens_per_second,
        tokens_per_second_per_proc=each,
        model_flops_per_token=flops,
        model_flops_per_second_per_proc=rate,
        mfu=rate / block.matrix_peak,
        mfu_causal=per_token(causal=True) * each / block.matrix_peak,
        hfu=_executed_flops(model, pipeline) / total_time / block.matrix_peak,
        act_bytes_per_token=stage.stored_activation / tokens,
        embedding_time=microbatches * (embedding_head.embedding if embedding_head else np.zeros(1)),
        head_time=microbatches * head,
        mtp_time=microbatches * modules,
        host_time=schedule.host_time + np.zeros_like(total_time),
        host_wait_time=microbatches * (model.num_blocks / schedule.ranks * stage.block.host_wait),
        copy_time=copies + np.zeros_like(total_time),
    )


def model_parameters(model: Model, schedule: Schedule) -> Count:
    """Return the parameters of the model; published models have a position embedding for every token of a sequence."""

    def parameters(model: Model) -> Count:
        further = 0 if model.extensions else (schedule.seq_length - model.seq_size) * model.hidden
        return parameter_count(model) + np.asarray(further, float)

    return _of_model(model, schedule, parameters)


def _of_model(model: Model, schedule: Schedule, quantity: Callable[[Model], Array]) -> Array:
    """Return a quantity of the model, which has one key/value head in executions with multiquery attention."""
    # Rules refuse multi-query attention for models with latent attention, or without softmax attention.
    never = model.latent or not model.has_softmax
    if never or not schedule.multiquery.any():
        return np.asarray(quantity(model))
    return np.where(schedule.multiquery, quantity(_with_multiquery(model)), quantity(model))


@lru_cache(64)
def _with_multiquery(model: Model) -> Model:
    """Return the model with multiquery attention: all query heads share keys and values."""
    return replace(model, kv_heads=1)


def _executed_flops(model: Model, pipeline: PipelineStages) -> Flops:
    """Return the matrix FLOP that a processor executes in a batch, with recomputation: the mean over stages."""
    stage, schedule = pipeline.mean, pipeline.schedule
    embedding_head = stage.embedding_head
    executed = model.num_blocks / schedule.ranks * stage.block.matrix_flops
    if embedding_head is not None:
        of_embedding_head = (
            embedding_head.cost.embedding.matrix_flops + embedding_head.cost.head.matrix_flops
        )
        of_modules = pipeline.of_modules(lambda module: module.matrix_flops)
        executed = executed + (of_embedding_head + of_modules) / schedule.ranks
    return schedule.microbatches * executed
