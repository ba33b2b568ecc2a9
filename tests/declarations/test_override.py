"""Single values of a spec replaced by path."""

import copy

import pytest

from calculon import SpecError
from calculon.campaign.record import Campaign
from calculon.declarations.fields import spec_fields
from calculon.declarations.override import override
from calculon.hardware.system import System

RAW = {
    "mem1": {"GiB": 80, "MB_efficiency": [[10, 0.9], [0, 0.3]]},
    "networks": [{"bandwidth": 300}, {"bandwidth": 25}],
}


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("mem1.GiB", lambda d: d["mem1"]["GiB"]),
        ("networks[1].bandwidth", lambda d: d["networks"][1]["bandwidth"]),
        ("mem1.MB_efficiency[0][1]", lambda d: d["mem1"]["MB_efficiency"][0][1]),
        ("networks", lambda d: d["networks"]),
    ],
)
def test_replaces_the_value_at_a_path_and_nothing_else(path, read):
    before = copy.deepcopy(RAW)
    changed = override(RAW, {path: 7}, "s.json")
    assert read(changed) == 7
    assert before == RAW
    assert override(changed, {path: read(RAW)}, "s.json") == RAW


def test_a_new_value_is_not_shared_with_the_caller():
    curve = [[0, 0.5]]
    changed = override(RAW, {"mem1.MB_efficiency": curve}, "s.json")
    curve.append("later")
    assert changed["mem1"]["MB_efficiency"] == [[0, 0.5]]


def test_a_path_that_does_not_exist_is_an_error_that_says_where():
    for path, field, words in [
        ("mem3.GiB", "mem3", "did you mean 'mem1'"),
        ("mem1.GB", "mem1.GB", "known are GiB, MB_efficiency|did you mean 'GiB'"),
        ("networks[2].bandwidth", "networks[2]", "a list of 2"),
        ("mem1[0]", "mem1[0]", "expected a list in mem1, found an object"),
        ("mem1.GiB.x", "mem1.GiB.x", "expected an object in mem1.GiB, found 80"),
        ("networks[a]", "networks[a]", "a path such as"),
        ("networks[-1].bandwidth", "networks[-1].bandwidth", "a path such as"),
        ("", "", "a path such as"),
    ]:
        with pytest.raises(SpecError, match=words) as caught:
            override(RAW, {path: 1}, "s.json")
        assert caught.value.file == "s.json", (path, field)
        assert caught.value.field == field, (path, field)


def test_tells_every_wrong_path_at_once():
    with pytest.raises(SpecError) as caught:
        override(RAW, {"a": 1, "mem1.GiB": 2, "b": 3}, "s.json")
    assert [problem.field for problem in caught.value.problems] == ["a", "b"]


def test_a_constant_that_the_law_of_a_kernel_leaves_out_can_be_stated():
    law = {"law": "stream", "efficiency": 0.9}
    raw = {"ext": {"kernels": {"norm": {"any": law}}}}
    place = "ext.kernels.norm.any"
    changed = override(raw, {f"{place}.backward": 0.8}, "s.json", System)
    assert changed == {"ext": {"kernels": {"norm": {"any": {**law, "backward": 0.8}}}}}
    with pytest.raises(SpecError, match="did you mean 'backward'"):
        override(raw, {f"{place}.backwards": 0.8}, "s.json", System)


def test_the_hint_names_the_fields_of_the_record():
    """Also those that a document without any of them could have."""
    with pytest.raises(SpecError) as refused:
        override({}, {"foo": 1}, "c", Campaign)
    (problem,) = refused.value.problems
    assert problem.hint == f"known are {', '.join(one.key for one in spec_fields(Campaign))}"


@pytest.mark.parametrize(
    ("path", "hint"), [("phases[0].batch", "into a file"), ("batch_ramp.start", "as a whole")]
)
def test_a_part_of_what_is_not_stated_cannot_change(path, hint):
    with pytest.raises(SpecError) as refused:
        override({}, {path: 1}, "c", Campaign)
    (problem,) = refused.value.problems
    assert problem.field in ("phases", "batch_ramp")
    assert (problem.expected, problem.found) == ("a value of which to change a part", "none")
    assert hint in problem.hint
