"""Arguments of every function: what they accept, and what is said of anything else."""

import re

import numpy as np
import pandas as pd
import pytest

import calculon
from calculon import inputs
from calculon.declarations import arguments
from tests.helpers import document

MODEL, EXECUTION, SYSTEM = "megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g"
RAW = document("examples", EXECUTION)


@pytest.mark.parametrize("number", [64, 64.0, np.int64(64), np.float64(64)], ids=repr)
def test_a_whole_number_may_be_of_any_type(number):
    count = arguments.count(number, "top", "search")
    assert (count, type(count)) == (64, int)


@pytest.mark.parametrize(
    "value", [0, -1, 1.5, float("nan"), None, "64", True, [8], np.array([8, 16]), 2**31], ids=repr
)
def test_anything_else_is_no_whole_number(value):
    with pytest.raises(calculon.SpecError, match=r"^search: top: expected a whole number") as error:
        arguments.count(value, "top", "search")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", ["no", 0, 1, None, [True]], ids=repr)
def test_only_true_and_false_switch(value):
    with pytest.raises(calculon.SpecError, match="mbs_break: expected True or False"):
        arguments.switch(value, "mbs_break", "search")
    assert arguments.switch(np.True_, "mbs_break", "search") is True


def test_a_long_value_is_cut_in_a_message():
    assert arguments.described(list(range(100))).startswith("a list [0, 1")
    assert len(arguments.described(list(range(100)))) < 80
    assert arguments.described("x" * 58) == f"'{58 * 'x'}'"  # 60 characters with its quotes
    assert arguments.described("x" * 59) == f"a str '{56 * 'x'}..."


@pytest.mark.parametrize("argument", ["model", "execution", "system"])
@pytest.mark.parametrize("wrong", [None, 3, "", b"a", ["megatron-1T"], 2.5], ids=repr)
def test_an_error_names_the_argument(argument, wrong):
    arguments = {"model": MODEL, "execution": EXECUTION, "system": SYSTEM} | {argument: wrong}
    with pytest.raises(calculon.SpecError, match=rf"^{argument}: expected a catalog name"):
        calculon.estimate(**arguments)


def test_arguments_in_the_wrong_order_are_put_right():
    with pytest.raises(calculon.SpecError, match="Hint: are model and system swapped"):
        calculon.estimate(SYSTEM, EXECUTION, MODEL)
    record = inputs.execution(EXECUTION)
    with pytest.raises(calculon.SpecError, match=r"^system: .*belongs in the argument execution"):
        calculon.estimate(MODEL, RAW, record)


def test_a_table_is_no_execution():
    frame = pd.DataFrame([RAW])
    with pytest.raises(calculon.SpecError, match="Hint: use evaluate for tables of executions"):
        calculon.estimate(MODEL, frame, SYSTEM)


def test_rows_of_frames_are_mappings():
    wanted = calculon.estimate(MODEL, EXECUTION, SYSTEM)
    results = pd.DataFrame([RAW]).assign(total_time=1.0).iloc[0]
    model = pd.Series(document("models", MODEL), dtype=object)
    assert calculon.estimate(model, results, SYSTEM).stats == wanted.stats
    with pytest.raises(calculon.SpecError, match=r"^execution: tensor_par"):
        calculon.estimate(MODEL, results.drop("tensor_par"), SYSTEM)


def test_a_function_takes_the_name_of_an_edition():
    by_name = calculon.estimate(MODEL, EXECUTION, SYSTEM, edition="sc23")
    assert by_name.stats == calculon.estimate(MODEL, EXECUTION, SYSTEM).stats
    with pytest.raises(
        calculon.SpecError, match=re.escape("sc23, corrected, found 'sc24'. Hint: did you")
    ):
        calculon.evaluate(MODEL, SYSTEM, [RAW], edition="sc24")
    with pytest.raises(calculon.SpecError, match=r"^edition: .* found 23"):
        calculon.estimate(MODEL, EXECUTION, SYSTEM, edition=23)


def test_an_execution_has_an_edition_of_its_own():
    asked = {**RAW, "edition": "corrected"}
    own = calculon.estimate(MODEL, asked, SYSTEM)
    assert own.edition == "corrected"
    assert own.stats == calculon.estimate(MODEL, EXECUTION, SYSTEM, edition="corrected").stats
    assert calculon.estimate(MODEL, asked, SYSTEM, edition="sc23").edition == "sc23"
