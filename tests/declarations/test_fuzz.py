"""Whatever stands in a spec file: a result, or an error that says what is wrong; never a traceback.

Shipped documents are damaged at random, as values and as bytes. Warnings of numpy are errors in this suite.
"""

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
from calculon.base.errors import MAX_PROBLEMS
from calculon.declarations.decode import SpecWarning
from tests.draws import draws
from tests.fuzzing import change_bytes, change_document
from tests.helpers import ROOT, document

SHIPPED = {
    "model": ["gpt3-13B", "megatron-126M"],
    "system": ["a100_80e", "h100_80g_nvl8"],
    "execution": ["3072_t4_p64_d12_mbs4_full"],
}
FOLDERS = {"model": "models", "system": "systems", "execution": "examples"}
LOADERS = {"model": inputs.model, "system": inputs.system, "execution": inputs.execution}
RANDOMS = st.randoms(use_true_random=True)


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
        assert str(error).count("\n") == min(len(error.problems), MAX_PROBLEMS + 1) - 1
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

    @settings(max_examples=draws(200))
    @given(st.sampled_from(SHIPPED[kind]), RANDOMS)
    def holds(name, random):
        found = _load(kind, change_document(random, document(FOLDERS[kind], name), most=2))
        loaded.append(found is not None)
        if found is not None:
            _answer(specs | {kind: found})

    holds()
    assert 0.02 < sum(loaded) / len(loaded) < 0.94


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder for damaged files."""
    return tmp_path_factory.mktemp("fuzz")


SUFFIXES = (".json", ".yaml", ".json.gz", ".yml.gz")


@settings(max_examples=draws(60))
@given(RANDOMS, st.sampled_from(SUFFIXES), st.booleans(), st.booleans())
def test_damaged_bytes_load_or_are_refused(folder, random, suffix, packed, as_yaml):
    raw = (ROOT / "models" / "megatron-126M.json").read_bytes()
    if as_yaml:
        raw = yaml.safe_dump(json.loads(raw)).encode()
    target = folder / f"damaged{suffix}"
    target.write_bytes(change_bytes(random, gzip.compress(raw, mtime=0) if packed else raw))
    _load("model", target)


@given(raw=st.binary(max_size=60), suffix=st.sampled_from(SUFFIXES))
def test_random_bytes_load_or_are_refused(folder, raw, suffix):
    target = folder / f"random{suffix}"
    target.write_bytes(raw)
    for kind in SHIPPED:
        _load(kind, target)
