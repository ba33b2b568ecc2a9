"""Published processor-hours, as their studies have them."""

import csv

from calculon.campaign.published_hours import FOLDER, published_trainings, same_name
from calculon.spec import catalog
from tests.cases import for_each
from tests.helpers import ROOT


def test_every_row_with_hours_is_there():
    rows = []
    for file in sorted((ROOT / FOLDER).glob("*/measured.csv")):
        with file.open(encoding="utf-8", newline="") as stream:
            rows += [row for row in csv.DictReader(stream) if row["gpu_hours"]]
    told = [(one.run, one.processor_hours) for one in published_trainings()]
    assert told == [(row["run"], float(row["gpu_hours"])) for row in rows]
    assert len(told) > 8
    assert all(one.source for one in published_trainings())


@for_each(
    ("run", "model"),
    [
        ("Llama 3.1 405B", "llama3.1-405B"),
        ("BLOOM 176B", "bloom-176B"),
        ("DeepSeek-V3", "deepseek-v3"),
        ("Llama 3 70B", "llama3-70B"),
    ],
)
def test_trainings_are_found_by_models_of_the_catalog(run, model):
    assert model in catalog.names("model")
    assert [one.run for one in published_trainings() if same_name(one.run, model)] == [run]
