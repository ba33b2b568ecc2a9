"""Engines by name."""

import contextlib
import os

from calculon.apps.sweep.executor import Engine, Serial
from calculon.apps.sweep.processes import Processes
from calculon.errors import Problem, SpecError, nearest

ENGINES = ("serial", "processes", "dask")


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
        from calculon.apps.sweep.dask_engine import Dask

        return Dask(scheduler, cpus or physical_cores())
    return Serial() if name == "serial" else Processes(cpus or physical_cores())


def physical_cores() -> int:
    """Return how many physical cores this process may use, at least 1."""
    import psutil

    cores = psutil.cpu_count(logical=False) or 1
    with contextlib.suppress(AttributeError, OSError):
        cores = min(cores, len(os.sched_getaffinity(0)))
    return max(1, cores)
