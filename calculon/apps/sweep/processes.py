"""The engine of several processes on one machine."""

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
from typing import TypeVar

from calculon.apps.sweep.executor import AHEAD, ONE_THREAD, EngineError

T = TypeVar("T")
R = TypeVar("R")


class EngineWarning(UserWarning):
    """A worker was lost; its tasks are run again."""


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
