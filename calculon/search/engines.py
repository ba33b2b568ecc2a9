"""Engines that run the tasks of a sweep: processes of this machine, or a Dask cluster; results are identical.

An engine maps a function over tasks and yields results as they finish, in any order. Function, tasks and results are
pickled: the function must be defined at the top level of a module, and tasks and results should be small.

On a cluster, start a Dask scheduler and workers (with ``dask-jobqueue``: ``SLURMCluster`` or ``LSFCluster``) and pass
the address of the scheduler.
"""

import contextlib
import os
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from calculon.base.errors import CalculonError, Problem, SpecError, nearest
from calculon.declarations.files import reason

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future
    from multiprocessing.connection import Connection

T = TypeVar("T")
R = TypeVar("R")

ENGINES = ("serial", "processes", "dask")

AHEAD = 4
"""Tasks per worker that are submitted ahead, so that no worker is idle and few tasks are lost with a worker."""

RETRIES = 2
"""Further attempts of Dask at a task after an error of its worker."""

PATIENCE = 10
"""Timeout of a scheduler, in seconds."""

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""Environment that keeps the libraries under NumPy from starting threads in every worker."""


class EngineError(CalculonError):
    """Failure of the workers; results that were yielded before remain valid."""


class EngineWarning(UserWarning):
    """Loss of a worker, whose tasks are run again."""


def make_engine(name: str, cpus: int | None = None, scheduler: str | None = None) -> "Engine":
    """Return an engine by name.

    Args:
        name: One of :data:`ENGINES`.
        cpus: Number of workers on this machine; by default the number of physical cores.
        scheduler: Address of a running Dask scheduler, such as ``tcp://node1:8786``, or its scheduler file.

    Raises:
        SpecError: For an unknown engine, or options that contradict each other.
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
        found = "both --cpus and --scheduler"
        hint = "the cluster knows its workers: leave --cpus out"
        raise SpecError("--cpus", Problem("", "workers on this machine", found, hint))
    if name != "dask":
        return Processes(1 if name == "serial" else cpus or physical_cores())
    if scheduler is None:
        hint = "give its address with --scheduler; --engine processes runs workers on this machine"
        raise SpecError("--engine", Problem("", "a running Dask scheduler", "none", hint))
    return Dask(scheduler)


def physical_cores() -> int:
    """Return the number of physical cores that this process may use, at least 1."""
    import psutil

    cores = psutil.cpu_count(logical=False) or 1
    with contextlib.suppress(AttributeError, OSError):
        cores = min(cores, len(os.sched_getaffinity(0)))
    return max(1, cores)


class Engine:
    """Base class of engines that use an executor of :mod:`concurrent.futures`.

    If the executor breaks because a worker died, it is replaced, and the unfinished tasks are run once more.
    """

    def _executor(self, tasks: int) -> "AbstractContextManager[tuple[Executor, int]]":
        """Open an executor for at most `tasks` tasks, and return it with its number of workers."""
        raise NotImplementedError

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yield the result of every task as it finishes.

        Raises:
            EngineError: When workers die repeatedly. Errors of the function are raised here.
        """
        from concurrent.futures import BrokenExecutor
        from queue import SimpleQueue

        waiting = list(range(len(tasks)))[::-1]  # a stack: the next task is last
        lost: Counter[int] = Counter()
        while waiting:
            under_way: dict[Future[R], int] = {}
            finished: SimpleQueue[Future[R]] = SimpleQueue()
            try:
                with self._executor(len(waiting)) as (executor, workers):
                    while waiting or under_way:
                        while waiting and len(under_way) < AHEAD * workers:
                            with _held_interrupts():
                                future = executor.submit(function, tasks[waiting[-1]])
                            under_way[future] = waiting.pop()
                            future.add_done_callback(finished.put)
                        future = finished.get()
                        result = future.result()
                        del under_way[future]
                        yield result
            except BrokenExecutor:
                # Reversed, because tasks are taken from the end: lost tasks run again in their old order.
                waiting += sorted(under_way.values(), reverse=True)
                lost.update(under_way.values())
                _report_loss(lost)


@contextlib.contextmanager
def _held_interrupts() -> Iterator[None]:
    """Block Ctrl-C and hang-up while a process starts: children inherit the mask, and only this process reacts.

    Another thread, such as one of NumPy, may still receive Ctrl-C: it is recorded and raised afterwards.
    """
    kept: list[int] = []
    # The signal mask concerns this thread only; Python runs handlers in the main thread whichever thread received them.
    handler = signal.getsignal(signal.SIGINT)
    heard = callable(handler) and threading.current_thread() is threading.main_thread()
    if heard:
        signal.signal(signal.SIGINT, lambda *_: kept.append(1))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        if heard:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if kept:
            signal.raise_signal(signal.SIGINT)


def _report_loss(lost: Counter[int]) -> None:
    """Warn about workers that died; give up on tasks that lost their worker twice."""
    cause = "killed externally, or out of memory: fewer --cpus need less"
    twice = sum(1 for count in lost.values() if count > 1)
    if twice:
        message = f"workers died twice with the same {twice} tasks under way ({cause})"
        raise EngineError(message)
    message = f"a worker died ({cause}); {len(lost)} unfinished tasks are run again"
    warnings.warn(message, EngineWarning, stacklevel=3)


class Processes(Engine):
    """Engine that runs tasks in several processes of this machine; a single worker is this process."""

    def __init__(self, workers: int):
        self.workers = workers

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yield results as they finish; with a single worker in the order of the tasks."""
        alone = min(self.workers, len(tasks)) <= 1
        return map(function, tasks) if alone else super().map(function, tasks)

    @contextlib.contextmanager
    def _executor(self, tasks: int) -> "Iterator[tuple[Executor, int]]":
        """Start single-threaded workers that end with this process for any reason, and at once when interrupted.

        The workers hold one end of a pipe whose other end belongs to this process only: they exit when it closes.
        """
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        workers = min(self.workers, tasks)
        context = multiprocessing.get_context("spawn")  # a fork would copy locks of threads
        theirs, ours = context.Pipe(duplex=False)
        added = {name: value for name, value in ONE_THREAD.items() if not os.environ.get(name)}
        os.environ.update(added)
        with _held_interrupts():  # the locks of the pool start a resource tracker process
            pool = ProcessPoolExecutor(workers, context, _leave_with_parent, (theirs,))
        try:
            yield pool, workers
        finally:
            ours.close()
            theirs.close()
            pool.shutdown(wait=True, cancel_futures=True)
            for name in added:
                os.environ.pop(name, None)


def _leave_with_parent(parent: "Connection") -> None:
    """Initialize a worker: ignore Ctrl-C, and exit when the parent exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def leave() -> None:
        with contextlib.suppress(OSError, EOFError):
            parent.recv()
        os._exit(1)

    threading.Thread(target=leave, daemon=True).start()


class Dask(Engine):
    """Engine that runs tasks on a Dask cluster, whose scheduler reruns the tasks of lost workers.

    Args:
        scheduler: Address (``tcp://host:port``) or scheduler file (``.json``).
    """

    def __init__(self, scheduler: str):
        try:
            self._library: Any = import_module("distributed")
        except ImportError:
            hint = "in a checkout of calculon: pip install '.[cluster]'"
            wanted = "the package distributed, for Dask"
            problem = Problem("", wanted, "it is not installed", hint)
            raise SpecError("--engine", problem) from None
        self.scheduler = scheduler

    @contextlib.contextmanager
    def _executor(self, tasks: int) -> "Iterator[tuple[Executor, int]]":
        """Connect to the scheduler.

        Raises:
            SpecError: When no scheduler answers at the address.
            EngineError: When a task loses its worker repeatedly, when workers cannot run it, or when the scheduler
                disappears.
        """
        from concurrent.futures import CancelledError

        kind = "scheduler_file" if self.scheduler.endswith(".json") else "address"
        target = {kind: self.scheduler}
        try:
            client = self._library.Client(**target, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:
            wanted = "the address of a running Dask scheduler, such as tcp://node1:8786"
            found = f"{self.scheduler}: {reason(error)}"
            raise SpecError("--scheduler", Problem("", wanted, found)) from None
        with client:
            executor = client.get_executor(pure=False, retries=RETRIES)
            try:
                yield executor, max(sum(client.nthreads().values()), 1)
            except self._library.KilledWorker as error:
                message = f"workers died repeatedly with the same task: {error}"
                raise EngineError(message) from None
            except ModuleNotFoundError as error:
                message = f"the workers lack a package that this process has: {error}"
                raise EngineError(message) from None
            except CancelledError:
                raise EngineError("lost the connection to the Dask scheduler") from None
            finally:
                executor.shutdown(wait=False)
