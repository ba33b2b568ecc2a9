"""Every bar of the charts of a page leads somewhere."""

from urllib.parse import urlsplit

import pytest

from calculon.explore.views import PARTS
from calculon.render.chart import Bars
from tests.documents.charts.reading import marks
from tests.explore.asking import answers, at, made
from tests.explore.stated import OWN, SMALL

VIEWS = {
    "a plan of one's own": f"{SMALL}&{OWN}",
    "the best plan": SMALL,
    "the machine": f"{SMALL}&view=machine",
    "the pipeline": f"{SMALL}&{OWN}&view=pipeline",
}


@pytest.mark.parametrize("address", VIEWS.values(), ids=VIEWS)
def test_every_bar_leads_to_a_state_and_a_part_that_there_are(address):
    state, seen = at(f"/?{address}"), 0
    answers().best_plans(state)
    for kind in PARTS[state.view]:
        part = made(kind.name, state)
        for panel in () if part is None or part.chart is None else part.chart.panels:
            for bars in marks(panel, Bars):
                assert part.leads
                assert len(bars.links) == len(bars.at)
                for link in bars.links:
                    there, place = at(link), urlsplit(link).fragment
                    parts = {f"part-{one.name}" for one in PARTS[there.view]}
                    assert not place or place in parts or place.startswith("changes-")
                    seen += 1
    assert seen
