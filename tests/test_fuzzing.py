"""A small draw of damaged files; ``scripts/fuzz`` makes large ones."""

from tests import fuzzing

CASES = 360


def test_no_damaged_file_ends_in_a_traceback(tmp_path):
    kinds, failures = set(), []
    for kind, failure in fuzzing.run(range(CASES), tmp_path):
        kinds.add(kind)
        failures += [failure] if failure else []
    assert not failures, failures[0].what
    assert len(kinds) == len(fuzzing.targets(tmp_path))
