"""Benchmarks of the page that ``calculon explore`` serves: its answers, many clients, a control in a browser."""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

from bench_figure import Figure

from tests.explore.browsing import BUSY, PATIENCE, Served, executable, switches

QUESTION = {"model": "llama3-70B", "system": "h100_80g_sxm", "procs": 1024}
EXPERTS = {"model": "deepseek-v3", "system": "h100_80g_sxm", "procs": 2048, "view": "machine"}
"""A question whose search has many kinds of block."""

LATER = ("machine-best", "machine-capacity", "machine-effects", "whole")
"""Parts of it that take longer than an estimate, in the order in which they are asked for."""

CLIENTS = 50
REQUESTS = 8
"""Of each client."""

STEPS = 15
"""Changes of a control in the browser."""

DEGREES = ("tensor_par", "pipeline_par", "microbatch_size")
DEGREES_OF_EXPERTS = ("expert_par", "pipeline_par", "microbatch_size")


@contextmanager
def served() -> Iterator[Served]:
    """Serve the page in a process of its own, with the first question answered."""
    with tempfile.TemporaryDirectory() as folder:
        server = Served(Path(folder))
        try:
            seconds(server, QUESTION)
            yield server
        finally:
            server.end()


def seconds(server: Served, state: dict[str, object]) -> float:
    """Return how long the numbers of a state take; whatever is not an answer is raised."""
    begin = time.perf_counter()
    with urlopen(f"{server.address}/parts?{urlencode(state)}", timeout=60) as answer:
        answer.read()
    return time.perf_counter() - begin


def plans() -> list[dict[str, object]]:
    """Return states of plans of one's own that run, as a change of their tensor parallelism asks for them."""
    values = product((4, 8), (4, 5, 8, 10), (1, 2), ("none", "attn_only", "full"))
    names = ("tensor_par", "pipeline_par", "pipeline_interleaving", "activation_recompute")
    fixed = {**QUESTION, "microbatch_size": 1, "changed": "tensor_par"}
    return [{**fixed, **dict(zip(names, one, strict=True))} for one in values]


def explore_answer() -> Figure:
    """Time the numbers of plans that were not asked for before: the server alone."""
    with served() as server:
        seconds(
            server, {**QUESTION, "tensor_par": 2, "pipeline_par": 8}
        )  # loads what an estimate needs
        states = plans()
        median = statistics.median(seconds(server, state) for state in states)
    return Figure(
        "explore, numbers of a plan, server alone",
        f"{len(states)} plans of llama3-70B on 1,024",
        f"{median * 1e3:.0f} ms",
        "at most 60 ms",
        median <= 0.06,
    )


def explore_clients() -> Figure:
    """Let many clients ask at the same time; an answer that is an error ends the benchmark."""
    states = plans()
    with served() as server:

        def client(number: int) -> list[float]:
            own = [states[(number * 7 + turn) % len(states)] for turn in range(REQUESTS)]
            return [seconds(server, state) for state in own]

        begin = time.perf_counter()
        with ThreadPoolExecutor(CLIENTS) as pool:
            taken = [one for found in pool.map(client, range(CLIENTS)) for one in found]
        total = time.perf_counter() - begin
    return Figure(
        "explore, many clients",
        f"{CLIENTS} clients with {REQUESTS} states each",
        f"{len(taken) / total:.0f} answers/s, each after {statistics.median(taken) * 1e3:.0f} ms",
        "no error",
        len(taken) == CLIENTS * REQUESTS,
    )


def explore_experts() -> Figure:
    """Time the parts of a question about experts one after the other, and the memory that the server takes for them."""
    with served() as server:
        taken = {name: part_seconds(server, name) for name in LATER}
        peak = server.peak
    told = ", ".join(f"{name} {time:.1f}" for name, time in taken.items())
    return Figure(
        "explore, parts of a question about experts",
        "deepseek-v3 on 2,048 in s: " + told,
        f"{sum(taken.values()):.0f} s, {peak / 2**20:.0f} MiB at most",
        "at most 60 s, 800 MiB",
        sum(taken.values()) <= 60 and peak <= 800 * 2**20,
    )


def part_seconds(server: Served, name: str) -> float:
    """Return how long a part of the question about experts takes."""
    begin = time.perf_counter()
    with urlopen(f"{server.address}/part/{name}?{urlencode(EXPERTS)}", timeout=600) as answer:
        answer.read()
    return time.perf_counter() - begin


def explore_control() -> Figure:
    """Time from a change of a degree to its numbers on the screen, in Chromium (named only: needs one)."""
    median, count = _control(QUESTION, DEGREES)
    return Figure(
        "explore, from a control to its numbers, in Chromium",
        f"{count} plans of llama3-70B on 1,024",
        f"{median:.0f} ms",
        "at most 100 ms",
        median <= 100,
    )


def explore_control_experts() -> Figure:
    """Time the same of a model whose search takes seconds: no change of a plan waits for it (named only)."""
    median, count = _control({**EXPERTS, "procs": 1024, "view": "plan"}, DEGREES_OF_EXPERTS)
    return Figure(
        "explore, from a control to its numbers, experts, in Chromium",
        f"{count} plans of deepseek-v3 on 1,024",
        f"{median:.0f} ms",
        "at most 1,000 ms",
        median <= 1000,
    )


def _control(question: dict[str, object], degrees: tuple[str, ...]) -> tuple[float, int]:
    """Return the median time in ms from a change of a degree to its numbers on the screen, and how many were timed."""
    path = executable()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        sys.exit("explore_control needs Chromium, and the packages that scripts/test installs")
    with served() as server, sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=path, args=switches()).new_page()
        page.set_default_timeout(3 * PATIENCE)
        page.goto(f"{server.address}/?{urlencode(question)}")
        page.wait_for_selector("#part-figures")
        page.wait_for_function(BUSY)
        taken, seen = [], {page.url}
        for step in range(2 * STEPS):
            name = degrees[step % len(degrees)]
            control = page.locator(f"#c-{name}")
            values = control.evaluate("(one) => [...one.options].map((option) => option.value)")
            control.select_option(values[min(1 + step // 3 % 3, len(values) - 1)])
            page.wait_for_function(BUSY)
            if page.url not in seen and len(taken) < STEPS:
                taken.append(float(page.get_attribute("#main", "data-ms") or "nan"))
            seen.add(page.url)
    return statistics.median(taken), len(taken)
