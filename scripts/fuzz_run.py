"""What ``scripts/fuzz`` runs: many cases on all cores, a line of counts, and the files of the failures."""

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tests import fuzzing

CHUNK = 500
"""Cases of one task: a process is replaced after them, so that a failure leaves nothing behind."""


def chunk(seeds: range, kinds: tuple[str, ...]) -> tuple[Counter[str], list[fuzzing.Failure]]:
    """Try some cases in a folder of their own; return how many there were of each kind, and the failures."""
    counts: Counter[str] = Counter()
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, failure in fuzzing.run(seeds, Path(folder), kinds):
            counts[kind] += 1
            if failure:
                failures.append(failure)
    return counts, failures


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
    first = random.randrange(10**9) if arguments.seed is None else arguments.seed
    print(f"seeds from {first}", flush=True)
    end = first + arguments.cases
    parts = [range(at, min(at + CHUNK, end)) for at in range(first, end, CHUNK)]
    counts: Counter[str] = Counter()
    failures: list[fuzzing.Failure] = []
    pool = ProcessPoolExecutor(arguments.jobs, max_tasks_per_child=1)
    stopped = ""
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("cases", total=arguments.cases)
        try:
            for done in as_completed(
                pool.submit(chunk, part, tuple(arguments.kind)) for part in parts
            ):
                tried, failed = done.result()
                counts += tried
                failures += failed
                progress.update(task, advance=tried.total())
        except KeyboardInterrupt:
            stopped = "interrupted after "
        except BrokenExecutor:
            stopped = "a process crashed after "
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    for failure in sorted(failures, key=lambda one: one.seed):
        print(f"seed {failure.seed}, {failure.kind}:\n{failure.what}")
        if arguments.keep:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            (arguments.keep / f"{failure.seed}.bin").write_bytes(failure.content)
    print(", ".join(f"{kind} {n:,}" for kind, n in sorted(counts.items())))
    print(f"{stopped}{counts.total():,} cases, {len(failures):,} failures")
    return int(bool(failures or stopped))


if __name__ == "__main__":
    sys.exit(fuzz())
