"""Every optional field of an execution, and every value of it, is searched, evaluated and refused as declared."""

import itertools
from collections import Counter
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.architecture.shape import SIZE_FIELDS
from calculon.cost.layer_cost import laid_out
from calculon.declarations.axes import AXES
from calculon.declarations.fields import Of, Scope
from calculon.declarations.module_sets import modules_of
from calculon.declarations.recipes import RECIPES
from calculon.declarations.scope_choices import CHOICES, DERIVED
from calculon.editions import CORRECTED
from calculon.hardware.collectives.dispatch import LIBRARIES
from calculon.plan.choices import members
from calculon.plan.columns import DEFAULTS, FIELDS, field_of
from calculon.plan.mesh import DEGREES
from calculon.plan.plan import Plan
from calculon.plan.rules.all_rules import check
from calculon.plan.rules.model_rules import absent_modules
from calculon.search.best_first import search_space
from calculon.search.objective import Objective
from calculon.search.ranking import Best
from tests.declared import OPTIONAL, all_needs, fitting, others
from tests.helpers import PLAIN, document, layout_choice, sizes
from tests.search import pool
from tests.search.brute import Case, same_rows, score
from tests.search.pool import searched
from tests.store import cache

MODEL = calculon.Model(
    hidden=1536,
    feedforward=3840,
    seq_size=16,
    attn_heads=8,
    attn_size=64,
    num_blocks=4,
    kv_heads=4,
    activation="swiglu",
    qkv_bias=True,
    out_bias=True,
    mlp_bias=True,
    vocab=4001,
)
MIXTURE = replace(
    MODEL,
    kv_heads=0,
    qkv_bias=False,
    mlp_bias=False,
    kv_lora_rank=256,
    qk_nope_head_dim=48,
    qk_rope_head_dim=16,
    v_head_dim=64,
    num_experts=8,
    experts_per_token=2,
    shared_feedforward=768,
)
"""A model with modules that the other lacks."""

HYBRID = replace(
    MODEL,
    linear_attention="gated_delta",
    linear_key_heads=4,
    linear_value_heads=8,
    full_attention_every=2,
)
"""A model half of whose blocks have linear attention."""

DATATYPES = ("bfloat16", "float32")


def _system(capacity=80.0):
    """Return eight processors in two boxes, which multiply in every type, with so many GiB."""
    raw = document("systems", "h100_80g_sxm")
    raw["ext"]["matrix"] = dict.fromkeys(("tfloat32", "float4"), raw["matrix"]["bfloat16"])
    raw["ext"]["recipes"] = {name: {} for name in RECIPES}
    raw["ext"]["networks"][1] |= {"in_network_reduction": True, "step_latency": 3e-6}
    raw["networks"][0]["size"] = 4
    raw["mem1"]["GiB"] = capacity
    raw["ext"]["memory"]["withheld_GiB"] = 0  # one execution needs all of the capacity
    return inputs.system(raw)


SYSTEM = _system()

LOOPS = pool.PLAIN | {
    "tensor_par": (1, 2),
    "activation_recompute": ("none",),
    "tensor_par_comm_type": ("rs_ag",),
    "data_par_overlap": (False,),
}
del LOOPS["data_par_net"]
"""What is left of the published loops, so that a space is small; ``tests/search/pool.py`` has the other values."""

OPTIONS = [name for name in OPTIONAL if name not in ("edition", "preset")]

WINDOWED = replace(MODEL, sliding_window=2)
"""A model of which parts of sequences need not all keys."""

PARTS = ("context_par", "cp_")
"""What names of fields that split sequences begin with."""

SPREADS = ("expert_", "ep_", "moe_", "dispatch_", "combine_", "delay_wgrad")
"""What names of fields that spread experts begin with."""


def _model(name, value):
    """Return a model of which a value of a field says something."""
    modules = {value, *modules_of(value)} if name == "recompute_modules" else set()
    if name == "cp_skip":
        return WINDOWED
    if "gdn_norm_out" in modules:
        return HYBRID
    lacks = modules & absent_modules(MODEL).keys()
    return MIXTURE if lacks or name.startswith(SPREADS) else MODEL


def _datatype(name, value):
    """Return a type in which executions can have a value."""
    return next(datatype for datatype in DATATYPES if value in others(name, SYSTEM, datatype))


def _groups(name):
    """Return the values of a field in groups that can be searched together."""
    groups = {}
    for value in OPTIONAL[name].others:
        alone = value if value == "a2a_p2p" or value in LIBRARIES else None
        groups.setdefault((_model(name, value), _datatype(name, value), alone), []).append(value)
    return groups.values()


def _case(name, values, capacity=80.0):
    """Return a small space with values beside the default of a field, and what these need."""
    value = values[0]
    field = field_of(name).declaration
    fix, add = dict(LOOPS), {}
    for other, needed in all_needs(name).items():
        if other in OPTIONAL:
            if DEFAULTS[other] not in needed:
                some = needed[:1] if isinstance(needed, range) else (needed[0], needed[-1])
                fix[other] = tuple(dict.fromkeys(some))
        elif other in fix and not any(v in needed for v in fix[other]):
            fix[other] = (next(iter(needed)),)
    if name.startswith(PARTS):  # whose results are added up by the sums of fused attention
        fix |= {"attn_impl": ("flash",), "pipeline_par_net": (1,)}
    if name == "cp_kv_replicate":  # more ranks than there are heads
        fix |= {"context_par": (4,), "context_par_net": (1,), "pipeline_par_net": (0,)}
        capacity = 80.0
    if value == "a2a_p2p":
        fix["cp_a2a_size"] = (2,)
    if name == "expert_tensor_par":  # less than the degree of tensor parallelism
        fix["tensor_par"] = (2, 4)
    if value in LIBRARIES:  # copies go to other ranks, with whole experts
        fix |= {"expert_par": (2,), "expert_tensor_par": (1,)}
    if field.searched == "fixed":
        fix[name] = tuple(values)
        fix |= dict.fromkeys(("tensor_par_net", "pipeline_par_net", "data_par_net"), (0,))
    else:
        add[name] = tuple(values)
    return Case(
        _model(name, value),
        _system(capacity),
        8,
        16,
        _datatype(name, value),
        fix=fix,
        add=add,
        edition="corrected",
    )


@cache
def _capacity(model):
    """GiB in which most executions of a plain space of a model fit, one of them exactly."""
    plain = replace(_case("grad_clip", [True]), model=model)
    needs = np.sort(plain.needs[0])
    needs = needs[~np.isnan(needs)]
    return float(needs[int(0.8 * len(needs))]) / 2**30


@pytest.mark.parametrize("name", OPTIONS)
def test_search_and_brute_force_and_tables_and_rows_agree(name):
    for values in _groups(name):
        _check(name, values)


def _check(name, values):
    case = _case(name, values, _capacity(_model(name, values[0])))
    space, table = case.space, case.table
    feasible = np.flatnonzero(table.feasible)
    chosen = case.plan.values(name)[feasible].tolist()
    unused = [value for value in values if value not in chosen]
    assert not unused, f"no execution with {name} of {unused} can run"

    numbers, stats = searched(space)
    assert same_rows(space.plan(numbers), case.plan.take(feasible))
    for statistic, found in stats.items():
        assert np.array_equal(found, table[statistic][feasible], equal_nan=True), statistic

    reasons = Counter(table.reason.tolist())
    good = reasons.pop("", 0)
    ranking = Best(Objective.parse("sample_rate"), 7)
    counts = search_space(space, ranking)
    assert (counts.total, counts.good, +counts.reasons) == (len(case.rows), good, reasons)
    scores, best = ranking.ranked()
    rows = case.best(ranking.objectives[0], 7)
    assert same_rows(space.plan(best), case.plan.take(rows))
    assert (scores[0] == score(ranking.objectives[0], table)[rows]).all()

    row = int(feasible[chosen.index(values[-1])])
    alone = calculon.evaluate(case.model, case.system, [case.rows[row]])
    for statistic in table.names:
        assert alone[statistic].tobytes() == table[statistic][row : row + 1].tobytes()


# -- records ----------------------------------------------------------------------------------------------------------


def test_sizes_of_a_step_are_columns():
    columns = {*SIZE_FIELDS, "data_par", "dp_shard"}
    sizes = {one.name for one in FIELDS if Scope.STEP in one.declaration.scope and not one.named}
    assert not sizes - columns, "a step depends on no other number; use scope BATCH"


def _known(scope):
    """Return the fields that the choice of a scope is made of."""
    return {source for name in members(CHOICES[scope]) for source in DERIVED.get(name, (name,))}


@pytest.mark.parametrize("scope", CHOICES, ids=lambda scope: scope.name)
def test_members_of_a_choice_have_its_scope(scope):
    of_layout = _known(Scope.LAYOUT) if scope in (Scope.BLOCK, Scope.STEP) else set()
    for name in _known(scope) - of_layout:
        assert scope in field_of(name).declaration.scope, name


@pytest.mark.parametrize("name", ["gate_impl", "zero_stage", "batch_size"])
def test_layers_can_read_nothing_that_a_layout_does_not_depend_on(name):
    def layers(shape):
        if getattr(shape.choice, name) == "one":
            yield

    column = sizes(tensor_par=np.ones(2))
    with pytest.raises(AttributeError, match=name):
        laid_out(MODEL, layout_choice(edition="corrected"), column, CORRECTED, layers)


# -- words ------------------------------------------------------------------------------------------------------------


def test_optional_fields_are_described():
    wrong = []
    for name in OPTIONS:
        declared, field = field_of(name).declaration, field_of(name)
        described = all((declared.help, declared.label, declared.scope, field.others))
        option = declared.searched == "option"
        if (
            not described
            or option != bool(declared.adds)
            or not (option or declared.searched == "fixed")
        ):
            wrong.append(name)
        for value in field.others:
            mark = declared.mark if isinstance(declared.mark, str) else declared.mark[value]
            if not mark.format(value):
                wrong.append(f"{name}={value}")
    assert not wrong


def test_attributes_of_declarations_name_values_and_fields():
    wrong = []
    for field in FIELDS:
        declared = field.declaration
        if declared.of not in get_args(Of):
            wrong.append(f"{field.name}: of {declared.of}")
        if not {*declared.saves} <= {*field.values}:
            wrong.append(f"{field.name} saves {declared.saves}")
        if declared.with_ and field_of(declared.with_).declaration.with_:
            wrong.append(f"{field.name} with {declared.with_}, which is with another field itself")
    wrong += [f"{axis.network} without mesh_order" for axis in AXES if _network(axis) != NETWORK]
    assert not wrong


NETWORK = ("circumstance", "mesh_order")


def _network(axis):
    """Return what the network of an axis belongs to, and what it states a decision with."""
    declared = field_of(axis.network).declaration
    return declared.of, declared.with_


# -- needs ------------------------------------------------------------------------------------------------------------

SPLIT = PLAIN | {"num_procs": 8, "tensor_par": 2, "pipeline_par": 2, "data_par": 2}
SPLIT |= {"pipeline_par_net": 1, "data_par_net": 1, "batch_size": 16, "datatype": "bfloat16"}


def _unmet(other, values):
    """Return values of a field that are not among those that are needed."""
    field = field_of(other)
    if field.named:
        known = field.values if other != "matmul_dtype" else others(other, SYSTEM, "bfloat16")
        return [value for value in known if value not in values]
    return [value for value in {1, 2, DEFAULTS.get(other, 1)} if value not in values]


def test_a_value_without_what_it_needs_is_refused():
    unrefused = [
        f"{name} without its {other}"
        for name in OPTIONS
        for other in OPTIONAL[name].declaration.needs
        if not _is_refused(name, other)
    ]
    assert not unrefused, "add a rule to plan/rules"


def _is_refused(name, other):
    """Return whether every value of a field is refused without a value that it needs of another one."""
    refused = []
    for value in OPTIONAL[name].others:
        model = _model(name, value)
        split = SPLIT | {"datatype": _datatype(name, value)}
        if name.startswith(SPREADS):  # over ranks of which each has its own tokens
            split |= {"tensor_par_comm_type": "rs_ag", "microbatch_size": 2}
        row = fitting(model, SYSTEM, split, name, value)
        rows = []
        for unmet in _unmet(other, OPTIONAL[name].declaration.needs[other]):
            for sharding, chunks in itertools.product((False, True), (1, 2)):
                free = {"optimizer_sharding": sharding, "pipeline_interleaving": chunks}
                broken = row | free | {other: unmet}
                broken["num_procs"] = int(np.prod([broken.get(name, 1) for name in DEGREES]))
                rows += [broken, broken | {name: DEFAULTS[name]}]
        if rows:
            alone, plain = check(model, SYSTEM, Plan.from_records(rows)).reshape(-1, 2).T
            refused += alone[plain == 0].tolist()  # of which it is this value that is refused
    return bool(refused) and all(refused)
