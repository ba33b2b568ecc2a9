import copy
import time
import warnings

import pytest

from calculon import inputs
from calculon.base.errors import SpecError
from calculon.declarations.decode import SpecWarning, decode
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.hardware.system import System
from tests.helpers import document

MODEL = document("models", "megatron-126M")
SYSTEM = document("systems", "a100_80g")
EXECUTION = document("examples", "3072_t4_p64_d12_mbs4_full")


def _changed(raw, path, value):
    """Return a document with another value, or without the field for an ellipsis."""
    result = copy.deepcopy(raw)
    holder = result
    for step in path[:-1]:
        holder = holder[step]
    if value is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return result


def test_a_record_goes_out_as_it_came_in():
    assert inputs.model(MODEL).to_dict() == {
        name: MODEL[name] for name in inputs.model(MODEL).to_dict()
    }
    assert inputs.execution(EXECUTION).to_dict() == EXECUTION
    assert list(inputs.execution(EXECUTION).to_dict()) == list(EXECUTION)


CURVE = ("mem1", "MB_efficiency")
WRONG = [
    (("mem1",), ..., "mem1", "nothing (the field is missing)"),
    (("mem1",), 80, "mem1", "80"),
    (("mem1", "GBps"), 0, "mem1.GBps", "0"),
    (("processing_mode",), "Roofline", "processing_mode", "'Roofline'"),
    (("matrix",), {}, "matrix", "an empty object"),
    (("matrix", "float61"), {}, "matrix.float61", "the key 'float61'"),
    (("vector", "float16", "tflops"), "78", "vector.float16.tflops", "'78'"),
    (CURVE, [], "mem1.MB_efficiency", "[]"),
    ((*CURVE, 1), 3, "mem1.MB_efficiency[1]", "3"),
    ((*CURVE, 1), [10, 75], "mem1.MB_efficiency[1][1]", "75"),
    ((*CURVE, 1), [100, 0.75], "mem1.MB_efficiency[1][0]", "100"),
    ((*CURVE, 0), [-1, 0.3], "mem1.MB_efficiency[0][0]", "-1"),
    (("networks",), [], "networks", "[]"),
    (("networks", 1), "fast", "networks[1]", "'fast'"),
    (("networks", 1, "efficiency"), 92, "networks[1].efficiency", "92"),
    (("networks", 0, "processor_usage"), 1, "networks[0].processor_usage", "1"),
    (("networks", 0, "color"), "red", "networks[0].color", "the unknown field 'color'"),
    (("networks", 0, "ops"), [], "networks[0].ops", "[]"),
    (("networks", 0, "ops", "p2p"), [1, 0], "networks[0].ops.p2p[1]", "0"),
    (("networks", 0, "ops", "all_gather"), [1, None], "networks[0].ops.all_gather[1]", "null"),
    (("networks", 0, "ops", "all_gather"), [1, -2.5], "networks[0].ops.all_gather[1]", "-2.5"),
    (
        ("networks", 0, "ops", "all_reduce"),
        ...,
        "networks[0].ops.all_reduce",
        "nothing (the operation is missing)",
    ),
    (("networks", 0, "ops", "gather"), [1, 0], "networks[0].ops.gather", "an unknown operation"),
]


def test_a_wrong_place_in_a_system_is_named():
    for path, value, field, found in WRONG:
        with pytest.raises(SpecError) as error:
            decode(System, _changed(SYSTEM, path, value), "my.json")
        assert (error.value.file, error.value.field, error.value.found) == ("my.json", field, found)


def test_all_problems_are_told_at_once_in_the_order_of_the_fields():
    raw = MODEL | {"hidden": 0, "seq_size": "long"}
    del raw["num_blocks"]
    with pytest.raises(SpecError) as error:
        decode(Model, raw, "my.json")
    assert [p.field for p in error.value.problems] == ["hidden", "seq_size", "num_blocks"]


def test_a_document_is_an_object():
    for raw in [None, 3, "text", [1], True]:
        with pytest.raises(SpecError, match="an object with named fields"):
            decode(Model, raw, "my.json")


def test_a_misspelt_field_of_an_execution_is_found_from_both_sides():
    raw = {("tensor_parr" if k == "tensor_par" else k): v for k, v in EXECUTION.items()}
    with pytest.raises(SpecError) as error:
        decode(Execution, raw, "my.json")
    missing, unknown = error.value.problems
    assert (missing.field, missing.hint) == ("tensor_par", "is it spelled 'tensor_parr' here?")
    assert (unknown.field, unknown.hint) == ("tensor_parr", "did you mean 'tensor_par'?")


@pytest.mark.parametrize(
    ("cls", "raw"), [(Model, MODEL), (System, SYSTEM)], ids=["model", "system"]
)
def test_an_unknown_field_is_worth_a_warning_unless_it_is_known_to_be_extra(cls, raw):
    with pytest.warns(SpecWarning, match=r"my.json: color: unknown field, ignored"):
        decode(cls, raw | {"color": "red"}, "my.json")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decode(cls, raw | {"ext": {}, "about": 1, "calibration": []}, "my.json")


def test_a_whole_number_may_be_written_as_a_float():
    assert decode(Model, MODEL | {"hidden": 768.0}, "my.json") == decode(Model, MODEL, "my.json")
    assert isinstance(decode(Model, MODEL | {"hidden": 768.0}, "my.json").hidden, int)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kv_heads": 5}, "kv_heads: expected a divisor of attn_heads=12, found 5"),
        ({"norms": 3}, "norms: expected 2 or 4"),
        ({"norms": 4, "parallel_attention": True}, "norms: expected 1 or 2"),
    ],
    ids=str,
)
def test_fields_of_a_model_do_not_contradict_each_other(changes, words):
    with pytest.raises(SpecError, match=words) as error:
        decode(Model, MODEL | {"attn_heads": 12} | changes, "my.json")
    assert error.value.file == "my.json"


def test_many_unknown_fields_make_a_short_message_soon():
    many = {f"hiden{i}": 1 for i in range(8_000)}
    start = time.process_time()
    with pytest.raises(SpecError) as error:
        decode(Execution, many, "my.json")
    assert len(error.value.problems) > 8_000
    assert str(error.value).count("\n") == 20
    with pytest.warns(SpecWarning) as told:
        decode(Model, MODEL | many, "my.json")
    assert len(told) == 21
    assert str(told[-1].message) == "my.json: and 7,980 more unknown fields, ignored"
    assert time.process_time() - start < 3


def test_a_record_in_a_larger_document_says_where_it_is():
    for raw, field in (
        (EXECUTION | {"data_par": 10**400}, "[3].execution.data_par"),
        ([], "[3].execution"),
    ):
        with pytest.raises(SpecError) as error:
            decode(Execution, raw, "my.json", place="[3].execution")
        assert error.value.field == field


def test_a_warning_escapes_what_a_terminal_would_act_on():
    with pytest.warns(SpecWarning, match=r"my.json: \\x1b\[31m: unknown field"):
        decode(Model, MODEL | {"\x1b[31m": 1}, "my.json")
