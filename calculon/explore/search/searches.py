"""Searches of a page: their settings and results, each computed once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from calculon.advise.answer import space_of
from calculon.advise.ask import Question, most_processors
from calculon.advise.neighbors import SWITCHES
from calculon.advise.space_fixes import BEST
from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.declarations.named_values import CORRECTED
from calculon.declarations.spellings import processor_counts
from calculon.declarations.statistics import FITS, RISK
from calculon.explore.answers import Answers
from calculon.explore.page_state import OPTIONS, State
from calculon.explore.request_tracking import count_searched
from calculon.plan.columns import field_of
from calculon.search.best_first import count_space
from calculon.search.conditions import Condition
from calculon.search.driver import run
from calculon.search.objective import Objective
from calculon.search.override_checks import check_left
from calculon.search.overrides import parse
from calculon.search.ranking import Best, BestOfEach, Ranking
from calculon.search.request import make_ranking, one_stretch
from calculon.search.rule_dependencies import allowed_values
from calculon.search.search_result import SearchResult
from calculon.search.space import Space, Values

FEW = 100_000
"""Number of executions up to which finding the best of each split is about as fast as the overall best."""

MAX_COUNTS = 12
"""Maximum number of compared processor counts."""

OPENED = tuple(
    name
    for name in ("context_par", *SWITCHES, "tp_user_buffers")
    if field_of(name).declaration.adds
)
"""Fields for which a search may try more than a framework's defaults, without changing the training itself."""

_DEGREES = (2, 4, 8, 16)
"""Degrees tried for an axis that is opened."""

_READ = ("objective", "where", "open", "fix")
"""Options of the view that a search depends on."""


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search.

    Attributes:
        question: The question, with fixed and opened fields.
        space: The search space.
        objective: Statistic to optimize.
        where: Condition on executions.
        condition: Text of the condition.
        plain: True for the default search for the best plan, which every view shares.
    """

    question: Question
    space: Space
    objective: Objective
    where: Condition | None
    condition: str
    plain: bool

    def best(self) -> Best:
        """Return a new ranking that keeps the overall best."""
        return Best(self.objective, 1, self.where)

    def best_of_each(self) -> BestOfEach:
        """Return a new ranking that keeps the best of each split and number of chunks."""
        stride = self.space.strides["pipeline_interleaving"]
        return BestOfEach(self.objective, stride, self.where)

    def pareto(self, names: Sequence[str]) -> Ranking:
        """Return a new ranking that keeps the Pareto front of some statistics."""
        return make_ranking(1, "", names, self.condition or None, CORRECTED, self.space.runs)


def search_settings(state: State, answers: Answers) -> SearchSettings:
    """Return the settings of the search.

    Raises:
        SpecError: For an invalid objective, condition or field, and for an empty search space.
    """
    return answers.cached(("asked", _key(state)), lambda: _search_settings(state, answers))


def _key(state: State) -> str:
    options = {name: value for name, value in state.options.items() if name in _READ}
    return replace(state, plan={}, view="plan", options=options).query


def _search_settings(state: State, answers: Answers) -> SearchSettings:
    question = answers.question(replace(state, plan={}))
    fix = parse("fix", state.option("fix").split())
    question = replace(question, fix={**question.fix, **fix})
    more = offered(state, answers)
    names = _opened(state)
    add = {name: more[name] for name in names if name in more}
    question = replace(question, add={**question.add, **add})
    space = space_of(question, state.procs)
    if state.tokens:
        space = replace(space, campaign=one_stretch({"tokens": question.tokens}))
    objective, where = state.option("objective"), state.option("where")
    ranking = make_ranking(1, objective, None, where or None, CORRECTED, space.runs)
    check_left([space])
    (best,) = ranking.objectives
    plain = not (add or fix) and where == OPTIONS["where"] and best == BEST
    return SearchSettings(question, space, best, ranking.where, where, plain)


def offered(state: State, answers: Answers) -> Mapping[str, Values]:
    """Return the values that a search may try in addition to the framework's defaults, by field."""
    return answers.cached(("offered", state.key), lambda: _offered(state, answers))


def _offered(state: State, answers: Answers) -> dict[str, Values]:
    question = answers.question(replace(state, plan={}))
    space = space_of(question, state.procs)
    found = {name: _more(space, name) for name in OPENED}
    return {name: values for name, values in found.items() if values}


def _more(space: Space, name: str) -> Values:
    """Return the values of a field that the framework has but a search does not try by default."""
    declared, tried = field_of(name), space.switches[name]
    named = declared.declaration.choices or ((False, True) if declared.annotation is bool else ())
    values = (
        one
        for one in named or (n for n in _DEGREES if space.num_procs % n == 0)
        if one not in (*tried, "auto")
        and "+" not in str(one)
        and space.preset.problem(name, one) is None
    )
    return allowed_values(name, tuple(values), space.model, space.system, space.constants)


def _opened(state: State) -> list[str]:
    """Return the opened fields, for which more values are tried.

    Raises:
        SpecError: For a field that is not in :data:`OPENED`.
    """
    names = [name.strip() for name in state.option("open").split(",") if name.strip()]
    for name in names:
        if name not in OPENED:
            wanted = f"fields among {', '.join(OPENED)}"
            raise SpecError("address", Problem("open", wanted, repr(name), nearest(name, OPENED)))
    return list(dict.fromkeys(names))


def opened(state: State) -> frozenset[str]:
    """Return the opened fields, for which more values are tried than by default."""
    return frozenset(_opened(state))


def with_opened(state: State, answers: Answers, names: Iterable[str]) -> str:
    """Return the address of the search with further fields opened; empty if none can be opened."""
    more = [name for name in names if name in offered(state, answers)]
    if not more:
        return ""
    several = ",".join(dict.fromkeys((*_opened(state), *more)))
    return replace(state, view="search").with_options(open=several)


def best_of_all(state: State, answers: Answers) -> SearchResult:
    """Return the overall best plan; in large spaces it is known before the best of each split."""
    it = search_settings(state, answers)
    # One search for both is cheaper when the space is small or the result is already cached.
    if it.plain or size(state, answers) <= FEW:
        return each_split(state, answers)
    return best_alone(state, answers)


def size(state: State, answers: Answers) -> int:
    """Return the number of executions in the search space."""
    it = search_settings(state, answers)
    return answers.cached_search(("size", _key(state)), lambda: count_space(it.space))


def each_split(state: State, answers: Answers) -> SearchResult:
    """Return the best of each split and number of chunks, the overall best first."""
    it = search_settings(state, answers)
    if it.plain and within(result := answers.best_plans(state)):
        return result
    return answers.cached_search(
        ("each", _key(state)), lambda: run(it.space, it.best_of_each(), seen=count_searched)
    )


def within(result: SearchResult) -> bool:
    """Return True if the shared best plan meets the default risk: its search may have accepted a higher one."""
    return bool(len(result)) and result.evaluation[FITS][0] >= 1 - RISK


def pareto_plans(state: State, answers: Answers) -> SearchResult:
    """Return the Pareto front of both statistics of the chart, ordered by the first."""
    it, key = search_settings(state, answers), ("front", _key(state), *axes(state))
    return answers.cached_search(
        key, lambda: run(it.space, it.pareto(axes(state)), seen=count_searched)
    )


def axes(state: State) -> tuple[str, str]:
    """Return the statistics of the chart, vertical axis first."""
    return state.option("y"), state.option("x")


def counts_of(state: State, answers: Answers) -> tuple[int, ...]:
    """Return the processor counts to compare, including the page's own, in ascending order.

    Raises:
        SpecError: For a text that is no count, and for more than :data:`MAX_COUNTS`.
    """
    text = state.option("counts")
    if not text:
        return ()
    counts = processor_counts(text, "counts")
    most = most_processors(answers.system(state))
    if not 0 < len(counts) <= MAX_COUNTS or max(counts) > most:
        wanted = f"at most {MAX_COUNTS} numbers of processors, each at most {most:,}"
        raise SpecError("address", Problem("counts", wanted, repr(text)))
    return tuple(sorted({*counts, state.procs}))


def on_count(state: State, answers: Answers, procs: int) -> State:
    """Return the same search for another processor count, with the same batch."""
    batch = state.batch or f"{answers.question(replace(state, plan={})).batch_size}seq"
    return replace(state, procs=procs, batch=batch, plan={})


def best_alone(state: State, answers: Answers) -> SearchResult:
    """Return only the overall best plan."""
    it = search_settings(state, answers)
    return answers.cached_search(
        ("best", _key(state)), lambda: run(it.space, it.best(), seen=count_searched)
    )
