import pytest

from calculon import inputs
from calculon.transformer.parameters import VOCABULARY, parameter_count


@pytest.mark.parametrize(
    ("name", "billions"),
    [("megatron-126M", 0.126), ("gpt3-13B", 13), ("gpt3-175B", 175), ("megatron-1T", 1008)],
)
def test_the_count_is_about_what_the_name_says(name, billions):
    assert parameter_count(inputs.model(name)) / 1e9 == pytest.approx(billions, rel=0.02)


def test_each_block_adds_its_projections_biases_and_norms():
    model = inputs.model("lamda")
    h, f, width = model.hidden, model.feedforward, model.attn_heads * model.attn_size
    assert width != h
    products = 3 * h * width + width * h + h * f + f * h
    biases = 3 * width + h + f + h
    norms = 2 * (h + h)
    embeddings = VOCABULARY * h + model.seq_size * h
    expected = model.num_blocks * (products + biases + norms) + embeddings
    assert parameter_count(model) == expected
