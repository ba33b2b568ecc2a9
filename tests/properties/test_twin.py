"""The array model agrees with its scalar twin, which shares no code with it."""

from collections import Counter

from hypothesis import given, settings

import calculon
from tests import twin
from tests.draws import draws
from tests.helpers import differences
from tests.strategies import questions

REASONS = {
    2: {"degrees_product"},
    3: {"batch_split", "microbatch_split"},
    5: {
        "recompute_needs_training",
        "modules_need_training",
        "modules_alone",
        "modules_of_products",
        "modules_of_blocks",
        "modules_of_model",
        "modules_say_attention",
        "every_block_recomputes",
        "some_blocks_recompute",
        "latent_operators",
    },
    6: {"interleaving_needs_pipeline"},
    7: {"sharding_needs_data_par"},
    8: {"overlap_needs_tensor_par"},
    9: {"redo_needs_sequence_parallel"},
    10: {"dp_overlap_needs_training"},
    11: {"optimizer_offload_needs_training"},
    12: {"network_number"},
    13: {"network_size", "network_filled"},
    15: {"interleaving_size"},
    16: {"interleaving_split"},
    17: {"offload_blocks"},
    18: {"tokens_split"},
    19: {"hidden_split", "feedforward_split", "attn_heads_split"},
    20: {"datatype_engine"},
    21: {"mem1_capacity"},
    22: {"mem2_capacity"},
}
"""Reasons of ours for the numbered requirements of the twin."""


def _twin(model, execution, system):
    try:
        return twin.estimate(model, execution, system), "", None
    except twin.Rejected as error:
        return None, "malformed", error.rule
    except twin.DoesNotFit as error:
        return None, "infeasible", error.rule


def _ours(model, execution, system):
    try:
        return calculon.estimate(model, execution, system).stats, ""
    except calculon.SpecError:
        return None, "malformed"
    except calculon.Infeasible as error:
        return None, f"infeasible: {error.reason}"


def test_outcome_and_statistics_of_any_execution():
    outcomes = Counter()

    @settings(max_examples=draws(200))
    @given(question=questions())
    def agree(question):
        model, execution, system = question
        expected, kind, rule = _twin(model, execution, system)
        found, outcome = _ours(model, execution, system)
        outcomes[kind or "feasible"] += 1
        table = calculon.evaluate(model, system, calculon.Plan.from_records([execution]))
        assert outcome.split(":")[0] == kind
        if expected is None:
            assert table.reason[0] in REASONS[rule]
            assert kind == "malformed" or outcome.endswith(f": {table.reason[0]}")
        else:
            assert table.reason[0] == ""
            assert differences(found, expected) == []

    agree()
    assert min(outcomes.values()) > 7, "the strategies are to reach every outcome often"
    assert outcomes["feasible"] > 90


@given(question=questions())
def test_every_layer_of_any_execution(question):
    model, execution, system = question
    try:
        found = calculon.estimate(model, execution, system, layers=True).layers
    except calculon.CalculonError:
        return
    expected = twin.layers(model, execution, system)
    for ours, theirs in zip(found, expected, strict=True):
        assert differences(ours, theirs) == []
