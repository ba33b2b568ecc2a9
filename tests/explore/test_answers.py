"""Warnings reach the answer that they belong to."""

import warnings

from calculon.declarations.decode import SpecWarning
from calculon.explore.answers import collect_warnings, route_warnings


def test_warnings_of_specs_belong_to_the_answer_that_is_being_computed():
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        elsewhere = []
        warnings.showwarning = lambda message, *_, **__: elsewhere.append(str(message))
        route_warnings()
        with collect_warnings() as told:
            warnings.warn("a field", SpecWarning, stacklevel=1)
            warnings.warn("another matter", UserWarning, stacklevel=1)
        warnings.warn("a file", SpecWarning, stacklevel=1)
    assert told == ["a field"]
    assert elsewhere == ["another matter", "a file"]


def test_listening_twice_is_listening_once():
    with warnings.catch_warnings():
        route_warnings()
        first, filters = warnings.showwarning, list(warnings.filters)
        route_warnings()
        assert warnings.showwarning is first
        assert list(warnings.filters) == filters
