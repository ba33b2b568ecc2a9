import math

import numpy as np
import pytest

from calculon.base.errors import SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.fields import (
    LARGEST_INTEGER,
    LARGEST_NUMBER,
    SMALLEST_NUMBER,
    Declaration,
    check_record,
    declare,
    shown,
    spec_fields,
)

COUNT = Declaration(help="count", at_least=1)
SHARE = Declaration(help="share", above=0, at_most=1)
USAGE = Declaration(help="usage", at_least=0, below=1)
CHOICE = Declaration(help="choice", choices=("ring", "pipe"))
ANY = Declaration(help="any")


def test_an_allowed_value_is_no_problem():
    for declaration, kind, value in [
        (COUNT, int, 1),
        (COUNT, int, 4.0),
        (COUNT, int, LARGEST_INTEGER),
        (SHARE, float, 1),
        (SHARE, float, SMALLEST_NUMBER),
        (USAGE, float, 0),
        (CHOICE, str, "ring"),
        (ANY, bool, False),
        (ANY, bool, np.bool_(True)),
        (ANY, float, -LARGEST_NUMBER),
    ]:
        assert declaration.problem(kind, value, "field") is None


def test_a_wrong_value_is_found_with_a_hint():
    for declaration, kind, value, found, hint in [
        (COUNT, int, 0, "0", ""),
        (COUNT, int, 2.5, "2.5", ""),
        (COUNT, int, True, "true", ""),
        (COUNT, int, "8", "'8'", "no quotes"),
        (COUNT, int, None, "null", ""),
        (COUNT, int, LARGEST_INTEGER + 1, "2147483648", "the largest whole number is 2147483647"),
        (COUNT, int, 10**400, "1" + 56 * "0" + "...", "the largest whole number is 2147483647"),
        (ANY, float, 1e-31, "1e-31", "the smallest above 0 is 1e-30"),
        (ANY, float, math.inf, "inf", "a finite number is needed"),
        (ANY, float, math.nan, "nan", "a finite number is needed"),
        (SHARE, float, 92, "92", "write 0.92 for 92 %"),
        (SHARE, float, 2, "2", "write 0.02 for 2 %"),
        (SHARE, float, 100, "100", "write 1 for 100 %"),
        (SHARE, float, 101, "101", ""),
        (SHARE, float, 0, "0", ""),
        (USAGE, float, 1, "1", ""),
        (CHOICE, str, "rign", "'rign'", "did you mean 'ring'?"),
        (ANY, bool, 1, "1", ""),
        (ANY, bool, "true", "'true'", "no quotes"),
        (ANY, str, True, "true", ""),
        (ANY, str, "\x1b[31m", r"'\x1b[31m'", "only characters that can be printed are allowed"),
    ]:
        problem = declaration.problem(kind, value, "some.field")
        assert (problem.field, problem.found, problem.hint) == ("some.field", found, hint)
        assert problem.expected == declaration.wanted(kind)


def test_a_declaration_says_what_it_wants():
    for declaration, kind, text in [
        (COUNT, int, "a whole number of at least 1"),
        (SHARE, float, "a number above 0 and of at most 1"),
        (USAGE, float, "a number of at least 0 and below 1"),
        (Declaration(help="", unit="GB/s", above=0), float, "a number above 0 (GB/s)"),
        (CHOICE, str, "one of ring, pipe"),
        (ANY, bool, "true or false"),
        (ANY, str, "one line of text"),
        (ANY, float, "a number"),
    ]:
        assert declaration.wanted(kind) == text


def test_a_found_value_is_shown_as_in_the_file_and_short():
    for value, text in [
        (None, "null"),
        (True, "true"),
        ("full", "'full'"),
        ({}, "an empty object"),
        ({"a": 1}, "an object"),
        ((1, 2), "[1, 2]"),
        (list(range(50)), "a list of 50"),
        ([0] * 20, str([0] * 20)),  # 60 characters
        ([10] + [0] * 19, "a list of 20"),
        ("x" * 58, f"'{58 * 'x'}'"),
        ("x" * 59, f"'{56 * 'x'}..."),
        ("x" * 90, "'" + 56 * "x" + "..."),
    ]:
        assert shown(value) == text


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    peak: float = declare("peak", key="tflops", scale=1e12, above=0, at_most=1e6)
    name: str = "engine"


def test_fields_know_their_key_and_only_declared_ones_count():
    (field,) = spec_fields(Engine)
    assert (field.name, field.key, field.annotation) == ("peak", "tflops", float)


def test_a_record_made_by_hand_is_checked_in_the_units_of_the_file():
    for peak in [0.0, -1e12, 1e19, "fast", None]:
        with pytest.raises(SpecError) as error:
            check_record(Engine(peak=peak))
        assert (error.value.file, error.value.field) == ("Engine", "peak"), peak
        check_record(Engine(peak=312e12))


def test_a_value_for_a_message_is_cut_while_it_is_walked():
    value = [1] * 10
    for _ in range(12):
        value = [value] * 10
    assert shown(value) == "a list of 10"
    assert len(shown("x" * 10**8)) == 60
