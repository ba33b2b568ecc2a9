"""The best plans of several machines from two searches are those that a search of each finds."""

import math

import pytest

from calculon import inputs
from calculon.advise import near_machines
from calculon.advise.elasticities import Case
from calculon.advise.near_machines import best_of_each, change_key
from calculon.advise.replanned import Replanner
from calculon.declarations.presets import find_preset
from calculon.hardware.figures import figures_of, with_figures
from calculon.search.driver import run
from calculon.search.objective import Objective
from calculon.search.ranking import Best
from tests.draws import FACTOR, some

TIME = Objective.parse("total_time")
PATHS = ("mem1.GBps", "matrix.bfloat16.tflops", "networks[1].bandwidth", "networks[1].latency")
SMALL = {"num_procs": 8, "tensor_par": 1, "pipeline_par": 1, "batch_size": 32}
PRESETS = ["llm-foundry"] if FACTOR == 1 else ["llm-foundry", "megatron-lm"]
SIZES = ({"mem1.GiB": 40.0}, {"mem1.GiB": 100.0}, {"networks[0].size": 4})


def _changes(system):
    known = figures_of(system)
    ends = [{path: known[path].value * k} for path in PATHS for k in (0.75, 1.25)]
    return [{}, *ends, *SIZES]


def _searched(replanner, changes):
    """Return the score and the number that a search of each machine finds."""
    for change in changes:
        machine = with_figures(replanner.case.system, change)
        found = run(replanner._space(machine), Best(TIME, 1))
        yield (float(found.scores[0, 0]), int(found.numbers[0])) if len(found) else None


@pytest.mark.parametrize("preset", PRESETS)
def test_the_best_of_each_is_that_of_its_own_search(monkeypatch, preset):
    """Where all plans that may be the best are evaluated on each machine, and where these are too many."""
    execution = inputs.execution(SMALL | {"base": preset})
    specs = inputs.model("llama3.2-1B"), execution, inputs.system("h100_80g_sxm")
    case = Case(*specs, "total_time")
    replanner = Replanner(case, find_preset(execution.preset))
    changes = [{}, *some(_changes(case.system)[1:-1], 2), SIZES[-1]]
    times = case.values(changes).tolist()
    searched = [*_searched(replanner, changes)]
    for most in (near_machines.MAX_PLANS, 3):
        monkeypatch.setattr(near_machines, "MAX_PLANS", most)
        found = best_of_each(replanner._space, case.system, changes, times)
        assert change_key({}) in found
        assert change_key(SIZES[-1]) not in found  # a count may do either
        assert len(found) == len(changes) - 1 or most == 3
        for change, time, alone in zip(changes, times, searched, strict=True):
            if change_key(change) not in found:
                continue
            one = found[change_key(change)]
            if alone is None or (one is None and math.isfinite(time)):
                assert alone is None or -alone[0] >= time
            else:
                assert one is not None
                assert (one.score, one.number) == alone
