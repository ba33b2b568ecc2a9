"""The page of a sensitivity fits its width, and a tornado has a bar from now to each end of a range."""

import re
from dataclasses import replace

import pytest

import calculon
from calculon.advise.replanned import CapacitySweep, Replanned, Step
from calculon.base.units import GIB
from calculon.documents.confidence import risk_words
from calculon.documents.sensitivity_page import SHOWN, sensitivity_page
from calculon.inputs import Changed
from calculon.render.bars import TwoSided
from calculon.render.digits import WITHOUT_INTERVAL, Digits
from calculon.render.fitted_grid import folded
from tests.advise import test_sensitivity
from tests.documents.drawing import drawn
from tests.store import cache

pytest.importorskip("matplotlib", reason="pictures need the extra plot")

from calculon.documents.charts.tornado_chart import kinds_shown, tornado
from calculon.render.chart import Bars, Line
from tests.documents.charts.reading import assert_in_sight, ends, legend, marks

EXAMPLE = ("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
TODAY = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")
FEWER_FIGURES = (*TODAY[:2], "gaudi3")


@cache
def found():
    return calculon.sensitivity(*TODAY)


def document():
    return found().to_dict()


def searched():
    """A plan that is searched again on each machine."""
    return test_sensitivity.searched()


def page(width, content):
    return drawn(sensitivity_page(content), width=width)


def test_no_path_is_cut():
    now = document()["value"]
    shown = [
        row["path"]
        for row in document()["figures"]
        for one in [row["at_low"], row["at_high"]]
        if one is not None and abs(one / now - 1) >= SHOWN
    ]
    assert shown
    for width in (60, 80, 160):
        text = page(width, found())
        assert max(map(len, text.splitlines())) <= width
        joined = "".join(text.split())
        assert all(path in joined or path.rpartition(".")[2] in joined for path in shown), width
        assert "…" not in text


def test_bars_are_in_proportion():
    def bars(low, high, largest):
        text = drawn(TwoSided(low / largest, high / largest), width=40).rstrip("\n")
        return text[:20].count("#") + text[:20].count("."), len(text[20:].rstrip())

    assert bars(0.2, -0.1, 0.2) == (10, 20)
    assert bars(0.1, -0.1, 0.2) == (10, 10)
    assert bars(0.0, 0.0, 0.2) == (0, 0)


@pytest.mark.parametrize("width", [80, 160])
def test_what_was_searched_again_fits_the_width(width):
    lines = page(width, searched()).splitlines()
    assert max(map(len, lines)) <= width
    rows: dict[str, str] = {}
    for line in lines:
        if line.startswith("  ") and line.split():
            rows.setdefault(line.split()[0], line)
    ends = searched().searched.ends
    for row in searched().rows():
        if row["path"] in ends and row["path"] in rows:
            value = row["replanned_at_high"] / searched().value - 1
            shown = "0" if abs(100 * value) < 0.005 else f"{100 * value:+.1f} %"
            assert shown in rows[row["path"]] or f"{100 * value:+.2f} %" in rows[row["path"]]
    assert any("Memory: 80 GiB" in line for line in lines)


def test_the_staircase_rises_and_says_both_ends_of_the_step_below():
    fields = searched().execution.to_dict()
    steps = tuple(
        Step(capacity=size * GIB, best=Replanned(value=1 / size, execution=fields))
        for size in (20.25, 40.5, 80.5, 90.0)
    )
    stairs = CapacitySweep(capacity=80 * GIB, withheld=0.0, now=1, steps=steps)
    again = replace(searched().searched, staircase=stairs)
    text = page(400, replace(searched(), value=steps[1].best.value, searched=again))
    lines = text.partition("Memory: ")[2].splitlines()[1:]
    assert lines[0].split()[:5] == ["20.25", "to", "40.5", "GiB", "(-39.5)"]
    assert f"{100 * (40.5 / 20.25 - 1):+.1f} %" in lines[0]
    assert [float(line.split()[0]) for line in lines[1:4]] == [80.5, 81.0, 90.0]


def test_folded_paths_lose_nothing():
    path = "ext.kernels.attention.bfloat16.kernels.cudnn.backward.causal_lead"
    for width in (10, 20, 34):
        lines = folded(path, width)
        assert "".join(lines) == path
        assert all(line.endswith(".") for line in lines[:-1])


def test_a_tornado_goes_from_now_to_both_ends():
    shown, chart = kinds_shown(document()), tornado(document())
    assert_in_sight(chart)
    now = document()["value"]
    assert [panel.title for panel in chart.panels] == ["Hardware", "Efficiencies"]
    for kind, panel in zip(shown, chart.panels, strict=True):
        for end, bars in zip(("low", "high"), marks(panel, Bars), strict=True):
            rows = [row for row in kind.rows if row[end] is not None]
            expected = [100 * ((row[f"at_{end}"] or now) / now - 1) for row in rows]
            assert [place for _, place in ends(bars)] == pytest.approx(expected)
        swings = [abs((row["at_low"] or now) - (row["at_high"] or now)) for row in kind.rows]
        assert swings == sorted(swings, reverse=True)


def test_diamonds_are_the_best_plans():
    plain, now = searched().to_dict(), searched().value
    kind = kinds_shown(plain)[0]
    (line,) = marks(tornado(plain).panels[0], Line)
    best = (row[f"replanned_at_{end}"] for row in kind.rows for end in ("low", "high"))
    assert list(line.x) == pytest.approx([100 * (one / now - 1) for one in best if one is not None])


def test_shares_that_end_at_1_say_so():
    name = "ext.kernels.product.bfloat16.max_efficiency"
    row = next(one for one in document()["figures"] if one["path"] == name)
    assert row["high"] == 1 < 1.25 * row["value"]
    line = next(line for line in page(160, found()).splitlines() if name in line)
    assert f"to 1: {100 * (row['at_high'] / document()['value'] - 1):+.1f} %" in line
    free = [one for one in document()["figures"] if one["high"] != 1]
    for figures, told in ((document()["figures"], True), (free, False)):
        chart = tornado({**document(), "figures": figures})
        assert any("efficiencies at most 1" in text for text in legend(chart)) is told
    effects = tuple(one for one in found().effects if one.high != 1)
    assert "to 1: " not in page(160, replace(found(), effects=effects))


def test_a_plan_that_nothing_changes_has_a_picture():
    idle = calculon.sensitivity(*EXAMPLE, of="optimizer_space").to_dict()
    assert tornado(idle).panels[0].title == "No figure of the machine has an effect"


@cache
def whole():
    fleet = {"price": 2.0, "pue": 1.2, "g_co2_per_kwh": "france"}
    return calculon.sensitivity(
        *FEWER_FIGURES, campaign={"tokens": 15e12, "fleet": fleet}, of="usd"
    )


def test_a_run_fits_the_width():
    value = Digits(WITHOUT_INTERVAL).rate(whole().value)
    for width in (60, 80, 160):
        text = page(width, whole())
        assert max(map(len, text.splitlines())) <= width
        assert "15 T tokens" in text
        assert re.search(rf"usd +{value} USD", text)
        assert "Assumed" in text


def test_a_tornado_of_a_run_has_a_panel_of_it():
    chart = tornado(whole().to_dict())
    assert [panel.title for panel in chart.panels] == [
        "The run",
        "Hardware",
        "Efficiencies",
    ]
    assert chart.subtitle.endswith(f": {whole().value / 1e3:.3g} k USD")


def test_a_goodput_near_1_has_rows_of_what_it_lacks():
    """A figure has a row from 0.5 % of what is lost on, as nothing changes 97 % by much."""
    goodput = calculon.sensitivity(*FEWER_FIGURES, of="goodput", campaign={"tokens": "15T"})
    now, text = goodput.value, "".join(page(100, goodput).split())
    rows = [row for row in goodput.rows() if row["kind"] == "run"]
    assert now > 0.9
    changes = {
        row["path"]: max(abs(row[f"at_{end}"] - now) for end in ("low", "high")) for row in rows
    }
    assert 0 < changes["reliability.mtbf_processor"] < 0.01
    for path, change in changes.items():
        if change >= SHOWN * (1 - now):
            assert path in text.partition("Assumed")[0]
    drawn = [row["path"] for one in kinds_shown(goodput.to_dict()) for row in one.rows]
    assert "reliability.mtbf_processor" in drawn


def test_a_plan_that_may_not_fit_has_its_risk():
    for size, said in ((68, True), (94, False)):
        machine = Changed(TODAY[-1], {"mem1.GiB": size})
        one = calculon.sensitivity(*TODAY[:2], machine)
        known = calculon.estimate(*TODAY[:2], machine).stats["fits"]
        assert one.fits == one.to_dict()["fits"] == known
        assert (risk_words(known) in " ".join(page(120, one).split())) == said
