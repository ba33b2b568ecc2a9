"""Words and numbers of pages."""

import math
from types import SimpleNamespace

from calculon.advise.replanned import CapacitySweep, Replanned, Step
from calculon.base.units import GIB, Unit
from calculon.declarations.statistics import BOUNDS
from calculon.documents import expert_section, fleet_page, sensitivity_page
from calculon.documents import serving_page as serving
from calculon.documents.campaign_words import interval_words
from calculon.documents.charts.sweep_chart import _word
from calculon.documents.plans_table import digits_of
from calculon.documents.sensitivity_page import _SensitivityPage
from calculon.documents.waterfall_section import _is_nothing
from calculon.documents.why_page import gib_more, percent_more
from calculon.render import texts
from calculon.render.digits import WITHOUT_INTERVAL, Digits
from tests.cases import for_each
from tests.documents.drawing import drawn


def _stairs(*values, now=0, capacity=64 * GIB):
    """Return a staircase with a step at each GiB from the capacity on."""
    steps = (
        Step(capacity=capacity + i * GIB, best=Replanned(value=v, execution={}))
        for i, v in enumerate(values)
    )
    return CapacitySweep(capacity=capacity, withheld=0, steps=tuple(steps), now=now)


def _sensitivity(unit):
    """Return a sensitivity of a statistic of this unit as far as its values need it."""
    statistic = SimpleNamespace(unit=Unit(unit))
    return SimpleNamespace(value=10.0, searched=None, rows=list, statistic=statistic)


@for_each(
    ("write", "values", "expected"),
    [
        (lambda s: texts.seconds([s], s)[0].split()[1], [9e-4, 1e-3, 0.9, 1], ["us", "ms", "ms", "s"]),
        (lambda s: Digits(0.1).seconds([s], s)[0].split()[1], [9e-4, 1e-3, 0.9, 1], ["us", "ms", "ms", "s"]),
        (lambda size: texts.gib(size * GIB), [9 / 1024, 0.011, -0.5], ["9.00 MiB", "0.01 GiB", "-0.50 GiB"]),
        (lambda size: texts.gib(size * GIB), [99_999, 102_400], ["99,999.00 GiB", "100.00 TiB"]),
        (lambda size: Digits(0.1).gib(size * GIB), [50 / 1024, 0.06], ["50.0 MiB", "0.1 GiB"]),
        (lambda size: Digits(0.1).gib(size * GIB), [99_999, 102_400], ["99,999.0 GiB", "100.0 TiB"]),
        (lambda size: gib_more(size * GIB), [0.049, -0.051], ["0", "-0.1 GiB"]),
        (texts.token_count, [15.6e12, 1e12, 3e11, 500.0, 20_003e6], ["15.6 T", "1 T", "300 G", "500", "20 G"]),
        (percent_more, [0.0004, 0.0006, -0.994, 1.0], ["0.0 %", "+0.1 %", "-99.4 %", "+100 %"]),
        (interval_words, [0.5, 1, 119, 120, 7199, 7200], ["500.0 ms", "1 s", "119 s", "2 min", "120 min", "2 h"]),
        (interval_words, [172_799, 172_800], ["48 h", "2 d"]),
        (_word, [True, False, 1234.5, "a"], ["yes", "no", "1,234.5", "a"]),
        (lambda now: sensitivity_page.change(1.0, now), [1.00004, 1.0006, 1.0004], ["0", "-0.1 %", "-0.04 %"]),
        (lambda v: sensitivity_page.change(v, 0.0), [None, 2.5], ["no fit", "2.500"]),
        (lambda v: sensitivity_page.stated(v, ""), [9999.4, 9999.6, 10_000.0], ["9,999", "10,000", "10,000"]),
        (lambda values: [one.best.value for one in sensitivity_page._steps(_stairs(*values, now=1), 5)],
         [(9, 1.0, 1.001, 1.005, 1.007)], [[1.001, 1.007]]),
        (lambda one: _SensitivityPage(_sensitivity(one[1]))._value(one[0]),
         [(2 * GIB, "B"), (0.5, "fraction"), (12.5, "u"), (1e4, "u")], ["2.00 GiB", "50.00 %", "12.50 u", "10.000 ku"]),
        # a price is the time that a GiB saves
        (lambda steps: drawn(sensitivity_page.memory_section(_stairs(*steps), 10.0, lambda _: "")).split()[-2:],
         [(10.0, 9.0), (10.0,)], [["-10.0", "%"], ["other", "plan"]]),
        (sensitivity_page._length, [{"tokens": 1e9}, {"steps": "5 k"}, {}], ["1 G tokens", "5 k steps", "phases"]),
        (lambda low: fleet_page.digits_of({"days": 10, "days_low": low, "days_high": 12}).spread, [8, None],
         [0.2, WITHOUT_INTERVAL]),
        (lambda low: digits_of(dict(zip(BOUNDS, (low, 12), strict=True)) | {"total_time": 10}).spread, [8, None],
         [0.2, WITHOUT_INTERVAL]),
        # a change of 1e-5 of the time, or of 1e-5 GiB, has an effect
        (lambda one: _is_nothing(one | {"fits": True}, {"mine": {"seconds": 1e3}}),
         [{"seconds": s, "bytes": g * GIB} for s, g in ((0.009, 9e-6), (-0.011, 0), (0, 2e-5))], [True, False, False]),
        (lambda v: fleet_page.amount(v, "d"), [999.0, 1000.0, 0.0, 0.01], ["999.0 d", "1.00 k d", "0.0 d", "<0.1 d"]),
        (serving.rate, [99.94, 99.96, 1234.0], ["99.9", "100", "1,230"]),
        (serving.duration_of, [math.inf, 8.0], ["unbounded", "8.0 s"]),
        (lambda load: expert_section._headroom(load, {"expert_par": 8})[:15], [None, 8, 1.09, 1.11],
         ["", "memory suffices", "tight: memory s", "memory suffices"]),
    ],
)  # fmt: skip
def test_words_and_digits_change_at_their_limits(write, values, expected):
    assert [write(value) for value in values] == expected
