"""Whatever stands in a spec file: a result, or an error that says what is wrong; never a traceback.

Shipped documents are damaged at random, as values and as bytes. Warnings of numpy are errors in this suite.
"""

import copy
import gzip
import json
import math
import warnings

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import calculon
from calculon import inputs
from calculon.errors import MOST_PROBLEMS
from calculon.spec.decode import SpecWarning
from tests.draws import draws
from tests.fuzzing import places
from tests.helpers import ROOT, document

SHIPPED = {
    "model": ["gpt3-13B", "megatron-126M"],
    "system": ["a100_80e", "h100_80g_nvl8"],
    "execution": ["3072_t4_p64_d12_mbs4_full"],
}
FOLDERS = {"model": "models", "system": "systems", "execution": "examples"}
LOADERS = {"model": inputs.model, "system": inputs.system, "execution": inputs.execution}

NUMBERS = st.one_of(
    st.sampled_from((0, -0.0, 1, -1, 2, 1.5, 2**31, 2**53 + 1, 2**63, 10**400, -(10**400))),
    st.sampled_from((1e-320, 1e-300, 1e-9, 1e9, 1e300, -1e300, math.nan, math.inf, -math.inf)),
    st.integers(-5, 5000),
    st.floats(),
)
VALUES = st.one_of(
    NUMBERS,
    st.none(),
    st.booleans(),
    st.sampled_from(
        ("", "float16", "full", "none", "true", "1e3", "nan", "x" * 200, "\ud800", "é")
    ),
    st.just([]),
    st.just({}),
    st.lists(NUMBERS, max_size=3),
    st.dictionaries(st.sampled_from(("float16", "tflops", "0", "ext")), NUMBERS, max_size=2),
)


@st.composite
def damaged(draw, kind):
    """A shipped document with up to three things changed, added, renamed, nested or dropped."""
    raw = copy.deepcopy(document(FOLDERS[kind], draw(st.sampled_from(SHIPPED[kind]))))
    for _ in range(draw(st.integers(1, 3))):
        found = list(places(raw))
        if not found:
            break
        *path, key = draw(st.sampled_from(found))
        holder = raw
        for step in path:
            holder = holder[step]
        change = draw(
            st.sampled_from(("set", "set", "set", "scale", "drop", "rename", "nest", "copy"))
        )
        if change == "set":
            holder[key] = draw(VALUES)
        elif change == "scale" and isinstance(holder[key], float | int) and abs(holder[key]) < 1e9:
            holder[key] *= draw(st.sampled_from((0.5, 2, 3, 1e3, 1e-3, 1e100, -1)))
        elif change == "drop":
            del holder[key]
        elif change == "rename" and isinstance(holder, dict):
            holder[draw(st.sampled_from((f"{key}s", "float32", "ext", "name", "")))] = holder.pop(
                key
            )
        elif change == "nest":
            holder[key] = draw(st.sampled_from(([holder[key]], {"value": holder[key]})))
        elif change == "copy" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
    return raw


def _tried(function, *arguments, **options):
    """Return a result and nothing, or nothing and an error of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpecWarning)
        try:
            return function(*arguments, **options), None
        except (calculon.SpecError, calculon.Infeasible) as error:
            return None, error


def _load(kind, source):
    """Load a spec; nothing when it is refused, with an error that has all its parts."""
    loaded, error = _tried(LOADERS[kind], source)
    if error is not None:
        assert error.problems
        assert all(problem.expected and problem.found for problem in error.problems)
        assert str(error).count("\n") == min(len(error.problems), MOST_PROBLEMS + 1) - 1
    return loaded


def _answer(specs):
    """Estimate and evaluate; both agree on whether there is an answer."""
    model, execution, system = (specs[kind] for kind in ("model", "execution", "system"))
    result, _ = _tried(calculon.estimate, model, execution, system, layers=True)
    table = calculon.evaluate(model, system, calculon.Plan.of(execution))
    assert table.feasible[0] == (result is not None)
    if result is not None:
        values = result.stats.values()
        assert all(value is None or not math.isnan(value) for value in values)


@pytest.mark.parametrize("kind", SHIPPED)
def test_a_damaged_document_loads_and_answers_or_is_refused(kind):
    small = {"num_procs": 24, "pipeline_par": 6, "data_par": 1, "batch_size": 32}
    execution = document("examples", "3072_t4_p64_d12_mbs4_full") | small
    specs = {
        "model": inputs.model("megatron-126M"),
        "execution": inputs.execution(execution),
        "system": inputs.system("a100_80e"),
    }
    loaded = []

    @settings(max_examples=draws(60))
    @given(raw=damaged(kind))
    def holds(raw):
        found = _load(kind, raw)
        loaded.append(found is not None)
        if found is not None:
            _answer(specs | {kind: found})

    holds()
    assert 0.06 < sum(loaded) / len(loaded) < 0.94


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder for damaged files."""
    return tmp_path_factory.mktemp("fuzz")


SUFFIXES = (".json", ".yaml", ".json.gz", ".yml.gz")


@given(
    data=st.data(),
    suffix=st.sampled_from(SUFFIXES),
    packed=st.booleans(),
    as_yaml=st.booleans(),
    junk=st.binary(max_size=12),
)
@settings(max_examples=draws(60))
def test_damaged_bytes_load_or_are_refused(folder, data, suffix, packed, as_yaml, junk):
    path = ROOT / "models" / "megatron-126M.json"
    raw = path.read_bytes()
    if as_yaml:
        raw = yaml.safe_dump(json.loads(raw)).encode()
    raw = gzip.compress(raw, mtime=0) if packed else raw
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, len(raw)))
    target = folder / f"damaged{suffix}"
    target.write_bytes(raw[:start] + junk + raw[end:])
    _load("model", target)


@given(raw=st.binary(max_size=60), suffix=st.sampled_from(SUFFIXES))
def test_random_bytes_load_or_are_refused(folder, raw, suffix):
    target = folder / f"random{suffix}"
    target.write_bytes(raw)
    for kind in SHIPPED:
        _load(kind, target)
