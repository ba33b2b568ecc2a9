"""An execution that is predicted to exceed its memory by less than the memory error is estimated, with its risk."""

import pytest

import calculon
from calculon.base.units import GIB
from calculon.declarations.statistics import FITS, LEVEL, TIER1
from calculon.inputs import Changed

MODEL, PLAN, SYSTEM = "llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm"


def on(usable):
    """Return the estimate on a machine whose processors have so much usable memory, as a share of what is needed."""
    whole = calculon.estimate(MODEL, PLAN, SYSTEM)
    withheld = whole.system.mem1.capacity - whole.system.usable[0]
    capacity = (whole.stats[TIER1] * usable + withheld) / GIB
    return calculon.estimate(MODEL, PLAN, Changed(SYSTEM, {"mem1.GiB": capacity}))


@pytest.mark.parametrize("usable", [0.97, 0.99, 1.01])
def test_it_is_estimated_where_it_may_fit(usable):
    found, whole = on(usable), calculon.estimate(MODEL, PLAN, SYSTEM)
    assert found.stats["total_time"] == whole.stats["total_time"]
    assert (found.stats[TIER1] > found.system.usable[0]) == (usable < 1)
    assert 1 - LEVEL <= found.evidence[FITS] < LEVEL
    assert found.belief.memory.remark.startswith(
        f"{abs(usable - 1) * found.stats[TIER1] / GIB:.1f} GiB are"
    )


def test_it_is_infeasible_where_it_hardly_fits():
    with pytest.raises(calculon.Infeasible, match="too much"):
        on(0.85)


def test_what_does_not_fit_in_the_published_edition_is_infeasible():
    args = "megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g"
    needed = calculon.estimate(*args).stats[TIER1]
    for usable, fits in ((1.0001, True), (0.9999, False)):
        machine = Changed("a100_80g", {"mem1.GiB": needed * usable / GIB})
        if fits:
            assert calculon.estimate(args[0], args[1], machine).stats[TIER1] == needed
        else:
            with pytest.raises(calculon.Infeasible):
                calculon.estimate(args[0], args[1], machine)
