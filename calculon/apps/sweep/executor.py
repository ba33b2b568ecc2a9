"""Engines: who runs the tasks of a sweep. One process, several, or a Dask cluster; the results are the same.

An engine maps a function over tasks and yields results as they finish, in any order. Function, tasks and results are
pickled, so that the function stands at the top of a module and tasks and results stay small.

On a cluster, start a Dask scheduler and workers (with ``dask-jobqueue``: ``SLURMCluster`` or ``LSFCluster``) and give
the scheduler's address.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from calculon.errors import CalculonError

T = TypeVar("T")
R = TypeVar("R")

AHEAD = 4
"""Tasks per worker that wait with the workers, so that none is idle and few are lost."""

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""What keeps the libraries under numpy from starting threads in every worker."""


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


class Serial:
    """Runs one task after the other in this process."""

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yield results in the order of the tasks."""
        yield from map(function, tasks)
