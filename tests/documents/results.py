"""Results of which tests of notebooks look at pages, tables and pictures: each is computed once."""

import calculon
from calculon.documents.result_pages import ROWS
from calculon.inputs import Changed
from tests.store import cache

ONE, OTHER = "llama3-8B_h100x64", "llama3-8B_h100x64_p4"


@cache
def estimate_of(execution: str = OTHER) -> calculon.Estimate:
    """Return an estimate of Llama 3 8B."""
    return calculon.estimate("llama3-8B", execution, "h100_80g_sxm")


@cache
def answer() -> calculon.Answer:
    """Return the best plan and one of a user."""
    return calculon.plan("gpt3-13B", 64, "a100_80g_sxm", mine="tp=4 pp=2 mbs=1")


@cache
def no_answer() -> calculon.Answer:
    """Return an answer without a plan that fits."""
    return calculon.plan("mlp-2x1024", 1, Changed("a100_80g_sxm", {"mem1.GiB": 0.001}))


@cache
def fleets() -> calculon.FleetAnswer:
    """Return fleets under a deadline."""
    run = {"tokens": "1T", "deadline": "60d"}
    return calculon.plan("llama-3-8b", "32,64", "h100", campaign=run, objective="usd")


@cache
def found() -> calculon.SearchResult:
    """Return the best executions of a search: 7 more than a table shows."""
    return calculon.search("megatron-22B", "a100_80g", 8, 8, top=ROWS + 7)


@cache
def found_nothing() -> calculon.SearchResult:
    """Return a search without a feasible execution."""
    return calculon.search("gpt3-175B", "a100_80g", 2, 8)
