"""Engines: the same results from each, whatever happens to the workers."""

import contextlib
import dataclasses
import os
import signal
import threading
import time
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from calculon import inputs
from calculon.base.errors import CalculonError, SpecError
from calculon.search import engines
from calculon.search.driver import search
from calculon.search.engines import (
    Engine,
    EngineError,
    EngineWarning,
    Processes,
    make_engine,
)
from calculon.search.task import Search, run_search
from tests.helpers import refusal

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
    for i, count in enumerate((8, 12, 16, 1021))
]


def results(engine, searches=SEARCHES):
    return sorted(engine.map(run_search, searches), key=lambda outcome: outcome.search)


@pytest.fixture(scope="module")
def expected():
    return results(make_engine("serial"))


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


def _run_or_die(task):
    """Run a search; a path is where a worker notes that it dies, so that the next one does not."""
    if isinstance(task, Search):
        return run_search(task)
    if not Path(task).exists():
        Path(task).touch()
        os._exit(9)
    return None


def surviving(engine, folder):
    """Return the outcomes of an engine of which a worker dies."""
    tasks = [*SEARCHES[:3], str(folder / "died"), *SEARCHES[3:]]
    found = [outcome for outcome in engine.map(_run_or_die, tasks) if outcome is not None]
    return sorted(found, key=lambda outcome: outcome.search)


def test_processes_give_the_same_to_the_bit_when_a_worker_dies(expected, tmp_path):
    with pytest.warns(EngineWarning, match="a worker died .* are run again"):
        assert surviving(Processes(2), tmp_path) == expected
    assert (tmp_path / "died").exists()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "dies", [False, pytest.param(True, marks=pytest.mark.large)], ids=["threads", "a process dies"]
)
def test_dask_gives_the_same_to_the_bit(expected, tmp_path, dies):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=dies,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address=":0",
    ) as cluster:
        engine = make_engine("dask", scheduler=cluster.scheduler_address)
        found = surviving(engine, tmp_path) if dies else results(engine)
    assert found == expected
    assert (tmp_path / "died").exists() == dies


class Fragile(Engine):
    """Workers in this process, two at a time, which one task kills whenever it comes."""

    pools = 0

    @contextlib.contextmanager
    def _executor(self, tasks):
        self.pools += 1
        with ThreadPoolExecutor(2) as pool:
            yield pool, 2


def _break(number):
    if number == 3:
        raise BrokenExecutor
    return number


def test_gives_up_on_a_task_that_kills_twice():
    engine = Fragile()
    with pytest.warns(EngineWarning), pytest.raises(EngineError, match="workers died twice"):
        list(engine.map(_break, range(30)))
    assert engine.pools == 2


def test_results_from_before_a_worker_died_are_yielded_once():
    found = []
    with pytest.warns(EngineWarning), pytest.raises(EngineError):
        found += Fragile().map(_break, [*range(4, 40), 3])
    assert len(found) == len(set(found)) >= 28


def _fail(number):
    raise CalculonError(f"no {number}")


@pytest.mark.parametrize("engine", [Processes(1), Fragile()])
def test_an_error_of_a_task_is_raised_here(engine):
    with pytest.raises(CalculonError, match="no 1"):
        list(engine.map(_fail, [1, 1]))


def test_a_worker_of_another_version_refuses():
    asked = dataclasses.replace(SEARCHES[0], version="0.9")
    with pytest.raises(
        CalculonError, match=r"a worker has calculon .*, but the request is from 0\.9"
    ):
        run_search(asked)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serail",), "--engine: expected one of serial, processes, dask, found 'serail'"),
        (("processes", 0), "--cpus: expected a whole number of at least 1, found 0"),
        (("processes", None, "tcp://x:1"), "Hint: add --engine dask"),
        (("dask", 2, "tcp://x:1"), "leave --cpus out"),
        (("dask",), "--engine: expected a running Dask scheduler"),
    ],
)
def test_refuses(arguments, message):
    assert message in refusal(make_engine, *arguments)


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(engines, "PATIENCE", 0.2)
    with pytest.raises(SpecError, match="--scheduler: expected the address of a running Dask"):
        list(make_engine("dask", scheduler="tcp://127.0.0.1:9").map(_fail, [1]))


def test_an_interrupt_by_another_thread_waits_until_a_process_has_started():
    """One that was there before holds no signals back."""
    end, started = threading.Event(), []

    def start():
        with engines._held_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
            started.append("a process")

    thread = threading.Thread(target=end.wait)
    thread.start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            start()
        assert started
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
        end.set()
        thread.join()
