"""Changes since an earlier run: of classes, studies and rows, and the limit that they may not exceed."""

import json

import numpy as np
import pytest

from calculon import SpecError
from calculon.declarations.files import json_text
from calculon.validate import error_summary as summary
from calculon.validate.baseline import classes_above, moves, read_baseline

SECONDS = {"a": 1.42, "b": 1.9, "c": 2.5}
TABLE = "id,gpus,tp,batch,mode,seconds\na,8,8,4,full,{a}\nb,8,8,8,none,{b}\nc,8,4,8,full,{c}\n"
LIMITS = (0, 1, 5, 20, 1000)


@pytest.fixture
def compared(result, content):
    """Compare the rows of the table with some times multiplied."""

    def run(**factors):
        seconds = {name: SECONDS[name] * factors.get(name, 1) for name in SECONDS}
        return [result(content, TABLE.format(**seconds), "corrected")]

    return run


@pytest.fixture
def earlier(compared, tmp_path):
    """Return the baseline of rows with some times multiplied, read from its JSON."""

    def run(**factors):
        file = tmp_path / "before.json"
        file.write_text(json_text(summary.document(compared(**factors))))
        return read_baseline(str(file))

    return run


def test_nothing_moves_without_a_change(compared, earlier):
    found = moves(compared(), earlier())
    assert found.rows == []
    assert {one["change"] for one in (*found.studies, *found.classes)} == {0}
    assert classes_above(compared(), 0, found) == []


@pytest.mark.parametrize("seed", range(5))
def test_changes_are_differences_of_medians_and_of_errors(compared, earlier, seed):
    rng = np.random.default_rng(seed)
    before, now = (dict(zip("abc", rng.uniform(0.6, 1.6, 3), strict=True)) for _ in range(2))
    old, new = (compared(**one)[0].own.comparisons[0] for one in (before, now))
    found = moves(compared(**now), earlier(**before))
    (study,) = found.studies
    assert study["change"] == pytest.approx(new.score.median - old.score.median)
    expected = dict(zip("abc", new.errors - old.errors, strict=True))
    assert {one["row"]: one["change"] for one in found.rows} == pytest.approx(expected)
    sizes = [abs(one["change"]) for one in found.rows]
    assert sizes == sorted(sizes, reverse=True)
    rise = np.median(np.abs(new.errors)) - np.median(np.abs(old.errors))
    for limit in LIMITS:
        assert bool(classes_above(compared(**now), limit, found)) == (rise > limit)


def test_without_a_baseline_the_error_itself_is_limited(compared):
    results = compared(a=3)
    error = np.median(np.abs(results[0].steps.errors))
    for limit in LIMITS:
        assert bool(classes_above(results, limit)) == (error > limit)


def test_what_the_baseline_lacks_has_no_change(compared, earlier):
    before = earlier()
    before["studies"], before["classes"] = [], []
    found = moves(compared(), before)
    assert {one["before"] for one in (*found.studies, *found.classes)} == {None}
    assert found.rows == []
    with pytest.raises(SpecError, match="that the baseline has, found none"):
        classes_above(compared(), 5, found)


def test_rows_with_one_name_are_compared_in_their_order(result, content, earlier, tmp_path):
    table = TABLE.format(**SECONDS).replace("\nb,", "\na,")
    results = [result(content, table, "corrected")]
    file = tmp_path / "before.json"
    file.write_text(json_text(summary.document(results)))
    assert moves(results, read_baseline(str(file))).rows == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda found: found.pop("classes"), "classes: expected a list"),
        (lambda found: found["studies"][0].pop("quantities"), "a part without 'quantities'"),
        (lambda found: found["studies"].append(1), "expected JSON of calculon lv"),
        (lambda found: found["classes"][0].update(absolute="5"), "errors as numbers, found '5'"),
    ],
)
def test_another_document_is_refused(compared, tmp_path, change, words):
    document = json.loads(json_text(summary.document(compared())))
    change(document)
    file = tmp_path / "before.json"
    file.write_text(json.dumps(document))
    with pytest.raises(SpecError, match=words):
        read_baseline(str(file))
