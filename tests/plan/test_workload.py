"""What a pass over a microbatch works on."""

import numpy as np

from calculon.architecture.shape import Sizes, Workload, sequence_lengths
from calculon.declarations.model import Model

MODEL = Model(hidden=8, feedforward=8, seq_size=4, attn_heads=1, attn_size=8, num_blocks=2)


def test_a_length_that_is_not_stated_is_the_models():
    np.testing.assert_array_equal(sequence_lengths(MODEL, np.array([0, 1, 4, 9])), [4, 1, 4, 9])


def test_whole_sequences_are_queries_and_keys():
    sizes = Sizes(
        tensor_par=np.ones(2),
        microbatch_size=np.array([3.0, 5.0]),
        tensor_par_net=np.zeros(2, int),
        vocab_pad_multiple=np.ones(2),
        seq_length=np.array([0.0, 7.0]),
    )
    work = Workload.of_whole_sequences(MODEL, sizes)
    np.testing.assert_array_equal(work.queries, [4, 7])
    np.testing.assert_array_equal(work.keys, work.queries)
    np.testing.assert_array_equal(work.tokens, [12, 35])
