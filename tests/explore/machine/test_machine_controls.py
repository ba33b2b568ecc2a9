"""The sliders of a machine, and its other figures."""

from itertools import pairwise

import pytest

from calculon import inputs
from calculon.declarations import catalog
from calculon.explore.allowed_inputs import AllowedInputs
from calculon.explore.machine.machine_controls import (
    CAPACITY,
    FURTHEST,
    changes_in_words,
    figure_labels,
    found_by,
    labels,
    others,
    sliders,
    stops,
    unlike_file,
)
from calculon.explore.page_state import State, read_state
from calculon.hardware.figures import figures_of
from tests.draws import some

SYSTEMS = ("h100_80g_sxm", "gb200_nvl72", "a100_80g", "tpu_v5p", "mi300x")


def known(system):
    return figures_of(system, points=True, whole_runs=True, serving=True)


@pytest.fixture(scope="module", params=[one for one in SYSTEMS if one in catalog.names("system")])
def system(request):
    return inputs.system(request.param)


def test_every_slider_is_a_figure_and_stops_at_its_value_in_the_file(system):
    shown = sliders(system, known(system), {}, "bfloat16")
    assert {CAPACITY, "mem1.GBps", "networks[0].bandwidth"} <= {one.path for one in shown}
    for one in shown:
        assert not one.changed
        assert one.stops[one.index_in_file] == one.stops[one.index] == one.figure.value
        assert one.figure.problem(one.stops[0]) is one.figure.problem(one.stops[-1]) is None


def test_stops_rise_by_steps_that_people_can_hit_and_are_round(system):
    for one in sliders(system, known(system), {}, "bfloat16"):
        assert list(one.stops) == sorted({*one.stops})
        assert one.stops[0] >= one.figure.value * FURTHEST[0]
        assert one.stops[-1] <= one.figure.value * FURTHEST[1]
        round_ones = [stop for stop in one.stops if stop != one.figure.value]
        if one.figure.kind is int:
            assert all(stop & (stop - 1) == 0 for stop in round_ones)
        else:
            assert all(float(f"{stop:.2g}") == stop for stop in round_ones)
            steps = [after / before for before, after in pairwise(one.stops)]
            assert max(steps) <= 1.1 + 1e-9
            assert one.stops[-1] * 1.1 > one.figure.value * FURTHEST[1]


def test_a_value_between_stops_is_shown_at_the_nearest():
    machine = inputs.system("h100_80g_sxm")
    (one,) = (
        k
        for k in sliders(machine, known(machine), {CAPACITY: 121}, "bfloat16")
        if k.path == CAPACITY
    )
    assert (one.field.number, one.text, one.changed) == ("121", "121 GiB", True)
    assert one.stops[one.index] == 120


def test_sliders_and_other_figures_are_all_that_steps_depend_on(system):
    figures = known(system)
    shown = sliders(system, figures, {}, "bfloat16")
    rest = others(figures, {}, shown)
    paths = [one.path for one in (*shown, *rest)]
    assert sorted(paths) == sorted(figures_of(system, points=True))
    last = rest[-1].path
    assert others(figures, {last: 1.0}, shown)[0].path == last


def test_a_filter_finds_words_of_path_name_and_unit():
    machine = inputs.system("h100_80g_sxm")
    figures = list(figures_of(machine).values())
    names = figure_labels(machine, figures_of(machine))
    for words in ("GB/s mem2", "host memory: bandwidth"):
        assert [one.path for one in found_by(figures, words, names)] == ["mem2.GBps"]
    assert found_by(figures, "", names) == figures
    assert not found_by(figures, "no such figure", names)


@pytest.mark.parametrize("name", some([*catalog.names("system")], 3))
def test_figures_of_a_machine_have_different_labels(name):
    machine = inputs.system(name)
    known = figures_of(machine, points=True, whole_runs=True, serving=True)
    found = figure_labels(machine, known)
    assert len({found[path] for path in known}) == len(known)
    assert not [label for label in found.values() if "_" in label]


def test_what_the_file_has_is_no_change():
    machine = inputs.system("h100_80g_sxm")
    figures = known(machine)
    assert unlike_file(figures, {CAPACITY: 80, "mem1.GBps": 3000}) == {"mem1.GBps": 3000}
    told = changes_in_words(machine, figures, {"mem1.GBps": 3000, "ext.nothing": 2})
    assert told == [
        ("ext.nothing", "ext.nothing", "2"),
        ("mem1.GBps", labels(machine)["mem1.GBps"], "3,350 GB/s → 3,000 GB/s"),
    ]


def test_stops_of_the_smallest_networks_are_possible():
    machine = inputs.system("h100_80g_sxm")
    size = figures_of(machine)["networks[0].size"]
    assert stops(size) == (2, 4, 8, 16, 32, 64)


def test_times_are_set_in_microseconds_and_addressed_in_the_unit_of_the_file():
    machine = inputs.system("h100_80g_sxm")
    figures = known(machine)
    first = State(model="llama3-8B", system="h100_80g_sxm", procs=64)
    for one in sliders(machine, figures, {}, "bfloat16"):
        for stop, text in zip(one.stops, one.numbers, strict=True):
            state = read_state([(one.field.name, text)], AllowedInputs(), first)
            assert state.machine == {one.path: stop}
    (path,) = (path for path in figures if path == "networks[1].latency")
    pairs = [(f"system.{path}.us", "5"), (f"system.{path}", "1")]  # the control before what was
    assert read_state(pairs, AllowedInputs(), first).machine == {path: 5e-6}
