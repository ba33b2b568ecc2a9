"""The door to what notebooks show: nobody pays for it who does not look."""

import pickle
import subprocess
import sys

import pytest

import calculon
from calculon.base.display import PAGES
from tests.cases import for_each
from tests.documents import results
from tests.helpers import ROOT


def test_an_application_is_loaded_when_somebody_looks():
    code = (
        "import calculon, sys;"
        "one = calculon.estimate('megatron-1T', '3072_t4_p64_d12_mbs4_full', 'a100_80g');"
        f"repr(one); one.to_dict(); print({PAGES!r} in sys.modules);"
        f"one._repr_html_(); print({PAGES!r} in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout.decode().split() == ["False", "True"]


def test_what_is_shown_can_still_be_kept_apart_and_stored():
    """The mixin adds no fields: records compare, hash and are pickled as they were."""
    one = calculon.estimate("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
    for record in (one.model, one.execution):
        assert pickle.loads(pickle.dumps(record)) == record
        assert hash(record) == hash(pickle.loads(pickle.dumps(record)))
    for record in (one.model, one.execution, one.system, calculon.Plan.of(one.execution)):
        assert not hasattr(record, "__dict__")


@for_each(
    ("make", "name", "hint"),
    [
        (results.estimate_of, "total_time", "use .stats['total_time']"),
        (results.estimate_of, "memory", "use .stats['proc_mem_tier1_cap_req']"),
        (results.estimate_of, "tp", "use .execution.tensor_par"),
        (results.estimate_of, "plott", "did you mean .plot?"),
        (results.answer, "time", "use .best.stats['total_time']"),
        (lambda: results.found().evaluation, "time", "use ['total_time']"),
        (lambda: results.estimate_of().model, "hiden", "did you mean .hidden?"),
    ],
)
def test_a_missing_attribute_names_the_one_that_was_meant(make, name, hint):
    result = make()
    with pytest.raises(AttributeError) as error:
        getattr(result, name)
    assert str(error.value) == (
        f"{type(result).__name__!r} object has no attribute {name!r}. Hint: {hint}"
    )
