"""The searches of a page: what is asked for, and what is found; each is computed once."""

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
from calculon.explore.visits import seen
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
"""Executions up to which the best of each split are found about as soon as the best of all."""

MOST_COUNTS = 12
"""Numbers of processors that are compared."""

OPENED = tuple(
    name
    for name in ("context_par", *SWITCHES, "tp_user_buffers")
    if field_of(name).declaration.adds
)
"""Fields of which a search may try more than is usual in a framework: those that change nothing of the training."""

_DEGREES = (2, 4, 8, 16)
"""Degrees that are tried of an axis which is opened."""

_READ = ("objective", "where", "open", "fix")
"""Options of the view that a search depends on."""


@dataclass(frozen=True)
class Asked:
    """What is searched.

    Attributes:
        question: The question, with what is fixed and opened.
        space: All that is tried.
        objective: What is looked for.
        where: What an execution must meet.
        condition: The same as it was written.
        plain: It is the search for the best plan that every view has.
    """

    question: Question
    space: Space
    objective: Objective
    where: Condition | None
    condition: str
    plain: bool

    def best(self) -> Best:
        """Return a fresh ranking that keeps the best of all."""
        return Best(self.objective, 1, self.where)

    def each(self) -> BestOfEach:
        """Return a fresh ranking that keeps the best of each split and number of chunks."""
        stride = self.space.strides["pipeline_interleaving"]
        return BestOfEach(self.objective, stride, self.where)

    def front(self, names: Sequence[str]) -> Ranking:
        """Return a fresh ranking that keeps what no other beats in some statistics."""
        return make_ranking(1, "", names, self.condition or None, CORRECTED, self.space.runs)


def asked(state: State, answers: Answers) -> Asked:
    """Return what is searched.

    Raises:
        SpecError: For an objective, a condition or fields that mean nothing, and where nothing is left to try.
    """
    return answers.kept(("asked", _key(state)), lambda: _asked(state, answers))


def _key(state: State) -> str:
    options = {name: value for name, value in state.options.items() if name in _READ}
    return replace(state, plan={}, view="plan", options=options).query


def _asked(state: State, answers: Answers) -> Asked:
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
    return Asked(question, space, best, ranking.where, where, plain)


def offered(state: State, answers: Answers) -> Mapping[str, Values]:
    """Return the values that a search may try beside those of its framework, by field."""
    return answers.kept(("offered", state.key), lambda: _offered(state, answers))


def _offered(state: State, answers: Answers) -> dict[str, Values]:
    question = answers.question(replace(state, plan={}))
    space = space_of(question, state.procs)
    found = {name: _more(space, name) for name in OPENED}
    return {name: values for name, values in found.items() if values}


def _more(space: Space, name: str) -> Values:
    """Return values of a field that the framework has, and that a search does not try without being asked."""
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
    """Return the fields of which more is tried.

    Raises:
        SpecError: For one that is none of :data:`OPENED`.
    """
    names = [name.strip() for name in state.option("open").split(",") if name.strip()]
    for name in names:
        if name not in OPENED:
            wanted = f"fields among {', '.join(OPENED)}"
            raise SpecError("address", Problem("open", wanted, repr(name), nearest(name, OPENED)))
    return list(dict.fromkeys(names))


def opened(state: State) -> frozenset[str]:
    """Return the fields of which more is tried than usual."""
    return frozenset(_opened(state))


def with_opened(state: State, answers: Answers, names: Iterable[str]) -> str:
    """Return the address of the search with more fields of which more is tried; empty where none can be opened."""
    more = [name for name in names if name in offered(state, answers)]
    if not more:
        return ""
    several = ",".join(dict.fromkeys((*_opened(state), *more)))
    return replace(state, view="search").with_options(open=several)


def best_of_all(state: State, answers: Answers) -> SearchResult:
    """Return the best of all as soon as it is known: in large spaces that is before the best of each split."""
    it = asked(state, answers)
    if it.plain or size(state, answers) <= FEW:
        return each_split(state, answers)
    return best_alone(state, answers)


def size(state: State, answers: Answers) -> int:
    """Return how many executions are tried."""
    it = asked(state, answers)
    return answers.searched(("size", _key(state)), lambda: count_space(it.space))


def each_split(state: State, answers: Answers) -> SearchResult:
    """Return the best of each split and number of chunks, the best of all first."""
    it = asked(state, answers)
    if it.plain and within(found := answers.found(state)):
        return found
    return answers.searched(("each", _key(state)), lambda: run(it.space, it.each(), seen=seen))


def within(found: SearchResult) -> bool:
    """Return whether the best plan that every view has meets the usual condition: a search for it may accept more."""
    return bool(len(found)) and found.evaluation[FITS][0] >= 1 - RISK


def front(state: State, answers: Answers) -> SearchResult:
    """Return the executions that no other one beats in both statistics of the chart, the best by the first in front."""
    it, key = asked(state, answers), ("front", _key(state), *axes(state))
    return answers.searched(key, lambda: run(it.space, it.front(axes(state)), seen=seen))


def axes(state: State) -> tuple[str, str]:
    """Return the statistics of the chart, that of the vertical axis first."""
    return state.option("y"), state.option("x")


def counts_of(state: State, answers: Answers) -> tuple[int, ...]:
    """Return the numbers of processors that are compared, that of the page among them, ascending.

    Raises:
        SpecError: For what is no number, and for more than :data:`MOST_COUNTS`.
    """
    text = state.option("counts")
    if not text:
        return ()
    counts = processor_counts(text, "counts")
    most = most_processors(answers.system(state))
    if not 0 < len(counts) <= MOST_COUNTS or max(counts) > most:
        wanted = f"at most {MOST_COUNTS} numbers of processors, each at most {most:,}"
        raise SpecError("address", Problem("counts", wanted, repr(text)))
    return tuple(sorted({*counts, state.procs}))


def on_count(state: State, answers: Answers, procs: int) -> State:
    """Return the same search on another number of processors, with the same batch."""
    batch = state.batch or f"{answers.question(replace(state, plan={})).batch_size}seq"
    return replace(state, procs=procs, batch=batch, plan={})


def best_alone(state: State, answers: Answers) -> SearchResult:
    """Return the best of all, and nothing else."""
    it = asked(state, answers)
    return answers.searched(("best", _key(state)), lambda: run(it.space, it.best(), seen=seen))
