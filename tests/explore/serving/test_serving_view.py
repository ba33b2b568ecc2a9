"""The view of serving: the deployments of the searches, addresses that keep what is chosen, and messages."""

import re
from dataclasses import replace
from html import unescape
from urllib.parse import parse_qsl, urlsplit

import pytest

from calculon.explore.controls import adjusted_state
from calculon.explore.page_state import State
from calculon.explore.serving.serving_results import (
    deployments,
    displayed_deployment,
    frontier,
    possible,
)
from calculon.explore.web.page_server import app
from calculon.render.chart import Line
from calculon.search.deployments.best_deployment import search_deployments
from tests.documents.charts.reading import marks
from tests.draws import some
from tests.explore.asking import answers, asked, at, found, made, words

SERVING = State(model="llama3-8B", system="h100_80g_sxm", procs=8, view="serving")
EXPERTS = replace(SERVING, model="mixtral-8x7B")


def with_options(state: State, **options: str) -> State:
    """Return a state with words of workloads and deployments, whose dots are written as ``__``."""
    return replace(
        state, options={name.replace("__", "."): value for name, value in options.items()}
    )


def test_points_of_the_frontier_lead_to_deployments_with_their_rates():
    chart = made("serving-frontier", SERVING).chart
    ((panel,),) = chart.rows
    (dots,) = (one for one in marks(panel, Line) if one.links)
    points = frontier(SERVING, answers())["curves"][0]["points"]
    assert len(points) == len(dots.links)
    for point, link in some(zip(points, dots.links, strict=True), 4):
        served = displayed_deployment(at(link), answers()).served
        for name in ("interactivity", "output_rate_per_proc"):
            assert served[name] == pytest.approx(point[name])
        assert served.batch == point["batch"]


def test_rows_of_the_table_lead_to_their_deployments():
    several = deployments(SERVING, answers())
    links = re.findall(r'<a data-state href="([^"]*)"', str(made("serving-best", SERVING).html))
    assert len(links) == len(several)
    for one, link in zip(several, links, strict=True):
        assert (
            displayed_deployment(at(unescape(link)), answers()).served.deployment == one.deployment
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [("tensor_par", 2), ("pipeline_par", 4), ("token_budget", 0), ("max_batch", 7)],
)
def test_what_is_chosen_is_kept_and_the_rest_is_the_best(name, value):
    state = with_options(SERVING, **{f"deployment__{name}": str(value)})
    best = search_deployments("llama3-8B", 8, "h100_80g_sxm", "chat", fix={name: value}).best
    assert displayed_deployment(state, answers()).served.deployment == best.deployment
    assert getattr(best.deployment, name) == value


def test_a_rate_takes_the_fewest_processors_that_keep_the_limits():
    state = with_options(SERVING, workload__rate="4", workload__tpot_limit="20ms")
    served = displayed_deployment(state, answers()).served
    procs = served.deployment.num_procs
    assert all(one.met for one in served.limits)
    fewer = with_options(state, **state.options, deployment__num_procs=str(procs // 2))
    assert procs == 1 or displayed_deployment(fewer, answers()).problem


def test_numbers_that_do_not_go_with_a_change_are_free_again():
    words_of = {"deployment.tensor_par": "2", "deployment.expert_par": "8"}
    state = adjusted_state(replace(EXPERTS, options=words_of), answers(), "deployment.tensor_par")
    assert "deployment.expert_par" not in state.options
    assert state.note == "Expert parallel (EP) follows"
    assert 8 not in possible(state, answers(), "expert_par")


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (("workload.prompt", "abc"), "Prompt tokens: expected tokens of a sequence"),
        (("workload.output", "1"), "Output tokens: expected at least 2"),
        (("workload.ttft_limit", "-1"), "TTFT limit: expected a time above 0"),
        (("workload", "/etc/passwd"), "Workload: expected one of assistant"),
        (("deployment.tensor_par", "7"), "Tensor parallel (TP): expected one of 1, 2, 4, 8"),
        (("deployment.tensor_par", "1000000007"), "Tensor parallel (TP): expected one of"),
        (("deployment.num_procs", "9"), "Processors used: expected a number of the 8 processors"),
        (("deployment.weights_dtype", "float7"), "Weights: expected one of bfloat16"),
        (("deployment.draft", "model:/etc/passwd"), "expected a control of the page"),
    ],
)
def test_a_value_that_is_none_has_one_message(pair, message):
    site = app(answers(), SERVING, ["localhost"])
    query = f"{SERVING.query}&{pair[0]}={pair[1]}"
    answer = asked(site, f"/parts?{query}")
    lines = re.findall(r"<p>(.*?)</p>", answer.json()["main"])
    assert answer.status_code == 400
    assert len(lines) == 1
    assert message in unescape(lines[0])


@pytest.mark.parametrize(
    ("options", "title"),
    [
        ({"workload__tpot_limit": "1ms"}, "No deployment meets the limits"),
        ({"workload__prompt": "100M"}, "No deployment fits"),
    ],
)
def test_a_question_without_a_deployment_says_why(options, title):
    part = made("served", with_options(SERVING, **options))
    assert part.title == title
    assert "one of" in words(part) or "of 70" in words(part) or "none of" in words(part).lower()


def test_the_address_keeps_the_view_and_its_words():
    site = app(answers(), SERVING, ["localhost"])
    told = found(site, f"{SERVING.query}&deployment.tensor_par=2&tensor_par=4&tokens=2T")
    kept = dict(parse_qsl(urlsplit(f"/?{told['query']}").query))
    assert kept["deployment.tensor_par"] == "2"
    assert (kept["tensor_par"], kept["tokens"], kept["view"]) == ("4", "2T", "serving")
    for name in ("tensor_par", "tokens"):  # the controls of other views, which this one hides
        assert f'type="hidden" name="{name}"' in told["controls"]


@pytest.mark.parametrize("stated", ["", "2"])
def test_a_control_names_the_best_value_only_if_the_search_chose_it(stated):
    state = with_options(SERVING, deployment__tensor_par=stated) if stated else SERVING
    text = found(app(answers(), SERVING, ["localhost"]), state.query)["controls"]
    (control,) = re.findall(r'<label for="c-deployment.tensor_par".*?</select>', text, re.DOTALL)
    best = displayed_deployment(state, answers()).served.deployment.tensor_par
    first = re.search(r'<option value=""[^>]*>([^<]*)<', control)[1]
    assert first == ("best" if stated else str(best))
    assert (">best</span>" in control) is not bool(stated)
