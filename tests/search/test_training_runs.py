"""Searches by figures of whole runs find what a look at every execution finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calculon
from calculon.base.errors import SpecError
from calculon.declarations.run_figures import RUN_FIGURES
from calculon.search.best_first import search_space
from calculon.search.objective import Objective
from calculon.search.ranking import Best
from calculon.search.request import make_condition, make_space
from calculon.search.training_runs import _RISING
from tests.draws import draws

ASKED = "megatron-126M", "a100_80g_sxm", 8, 16, "float16"
SPACE = {
    "any_batch": True,
    "fix": {
        "activation_recompute": "none",
        "tensor_par_comm_type": "ar",
        "data_par_overlap": False,
        "weight_offload": False,
        "activations_offload": False,
        "tensor_par_overlap": "none",
        "tensor_par": [1, 2, 8],
        "pipeline_interleaving": 1,
        "microbatch_size": [1, 2],
    },
    "add": {"batch_size": [8], "optimizer": ["adam", "sgd"]},
}

RISING = tuple(f"{name}:{sense}" for name, sense in sorted(_RISING))
OTHERS = ("goodput", "mwh", "t_co2", "mfu_effective", "days_p90", "days:max", "lost_days")

hours = st.floats(100, 1e6)


def _up_to(most, *, lowest=0.0):
    """Numbers from a least one on, which itself is likely; not ones next to it."""
    return st.one_of(st.just(lowest), st.floats(lowest + (most - lowest) / 1e4, most))


reliability = st.fixed_dictionaries(
    {},
    optional={
        "mtbf_processor": hours,
        "mtbf_common": hours,
        "restart": _up_to(3600),
        "repair": st.floats(1, 100),
        "spares": st.integers(0, 2),
        "elastic": st.booleans(),
        "silent": _up_to(1e-4),
        "silent_detect": _up_to(10),
        "slow_share": _up_to(0.5),
        "slow_factor": _up_to(2.0, lowest=1.0),
        "jitter": _up_to(0.1),
    },
)
checkpoints = st.fixed_dictionaries(
    {},
    optional={
        "bandwidth_per_node": st.sampled_from([0.001, 0.05, 1.2, 100.0]),
        "bytes_per_param": st.floats(1, 20),
        "mode": st.sampled_from(["async", "sync"]),
        "pause": _up_to(60),
        "levels": st.sampled_from([1, 1, 2]),
        "kept": st.integers(1, 5),
    },
)
intervals = st.sampled_from([{}, {"interval": 1.0}, {"interval": 3e4}, {"interval_steps": 7}])
lengths = st.sampled_from(
    [{"tokens": 1e6}, {"tokens": "1G"}, {"tokens": "chinchilla"}, {"steps": 500}]
)


@st.composite
def campaigns(draw):
    """Campaigns of one stretch whose every figure is known."""
    fleet = {"price": 2.0, "storage": draw(st.sampled_from([0.0, 20.0])), "g_co2_per_kwh": 400}
    more = {
        "evaluate_every": draw(st.sampled_from([0, 100])),
        "evaluate_time": draw(_up_to(100)),
        "spikes": draw(st.sampled_from([0.0, 1e4])),
        "reliability": draw(reliability),
        "checkpoints": draw(checkpoints) | draw(intervals),
        "fleet": fleet,
    }
    return draw(lengths) | more


def _space(campaign):
    return make_space(*ASKED, **SPACE, campaign=campaign)


def _table(campaign, where=None):
    (table,) = calculon.executions(*ASKED, **SPACE, campaign=campaign, where=where, chunk=2**20)
    return table


def _objective(text):
    return Objective.parse(text, whole_runs=True)


def _scores(text, table):
    return _objective(text).value(table[_objective(text).statistic.name])


@settings(max_examples=draws(6))
@given(campaign=campaigns(), text=st.sampled_from((*RISING, *OTHERS)), top=st.integers(1, 6))
def test_skipping_what_cannot_win_changes_nothing(campaign, text, top):
    space = _space(campaign)
    found, whole = (Best(_objective(text), top, prune=prune) for prune in (True, False))
    assert search_space(space, found) == search_space(space, whole)
    for one, other in zip(found.ranked(), whole.ranked(), strict=True):
        assert one.tolist() == other.tolist()


@settings(max_examples=draws(2))
@given(
    campaign=campaigns(),
    text=st.sampled_from((*RISING, *OTHERS, "sample_rate")),
    share=_up_to(1),
    limited=st.sampled_from(["days", "usd", "mwh", "days_p90"]),
)
def test_a_search_under_a_limit_is_that_of_all_executions(campaign, text, share, limited):
    everything = _table(campaign)
    most = float(np.quantile(everything[limited], share))
    where = f"{limited} <= {most!r} and tensor_par <= 4"
    found = calculon.search(*ASKED, **SPACE, campaign=campaign, objective=text, where=where, top=5)
    kept = (everything[limited] <= most) & (everything.column("tensor_par") <= 4)
    assert (_table(campaign, where)["days"] == everything["days"][kept]).all()
    wanted = np.sort(_scores(text, everything)[kept])[::-1][:5]
    assert found.scores[0].tolist() == wanted.tolist()
    assert (found.evaluation[limited] <= most).all()


@settings(max_examples=draws(2))
@given(campaign=campaigns(), text=st.sampled_from(RISING), data=st.data())
def test_a_tighter_limit_never_improves_the_objective(campaign, text, data):
    days = np.sort(_table(campaign)["days"])
    loose, tight = sorted(data.draw(st.sampled_from(days.tolist())) for _ in range(2))[::-1]
    best = [
        calculon.search(*ASKED, **SPACE, campaign=campaign | {"deadline": most}, objective=text)
        for most in (loose * (1 + 1e-12), tight * (1 + 1e-12))
    ]
    assert best[0].scores[0, 0] >= best[1].scores[0, 0]


@settings(max_examples=draws(2))
@given(campaign=campaigns(), data=st.data())
def test_a_row_has_the_figures_that_it_has_alone(campaign, data):
    table = _table(campaign)
    row = data.draw(st.integers(0, len(table) - 1))
    alone = _space(campaign).runs.figures(table.take(slice(row, row + 1)))
    assert {name: values.tolist() for name, values in alone.items()} == {
        name: [table[name][row]] for name in RUN_FIGURES
    }


def test_a_row_has_the_figures_of_its_training_run():
    fields = {"tokens": "1G", "fleet": {"price": 2.0, "g_co2_per_kwh": 400}}
    found = calculon.search(*ASKED, campaign=fields, objective="usd")
    run = calculon.campaign(ASKED[0], found.best.execution, ASKED[1], fields)
    for name in RUN_FIGURES:
        assert found.evaluation[name][0] == pytest.approx(run.figures[name], rel=1e-12), name


def test_the_front_of_days_and_money_is_what_nothing_beats():
    fields = {"tokens": "1G", "fleet": {"price": 2.0}, "checkpoints": {"kept": 9}}
    names = ("days", "goodput")
    front = calculon.search(*ASKED, **SPACE, campaign=fields, pareto=names)
    table = _table(fields)
    scores = np.stack([_scores(name, table) for name in names])
    best = {
        tuple(one)
        for one in scores.T.tolist()
        if not ((one <= scores.T).all(axis=1) & (one < scores.T).any(axis=1)).any()
    }
    assert {tuple(one) for one in front.scores.T.tolist()} == best
    assert front.pareto("days", "usd").scores[0, 0] == -table["days"].min()


def test_limits_of_a_campaign_are_conditions():
    fields = {"tokens": "1G", "deadline": "36h", "budget_usd": 1000, "fleet": {"price": 1.0}}
    runs = _space(fields).runs
    assert make_condition("tensor_par > 1", "corrected", runs).expression.text == (
        "(tensor_par > 1) and days <= 1.5 and usd <= 1000.0"
    )
    assert make_condition(None, "corrected", runs).names == {"days", "usd"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"objective": "usd"}, "add --tokens 15T, or --campaign"),
        ({"where": "days <= 60"}, "add --tokens 15T, or --campaign"),
        ({"campaign": {}}, "tokens: 15T"),
        ({"campaign": {"tokens": "1T"}, "edition": "sc23"}, "edition='corrected'"),
        ({"campaign": {"tokens": "1T"}, "objective": "usdd"}, "did you mean 'usd'"),
        ({"campaign": {"tokens": "1T"}, "objective": "t_co2"}, "--carbon"),
        ({"campaign": "llama3-405B"}, "calculon campaign"),
        (
            {"campaign": {"phases": [{"tokens": "1T"}, {"tokens": "1T"}]}},
            "leave out phases",
        ),
    ],
)
def test_what_cannot_be_searched_says_what_to_do(options, said):
    with pytest.raises(SpecError, match=said):
        calculon.search(*ASKED, **options)


def test_money_needs_a_price():
    with pytest.raises(SpecError, match="--price"):
        calculon.search(
            "megatron-126M", "a100_80g", 8, 16, campaign={"tokens": "1T"}, objective="usd"
        )
