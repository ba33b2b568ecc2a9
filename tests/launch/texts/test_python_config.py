"""Configurations in Python are followed, not executed."""

import pytest

from calculon.errors import SpecError
from calculon.launch.dialect import Unresolved
from calculon.launch.texts.python_config import read_configuration, settings


def _found(text, name=""):
    one = read_configuration(text, "config.py", name)
    return {each.name: each.value for each in settings(one.root, "config.py")}


def test_keyword_arguments_are_settings_and_names_of_classes_where_they_say_more():
    text = """
def config():
    return Trainer.Config(
        training=TrainingConfig(steps=10, seq_len=2 * 4096),
        loss=Chunked.Config(n=8),
        empty=None,
    )
"""
    expected = {"training.steps": 10, "training.seq_len": 8192, "loss": "Chunked", "loss.n": 8}
    assert _found(text) == expected | {"empty": None}


def test_assignments_change_what_a_call_made():
    text = """
LENGTH = 1024
def base(seq_len=512):
    length = seq_len
    return Trainer.Config(training=TrainingConfig(seq_len=length, steps=1))
def larger():
    config = base(seq_len=LENGTH * 4)
    config.training.steps = config.training.seq_len // 2
    config.parallelism.tensor_parallel_degree = 8
    return config
"""
    assert _found(text, "base") == {"training.seq_len": 512, "training.steps": 1}
    assert _found(text, "larger") == {
        "training.seq_len": 4096,
        "training.steps": 2048,
        "parallelism.tensor_parallel_degree": 8,
    }


def test_what_only_running_it_would_tell_stays_open():
    found = _found("c = Config(a=os.environ['TP'], b=f(3).x, c=[1, g()], d=-(2 - 5))")
    assert found["a"] == Unresolved("os.environ['TP']")
    assert found["b"] == Unresolved("f(3).x")
    assert found["d"] == 3


def test_calls_in_lists_are_told_by_name_and_number():
    found = _found("c = Config(several=[A.Config(x=1), A.Config(x=2), B()])")
    assert found == {
        "several.A": True,
        "several.A.x": 1,
        "several.A#2": True,
        "several.A#2.x": 2,
        "several.B": True,
    }


def test_what_is_not_followed_is_said():
    text = """
def config():
    made = Config(a=1)
    if os.environ:
        made.a = 2
    other.b = 3
    return made
"""
    one = read_configuration(text, "config.py")
    assert [note.partition(":")[2] for note in one.notes] == [
        "4: 'if' was not followed",
        "6: 'other.b' belongs to nothing that was read",
    ]


def test_a_ring_of_assignments_ends():
    found = _found("c = Config(a=1)\nc.itself = c\nc.b = 2")
    assert found["b"] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:", "config.py:1: expected Python"),
        ("x = 1", "a configuration: a call with settings as keyword arguments, found none"),
        (
            "def f():\n    return A(x=1)\ndef g():\n    return B(x=2)",
            "found 2: f, g. Hint: import-flags --env recipe=g",
        ),
        ("x = " + "-" * 5000 + "1", "config.py"),
        (
            "c = A(x=" + "+".join("1" * 5000) + ")",
            "Python, found maximum recursion|nested too deeply",
        ),
    ],
    ids=["syntax", "nothing", "several", "signs", "sums"],
)
def test_what_is_no_configuration_is_refused(text, message):
    with pytest.raises(SpecError, match=message):
        read_configuration(text, "config.py")


def test_a_function_that_is_not_there_is_refused_with_the_nearest():
    with pytest.raises(SpecError, match="did you mean 'llama3_8b'"):
        read_configuration("def llama3_8b():\n    return A(x=1)", "config.py", "llama3_8")


def test_a_function_that_is_called_by_itself_ends():
    text = "def f(a=1):\n    c = f(a + 1)\n    return Config(a=a)"
    assert _found(text) == {"a": 1}
