"""Figures of systems by path: they are those of the files, and systems with other ones are those of changed files."""

import pytest

import calculon
from calculon import inputs
from calculon.hardware.figures import figures_of, with_figures
from calculon.inputs import Changed
from calculon.spec.catalog import names

SYSTEMS = ["a100_80g", "h100_80g_sxm", "gb200_nvl72", "tpu_v5p", "mi300x", "gcp_a3_mega"]


def system_numbers(system):
    """Return the figures of a system as its records hold them, with all digits."""
    return [(path, one.value, one.declaration.scale) for path, one in figures_of(system).items()]


@pytest.mark.parametrize("name", SYSTEMS)
def test_each_figure_is_that_of_the_file(name):
    system = inputs.system(name)
    for path, figure in figures_of(system).items():
        assert figure.path == path
        assert figure.problem(figure.value) is None
    everything = {path: figure.value for path, figure in figures_of(system).items()}
    stated_again = inputs.system(Changed.of(name, everything))
    assert figures_of(stated_again).keys() == everything.keys()
    assert system_numbers(stated_again) == system_numbers(with_figures(system, everything))


@pytest.mark.parametrize("name", ["a100_80g", "tpu_v5p"])
def test_systems_with_other_figures_are_those_of_changed_files(name):
    system = inputs.system(name)
    for path, figure in figures_of(system).items():
        half = max(1, figure.value // 2) if figure.kind is int else figure.value / 2
        changed = inputs.system(Changed.of(name, {path: half}))
        assert figures_of(with_figures(system, {path: half})) == figures_of(changed), path


def test_every_system_of_the_catalog_states_its_engines_memories_and_networks():
    for name in names("system"):
        found = calculon.figures(name)
        assert {"mem1.GiB", "mem1.GBps", "mem2.GiB", "mem2.GBps"} <= found.keys()
        assert found["networks[0].bandwidth"].unit == "GB/s"
        assert all(one.name for one in found.values())


def test_a_rate_that_stands_for_several_types_is_changed_in_all_of_them():
    system = inputs.system("h100_80g_sxm")
    path = "ext.kernels.norm.any.start"
    changed = with_figures(system, {path: 1e-5})
    assert {changed.rate("norm", kind).start for kind in changed.vector} == {1e-5}
    assert figures_of(changed)[path].value == 1e-5


def test_what_is_no_figure_is_named():
    with pytest.raises(calculon.SpecError, match=r"mem1\.GBp: .*did you mean 'mem1\.GBps'"):
        with_figures(inputs.system("a100_80g"), {"mem1.GBp": 1.0})
