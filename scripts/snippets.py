"""Benchmarks as snippets of the public interface: any checkout can run them, each in a process of its own.

A snippet defines ``work()``, which returns how much it did. Its time is processor time, so that what else the machine
does counts little.
"""

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HEAD = """
import json, time
import calculon, numpy as np
from calculon import inputs
"""

TAIL = """
seconds = []
for _ in range(RUNS):
    begin = time.process_time()
    amount = work()
    seconds.append(time.process_time() - begin)
    if sum(seconds) > 10:
        break
peak = int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) / 1024
print(json.dumps([amount, seconds[len(seconds) > 1:], peak]))
"""
"""The first of several runs warms up; none begins after ten seconds. Peak resident memory is in MiB; Linux only."""


@dataclass(frozen=True)
class Measured:
    """What runs of a snippet took.

    Attributes:
        amount: Executions of one run.
        seconds: Median processor time of a run.
        peak: Peak resident memory of the process in MiB.
    """

    amount: int
    seconds: float
    peak: float

    @property
    def rate(self) -> float:
        """Executions per second on one core."""
        return self.amount / self.seconds

    @property
    def text(self) -> str:
        """Time of one execution, or rate, whichever reads better, and peak memory."""
        if self.rate < 10_000:
            speed = f"{1e3 / self.rate:.2f} ms"
        elif self.rate < 10_000_000:
            speed = f"{self.rate:,.0f}/s"
        else:
            speed = f"{self.rate / 1e6:,.1f} M/s"
        return f"{speed}, {self.peak:.0f} MiB"


@dataclass(frozen=True)
class Snippet:
    """A benchmark that any checkout can run.

    Attributes:
        name, what, size: Name to choose it by, what is measured, and of how much.
        code: Defines ``work()``.
        rate: Promised executions per second on one core of a quiet machine.
        peak: Promised peak resident memory in MiB.
        runs: Runs at most, the first of several not counted.
        long: Takes minutes in an old checkout: compared only when named.
    """

    name: str
    what: str
    size: str
    code: str
    rate: float
    peak: float = float("inf")
    runs: int = 8
    long: bool = False

    @property
    def promise(self) -> str:
        """The promise in words."""
        slow = self.rate < 10_000
        speed = f"at most {1e3 / self.rate:g} ms" if slow else f"at least {self.rate:,.0f}/s"
        return speed + (f", {self.peak:.0f} MiB" if self.peak < float("inf") else "")

    def kept(self, measured: Measured) -> bool:
        """Whether the promise is kept."""
        return measured.rate >= self.rate and measured.peak <= self.peak

    def measure(self, *checkouts: Path, rounds: int = 1) -> list[Measured]:
        """Run in each of several checkouts, in turn; return what each took.

        Raises:
            subprocess.CalledProcessError: Where a checkout cannot run it.
        """
        code = f"{HEAD}RUNS = {self.runs}\n{self.code}{TAIL}"
        seconds: dict[Path, list[float]] = {checkout: [] for checkout in checkouts}
        amount, peak = dict.fromkeys(checkouts, 0), dict.fromkeys(checkouts, 0.0)
        for _ in range(rounds):
            for checkout in checkouts:
                done = subprocess.run(
                    [sys.executable, "-c", code],
                    check=True,
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=checkout,
                    env={**os.environ, "PYTHONPATH": str(checkout)},
                )
                amount[checkout], times, own = json.loads(done.stdout.splitlines()[-1])
                seconds[checkout] += times
                peak[checkout] = max(peak[checkout], own)
        return [Measured(amount[c], statistics.median(seconds[c]), peak[c]) for c in checkouts]


_ESTIMATE = """
model, system, execution = inputs.model({0!r}), inputs.system({1!r}), inputs.execution({2!r})
def work():
    for _ in range(100):
        calculon.estimate(model, execution, system)
    return 100
"""

_SYSTEMS = """
model, execution = inputs.model("megatron-1T"), inputs.execution("3072_t4_p64_d12_mbs4_full")
system = json.load(open("systems/a100_80g.json"))
systems = [system | {"mem1": system["mem1"] | {"GBps": 1500 + i}} for i in range(1000)]
def work():
    for system in systems:
        calculon.estimate(model, execution, system)
    return len(systems)
"""

_ONE_FIGURE = """
asked = "llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm"
changes = [{"mem1.GBps": 2000 + i / 4} for i in range(10_000)]
def work():
    return len(calculon.what_if(*asked, changes))
"""

_FIGURES = """
asked = "llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm"
figures = [one for one in calculon.figures("h100_80g_sxm").values() if one.kind is float and one.value]
changes = [{}, *({one.path: one.value * k} for one in figures[:40] for k in (0.99, 1.01))]
def work():
    return len(calculon.what_if(*asked, changes))
"""

_ROWS = """
rows = 20_000
model, system = inputs.model("megatron-1T"), inputs.system("a100_80e")
base = inputs.execution("3072_t4_p64_d12_mbs4_full").to_dict() | {"edition": "corrected"}
columns = {name: [value] * rows for name, value in base.items()}
columns["mem_reserved_mib"] = [i % 2000 for i in range(rows)]
"""

_EVALUATE = """
plan = calculon.Plan.from_columns(columns)
def work():
    calculon.evaluate(model, system, plan)
    return rows
"""

_FORMS = """
draw = np.random.default_rng(1)
stages = draw.choice(["auto", "0", "1", "2", "3", "fsdp"], rows).tolist()
own = draw.integers(0, 2, rows).astype(bool).tolist()
columns |= {
    "zero_stage": stages,
    "optimizer_sharding": [o if s == "auto" else s != "0" for o, s in zip(own, stages)],
    "pp_schedule": draw.choice(["1f1b", "gpipe", "zb_h1"], rows).tolist(),
    "activation_recompute": draw.choice(["full", "attn_only", "none"], rows).tolist(),
    "pipeline_interleaving": [1] * rows,
    "weight_offload": [False] * rows,
    "seq_par_ag_redo": [False] * rows,
}
"""

_PUBLISHED = """
asked = ("gpt3-175B", "a100_80g", 1024, 1536)
def work():
    return calculon.search(*asked, top=10, edition="sc23", objective="{0}").counts.total
"""

_TABLE = """
whole = next(iter(calculon.executions("gpt3-175B", "a100_80g", 1024, 1536, edition="sc23", chunk=500_000)))
plan = whole.plan.take(np.random.default_rng(0).permutation(len(whole))[:100_000])
model, system = inputs.model("gpt3-175B"), inputs.system("a100_80g")
def work():
    calculon.evaluate(model, system, plan)
    return len(plan)
"""

_SEARCH = """
def work():
    forms = {{"edition": "corrected", "preset": "published"}}
    found = calculon.search("gpt3-175B", "a100_80g", 1024, 1536, top=10, **forms, **{0})
    return found.counts.total
"""

_STAGES: dict[str, tuple[str, ...]] = {"zero_stage": ("0", "1", "2", "3")}
_MESH: dict[str, tuple[str, ...]] = {"mesh_order": ("tp-dp-pp",)}
_AUTO: dict[str, tuple[str, ...]] = {"coll_algo": ("auto",)}
_PARTS = {"context_par": (1, 2, 4, 8)}
_FUSED = {"attn_impl": ("flash",)}
_SEVEN = {
    "zero_stage": ("2",),
    "coll_algo": ("auto",),
    "grad_dtype": ("float32",),
    "pp_schedule": ("gpipe",),
    "optimizer": ("sgd_momentum",),
    "p2p_overlap": (True,),
    "grad_clip": (True,),
}

_EXPERTS = """
def work():
    add = {"expert_par": (1, 2, 4, 8)}
    options = {"edition": "corrected", "preset": "published", "add": add}
    found = calculon.search("mixtral-8x7B", "h100_80g_sxm", 1024, 1536, "bfloat16", **options)
    return found.counts.total
"""

_DEEPSEEK = """
def work():
    given = "deepseek-v3", "h800_80g_sxm", 2048, 1024, "bfloat16"
    return calculon.search(*given, preset="megatron-lm").counts.total
"""

_SENSITIVITY = """
best = calculon.plan("llama-3.1-70b", 1024, "h100").best
def work():
    calculon.sensitivity(best.model, best.execution, best.system, replan={0})
    return 1
"""

SNIPPETS = (
    Snippet(
        "search_published",
        "search by sample rate, edition sc23",
        "5,849,264 executions",
        _PUBLISHED.format("sample_rate"),
        rate=60_000_000,
    ),
    Snippet(
        "search_unbounded",
        "search by a statistic that allows no pruning",
        "5,849,264 executions",
        _PUBLISHED.format("tp_comm_exposed_time:min"),
        rate=25_000_000,
    ),
    Snippet(
        "evaluate_published",
        "evaluate, edition sc23",
        "100,000 random rows",
        _TABLE,
        rate=500_000,
    ),
    Snippet(
        "estimate_megatron",
        "estimate, warm",
        "megatron-1T on 3,072 A100",
        _ESTIMATE.format("megatron-1T", "a100_80g", "3072_t4_p64_d12_mbs4_full"),
        rate=1_000,
    ),
    Snippet(
        "estimate_llama",
        "estimate, warm",
        "llama3-8B on 64 H100",
        _ESTIMATE.format("llama3-8B", "h100_80g_sxm", "llama3-8B_h100x64"),
        rate=500,
    ),
    Snippet(
        "estimate_systems",
        "estimate, system from a mapping",
        "1,000 systems that differ in one number",
        _SYSTEMS,
        rate=1_000,
        runs=3,
    ),
    Snippet(
        "what_if_figure",
        "what_if, 10,000 values of one figure",
        "llama3-8B on 64 H100",
        _ONE_FIGURE,
        rate=20_000,
    ),
    Snippet(
        "what_if_figures",
        "what_if, 81 rows of 40 figures",
        "llama3-8B on 64 H100",
        _FIGURES,
        rate=1_000,
    ),
    Snippet(
        "evaluate_sizes",
        "evaluate, 2,000 values of mem_reserved_mib",
        "20,000 rows",
        _ROWS + _EVALUATE,
        rate=250_000,
    ),
    Snippet(
        "evaluate_forms",
        "evaluate, mixed strategies and schedules",
        "20,000 rows",
        _ROWS + _FORMS + _EVALUATE,
        rate=200_000,
    ),
    Snippet(
        "search_forms_fixed",
        "search, zero_stage 0 to 3 and a mesh",
        "2,995,008 executions",
        _SEARCH.format({"fix": _STAGES | _MESH | _AUTO}),
        rate=20_000_000,
    ),
    Snippet(
        "search_forms_added",
        "search, zero_stage 0 to 3 added, on a mesh",
        "8,994,144 executions",
        _SEARCH.format({"fix": _MESH, "add": _STAGES | _AUTO}),
        rate=25_000_000,
        runs=4,
    ),
    Snippet(
        "search_parts",
        "search, context_par 1 to 8 added",
        "53,592,160 executions",
        _SEARCH.format({"fix": _FUSED, "add": _PARTS}),
        rate=40_000_000,
        runs=3,
    ),
    Snippet(
        "search_experts",
        "search, degrees of experts added",
        "mixtral-8x7B on 1,024 H100",
        _EXPERTS,
        rate=15_000_000,
    ),
    Snippet(
        "search_deepseek",
        "search of blocks of several kinds",
        "deepseek-v3 on 2,048 H800",
        _DEEPSEEK,
        rate=170_000,
        runs=3,
    ),
    Snippet(
        "sensitivity",
        "elasticities and ranges of all figures of a system",
        "llama3-70B on 1,024 H100, 205 figures",
        _SENSITIVITY.format(False),
        rate=1 / 0.3,
    ),
    Snippet(
        "sensitivity_replan",
        "the same with the plan searched again",
        "llama3-70B on 1,024 H100",
        _SENSITIVITY.format(True),
        rate=0.1,
        runs=2,
    ),
    Snippet(
        "search_seven_added",
        "search, seven fields added",
        "1,121,891,328 executions",
        _SEARCH.format({"add": _SEVEN}),
        rate=80_000_000,
        peak=300,
        runs=1,
        long=True,
    ),
)
