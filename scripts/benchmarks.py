"""The benchmarks behind ``scripts/bench``."""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import page_benchmarks
import psutil
from bench_figure import Figure
from rich.console import Console
from rich.table import Table
from snippets import SNIPPETS, Snippet

import calculon
from calculon import inputs
from calculon.advise.fixes import FixSearch
from calculon.advise.neighborhood import Neighborhood, choices_of
from calculon.cost.pipeline.simulation import ChunkPasses, simulated_time
from calculon.plan.plan import Plan
from calculon.search.best_first import feasible_numbers
from calculon.search.deployments.deployment_search import DeploymentSearch
from calculon.search.driver import SearchResult, make_ranking, make_space, run
from calculon.search.space import Space

ROOT = Path(__file__).resolve().parent.parent
RUNS = 7
PEAK = "\nprint(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
"""Prints the peak resident memory of its process in KiB."""

IMPORT_NUMPY = [sys.executable, "-c", "import numpy"]


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
    # Compiled modules are kept, as a user's are: else every start compiles the whole package.
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def run() -> object:
        return subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT, env=variables
        )

    return run


def against_numpy(command: Sequence[str], runs: int = 15) -> tuple[float, float]:
    """Return median seconds of a command, and its median ratio to importing numpy, measured in turn."""
    process(command)()  # compiles what has changed
    pairs = [
        (timed(process(IMPORT_NUMPY), 1)[0], timed(process(command), 1)[0]) for _ in range(runs)
    ]
    return statistics.median(p[1] for p in pairs), statistics.median(p[1] / p[0] for p in pairs)


def peak_memory(code: str) -> float:
    """Return the peak resident memory of a Python snippet in MiB, with the process it runs in.

    Linux only: what `resource` knows of a child includes the pages of this process before it became another program.
    """
    done = subprocess.run(
        [sys.executable, "-c", code + PEAK], check=True, capture_output=True, text=True, cwd=ROOT
    )
    return int(done.stdout.split()[-1]) / 1024


def estimate_process(what: str, program: Sequence[str], output: str) -> Figure:
    """Time a whole ``calculon llm``."""
    names = ["megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g"]
    seconds, ratio = against_numpy([*program, "llm", *names, output])
    return Figure(
        f"llm, whole process, {what}",
        "1 execution",
        f"{seconds * 1e3:.0f} ms = {ratio:.2f} x import numpy",
        "at most 1.7 x",
        ratio <= 1.7,
    )


def llm_process() -> Figure:
    """Time a whole ``calculon llm`` with JSON output."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "stats.json")
        return estimate_process("JSON", [sys.executable, "-m", "calculon"], out)


def llm_page_process() -> Figure:
    """Time a whole ``bin/calculon llm`` that prints its page, the choice of the interpreter included."""
    return estimate_process("page", [str(ROOT / "bin" / "calculon")], "-")


def large_space() -> Space:
    """Return the space that most figures are about: 11,698,528 executions."""
    return make_space("gpt3-175B", "a100_80g", 1024, 1536, "float16")


def random_plan(rows: int, seed: int = 0) -> Plan:
    """Draw feasible executions of the large space at random."""
    space = large_space()
    numbers = np.concatenate(list(feasible_numbers(space)))
    return space.plan(np.random.default_rng(seed).choice(numbers, rows, replace=False))


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


def simulated_schedule(schedule: str, ranks: int, microbatches: int) -> Figure:
    """Time the simulation of one execution with unequal stages, whose order of passes is known from one before."""
    draw = np.random.default_rng(0)
    forward, weight = (draw.random((ranks, 2, 1)) for _ in range(2))
    passes = ChunkPasses(forward, forward + weight, weight, np.zeros((ranks, 1)))
    simulated_time(schedule, microbatches, passes)
    seconds = statistics.median(
        timed(lambda: simulated_time(schedule, microbatches, passes), runs=15)
    )
    both = 2 if schedule == "dualpipe" else 1
    return Figure(
        f"simulation of {schedule}",
        f"{both * ranks} ranks, {both * microbatches} microbatches",
        f"{seconds * 1e3:.0f} ms",
        "less than 50 ms",
        seconds < 0.05,
    )


def simulated_zb_h2() -> Figure:
    """ZB-H2 of 64 stages."""
    return simulated_schedule("zb_h2", 64, 512)


def simulated_zbv() -> Figure:
    """ZBV of 64 stages on 32 ranks."""
    return simulated_schedule("zbv", 32, 512)


def simulated_dualpipe() -> Figure:
    """DualPipe of 64 stages: half of its ranks, and one direction."""
    return simulated_schedule("dualpipe", 32, 256)


def simulated_dualpipev() -> Figure:
    """DualPipeV of 64 stages on 32 ranks."""
    return simulated_schedule("dualpipev", 32, 512)


def search_rate(system: str, objective: str, promise: float, runs: int = RUNS) -> Figure:
    """Time the search proper: everything between decoded specs and ranked numbers."""
    model, machine = inputs.model("gpt3-175B"), inputs.system(system)

    def work() -> SearchResult:
        space = make_space(model, machine, 1024, 1536, "float16")
        return run(space, make_ranking(10, objective))

    total = work().counts.total
    seconds = statistics.median(timed(work, runs))
    rate = total / seconds
    return Figure(
        f"search proper, {objective}, {system}",
        f"{total:,} executions, top 10",
        f"{seconds * 1e3:.0f} ms = {rate / 1e6:,.0f} M/s",
        f"at least {promise / 1e6:,.0f} M/s",
        rate >= promise,
    )


def search_large() -> Figure:
    """Time the search of the large space by sample rate."""
    return search_rate("a100_80g", "sample_rate", 200e6)


def search_without_memory_limit() -> Figure:
    """Time the same where everything fits."""
    return search_rate("a100_80e", "sample_rate", 11_698_528 / 0.2)


def search_without_bound() -> Figure:
    """Time an objective that nothing can be pruned for."""
    return search_rate("a100_80g", "tp_comm_exposed_time:min", 30e6)


def corrected_search() -> Figure:
    """Time the search of the large space in both editions, in turn."""
    model, machine = inputs.model("gpt3-175B"), inputs.system("a100_80g")

    def work(edition: str) -> Callable[[], object]:
        def search() -> object:
            asked = model, machine, 1024, 1536, "float16"
            space = make_space(*asked, edition=edition, preset="published")
            return run(space, make_ranking(10))

        return search

    pairs = [[timed(work(name), 1)[0] for name in ("sc23", "corrected")] for _ in range(RUNS + 1)]
    ratio = statistics.median(corrected / published for published, corrected in pairs[1:])
    seconds = statistics.median(corrected for _, corrected in pairs[1:])
    return Figure(
        "search proper, edition corrected",
        "11,698,528 executions, top 10",
        f"{seconds * 1e3:.0f} ms = {ratio:.2f} x edition sc23",
        "at most 3 x",
        ratio <= 3,
    )


def search_of_runs() -> Figure:
    """Time the search by figures of whole runs against that by the rate of steps: processor time, in turn."""
    model, machine = inputs.model("gpt3-175B"), inputs.system("a100_80g_sxm")
    campaign = {"tokens": "300B", "fleet": {"price": 2.0}}

    def seconds(objective: str, asked: dict[str, object] | None, where: str | None) -> float:
        forms = {"edition": "corrected", "preset": "published"}
        begin = time.process_time()
        space = make_space(model, machine, 1024, 1536, "float16", campaign=asked, **forms)
        run(space, make_ranking(10, objective, (), where, "corrected", space.runs))
        return time.process_time() - begin

    cases = (
        ("days", None, None),
        ("usd", None, None),
        ("sample_rate", "days <= 60", "total_time <= 60"),
    )
    ratios = []
    for objective, where, of_steps in cases:
        pairs = [
            (seconds("sample_rate", None, of_steps), seconds(objective, campaign, where))
            for _ in range(2 * RUNS + 1)
        ]
        ratios.append(statistics.median(runs / steps for steps, runs in pairs[1:]))
    told = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return Figure(
        "search proper, whole runs",
        "11,698,528 executions by days, usd, and rate where days <= 60",
        f"{told} x those of steps",
        "at most 1.1 x",
        max(ratios) <= 1.1,
    )


def search_of_forms() -> Figure:
    """Time the search of the large space with all stages of ZeRO, against the published one per execution, in turn."""
    model, machine = inputs.model("gpt3-175B"), inputs.system("a100_80g")

    def rate(edition: str, add: dict[str, tuple[str, ...]] | None) -> float:
        asked = model, machine, 1024, 1536, "float16"
        space = make_space(*asked, edition=edition, preset="published", add=add)
        counts = run(space, make_ranking(10)).counts
        return timed(lambda: run(space, make_ranking(10)), 1)[0] / counts.total

    stages = {"zero_stage": ("0", "1", "2", "3")}
    ratios = [rate("corrected", stages) / rate("sc23", None) for _ in range(RUNS)]
    ratio = statistics.median(ratios)
    return Figure(
        "search proper, zero_stage 0 to 3 added",
        "35,059,104 executions, top 10",
        f"{ratio:.2f} x edition sc23 per execution",
        "at most 5 x",
        ratio <= 5,
    )


def search_of_today() -> Figure:
    """Time the search of a model with a vocabulary, by a statistic that only the corrected edition has."""
    model, machine = inputs.model("llama3-8B"), inputs.system("h100_80g_sxm")
    fix = {"attn_impl": "flash", "ce_impl": "fused"}

    def work() -> SearchResult:
        forms = {"edition": "corrected", "preset": "published"}
        space = make_space(model, machine, 64, 512, "bfloat16", fix=fix, **forms)
        return run(space, make_ranking(10))

    total = work().counts.total
    seconds = statistics.median(timed(work))
    return Figure(
        "search proper, llama3-8B on 64 H100",
        f"{total:,} executions, top 10",
        f"{seconds * 1e3:.0f} ms = {total / seconds / 1e6:,.0f} M/s",
        "-",
        kept=True,
    )


def search_of_a_framework() -> Figure:
    """Time the search among all that a framework has beside what it usually runs: processor time."""
    model, machine = inputs.model("gpt3-175B"), inputs.system("h100_80g_sxm")
    forms = {"edition": "corrected", "preset": "megatron-lm"}
    add = {
        "recompute_modules": ("activation", "norm_activation", "mlp", "ops", "core_attn"),
        "activations_offload": True,
        "optimizer_offload": True,
        "zero_stage": ("2", "3", "fsdp"),
        "context_par": (2, 4, 8, 16),
        "pp_layout": ("embedding_as_block", "head_as_block"),
    }
    total, seconds = 0, []
    for _ in range(RUNS):
        begin = time.process_time()
        space = make_space(model, machine, 1024, 2048, "bfloat16", add=add, **forms)
        total = run(space, make_ranking(1)).counts.total
        seconds.append(time.process_time() - begin)
    median = statistics.median(seconds)
    return Figure(
        "search for a framework, processor time",
        f"{total:,} executions of gpt3-175B on 1,024 H100 under megatron-lm, the best",
        f"{median:.2f} s = {total / median / 1e6:.1f} M/s",
        "at least 2.5 M/s",
        total / median >= 2.5e6,
    )


def processor_seconds(command: Sequence[str], runs: int = 3) -> float:
    """Return the median processor time of a command, user and system."""
    process(command)()  # compiles what has changed
    seconds = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process(command)()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(seconds)


def first_answer(*question: str) -> float:
    """Return the processor time of a question about deployments without options."""
    return processor_seconds([str(ROOT / "bin" / "calculon"), "serve-optimal", *question])


def first_answers_of_deployments() -> Figure:
    """Time first answers for a dense model and a mixture of experts, with all kinds of deployments."""
    dense = first_answer("llama-3.1-70b", "16", "h100")
    experts = first_answer("deepseek-v3", "16", "h200")
    return Figure(
        "first answer about deployments, processor time",
        "llama-3.1-70b on 16 h100, deepseek-v3 on 16 h200",
        f"{dense:.1f} s, {experts:.1f} s",
        "at most 2 s, 5 s",
        dense <= 2 and experts <= 5,
    )


def deployments_of_many_replicas() -> Figure:
    """Time a search whose replicas are the same on 64 times as many processors."""
    lengths = ("h200", "--prompt", "2k", "--output", "500")
    few, many = (first_answer("deepseek-v3", count, *lengths) for count in ("16", "1024"))
    return Figure(
        "search for deployments on 1,024 processors, processor time",
        "deepseek-v3 on h200",
        f"{many:.1f} s = {many / few:.2f} x 16 processors",
        "at most 1.5 x",
        many <= 1.5 * few,
    )


def search_of_deployments() -> Figure:
    """Time the search for a frontier of deployments, whose batches are solved for limits of both times."""
    load = {"prompt": 2048, "output": 256, "ttft_limit": 1, "tpot_limit": 0.04}
    types = {"weights_dtype": "float8", "kv_dtype": "float8"}
    model, machine = inputs.model("llama3-70B"), inputs.system("h100_80g_sxm")
    front = ("output_rate_per_proc", "interactivity")

    def work() -> DeploymentSearch:
        return calculon.search_deployments(
            model, "8:1024:8", machine, load, pareto=front, add=types
        )

    total = work().counts.total
    seconds = []
    for _ in range(RUNS):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    each = statistics.median(seconds) / total * 1e6
    return Figure(
        "search for deployments, processor time",
        f"{total:,} of llama3-70B on 8 to 1,024 H100: splits, types, token budgets, batches",
        f"{statistics.median(seconds):.2f} s = {each:.2f} s for a million",
        "less than 2 s for a million",
        each < 2,
    )


def changes_of_one() -> Figure:
    """Time what ``why`` tries of an execution that does not fit where two changes do not do: all changes of three."""
    model, system = inputs.model("llama3-70B"), inputs.system("h100_80g_sxm")
    split = {"num_procs": 64, "tensor_par": 2, "pipeline_par": 1, "batch_size": 512}
    fields = split | {"microbatch_size": 4, "preset": "megatron-lm"}
    execution = inputs.execution(fields)

    search = FixSearch(Neighborhood(model, execution, system))
    count = len(choices_of(search.changes, 3, 0))
    for _ in search.triples():  # which rest on the pairs
        pass
    rate = count / statistics.median(timed(lambda: [*search.triples()]))
    return Figure(
        "why, all changes of three fields",
        f"{count:,} variations of llama3-70B on 64 H100",
        f"{rate:,.0f}/s",
        "at least 100,000/s",
        rate >= 100_000,
    )


def search_process() -> Figure:
    """Time the whole process of the large search, and its peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "out.json")
        arguments = ["loe", "gpt3-175B", "1024", "1536", "float16", "a100_80g", out, "-t", "10"]
        seconds, ratio = against_numpy([sys.executable, "-m", "calculon", *arguments])
        memory = peak_memory(f"from calculon.cli.main import main; main({arguments!r})")
    return Figure(
        "loe, whole process",
        "11,698,528 executions, top 10, JSON",
        f"{seconds:.2f} s = {ratio:.1f} x import numpy, {memory:.0f} MiB",
        "at most 2.8 x, 150 MB",
        ratio <= 2.8 and memory * 2**20 <= 150e6,
    )


def small_search_process() -> Figure:
    """Time the whole process of a small search."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "out.json")
        arguments = ["loe", "turing-530B", "5128", "2520", "float16", "a100_80g", out]
        seconds, ratio = against_numpy([sys.executable, "-m", "calculon", *arguments])
    return Figure(
        "loe, whole process",
        "10,944 executions, JSON",
        f"{seconds:.2f} s = {ratio:.1f} x import numpy",
        "at most 0.35 s or 4 x",
        seconds <= 0.35 or ratio <= 4,
    )


def dump(suffix: str, promise: float) -> Figure:
    """Time a whole dump of the large space on two cores, and its peak memory."""
    rows = 1_750_374
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / f"all{suffix}")
        arguments = ["lae", "gpt3-175B", "1024", "1536", "float16", "a100_80g", out]
        code = f"from calculon.cli.main import main; main({arguments!r})"
        memory: list[float] = []
        seconds = statistics.median(timed(lambda: memory.append(peak_memory(code)), 3))
    rate = rows / seconds
    return Figure(
        f"lae to {suffix}, whole process, two cores",
        f"{rows:,} rows of 119 columns",
        f"{seconds:.1f} s = {rate:,.0f} rows/s, {max(memory):.0f} MiB",
        f"at least {promise:,.0f} rows/s, 500 MB",
        rate >= promise and max(memory) * 2**20 <= 500e6,
    )


def dump_parquet() -> Figure:
    """Time a dump to Parquet."""
    return dump(".parquet", 300_000)


def dump_csv() -> Figure:
    """Time a dump to CSV."""
    return dump(".csv", 150_000)


def huge_space() -> Figure:
    """Search a space of more than a billion executions, and look at the memory."""
    code = (
        "import calculon; r = calculon.search('gpt3-175B', 'a100_80g', 1024, 6144, top=10, "
        "fused=(True, False), add={'batch_size': range(384, 6144, 96), "
        "'attention_type': 'multiquery'}); print(r.counts.total)"
    )
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code + PEAK], check=True, capture_output=True, text=True, cwd=ROOT
    )
    seconds = time.perf_counter() - begin
    total, peak = (int(word) for word in done.stdout.split())
    return Figure(
        "search of a huge space, whole process",
        f"{total:,} executions",
        f"{seconds:.1f} s, {peak / 1024:.0f} MiB",
        "bounded memory (1 GB)",
        total >= 10**9 and peak * 1024 <= 1e9,
    )


def sc23_study() -> Figure:
    """Run the 3,072 searches of the SC'23 system-design study on two cores (named only: takes minutes)."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "study.parquet")
        study = str(ROOT / "examples" / "studies" / "system_design_sc23.yaml")
        command = [sys.executable, "-m", "calculon", "study", study, "-o", out, "-c", "2"]
        seconds = timed(process(command), 1)[0]
    return Figure(
        "study, whole process, two cores",
        "3,072 searches",
        f"{seconds:.0f} s",
        "at most 480 s",
        seconds <= 480,
    )


BENCHMARKS: tuple[Callable[[], Figure], ...] = (
    llm_process,
    llm_page_process,
    table_rate,
    simulated_zb_h2,
    simulated_zbv,
    simulated_dualpipe,
    simulated_dualpipev,
    search_large,
    search_without_memory_limit,
    search_without_bound,
    corrected_search,
    search_of_runs,
    search_of_forms,
    search_of_today,
    search_of_a_framework,
    search_of_deployments,
    first_answers_of_deployments,
    deployments_of_many_replicas,
    changes_of_one,
    search_process,
    small_search_process,
    huge_space,
    dump_parquet,
    dump_csv,
    page_benchmarks.explore_answer,
    page_benchmarks.explore_clients,
)
LONG: tuple[Callable[[], Figure], ...] = (
    sc23_study,
    page_benchmarks.explore_experts,
    page_benchmarks.explore_control,
    page_benchmarks.explore_control_experts,
)
"""Run only when named."""


def figure_of(snippet: Snippet) -> Figure:
    """Measure a snippet in this checkout."""
    (measured,) = snippet.measure(ROOT)
    kept = snippet.kept(measured)
    return Figure(snippet.what, snippet.size, measured.text, snippet.promise, kept)


def chosen_snippets(words: Sequence[str], *, long: bool) -> list[Snippet]:
    """Return the snippets whose names contain a word; without words all, the long ones where asked for."""
    if words:
        return [s for s in SNIPPETS if any(word in s.name for word in words)]
    return [s for s in SNIPPETS if long or not s.long]


def compare(words: Sequence[str], other: Path, rounds: int) -> Table:
    """Measure snippets here and in another checkout, in turn."""
    table = Table("figure", "work", "here", "there", "times as fast", box=None, pad_edge=False)
    for snippet in chosen_snippets(words, long=False):
        here, there = snippet.measure(ROOT, other, rounds=rounds)
        ratio = f"{here.rate / there.rate:.2f}"
        table.add_row(snippet.what, snippet.size, here.text, there.text, ratio)
    return table


def promises(words: Sequence[str]) -> tuple[Table, bool]:
    """Measure figures against their promises; return their table, and whether all are kept."""
    chosen = [b for b in (*BENCHMARKS, *LONG) if any(word in b.__name__ for word in words)]
    works = [*(chosen if words else BENCHMARKS)]
    works += [partial(figure_of, snippet) for snippet in chosen_snippets(words, long=True)]
    table = Table("figure", "work", "median", "promise", "", box=None, pad_edge=False)
    kept = True
    for work in works:
        figure = work()
        kept &= figure.kept
        mark = "kept" if figure.kept else "MISSED"
        table.add_row(figure.what, figure.size, figure.median, figure.promise, mark)
    return table, kept


def main(arguments: Sequence[str]) -> int:
    """Run the benchmarks and print their table; 1 when a promise is not kept."""
    comparable = [snippet.name for snippet in SNIPPETS]
    names = [*(benchmark.__name__ for benchmark in (*BENCHMARKS, *LONG)), *comparable]
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure the speed of this checkout, or compare it with another one.",
        epilog=f"Names: {', '.join(names)}. A comparison runs {', '.join(comparable)}.",
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="NAME",
        help="run the benchmarks whose name contains one of these",
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="run the same benchmarks alternately in both checkouts",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds of a comparison (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    there = names if options.against is None else comparable
    if strange := [w for w in options.words if not any(w in name for name in there)]:
        parser.error(f"none of these has {strange[0]!r} in its name: {', '.join(there)}")
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(f"{psutil.cpu_count()} cores; medians; one core unless a line says otherwise")
    if options.against is not None:
        console.print(compare(options.words, options.against.resolve(), options.rounds))
        return 0
    table, kept = promises(options.words)
    console.print(table)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
