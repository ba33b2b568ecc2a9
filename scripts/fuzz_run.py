"""Run many damaged input files on all cores, print counts, and keep the files of failures."""

import argparse
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from tests import fuzzing

CHUNK = 250
"""Cases of one task: a process is replaced after them, so that a failure leaves nothing behind."""

PATIENCE = 150
"""Seconds of wall time after which a process that says nothing is ended: nothing inside it could stop the case."""

ADDRESSES = 6 << 30
"""Bytes that a process may ask for: a case that takes all memory fails alone."""

Result = tuple[fuzzing.Case, str]
"""A case, and what is wrong with how it ended, empty when nothing is."""


def attempt(connection: Connection, seeds: range, kinds: tuple[str, ...], folder: Path) -> None:
    """Try cases one by one, and send each before it is tried, and what is wrong after."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    for case in fuzzing.cases(seeds, folder, kinds):
        connection.send(case)
        connection.send(fuzzing.tried(case))


def chunk(seeds: range, kinds: tuple[str, ...]) -> Iterator[Result]:
    """Try cases in another process; where it hangs or crashes, that is how its case ended, and the next ones follow."""
    while seeds:
        with tempfile.TemporaryDirectory() as folder:
            here, there = multiprocessing.Pipe(duplex=False)
            process = multiprocessing.get_context("spawn").Process(
                target=attempt, args=(there, seeds, kinds, Path(folder))
            )
            process.start()
            there.close()
            case = None
            try:
                for _ in seeds:
                    case = None
                    case = received(here)
                    yield case, received(here)
                return
            except EOFError as error:
                if case is None:
                    raise
                process.kill()
                process.join()
                yield case, str(error) or f"the process ended: exit code {process.exitcode}"
                seeds = range(case.seed + 1, seeds.stop)
            finally:
                process.kill()
                process.join()


def received(connection: Connection) -> Any:
    """Return what a process sends.

    Raises:
        EOFError: When it sends nothing for too long, or ended.
    """
    if not connection.poll(PATIENCE):
        raise EOFError(f"nothing for {PATIENCE} s of wall time")
    return connection.recv()


def fuzz() -> int:
    """Try the cases; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("-n", "--cases", type=int, default=10_000, help="default: 10,000")
    parser.add_argument(
        "--seed", type=int, help="first seed; a case is its seed (default: a new one in each run)"
    )
    parser.add_argument(
        "--kind", action="append", default=[], help="only files of this kind; repeatable"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="processes; default: all cores"
    )
    parser.add_argument("--keep", type=Path, help="folder for the files of failures")
    arguments = parser.parse_args()
    for ending_signal in (signal.SIGINT, signal.SIGTERM):  # also in the background
        signal.signal(ending_signal, signal.default_int_handler)
    first = random.randrange(10**9) if arguments.seed is None else arguments.seed
    print(f"seeds from {first}", flush=True)
    end = first + arguments.cases
    parts = [range(at, min(at + CHUNK, end)) for at in range(first, end, CHUNK)]
    counts: Counter[str] = Counter()
    failures: list[Result] = []
    pool = ThreadPoolExecutor(arguments.jobs)
    stopped = ""
    ending = threading.Event()
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("cases", total=arguments.cases)

        def follow(part: range) -> None:
            for case, what in chunk(part, tuple(arguments.kind)):
                counts[case.kind] += 1
                progress.update(task, advance=1)
                if ending.is_set():
                    return
                if what:
                    failures.append((case, what))
                    tell(case, what, arguments.keep)

        try:
            for done in as_completed([pool.submit(follow, part) for part in parts]):
                done.result()
        except KeyboardInterrupt:
            stopped = "stopped after "
        except EOFError:
            stopped = "a process crashed before its first case, after "
        finally:
            ending.set()
            pool.shutdown(wait=False, cancel_futures=True)
    print(", ".join(f"{kind} {n:,}" for kind, n in sorted(counts.items())))
    print(f"{stopped}{counts.total():,} cases, {len(failures):,} failures")
    return int(bool(failures or stopped))


def tell(case: fuzzing.Case, what: str, keep: Path | None) -> None:
    """Print a failure, and keep its file in a folder."""
    command = " ".join(case.command)
    print(f"seed {case.seed}, {case.kind}: {command}\n{what}", flush=True)
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{case.seed}.bin").write_bytes(case.content)


if __name__ == "__main__":
    sys.exit(fuzz())
