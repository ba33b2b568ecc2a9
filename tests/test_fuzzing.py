"""A small draw of damaged files; ``scripts/fuzz`` makes large ones."""

import os
import signal
import time

import pytest

from scripts import fuzz_run
from tests import fuzzing
from tests.draws import draws


def test_no_damaged_file_ends_in_a_traceback(tmp_path):
    failures = [
        f"seed {case.seed}, {case.kind}: {what}"
        for case in fuzzing.cases(range(draws(31)), tmp_path)
        if (what := fuzzing.tried(case))
    ]
    assert not failures, failures[0]


@pytest.mark.parametrize(
    ("printed", "wrong"),
    [
        ((0, "a\n", ""), ""),
        ((2, "", "calculon: error: a\n"), ""),
        ((3, "", ""), "exit code 3"),
        ((2, "", ""), "exit code 2 without a message"),
        ((2, "", "calculon: error: a\ncalculon: error: b\n"), ""),
        ((1, "Traceback (most recent call last):", ""), "prints Traceback"),
        ((0, "\x1b[31m", ""), r"prints '\x1b'"),
        ((0, "", "\u202e"), r"prints '\u202e'"),
        ((0, fuzzing.SECRET, ""), "prints a file outside the folder"),
    ],
)
def test_wrong_output_is_found(printed, wrong):
    found = fuzzing.wrong_output(*printed)
    assert found.startswith(wrong)
    assert bool(found) == bool(wrong)


def _ends_badly(connection, seeds, _kinds, _folder):
    for seed in seeds:
        connection.send(fuzzing.Case(seed, "kind", b"", ()))
        if seed == 1:
            time.sleep(60)
        if seed == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        connection.send("")


@pytest.mark.large
def test_cases_that_hang_or_crash_are_failures_and_others_follow(monkeypatch):
    monkeypatch.setattr(fuzz_run, "PATIENCE", 10)
    monkeypatch.setattr(fuzz_run, "attempt", _ends_badly)
    assert {case.seed: what for case, what in fuzz_run.chunk(range(4), ())} == {
        0: "",
        1: "nothing for 10 s of wall time",
        2: "the process ended: exit code -9",
        3: "",
    }
