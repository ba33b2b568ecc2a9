"""Natural mistakes in the arguments of a search, and what may be written in several ways."""

import dataclasses
import inspect
import re

import numpy as np
import pandas as pd
import pytest

import calculon
from calculon.search.overrides import parse
from calculon.search.request import make_space
from tests.cases import for_each

SPACE = ("megatron-126M", "a100_80g", 8, 8)
FEW = {"tensor_par": 1, "pipeline_par": 1}


def _arguments(**changes):
    names = ("model", "system", "num_procs", "max_batch_size")
    return dict(zip(names, SPACE, strict=True)) | changes


@pytest.mark.parametrize("counts", [[8, 16], "8:64:x2", "8,16", np.array([8, 16]), (8,)], ids=repr)
@pytest.mark.parametrize("call", [calculon.search, calculon.executions], ids=["search", "all"])
def test_several_processor_counts_are_several_searches(call, counts):
    with pytest.raises(calculon.SpecError, match=r"num_procs: expected one .*calculon study"):
        call(**_arguments(num_procs=counts))


WRONG = {
    "top": (None, "3", 2.5, True, 0),
    "objective": (None, len, ["sample_rate"]),
    "pareto": ("sample_rate", "sample_rate,total_time", True, [3]),
    "where": (lambda row: True, 3, True),
    "fix": ("tensor_par=2", ["tensor_par"], 3),
    "add": ("batch_size=2", [2]),
    "mbs_break": ("no", None, 1),
    "fused": ("all", (), (1,), 1),
    "tensor_overlap": ("no",),
    "data_overlap": (None,),
    "num_procs": ("many", None, True),
    "max_batch_size": ("8", [8]),
    "datatype": ("float17", ["float16"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_value_of_the_wrong_type_is_refused_by_the_name_of_its_argument(name):
    for value in WRONG[name]:
        with pytest.raises(calculon.SpecError, match=rf"^search: {name}: expected "):
            calculon.search(**_arguments(**{name: value}))


@pytest.mark.parametrize("chunk", [0, -1, 1.5, "3", None])
def test_a_table_has_at_least_one_row(chunk):
    with pytest.raises(calculon.SpecError, match=r"^executions: chunk: expected a whole number"):
        calculon.executions(*SPACE, chunk=chunk)


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("top_n", 3, "did you mean 'top'?"),
        ("fused_activation", True, "write fused=True"),
        ("no_tp_overlap", True, "write tensor_overlap=False"),
        ("gbs", 2, "write batch=2"),
        ("num_proc", 2, "did you mean 'num_procs'?"),
        ("ttp", 2, "did you mean 'tp'?"),
        ("foo", 1, ""),
    ],
)
def test_an_unknown_argument_is_refused_with_the_known_ones(name, value, hint):
    with pytest.raises(calculon.SpecError, match=f"{name}: .*top, objective, pareto") as error:
        calculon.search(*SPACE, **{name: value})
    assert error.value.hint.startswith(hint)


def test_help_describes_every_argument():
    for call in (calculon.search, calculon.executions):
        arguments = call.__doc__.partition("Args:")[2].partition("Raises:")[0]
        described = re.findall(r"^        \**(\w+(?:, \w+)*): ", arguments, re.MULTILINE)
        names = [name for line in described for name in line.split(", ")]
        assert sorted(names) == sorted(inspect.signature(call).parameters)


@for_each(
    "values",
    [[1, 2], np.array([1, 2]), {2, 1}, range(1, 3), pd.Series([1, 2]), list(np.array([1, 2]))],
)
def test_values_of_a_field_may_be(values):
    space = make_space(*SPACE, "float16", fix={"tensor_par": values})
    assert space.fix == {"tensor_par": (1, 2)}
    assert make_space(*SPACE, "float16", add={"batch_size": values}).add == {"batch_size": (1, 2)}


@pytest.mark.parametrize(
    ("fused", "wanted"),
    [
        (True, (True,)),
        (False, (False,)),
        ([False, True, False], (False, True)),
        (np.array([True]), (True,)),
    ],
    ids=str,
)
def test_fused_activation_is_one_candidate_or_several(fused, wanted):
    assert make_space(*SPACE, "float16", fused=fused).fused == wanted


@pytest.mark.parametrize("option", ["fix", "add"])
def test_who_asks_is_named_as_it_was_asked(option):
    wrong = {"batch_size": 0}
    with pytest.raises(calculon.SpecError, match=rf"^{option}: batch_size: expected"):
        calculon.search(*SPACE, **{option: wrong})
    with pytest.raises(
        calculon.SpecError, match=rf"^{option}: nothing: .* field that {option} knows"
    ):
        calculon.search(*SPACE, **{option: {"nothing": 1}})
    with pytest.raises(calculon.SpecError, match=rf"^{option}: 3: "):
        calculon.search(*SPACE, **{option: {3: 1}})
    with pytest.raises(calculon.SpecError, match=rf"^--{option}: batch_size: expected"):
        parse(option, ["batch_size=0"])


def test_no_values_leave_nothing_to_search():
    with pytest.raises(calculon.SpecError, match=r"^fix: tensor_par: expected at least one value"):
        calculon.search(*SPACE, fix={"tensor_par": []})


def test_an_edition_goes_by_its_name():
    found = calculon.search(*SPACE, fix=FEW, edition="sc23")
    assert found.best.stats == calculon.search(*SPACE, fix=FEW).best.stats
    for call in (calculon.search, calculon.executions):
        with pytest.raises(calculon.SpecError, match="did you mean 'sc23'"):
            call(*SPACE, edition="sc24")


MODERN = ("llama3-8B", "h100_80g_sxm", 8, 8, "bfloat16")
ONE = {"tensor_par": 8, "pipeline_par": 1, "weight_offload": False, "optimizer_offload": False}


def test_a_search_takes_the_edition_that_its_model_needs():
    assert calculon.search(*SPACE, fix=FEW).edition == "sc23"
    assert calculon.search(*SPACE, fix=FEW, edition="corrected").edition == "corrected"
    plain = calculon.inputs.model("megatron-126M")
    for model, edition in (
        (plain, "sc23"),
        (dataclasses.replace(plain, kv_heads=0, dropout=True), "sc23"),
        (dataclasses.replace(plain, kv_heads=1), "corrected"),
    ):
        assert calculon.search(model, *SPACE[1:], fix=FEW).edition == edition
        table = next(calculon.executions(model, *SPACE[1:], fix=FEW))
        assert set(table.plan.values("edition")) == {edition}


def test_objective_condition_and_fields_are_those_of_the_needed_edition():
    found = calculon.search(*MODERN, objective="mfu", fix=ONE | {"attn_impl": "flash"})
    wanted = calculon.search(
        *MODERN, objective="mfu", fix=ONE | {"attn_impl": "flash"}, edition="corrected"
    )
    assert found.best.stats == wanted.best.stats
    tables = calculon.executions(*MODERN, where="mfu > 0.1", fix=ONE, add={"attn_impl": "flash"})
    assert all((table["mfu"] > 0.1).all() for table in tables)


@pytest.mark.parametrize("call", [calculon.search, calculon.executions], ids=["search", "all"])
def test_a_stated_edition_wins_and_fields_do_not_change_it(call):
    with pytest.raises(calculon.SpecError, match=r"^search: edition: .*llama3-8B: .*found sc23"):
        call(*MODERN, edition="sc23")
    with pytest.raises(calculon.SpecError, match="or edition='corrected' in Python"):
        call(*SPACE, fix={"attn_impl": "flash"})
