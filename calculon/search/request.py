"""Convert arguments of a search to its space and ranking; all errors are raised before the search starts."""

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from textwrap import fill, indent
from threading import Lock
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from calculon import inputs
from calculon.base.errors import Problem, SpecError, nearest
from calculon.declarations import arguments
from calculon.declarations.decode import SpecWarning
from calculon.declarations.files import STDIN
from calculon.declarations.model import Model
from calculon.declarations.named_values import CORRECTED, DATATYPE_BYTES, MATMUL_BYTES, PUBLISHED
from calculon.declarations.presets import Preset, agreed, usual_preset
from calculon.declarations.recipes import NO_RECIPE
from calculon.declarations.short_names import FIELDS as SHORT
from calculon.declarations.short_names import QUESTION_WORDS, field_name
from calculon.declarations.spellings import PRECISIONS, is_counts, precision, processor_counts
from calculon.declarations.usual_batch import requested_batch, requested_length
from calculon.editions import SC23, find_edition
from calculon.editions.edition import Edition
from calculon.estimate.argument_order import in_order
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.plan.columns import DEFAULTS
from calculon.plan.plan import NAMES
from calculon.search.candidates import EXTENSIONS
from calculon.search.conditions import Condition
from calculon.search.objective import Objective, check_statistic
from calculon.search.overrides import OPTIONS, as_fields, checked
from calculon.search.ranking import Best, ParetoFront, Ranking
from calculon.search.space import Space

if TYPE_CHECKING:
    from calculon.campaign.read import CampaignSource
    from calculon.campaign.record import Campaign
    from calculon.search.training_runs import TrainingRuns

P = ParamSpec("P")
R = TypeVar("R")

_SPACE = """\
model, system: As in :func:`calculon.estimate`.
num_procs: Number of processors; ``"1k"`` is 1,024. It may also follow the system.
max_batch_size, datatype: Batch and type as ``llm-optimal-execution`` takes them, instead of `batch` and `dtype`: the
    batch is in sequences, exact under a preset, which edition ``corrected`` uses by default; in edition ``sc23`` it
    is an upper limit for the largest multiple of each data-parallel degree. The type is ``float16`` by default.
batch, seq, dtype: As in :func:`calculon.plan`, with its defaults. Without `max_batch_size` the edition is
    ``corrected``.
where: Condition on statistics and execution fields, such as ``"total_time < 60 and tensor_par <= 8"``.
fused: Candidates of ``fused_activation``; ``(False, True)`` tries both. By default true in edition ``sc23``,
    where it costs nothing, and false in ``corrected``.
tensor_overlap, data_overlap: True to try overlap of tensor- and data-parallel traffic.
fix: Restrict execution fields to one or several values: ``{"tensor_par": [4, 8], "weight_offload": False}``.
add: Values that the published enumeration leaves out, by field: ``attention_type`` (``"multiquery"``),
    ``batch_size`` (smaller ones, multiples of the data-parallel degree), ``pipeline_par`` (degrees with uneven
    stages), ``activations_offload`` (``True``: also with full recomputation), and in edition ``corrected``
    other values of the optional fields of an execution:
    {options}.
    `fix` can set them too, and it alone can set ``mesh_order``, which replaces all networks.
any_batch: True to run the largest multiple of each data-parallel degree up to the batch, also under a preset.
campaign: Training run of the executions with one batch and sequence length: a name of the catalog, a file, or
    fields (``{"tokens": "15T", "fleet": {"price": 2.5}}``). It adds figures
    (:class:`~calculon.declarations.run_figures.CampaignFigures`: ``days``, ``usd``, ...) as statistics; its
    deadline and budgets become conditions. Edition ``corrected``.
edition: Edition of the cost model, or its name; with `max_batch_size` by default ``sc23`` for models with the six
    published fields only, else ``corrected``.
preset: Framework whose options are tried exclusively: a name, or a file. By default the result of
    :func:`calculon.declarations.presets.usual_preset`; in edition ``sc23`` the published options.
**words: Additional values of `fix`, by the words of plans: ``tp=[4, 8]``, ``pp=2``, ``sp=True``."""

_INSTEAD = {
    "fused_activation": "write fused=True, fused=False or fused=(False, True)",
    "no_tp_overlap": "write tensor_overlap=False",
    "no_dp_overlap": "write data_overlap=False",
}
"""Hints for names of the command line or of a study that Python spells differently."""


def takes_space(function: Callable[P, R]) -> Callable[P, R]:
    """Insert the documentation of space arguments for ``{space}``, and accept words of plans as values of ``fix``.

    The machine may come before the number of processors. Unknown arguments are refused with a hint.
    """
    known = tuple(inspect.signature(function).parameters)[:-1]

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        words = {name: one for name, one in kwargs.items() if name not in known}
        wanted = "one of the arguments " + ", ".join(known)
        problems = [
            Problem(name, wanted, "an unknown argument", _meant(name, words[name], known))
            for name in words
            if name in _INSTEAD or not is_word(name)
        ]
        if problems:
            raise SpecError(function.__name__, problems)
        ordered: Any = in_order(args, kwargs, known)
        asked = {name: one for name, one in ordered[1].items() if name in known}
        if words:
            asked["fix"] = with_words(function.__name__, asked.get("fix"), words)
        return function(*ordered[0], **asked)

    if call.__doc__:
        options = ", ".join(f"``{name}``" for name in OPTIONS)
        space = _SPACE.replace("{options}", fill(options, 106, subsequent_indent="    "))
        call.__doc__ = call.__doc__.replace("        {space}:", indent(space, "        "))
    return call


def is_word(name: str) -> bool:
    """Return true if a keyword argument names a field of plans, or a short name of one, that a search can fix.

    >>> is_word("tp"), is_word("microbatch_size"), is_word("gbs"), is_word("top")
    (True, True, False, False)
    """
    return field_name(name) in _WORDS


_WORDS = tuple(name for name in NAMES if name not in (*QUESTION_WORDS, "edition"))


def _meant(name: str, value: object, known: Sequence[str]) -> str:
    """Return a hint for an unknown argument."""
    return _INSTEAD.get(name) or meant_word(name, value, known)


def meant_word(name: str, value: object, known: Sequence[str]) -> str:
    """Return a hint for an unknown argument: the name of that part of the question, or the nearest word."""
    if word := QUESTION_WORDS.get(field_name(name)):
        return f"write {word}={value!r}"
    return nearest(name, [*known, *SHORT]) or nearest(name, _WORDS)


def with_words(call: str, fix: object, words: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of ``fix``, extended by values in the words of plans: ``{"tp": [4, 8]}``.

    Raises:
        SpecError: For a field that is stated twice, and for an empty list.
    """
    result = stated_fields("fix", fix)
    for name, value in words.items():
        (field,) = stated = as_fields(stated_fields(call, {name: value}))
        if field in result:
            raise SpecError(call, Problem(name, f"one statement of {field}", "two"))
        result |= stated
    return result


_FILTERS = Lock()
"""Lock of the warning filters, which all threads share: two simultaneous changes would leave one behind."""


def with_sequences(source: Source | Model, seq: int | str | None) -> tuple[Model, int]:
    """Return a model with the requested or a usual sequence length, and the length that the model itself states."""
    with _FILTERS, warnings.catch_warnings():  # results state the sequence length
        warnings.filterwarnings("ignore", ".*longest context", SpecWarning)
        model = inputs.model(source)
        length = requested_length(seq, model.seq_size)
        if length == model.seq_size:
            return model, length
        if isinstance(source, Model) or source == STDIN:  # the input can be read only once
            return replace(model, seq_size=length), model.seq_size
        return inputs.model(inputs.Changed.of(source, {"seq_size": length})), model.seq_size


def requested_space(
    model: Source | Model,
    num_procs: object,
    system: Source | System,
    batches: tuple[int | None, int | str | None],
    datatypes: tuple[str | None, str | None],
    seq: int | str | None,
    **choices: Any,
) -> Space:
    """Return the space of a search from Python.

    Args:
        model, num_procs, system, seq: As in :func:`calculon.search`.
        batches, datatypes: `max_batch_size` and `batch`, `datatype` and `dtype`; one of each at most.
        **choices: Further arguments of :func:`make_space`.

    Raises:
        SpecError: As :func:`make_space`, and for a batch or a type that is stated twice.
    """
    for names, values in (("max_batch_size", "batch"), batches), (("datatype", "dtype"), datatypes):
        if None not in values:
            found = " and ".join(f"{n}={v!r}" for n, v in zip(names, values, strict=True))
            raise SpecError("search", Problem(names[1], "one of both", found))
    published, count = batches[0] is not None, _one_count(num_procs)
    if published and seq is None:
        model = inputs.model(model)
        size: Any = batches[0]
    else:
        model, _ = with_sequences(model, seq)
        size = batches[0] if published else requested_batch(batches[1], count, model.seq_size)
    stored, word = datatypes
    if stored is None and word is None:
        stored, word = ("float16", None) if published else (None, "bf16")
    recipe: dict[str, Any] = {}
    if word is not None or (isinstance(stored, str) and stored in PRECISIONS):
        recipe = dict(precision(str(word or stored)))
        stored = recipe.pop("datatype")
    if not published or recipe:
        choices["edition"] = choices["edition"] or CORRECTED
    choices["fix"] = {**recipe, **stated_fields("fix", choices["fix"])}
    kept: Any = stored
    return make_space(model, system, count, size, kept, **choices)


def make_space(
    model: Source | Model,
    system: Source | System,
    num_procs: int,
    max_batch_size: int,
    datatype: str,
    *,
    fused: bool | Sequence[bool] | None = None,
    tensor_overlap: bool = True,
    data_overlap: bool = True,
    fix: Mapping[str, Any] | None = None,
    add: Mapping[str, Any] | None = None,
    any_batch: bool = False,
    edition: Edition | str | None = None,
    preset: str | None = None,
    campaign: "CampaignSource | None" = None,
) -> Space:
    """Check the arguments of :func:`calculon.search` and create the space.

    Raises:
        SpecError: For malformed arguments, with the expected values.
    """
    model, system = inputs.model(model), inputs.system(system)
    if datatype not in list(system.datatypes):
        wanted = f"a datatype of both engines of {system.name}: {', '.join(system.datatypes)}"
        hint = nearest(str(datatype), system.datatypes)
        raise SpecError("search", Problem("datatype", wanted, arguments.described(datatype), hint))
    fixed, added = (
        checked("fix", stated_fields("fix", fix)),
        checked("add", stated_fields("add", add)),
    )
    runs = campaign is not None
    edition = find_edition(needed_edition(model, preset, runs=runs) if edition is None else edition)
    check_edition(edition.name, model, {"fix": fixed, "add": added}, preset, runs=runs)
    usual = default_preset(model, system, num_procs, fixed, added)
    _, framework = agreed(edition.name, preset, usual=usual)
    _check_framework(framework, {"fix": fixed, "add": added})
    if fused is None:
        fused = framework.tried("fused_activation") or edition.fuses_activations
    else:
        _check_framework(framework, {"fused": {"fused_activation": _switches(fused)}})
    _check_arithmetic(system, datatype, {"fix": fixed, "add": added})
    return Space(
        model,
        edition.machine(system),
        _one_count(num_procs),
        arguments.count(max_batch_size, "max_batch_size", "search"),
        datatype,
        fused=_switches(fused),
        tensor_overlap=arguments.switch(tensor_overlap, "tensor_overlap", "search"),
        data_overlap=arguments.switch(data_overlap, "data_overlap", "search"),
        fix=fixed,
        add=added,
        edition=edition.name,
        any_batch=arguments.switch(any_batch, "any_batch", "search"),
        preset=framework,
        campaign=None if campaign is None else one_stretch(campaign),
    )


def default_preset(model: Model, system: System, num_procs: int, *asked: Mapping[str, Any]) -> str:
    """Return the default preset of a search in edition ``corrected``.

    Args:
        model, system: Model and machine of the executions.
        num_procs: Processors; of several searches whose results are compared, the most.
        asked: Fields that are asked for, each with a value, or with a tuple of values that are tried.
    """
    each = [
        {name: value}
        for fields in asked
        for name, values in fields.items()
        for value in (values if isinstance(values, (tuple, list)) else (values,))
    ]
    together = {n: v for fields in asked for n, v in fields.items() if not isinstance(v, tuple)}
    counted = {**together, "num_procs": num_procs}
    return usual_preset(system.provenance.family, counted, each, model)


def one_stretch(source: "CampaignSource") -> "Campaign":
    """Return the campaign of a search, all of whose steps are the same execution.

    Raises:
        SpecError: For an unknown or invalid campaign, for one without a length, and for one whose batch or sequence
            length changes.
    """
    from calculon.campaign.read import read_campaign

    result = read_campaign(source)
    check_one_stretch(result)
    if result.tokens is None and result.steps is None and result.loss is None:
        wanted = "the length of the run: tokens, steps or loss"
        hint = "add --tokens 15T, or tokens: 15T to the campaign"
        raise SpecError(result.name, Problem("tokens", wanted, "nothing", hint))
    return result


def check_one_stretch(found: "Campaign") -> None:
    """Refuse a campaign whose batch or sequence length changes: a search evaluates one kind of step.

    Raises:
        SpecError: For one with phases or ramps.
    """
    several = [name for name in ("phases", "batch_ramp", "seq_ramp") if getattr(found, name)]
    if several:
        wanted = (
            "a campaign with one batch and sequence length: a search evaluates one kind of step"
        )
        alone = found.document.get("tokens")
        length = "" if alone is None else f"state only its length (--tokens {alone}), or "
        hint = f"{length}leave out {', '.join(several)}; `calculon campaign` runs campaigns of several phases"
        parts = "a part with its own batch or length" if len(found.phases) == 1 else "several parts"
        raise SpecError(found.name, Problem(several[0], wanted, parts, hint))


def _check_framework(preset: Preset, options: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
    """Refuse values that the framework does not support."""
    for option, fields in options.items():
        found = (
            preset.problem(name, value, f"{option}.{name}")
            for name, values in fields.items()
            for value in values
        )
        if problems := [problem for problem in found if problem is not None]:
            raise SpecError("search", problems)


def _check_arithmetic(
    system: System, datatype: str, options: Mapping[str, Mapping[str, Sequence[Any]]]
) -> None:
    """Refuse matrix types and recipes that the system does not support, or that are wider than the stored type."""
    stored = DATATYPE_BYTES[datatype]
    usable = ["same", *(t for t in system.matmul_types if MATMUL_BYTES[t] <= stored)]
    for option, values in options.items():
        for value in values.get("matmul_dtype", ()):
            if value not in usable:
                wanted = f"a type of {system.name} of at most {stored} bytes: {', '.join(usable)}"
                raise SpecError("search", Problem(f"{option}.matmul_dtype", wanted, repr(value)))
        for value in values.get("fp8_recipe", ()):
            if value != NO_RECIPE and value not in system.recipes:
                wanted = (
                    f"a recipe that {system.name} runs: {', '.join((NO_RECIPE, *system.recipes))}"
                )
                hint = "ext.recipes of a system lists its recipes: calculon describe system"
                raise SpecError(
                    "search", Problem(f"{option}.fp8_recipe", wanted, repr(value), hint)
                )


def needed_edition(model: Model, preset: str | None = None, *, runs: bool = False) -> str:
    """Return the edition that a search needs: ``sc23`` for models with published fields only and without a preset.

    Training `runs` need edition ``corrected``.
    """
    return CORRECTED if model.extensions or preset is not None or runs else PUBLISHED


def check_edition(
    edition: str,
    model: Model,
    options: Mapping[str, Mapping[str, Sequence[Any]]],
    preset: str | None = None,
    *,
    runs: bool = False,
) -> None:
    """Refuse fields of a model or of a search, and training `runs`, that the published edition does not support.

    Raises:
        SpecError: With the first of them.
    """
    if edition != PUBLISHED:
        return
    where = f"{model.name}: " if model.extensions else ""
    unknown = dict(model.extensions) | ({} if preset is None else {"preset": preset})
    unknown |= {"campaign": "stated"} if runs else {}
    for values in options.values():
        unknown |= {
            name: value
            for name in EXTENSIONS
            for value in values.get(name, ())
            if value != DEFAULTS[name]
        }
    for name, value in unknown.items():
        wanted = f"{CORRECTED}, which {where}{name}={str(value).lower()} needs"
        hint = f"add --edition {CORRECTED}, or edition={CORRECTED!r} in Python"
        raise SpecError("search", Problem("edition", wanted, edition, hint))


def make_ranking(
    top: int = 1,
    objective: str = "sample_rate",
    pareto: Sequence[str] | None = (),
    where: str | None = None,
    edition: Edition | str = SC23,
    runs: "TrainingRuns | None" = None,
) -> Ranking:
    """Create the ranking for the given options; with `runs` it can use figures of training runs.

    Errors as in :func:`calculon.search`.
    """
    condition = make_condition(where, edition, runs)
    top = arguments.count(top, "top", "search")
    several: Any = () if pareto is None else pareto
    if isinstance(several, (str, bytes)) or not isinstance(several, Iterable):
        wanted = "a list of statistics, such as ['total_time', 'proc_mem_tier1_cap_req']"
        raise SpecError("search", Problem("pareto", wanted, arguments.described(several)))
    pareto_objectives = [_objective("pareto", text, edition, runs) for text in several]
    return (
        ParetoFront(pareto_objectives, condition)
        if pareto_objectives
        else Best(_objective("objective", objective, edition, runs), top, condition)
    )


def make_condition(
    where: str | None, edition: Edition | str = SC23, runs: "TrainingRuns | None" = None
) -> Condition | None:
    """Parse a condition and add the limits of a campaign; return None if there is neither.

    Raises:
        SpecError: For an invalid condition.
    """
    given: object = where
    if given is not None and not isinstance(given, str):
        wanted = "a condition as text, such as 'total_time < 60 and tensor_par <= 8'"
        raise SpecError("search", Problem("where", wanted, arguments.described(given)))
    if given is not None:
        _checked(Condition.parse(given, whole_runs=runs is not None), edition, runs)
    # The parentheses keep an `or` of the user from binding weaker than the limits.
    texts = [*(() if given is None else (f"({given})",)), *(() if runs is None else runs.limits)]
    if not texts:
        return None
    text = " and ".join(texts) if len(texts) > 1 else given or texts[0]
    return _checked(Condition.parse(text, whole_runs=runs is not None), edition, runs)


def _checked(
    condition: Condition, edition: Edition | str, runs: "TrainingRuns | None"
) -> Condition:
    """Refuse names in a condition that the edition does not compute, or that the campaign leaves undefined."""
    for name in condition.names:
        _check_name(name, "where", edition, runs)
    return condition


def _check_name(
    name: str, argument: str, edition: Edition | str, runs: "TrainingRuns | None"
) -> None:
    check_statistic(name, argument, find_edition(edition))
    if runs is not None:
        runs.check_known(name, argument)


def _objective(
    argument: str, text: object, edition: Edition | str, runs: "TrainingRuns | None"
) -> Objective:
    if isinstance(text, str):
        objective = Objective.parse(text, whole_runs=runs is not None)
        _check_name(objective.statistic.name, argument, edition, runs)
        return objective
    wanted = "a statistic, such as 'sample_rate' or 'total_time:min'"
    raise SpecError("search", Problem(argument, wanted, arguments.described(text)))


def _one_count(value: object) -> int:
    """Return the processor count; refuse several counts, which need one search each."""
    several = (isinstance(value, str) and set(value) & set(",:")) or (
        isinstance(value, Iterable)
        and not isinstance(value, str)
        and np.ndim(np.asarray(value)) > 0
    )
    if isinstance(value, str) and is_counts(value) and not several:
        return processor_counts(value)[0]
    try:
        return arguments.count(value, "num_procs", "search")
    except SpecError as error:
        if not several:
            raise
        hint = "search one after the other: [search(model, n, system, ...) for n in (8, 16)]"
        hint += ", or describe a study: calculon study"
        wanted = error.expected.replace("a whole number", "one whole number")
        raise SpecError("search", Problem("num_procs", wanted, error.found, hint)) from None


def _switches(fused: object) -> tuple[bool, ...]:
    """Return the distinct candidates of fused activation."""
    several = isinstance(fused, Iterable) and not isinstance(fused, (str, bytes, Mapping))
    values: tuple[Any, ...] = tuple(fused) if several else (fused,)  # type: ignore[arg-type]
    if not values or not all(isinstance(value, (bool, np.bool_)) for value in values):
        wanted = "True, False or (False, True)"
        raise SpecError("search", Problem("fused", wanted, arguments.described(fused)))
    return tuple(dict.fromkeys(map(bool, values)))


def stated_fields(option: str, values: object) -> dict[str, Any]:
    """Return the values of ``fix`` or ``add`` by field: plain values, or tuples of them."""
    if values is None:
        return {}
    given = inputs.as_mapping(values)
    if given is None:
        wanted = "a mapping of execution fields to a value or values"
        hint = "such as " + ("{'tensor_par': [4, 8]}" if option == "fix" else "{'batch_size': 64}")
        raise SpecError("search", Problem(option, wanted, arguments.described(values), hint))
    fields = {str(name): _plain(value) for name, value in given.items()}
    empty = [Problem(name, "at least one value", "none") for name in fields if fields[name] == ()]
    if empty:
        raise SpecError(option, empty)
    return fields


def _plain(value: Any) -> Any:
    """Return iterables as tuples, and NumPy scalars as Python scalars."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=str)  # a set has no order, but numbers of executions depend on it
    several = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
    return tuple(value) if several else value
