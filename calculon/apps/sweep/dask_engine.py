"""The Dask engine: tasks on a running cluster, or on workers that are started on this machine."""

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import islice
from typing import Any, TypeVar

from calculon.apps.sweep.executor import AHEAD, ONE_THREAD, EngineError
from calculon.errors import Problem, SpecError
from calculon.spec.files import reason

T = TypeVar("T")
R = TypeVar("R")

RETRIES = 2
"""How often a task is tried again that an error on its worker's side has ended."""

PATIENCE = 10
"""Seconds that a scheduler may take to answer."""


class Dask:
    """Runs tasks on a Dask cluster, whose scheduler runs those of lost workers again elsewhere.

    Parameters
    ----------
    scheduler : str or None
        Address (``tcp://host:port``) or scheduler file (``.json``); without, workers on this machine.
    workers : int
        Workers on this machine.
    """

    def __init__(self, scheduler: str | None, workers: int):
        try:
            self._library: Any = import_module("distributed")
        except ImportError:
            hint = "pip install 'calculon[cluster]'"
            wanted = "the package distributed, for Dask"
            problem = Problem("", wanted, "it is not installed", hint)
            raise SpecError("--engine", problem) from None
        self.scheduler = scheduler
        self.workers = workers

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yield results as they finish.

        Raises
        ------
        SpecError
            When no scheduler answers at the address.
        EngineError
            When a task loses its worker again and again, or workers cannot run it.
        """
        with self._client() as client:
            waiting = iter(tasks)
            window = AHEAD * max(self.workers, sum(client.nthreads().values()), 1)

            def submitted(count: int) -> list[Any]:
                part = list(islice(waiting, count))
                return list(client.map(function, part, pure=False, retries=RETRIES)) if part else []

            running = self._library.as_completed(submitted(window), loop=client.loop)
            for future in running:
                try:
                    result: R = future.result()
                except self._library.KilledWorker as error:
                    message = f"workers died again and again with the same task: {error}"
                    raise EngineError(message) from None
                except ModuleNotFoundError as error:
                    message = f"the workers lack a package that this process has: {error}"
                    raise EngineError(message) from None
                future.release()
                running.update(submitted(1))
                yield result

    @contextlib.contextmanager
    def _client(self) -> Iterator[Any]:
        """Connect to the scheduler, or start workers here and end them afterwards."""
        with contextlib.ExitStack() as opened:
            target: dict[str, Any]
            if self.scheduler is None:
                with _without_interrupts():
                    cluster = self._library.LocalCluster(
                        n_workers=self.workers,
                        threads_per_worker=1,
                        processes=True,
                        dashboard_address=None,
                        silence_logs=logging.CRITICAL,
                        env=ONE_THREAD,
                    )
                target = {"address": opened.enter_context(cluster)}
            elif self.scheduler.endswith(".json"):
                target = {"scheduler_file": self.scheduler}
            else:
                target = {"address": self.scheduler}
            try:
                client = self._library.Client(**target, timeout=PATIENCE, set_as_default=False)
            except (OSError, ValueError) as error:
                wanted = "the address of a running Dask scheduler, such as tcp://node1:8786"
                found = f"{self.scheduler}: {reason(error)}"
                raise SpecError("--scheduler", Problem("", wanted, found)) from None
            yield opened.enter_context(client)


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start processes that leave Ctrl-C to this one: what a process ignores, those that it starts ignore too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
