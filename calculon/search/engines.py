"""Engines: who runs the tasks of a sweep. One process, several, or a Dask cluster; the results are the same.

An engine maps a function over tasks and yields results as they finish, in any order. Function, tasks and results are
pickled, so that the function stands at the top of a module and tasks and results stay small.

On a cluster, start a Dask scheduler and workers (with ``dask-jobqueue``: ``SLURMCluster`` or ``LSFCluster``) and give
the scheduler's address.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Protocol, TypeVar

from calculon.errors import CalculonError, Problem, SpecError, nearest

T = TypeVar("T")
R = TypeVar("R")

ENGINES = ("serial", "processes", "dask")

AHEAD = 4
"""Tasks per worker that wait with the workers, so that none is idle and few are lost."""

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""What keeps the libraries under numpy from starting threads in every worker."""


class EngineWarning(UserWarning):
    """A worker was lost; its tasks are run again."""


class EngineError(CalculonError):
    """The workers cannot go on; results that were yielded before stay valid."""


class Engine(Protocol):
    """Runs tasks somewhere."""

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yield the result of every task as it finishes.

        Raises
        ------
        EngineError
            When workers die again and again. What the function raises is raised here.
        """


def make_engine(name: str, cpus: int | None = None, scheduler: str | None = None) -> Engine:
    """Return an engine by name.

    Parameters
    ----------
    name : str
        One of :data:`ENGINES`. Without a scheduler, ``dask`` starts workers on this machine.
    cpus : int, optional
        Workers on this machine; the physical cores by default.
    scheduler : str, optional
        Address of a running Dask scheduler, such as ``tcp://node1:8786``, or its scheduler file.

    Raises
    ------
    SpecError
        For an unknown engine, or options that contradict each other.
    """
    if name not in ENGINES:
        wanted = "one of " + ", ".join(ENGINES)
        raise SpecError("--engine", Problem("", wanted, repr(name), nearest(name, ENGINES)))
    if scheduler is not None and name != "dask":
        hint = "add --engine dask"
        raise SpecError("--scheduler", Problem("", "an engine that has one", f"{name!r}", hint))
    if cpus is not None and cpus < 1:
        raise SpecError("--cpus", Problem("", "a whole number of at least 1", str(cpus)))
    if scheduler is not None and cpus is not None:
        found, hint = (
            "both --cpus and --scheduler",
            "the cluster knows its workers: leave --cpus out",
        )
        raise SpecError("--cpus", Problem("", "workers on this machine", found, hint))
    if name == "dask":
        from calculon.search.engines_dask import Dask

        return Dask(scheduler, cpus or physical_cores())
    return Serial() if name == "serial" else Processes(cpus or physical_cores())


def physical_cores() -> int:
    """Return how many physical cores this process may use, at least 1."""
    import psutil

    cores = psutil.cpu_count(logical=False) or 1
    with contextlib.suppress(AttributeError, OSError):
        cores = min(cores, len(os.sched_getaffinity(0)))
    return max(1, cores)


class Serial:
    """Runs one task after the other in this process."""

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yield results in the order of the tasks."""
        yield from map(function, tasks)


class Processes:
    """Runs tasks in several processes of this machine; a single worker is this process.

    When a worker dies, its pool is replaced and what was under way is run again, once.
    """

    def __init__(self, workers: int):
        self.workers = workers

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yield results as they finish."""
        if min(self.workers, len(tasks)) <= 1:
            yield from map(function, tasks)
            return
        waiting = list(range(len(tasks)))[::-1]
        lost: Counter[int] = Counter()
        while waiting:
            with _pool(min(self.workers, len(waiting))) as pool:
                under_way: dict[Future[R], int] = {}
                try:
                    yield from self._run(pool, function, tasks, waiting, under_way)
                except BrokenProcessPool:
                    waiting += sorted(under_way.values(), reverse=True)
                    lost.update(under_way.values())
                    _report_loss(lost)

    def _run(
        self,
        pool: ProcessPoolExecutor,
        function: Callable[[T], R],
        tasks: Sequence[T],
        waiting: list[int],
        under_way: dict[Future[R], int],
    ) -> Iterator[R]:
        """Take tasks from the end of a list until it is empty; keep account of those under way."""
        while waiting or under_way:
            while waiting and len(under_way) < AHEAD * self.workers:
                index = waiting.pop()
                try:
                    under_way[pool.submit(function, tasks[index])] = index
                except BrokenProcessPool:
                    waiting.append(index)
                    if not under_way:
                        raise
                    break
            finished, _ = wait(under_way, return_when=FIRST_COMPLETED)
            good = [one for one in finished if not isinstance(one.exception(), BrokenProcessPool)]
            for future in good:
                del under_way[future]
                yield future.result()
            if len(good) < len(finished):
                raise BrokenProcessPool


def _report_loss(lost: Counter[int]) -> None:
    """Warn of workers that died; give up on tasks that this happens to twice."""
    cause = "killed from outside, or out of memory: fewer --cpus need less"
    if max(lost.values(), default=0) > 1:
        twice = sum(1 for count in lost.values() if count > 1)
        message = f"workers died twice with the same {twice} tasks under way ({cause})"
        raise EngineError(message)
    message = f"a worker died ({cause}); {len(lost)} tasks that were under way are run again"
    warnings.warn(message, EngineWarning, stacklevel=3)


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Start single-threaded workers that end with this process, however it ends, and at once when interrupted.

    The workers hold one end of a pipe whose other end only this process has: when that closes, they leave.
    """
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update({name: value for name, value in ONE_THREAD.items() if not before[name]})
    pool = ProcessPoolExecutor(workers, context, _watch, (theirs,))
    try:
        yield pool
    finally:
        ours.close()
        theirs.close()
        pool.shutdown(wait=True, cancel_futures=True)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)


def _watch(parent: Connection) -> None:
    """Prepare a worker: leave Ctrl-C to the parent, and leave when the parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def leave() -> None:
        with contextlib.suppress(OSError, EOFError):
            parent.recv()
        os._exit(1)

    threading.Thread(target=leave, daemon=True).start()
