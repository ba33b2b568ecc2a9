"""Engines: the same results from each, whatever happens to the workers."""

import dataclasses
import os
import signal
import time
from pathlib import Path

import pytest

from calculon import inputs
from calculon.apps.sweep.engines import make_engine, physical_cores
from calculon.apps.sweep.executor import EngineError, Serial
from calculon.apps.sweep.processes import EngineWarning, Processes
from calculon.apps.sweep.task import Search, run_search
from calculon.errors import CalculonError, SpecError
from calculon.search.driver import search

SEARCHES = [
    Search(
        number=i,
        model=inputs.model("megatron-22B"),
        system=inputs.system("a100_80g"),
        num_procs=count,
        max_batch_size=24,
        datatype="float16",
        top=5,
    )
    for i, count in enumerate((8, 12, 16, 20, 24, 32, 1021))
]


def results(engine, searches=SEARCHES):
    return sorted(engine.map(run_search, searches), key=lambda outcome: outcome.search)


@pytest.fixture(scope="module")
def expected():
    return results(Serial())


def test_an_outcome_is_the_search_itself(expected):
    asked, outcome = SEARCHES[2], expected[2]
    found = search("megatron-22B", "a100_80g", 16, 24, top=5)
    result = outcome.result(asked)
    assert result.counts == found.counts
    assert result.numbers.tolist() == found.numbers.tolist()
    assert result.scores.tobytes() == found.scores.tobytes()
    assert result.evaluation.to_frame().equals(found.evaluation.to_frame())


def test_a_search_without_any_result_is_an_outcome_too(expected):
    outcome = expected[-1]  # a prime number of processors
    assert (outcome.numbers, outcome.scores, outcome.counts.good) == ((), ((),), 0)
    assert len(outcome.result(SEARCHES[-1])) == 0


@pytest.mark.parametrize("workers", [1, 7])
def test_processes_give_the_same_to_the_bit(expected, workers):
    assert results(Processes(workers)) == expected


def _slow_square(task):
    number, folder = task
    time.sleep(0.05)
    Path(folder, f"{number}.{os.getpid()}").touch()
    return number**2


def _square_or_die(task):
    number, marker = task
    if number == 3 and not Path(marker).exists():
        Path(marker).touch()
        os._exit(9)
    return number**2


def _die(number):
    if number == 3:
        os._exit(9)
    return number


def _fail(number):
    raise CalculonError(f"no {number}")


def test_processes_survive_a_worker_that_dies(tmp_path):
    tasks = [(number, str(tmp_path / "died")) for number in range(20)]
    with pytest.warns(EngineWarning, match="a worker died .* are run again"):
        found = sorted(Processes(2).map(_square_or_die, tasks))
    assert found == [number**2 for number in range(20)]


def test_processes_give_up_on_a_task_that_kills_twice():
    with pytest.warns(EngineWarning), pytest.raises(EngineError, match="workers died twice"):
        list(Processes(2).map(_die, range(5)))


def test_an_error_of_a_task_is_raised_here():
    with pytest.raises(CalculonError, match="no 1"):
        list(Processes(2).map(_fail, [1, 1]))


def test_a_worker_of_another_version_refuses():
    asked = dataclasses.replace(SEARCHES[0], version="0.9")
    with pytest.raises(CalculonError, match=r"a worker has calculon .*, but 0\.9 asks"):
        run_search(asked)


@pytest.mark.filterwarnings("ignore")
def test_dask_gives_the_same_to_the_bit_when_a_worker_is_killed(expected, tmp_path):
    distributed = pytest.importorskip("distributed")
    options = {"threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with distributed.LocalCluster(n_workers=2, **options) as cluster:
        engine = make_engine("dask", scheduler=cluster.scheduler_address)
        assert results(engine) == expected
        victims = [worker.pid for worker in cluster.workers.values()]
        tasks = [(number, str(tmp_path)) for number in range(40)]
        finished = []
        for square in engine.map(_slow_square, tasks):
            finished.append(square)
            if len(finished) == 5:
                os.kill(victims[0], signal.SIGKILL)
        assert sorted(finished) == [number**2 for number in range(40)]
        assert len({path.suffix for path in tmp_path.iterdir()}) > 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serail",), "--engine: expected one of serial, processes, dask, found 'serail'"),
        (("processes", 0), "--cpus: expected a whole number of at least 1, found 0"),
        (("processes", None, "tcp://x:1"), "Hint: add --engine dask"),
        (("dask", 2, "tcp://x:1"), "leave --cpus out"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(SpecError) as error:
        make_engine(*arguments)
    assert message in str(error.value)


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    module = pytest.importorskip("calculon.apps.sweep.dask_engine")
    pytest.importorskip("distributed")
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    with pytest.raises(SpecError, match="--scheduler: expected the address of a running Dask"):
        list(make_engine("dask", scheduler="tcp://127.0.0.1:9").map(_fail, [1]))


def test_uses_the_physical_cores():
    assert 1 <= physical_cores() <= os.cpu_count()
