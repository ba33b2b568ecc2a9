"""Figures of systems by path: they are those of the files, and systems with other ones are those of changed files."""

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.hardware.figures import figures_of, of_rows, with_figures
from calculon.inputs import Changed
from tests.draws import some
from tests.helpers import document

SYSTEMS = ["a100_80g", "h100_80g_sxm", "gb200_nvl72", "tpu_v5p", "mi300x", "gcp_a3_mega"]


def system_numbers(system):
    """Return the figures of a system as its records hold them, with all digits."""
    return [(path, one.value, one.declaration.scale) for path, one in figures_of(system).items()]


def test_each_figure_is_that_of_the_file():
    for name in SYSTEMS:
        system = inputs.system(name)
        for path, figure in figures_of(system).items():
            assert figure.path == path, name
            assert figure.problem(figure.value) is None, name
        everything = {path: figure.value for path, figure in figures_of(system).items()}
        stated_again = inputs.system(Changed.of(name, everything))
        assert figures_of(stated_again).keys() == everything.keys(), name
        same = with_figures(system, everything)
        assert system_numbers(stated_again) == system_numbers(same), name


@pytest.mark.parametrize("name", ["a100_80g", "tpu_v5p"])
def test_systems_with_other_figures_are_those_of_changed_files(name):
    system = inputs.system(name)
    for path, figure in some(figures_of(system).items(), 25):
        half = max(1, figure.value // 2) if figure.kind is int else figure.value / 2
        changed = inputs.system(Changed.of(name, {path: half}))
        assert figures_of(with_figures(system, {path: half})) == figures_of(changed), path


def test_a_rate_that_stands_for_several_types_is_changed_in_all_of_them():
    system = inputs.system("h100_80g_sxm")
    path = "ext.kernels.norm.any.start"
    changed = with_figures(system, {path: 1e-5})
    assert {changed.rate("norm", kind).start for kind in changed.vector} == {1e-5}
    assert figures_of(changed)[path].value == 1e-5


def test_what_is_no_figure_is_named():
    with pytest.raises(calculon.SpecError, match=r"mem1\.GBp: .*did you mean 'mem1\.GBps'"):
        with_figures(inputs.system("a100_80g"), {"mem1.GBp": 1.0})


def test_shares_of_curves_are_figures_where_they_are_asked_for():
    system = inputs.system("a100_80g")
    found, plain = figures_of(system, points=True), figures_of(system)
    steps = document("systems", "a100_80g")["mem1"]["MB_efficiency"]
    paths = [f"mem1.MB_efficiency[{i}][1]" for i in range(len(steps))]
    assert [found[path].value for path in paths] == [share for _, share in steps]
    assert not plain.keys() & set(paths)
    changed = with_figures(system, {paths[1]: 0.123})
    of_file = inputs.system(Changed.of("a100_80g", {paths[1]: 0.123}))
    assert (
        changed.mem1.efficiency.efficiencies.tolist()
        == of_file.mem1.efficiency.efficiencies.tolist()
    )


def test_machines_of_rows_are_those_of_a_column():
    shares, rates = np.array([0.5, 0.6, 0.7]), np.array([1000.0, 2000.0, 3000.0])
    path = "mem1.MB_efficiency[0][1]"
    column = with_figures(inputs.system("a100_80g"), {path: shares, "mem1.GBps": rates})
    chosen = of_rows(column, np.array([2, 0]))
    assert (column.variants, chosen.variants) == (3, 2)
    assert chosen.mem1.bandwidth.tolist() == [3000e9, 1000e9]
    size = np.array([1e9, 1e9])
    assert chosen.mem1.time(size).tolist() == [1e9 / (3000e9 * 0.7), 1e9 / (1000e9 * 0.5)]
    assert of_rows(column, np.arange(3)) is column
