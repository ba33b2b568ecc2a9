"""Operators in words."""

from calculon.declarations import catalog
from calculon.documents.roofline_chart import BOUND
from calculon.estimate.operator_passes import BOUNDS_OF_TIME, operator_passes
from calculon.estimate.operators import block
from calculon.explore.pipeline.operator_words import product_words, rate_words
from calculon.hardware.kernels.kernel import ENGINE_RATE
from calculon.hardware.kernels.stated_kernels import FAMILIES
from calculon.hardware.kernels.stated_rates import ShareOfPeak
from calculon.inputs import system
from tests.helpers import LLAMA_X64


def test_every_bound_has_a_word():
    assert set(BOUND) == set(BOUNDS_OF_TIME)


def test_every_rate_of_the_catalog_is_explained():
    rates = [ENGINE_RATE, ShareOfPeak(share=0.3)]
    rates += [rate for name in catalog.names("system") for rate in system(name).ext.rates.values()]
    assert all(rate_words(rate) for rate in rates)
    laws = {law for family in FAMILIES for law in family.laws.values()}
    assert laws <= {type(rate) for rate in rates}


def test_a_product_is_told_by_its_sizes():
    found = block("llama3-8B", LLAMA_X64 | {"tensor_par_overlap": "none"}, "h100_80g_sxm")
    model, execution = found.model, found.execution
    words = {(one.operator, one.work): product_words(one) for one in operator_passes(found)}
    tokens = execution.microbatch_size * model.seq_size
    wide = 2 * model.feedforward // execution.tensor_par
    assert words["MlpBlock_Mlp1", "forward"] == f"{tokens:,} x {wide:,} x {model.hidden:,}"
    assert words["MlpBlock_Mlp1", "activation_grad"] == f"{tokens:,} x {model.hidden:,} x {wide:,}"
    assert words["MlpBlock_SwiGLU", "forward"] == ""
