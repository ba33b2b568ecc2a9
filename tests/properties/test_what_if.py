"""Row i of a table of variants of a system equals that system alone, bit for bit, whatever figures others change."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import calculon
from calculon import inputs
from calculon.hardware.figures import with_figures
from tests.strategies import every_table, tables

FACTORS = (0.5, 0.9, 1.01, 1.25, 3.0)


def variants(random, figures, count):
    """Choose new values of some figures for each of so many rows; a few switch something off."""
    found = []
    for _ in range(count):
        some = random.sample(sorted(figures), min(len(figures), random.choice((0, 1, 1, 2, 5))))
        found.append({path: other(random, figures[path]) for path in some})
    return found


def other(random, figure):
    """Choose another value that a figure may have."""
    values = [figure.value * factor for factor in FACTORS]
    if figure.kind is int:
        values = [max(1, round(value)) for value in values]
    allowed = [value for value in (*values, 0) if figure.problem(value) is None]
    return random.choice(allowed or [figure.value])


def assert_rows_are_alone(model, plan, system, changes):
    """Compare what is evaluated together with every changed system alone: values, reasons, bit for bit."""
    many = calculon.what_if(model, plan, system, changes)
    for i, change in enumerate(changes):
        machine = with_figures(system, change) if change else system
        alone = calculon.evaluate(model, machine, plan.take(slice(i, i + 1)))
        assert many.reason[i] == alone.reason[0], change
        for name in alone.names:
            found, expected = many[name][i], alone[name][0]
            assert found == expected or (np.isnan(found) and np.isnan(expected)), (name, change)


def compare(table, random):
    """Compare some executions of a table on some variants of its system."""
    model, system, rows = table
    model, system = inputs.model(model), inputs.system(system)
    plan = calculon.Plan.from_records(random.sample(rows, min(3, len(rows))))
    each = np.repeat(np.arange(len(plan)), 5)
    changes = variants(random, calculon.figures(system), len(each))
    assert_rows_are_alone(model, plan.take(each), system, changes)


@given(table=tables(), random=st.randoms(use_true_random=True))
def test_published_executions_on_variants_of_random_systems(table, random):
    compare(table, random)


@given(table=every_table(), random=st.randoms(use_true_random=True))
def test_executions_on_variants_of_random_systems(table, random):
    compare(table, random)
