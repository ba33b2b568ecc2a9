"""A small study to run and to break: two rows of GPT 22 B."""

import copy

import pytest
import yaml

from calculon import SpecError
from calculon.validate.measured_and_predicted import compare
from calculon.validate.published_study import Library
from tests.helpers import PLAIN

EXECUTION = PLAIN | {
    "num_procs": "gpus",
    "tensor_par": "tp",
    "data_par": "gpus / tp",
    "pipeline_par_net": 1,
    "data_par_net": 1,
    "batch_size": "batch",
    "microbatch_size": 4,
    "activation_recompute": "mode",
}
STUDY = {
    "title": "a study",
    "source": "a paper, Table 1",
    "evidence": "measured",
    "calibration": "none",
    "measured": "measured.csv",
    "system": "a100_80g",
    "model": "megatron-22B",
    "execution": EXECUTION,
    "quantities": [
        {
            "name": "time",
            "measured": "seconds",
            "unit": "s",
            "estimate": "total_time",
            "bound": 5,
        }
    ],
}
CSV = "id,gpus,tp,batch,mode,seconds,gigabytes\na,8,8,4,full,1.42,50\nb,8,8,8,none,1.9,\n"


@pytest.fixture
def content():
    """The study as a mapping, to be changed."""
    return copy.deepcopy(STUDY)


@pytest.fixture
def library(tmp_path):
    """Write a study into a folder of its own; return the library of that folder."""

    def write(study, table=CSV, **files):
        folder = tmp_path / "validation" / "small"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
        (folder / "measured.csv").write_text(table)
        for name, text in files.items():
            (folder / name).write_text(text)
        return Library.at(tmp_path)

    return write


@pytest.fixture
def refuses(result):
    """Check that a study is refused with its file, the field and some words."""

    def check(file, field, words, *study, **options):
        with pytest.raises(SpecError) as caught:
            result(*study, **options)
        assert (caught.value.file.rpartition("/")[2], caught.value.field) == (file, field)
        assert words in str(caught.value)

    return check


@pytest.fixture
def result(library):
    """Write a study and run it."""

    def run(study, table=CSV, edition="sc23"):
        place = library(study, table)
        (one,) = place.studies()
        return compare(one, place, edition)

    return run
