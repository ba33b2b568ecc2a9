"""Which corrections of the published model apply."""

from dataclasses import fields

from calculon.base.frozen import dataclass


@dataclass(frozen=True, kw_only=True)
class Rules:
    """One switch per correction; False is as published, every other combination is for tests.

    The numbers are those of the table of `validation/editions.md`.
    """

    dropout_gradient: bool = False
    """The gradient of a dropout has the bytes of the datatype [O18, A21]."""

    backward_traffic: bool = False
    """Softmax, GeLU, normalization and batched products write the gradient of the input [A22]."""

    values_recomputed: bool = False
    """Recomputed attention includes the product of probabilities and values [A25]."""

    regather_needs_sequence_par: bool = False
    """Only a split activation is gathered again; without it the input of attention stays [A02]."""

    gathered_input_once: bool = False
    """The split input of a gather is kept only if it is gathered again [A28]."""

    overlapped_operands: bool = False
    """An overlapped linear accesses and keeps the operands of its products [O6, A04, A29, A30]."""

    repeated_reduction: bool = False
    """A repeated collective alone in its layer pays arithmetic and memory pass like the first one [O24, A24].

    No edition does: the published validation is calibrated without."""

    repeated_overlap: bool = False
    """A repeated collective beside a product takes as long as the first one [A24]."""

    fused_projections: bool = False
    """Multiquery attention overlaps query, key and value as one product, too [A45]."""

    overlap_times: bool = False
    """Times of overlapped linears follow from their own stage and kind of block, a tile that
    nothing hides is exposed only, and a recomputed layer slows one pass [O2 to O5, A05 to A07]."""

    activations_again: bool = False
    """What a fused activation does not keep is computed again [A60]."""

    peak_of_gradients: bool = False
    """Activation gradients of a block are those of its fullest moment, not all [A61]."""

    tiled_products: bool = False
    """The tiles of an overlapped product are products at their own rate; each reads all weights, and in
    a ring adds to what has come [O28, A49]."""

    recompute_sums: bool = False
    """A recomputed layer costs its own forward work [O1, A01]."""

    checkpoint_split: bool = False
    """Sequence parallelism splits the checkpoint [O17, A15]."""

    waiting_gradients: bool = False
    """Gradients that wait for the optimizer have 4 bytes unless they are sharded [O23, A10]; with
    `grad_buffer` full, always."""

    optimizer_traffic: bool = False
    """The optimizer reads and writes its state, reads gradients and writes weights [O23, A12]."""

    optimizer_fields: bool = False
    """Optimizer, form of its step, types of moments and gradients, copied and clipped gradients
    are honoured; added-up gradients of a stated type are read again. Adam, else."""

    optimizer_offload: bool = False
    """An offloaded optimizer moves once per batch, with the gradients [O25, A13]."""

    offload_window: bool = False
    """Tier 1 is busy while recomputing, too [A14]."""

    in_flight: bool = False
    """No more microbatches are in flight than there are [A16]."""

    empty_transfers: bool = False
    """A transfer of nothing takes no time [O8, A17]."""

    split_at_edges: bool = False
    """p2p_rs_ag splits only the collectives that meet a transfer [O15, A18]."""

    data_par_exposed: bool = False
    """Data-parallel traffic is exposed as far as it does not fit [O10, A08, A09]."""

    data_par_bandwidth: bool = False
    """The bandwidth that hides it is that of one chunk in one chunk's window [O11]."""

    reduction_datatype: bool = False
    """`grad_comm_dtype` is honoured [O23, A26]."""

    latency_per_step: bool = False
    """`latency_per_step` is honoured [A27]."""

    useful_flops: bool = False
    """The optimizer step is useful once per batch [O12, A19]."""

    inference_space: bool = False
    """In inference no checkpoint is kept, and offloading leaves the working set
    [O7, O13, A37, A41]."""

    offloaded_blocks: bool = False
    """No more blocks stay of what is offloaded than there are [O26, A47]."""

    one_odd_block: bool = False
    """Of equal stages only one has a single odd block: the last [O27, A48]."""

    one_key_value_head: bool = False
    """The products of multiquery attention read one key and value head [O22, A45]."""

    memory_error: bool = False
    """An execution may exceed tier 1 by the error of predicted memory."""


PUBLISHED = Rules()
CORRECTED = Rules(**{f.name: f.name != "repeated_reduction" for f in fields(Rules)})
EDITIONS = {"sc23": PUBLISHED, "corrected": CORRECTED}
