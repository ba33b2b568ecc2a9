"""Restrictions that leave nothing, and additions that add nothing."""

from pathlib import Path

import pytest

from calculon import SpecError, executions, search
from calculon.declarations.decode import SpecWarning
from calculon.search.driver import make_space
from calculon.search.override_checks import check_effect


def _spaces(*counts, **options):
    return [
        make_space("megatron-22B", "a100_80g", n, 4, "float16", **options) for n in counts or (8,)
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"fix": {"tensor_par": 3}},
            "tensor_par: expected a value that this search tries: 1, 2, 4, 8, found 3",
        ),
        ({"fix": {"tensor_par_net": 9}}, "tries: 0, 1, found 9"),
        ({"fix": {"batch_size": 63}}, "tries: 4, found 63"),
        ({"fix": {"batch_size": 2}}, "Hint: --add batch_size=2"),
        ({"fix": {"attention_type": "multiquery"}}, "Hint: --add attention_type=multiquery"),
        ({"fix": {"fused_activation": False}}, "tries: true, found false. Hint: -f all"),
        (
            {"fix": {"tensor_par_overlap": "ring"}, "tensor_overlap": False},
            "tries: none, found ring. Hint: leave out --no-tp-overlap",
        ),
        ({"fix": {"data_par_overlap": True}, "data_overlap": False}, "leave out --no-dp-overlap"),
        (
            {"fix": {"tensor_par": 8, "pipeline_par": 8}},
            "pipeline_par: expected a value that this search tries with the other options: 1, found 8",
        ),
        (
            {"fix": {"activation_recompute": "full", "activations_offload": True}},
            "activations_offload: expected",
        ),
        ({"add": {"pipeline_par": (5,)}}, "found 5, which adds nothing"),
        ({"add": {"batch_size": (128,)}}, "below the largest batch (4)"),
        ({"add": {"attention_type": "multihead"}}, "found multihead, which adds nothing"),
        ({"add": {"batch_size": (2, 128)}}, "found 128, which adds nothing"),
        (
            {"fix": {"optimizer_offload": False}, "add": {"optimizer_offload": True}},
            "expected true, on a system with host memory (mem2), if --fix does not exclude it",
        ),
        (
            {"fix": {"activation_recompute": "none"}, "add": {"activation_recompute": "full"}},
            "expected a value of activation_recompute that is not tried already, if --fix does",
        ),
    ],
    ids=str,
)
def test_names_the_option_and_what_there_is(options, words):
    with pytest.raises(SpecError) as error:
        check_effect(_spaces(**options))
    assert words in str(error.value)
    assert error.value.file == ("--add" if "add" in options else "--fix")


@pytest.mark.parametrize(
    ("counts", "options"),
    [
        ((8,), {}),
        ((8,), {"fix": {"tensor_par": (3, 4)}}),
        ((8, 24), {"fix": {"tensor_par": 8, "data_par": 3}}),
        ((8, 16), {"fix": {"tensor_par": 16}}),
        ((8,), {"add": {"attention_type": "multiquery"}, "fix": {"attention_type": "multiquery"}}),
        ((10,), {"add": {"pipeline_par": (5,)}}),
        ((8,), {"add": {"activations_offload": True}}),
    ],
    ids=str,
)
def test_a_value_that_some_count_has_is_fine(counts, options):
    check_effect(_spaces(*counts, **options))


MODERN = {"model": "llama3-8B", "edition": "corrected"}
WORDED = [
    (
        {"fix": {"tensor_par": 3}},
        "fix: tensor_par: expected a value that this search tries: 1, 2, 4, 8, found 3",
    ),
    ({"fix": {"batch_size": [2, 3]}}, "found 2, 3. Hint: add={'batch_size': [2, 3]}, if it"),
    (
        {"fix": {"attention_type": "multiquery"}},
        "tries: 'multihead', found 'multiquery'. Hint: add={'attention_type': 'multiquery'}",
    ),
    (
        {"fix": {"fused_activation": False}},
        "tries: True, found False. Hint: fused=(False, True) tries both",
    ),
    (
        {"fix": {"tensor_par_overlap": "ring"}, "tensor_overlap": False},
        "leave out tensor_overlap=False",
    ),
    ({"fix": {"fsdp_unit": 2}, **MODERN}, ": fix={'zero_stage': "),
]


@pytest.mark.parametrize("call", [search, executions], ids=["search", "executions"])
@pytest.mark.parametrize(("options", "words"), WORDED, ids=str)
def test_python_says_the_same_in_its_own_words(call, options, words):
    arguments = {"model": "megatron-22B", "system": "a100_80g", "num_procs": 8} | options
    with pytest.raises(SpecError) as error:
        call(max_batch_size=4, **arguments)
    assert words in str(error.value)
    assert "--" not in str(error.value)


def test_in_python_an_addition_without_effect_is_no_error():
    asked = {"model": "megatron-22B", "system": "a100_80g", "num_procs": 8, "max_batch_size": 4}
    plain, added = search(**asked), search(**asked, add={"batch_size": 128, "pipeline_par": 5})
    assert added.counts == plain.counts


def test_a_value_that_adds_only_beside_another_is_fine():
    check_effect(_spaces(10, add={"pipeline_par": 5, "batch_size": 1}))
    add = {"zero_stage": "fsdp", "fsdp_unit": 2}
    check_effect(_spaces(add=add, edition="corrected"))
    with pytest.raises(SpecError, match="fsdp_unit"):
        check_effect(_spaces(add={"fsdp_unit": 2}, edition="corrected"))


@pytest.mark.parametrize("option", ["fix", "add"])
def test_a_value_about_a_vocabulary_of_a_model_without_one_is_a_warning(option):
    asked = {"model": "megatron-126M", "system": "a100_80g", "num_procs": 2, "max_batch_size": 2}
    with pytest.warns(SpecWarning, match="ce_impl=fused has no effect: megatron-126M") as noted:
        found = search(**asked, preset="common", **{option: {"ce_impl": "fused"}})
    assert [Path(one.filename) for one in noted] == [Path(__file__)]
    assert found.best.stats == search(**asked, preset="common").best.stats
    search(**asked, preset="common", fix={"ce_impl": "eager"})  # the default is no wish


def test_a_batch_that_no_degree_divides_is_told_with_those_that_one_does():
    """21 processors of a framework without other parallelism are 21 replicas."""
    asked = ("mpt-1B", "a100_80g_sxm", 21, 64)
    told = r"max_batch_size: expected a multiple of a data-parallel degree, 21: 63 or 84, found 64.*any_batch"
    for more in ({}, {"fix": {"zero_stage": "fsdp"}}):
        with pytest.raises(SpecError, match=told):
            search(*asked, preset="llm-foundry", **more)
    assert search(*asked, preset="llm-foundry", any_batch=True).best.execution.batch_size == 63
    added = search(*asked, preset="llm-foundry", add={"batch_size": 42})
    assert added.best.execution.batch_size == 42
