"""Results that are computed once in a run."""

import os
import subprocess
import sys

from tests.helpers import ROOT
from tests.store import STORE, stored


@stored
def squared(number: int, *, note: str = "") -> list[int]:
    calls.append((number, note))
    return [number * number]


calls: list[tuple[int, str]] = []


def test_a_result_is_computed_once_for_each_of_its_arguments():
    calls.clear()
    assert [squared(3), squared(3), squared(4), squared(3, note="x")] == [[9], [9], [16], [9]]
    assert calls in ([(3, ""), (4, ""), (3, "x")], [])  # nothing where another process was first


def test_another_process_reads_it():
    squared(5)
    code = "from tests.test_store import calls, squared; print(squared(5), calls)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), STORE: os.environ[STORE]}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[25] []\n"
