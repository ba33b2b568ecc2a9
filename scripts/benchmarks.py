"""The benchmarks behind ``scripts/bench``."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

import calculon
from calculon import inputs
from calculon.plan.plan import Plan

ROOT = Path(__file__).resolve().parent.parent
RUNS = 7
IMPORT_NUMPY = [sys.executable, "-c", "import numpy"]


@dataclass(frozen=True)
class Figure:
    """One measured figure: what, how much work, the median, and the promise it is held against."""

    what: str
    size: str
    median: str
    promise: str
    kept: bool


def timed(work: Callable[[], object], runs: int = RUNS) -> list[float]:
    """Run something several times and return the seconds of each run."""
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return seconds


def process(command: Sequence[str]) -> Callable[[], object]:
    """Return a function that runs a command to its end and fails when it fails."""

    def run() -> object:
        return subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)

    return run


def against_numpy(command: Sequence[str], runs: int = 15) -> tuple[float, float]:
    """Return median seconds of a command, and its median ratio to importing numpy, measured in turn."""
    pairs = [(timed(process(IMPORT_NUMPY), 1)[0], timed(process(command), 1)[0]) for _ in range(runs)]
    return statistics.median(p[1] for p in pairs), statistics.median(p[1] / p[0] for p in pairs)


def peak_memory(code: str) -> float:
    """Return the peak resident memory of a Python snippet in MiB, with the process it runs in."""
    measure = "\nimport resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    done = subprocess.run(
        [sys.executable, "-c", code + measure], check=True, capture_output=True, text=True, cwd=ROOT
    )
    return int(done.stdout.split()[-1]) / 1024


def llm_process() -> Figure:
    """Time a whole ``calculon llm`` with JSON output."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "stats.json")
        names = ["megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g"]
        seconds, ratio = against_numpy([sys.executable, "-m", "calculon", "llm", *names, out])
    return Figure(
        "llm, whole process, JSON",
        "1 execution",
        f"{seconds * 1e3:.0f} ms = {ratio:.2f} x import numpy",
        "at most 2.5 x",
        ratio <= 2.5,
    )


def warm_estimate() -> Figure:
    """Time ``estimate`` with decoded specs in a warm process."""
    model = inputs.model("megatron-1T")
    system = inputs.system("a100_80g")
    execution = inputs.execution("3072_t4_p64_d12_mbs4_full")
    seconds = statistics.median(timed(lambda: calculon.estimate(model, execution, system), 500))
    return Figure(
        "estimate, warm", "1 execution", f"{seconds * 1e3:.2f} ms", "under 1 ms", seconds < 1e-3
    )


def random_plan(rows: int, seed: int = 0) -> Plan:
    """Draw feasible executions of gpt3-175B on 1,024 a100_80g (batch 1,536, float16) at random from its search space."""
    rng = np.random.default_rng(seed)
    model = inputs.model("gpt3-175B")
    procs, batch, found = 1024, 1536, Plan.from_records([])
    degrees = np.array(
        [
            (t, p, procs // t // p, i)
            for t in divisors(procs)
            if model.attn_heads % t == 0 and model.hidden % t == 0
            for p in divisors(procs // t)
            if model.num_blocks % p == 0
            for i in (divisors(model.num_blocks // p) if p > 1 else [1])
        ]
    )
    while len(found) < rows:
        n = 8 * rows
        t, p, d, i = degrees[rng.integers(0, len(degrees), n)].T
        comm, recompute = rng.integers(0, 3, n), rng.integers(0, 3, n)
        local = batch // d
        mbs = 1 + (rng.random(n) * local).astype(int)
        flag = lambda allowed: (rng.random(n) < 0.5) & allowed  # noqa: E731
        drawn = Plan.from_columns(
            {
                "num_procs": procs,
                "tensor_par": t,
                "pipeline_par": p,
                "data_par": d,
                "tensor_par_net": rng.integers(0, 2, n) * (t > 1),
                "pipeline_par_net": rng.integers(0, 2, n) * (p > 1),
                "data_par_net": rng.integers(0, 2, n) * (d > 1),
                "batch_size": d * local,
                "microbatch_size": np.where(local % mbs == 0, mbs, 1),
                "datatype": "float16",
                "fused_activation": True,
                "attention_type": "multihead",
                "activation_recompute": np.array(["full", "attn_only", "none"])[recompute],
                "pipeline_interleaving": i,
                "optimizer_sharding": flag(d > 1),
                "tensor_par_comm_type": np.array(["ar", "p2p_rs_ag", "rs_ag"])[comm],
                "tensor_par_overlap": np.where(
                    t > 1, np.array(["none", "ring", "pipe"])[rng.integers(0, 3, n)], "none"
                ),
                "seq_par_ag_redo": flag((comm == 2) & (recompute > 0)),
                "data_par_overlap": flag(d > 1),
                "weight_offload": flag(True),
                "activations_offload": flag(recompute > 0),
                "optimizer_offload": flag(True),
                "training": True,
            }
        )
        good = calculon.evaluate(model, "a100_80g", drawn).feasible
        found = Plan.concatenate([found, drawn.take(np.flatnonzero(good))])
    return found.take(slice(0, rows))


def divisors(number: int) -> list[int]:
    """Return all divisors, ascending."""
    return [d for d in range(1, number + 1) if number % d == 0]


def table_rate() -> Figure:
    """Time ``evaluate`` of a large table on one core."""
    rows = 100_000
    plan = random_plan(rows)
    model, system = inputs.model("gpt3-175B"), inputs.system("a100_80g")
    before = psutil.Process().memory_info().rss
    seconds = statistics.median(timed(lambda: calculon.evaluate(model, system, plan)))
    grown = (psutil.Process().memory_info().rss - before) / 2**20
    rate = rows / seconds
    return Figure(
        "evaluate, one core",
        f"{rows:,} feasible executions of gpt3-175B on 1,024",
        f"{rate:,.0f} rows/s, {grown:.0f} MiB more",
        "at least 500,000 rows/s",
        rate >= 500_000,
    )


BENCHMARKS: tuple[Callable[[], Figure], ...] = (llm_process, warm_estimate, table_rate)


def main(words: Sequence[str]) -> int:
    """Run the benchmarks and print their table; 1 when a promise is not kept."""
    console = Console()
    if hasattr(os, "sched_setaffinity"):
        cores = len(os.sched_getaffinity(0))
        console.print(f"{cores} cores; medians; every figure on one core unless it says otherwise")
    table = Table("figure", "work", "median", "promise", "", box=None, pad_edge=False)
    kept = True
    for benchmark in BENCHMARKS:
        if words and not any(word in benchmark.__name__ for word in words):
            continue
        figure = benchmark()
        kept &= figure.kept
        mark = "kept" if figure.kept else "MISSED"
        table.add_row(figure.what, figure.size, figure.median, figure.promise, mark)
    console.print(table)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
