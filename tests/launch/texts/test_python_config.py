"""Configurations in Python are followed, not executed: what is read, and what stays open."""

import pytest

from calculon.errors import SpecError
from calculon.launch.dialect import Unresolved
from calculon.launch.texts.python_config import read_configuration, short_name
from calculon.launch.texts.tree import TARGET


def _leaves(text, **variables):
    return read_configuration(text, "config.py", variables).root.leaves()


def _read(text, **variables):
    """Return the settings of a text by path, without the names of what makes them."""
    leaves = _leaves(text, **variables)
    return {path: leaf.value for path, leaf in leaves if not path.endswith(TARGET)}


def test_keyword_arguments_are_settings():
    text = """
def config():
    return Trainer.Config(
        training=TrainingConfig(steps=10, seq_len=2 * 4096),
        loss=Chunked.Config(n=8),
        empty=None,
    )
"""
    expected = {"training.steps": 10, "training.seq_len": 2 * 4096, "loss.n": 8, "empty": None}
    assert _read(text) == expected


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
    assert _read(text, recipe="base") == {"training.seq_len": 512, "training.steps": 1}
    assert _read(text, recipe="larger") == {
        "training.seq_len": 4096,
        "training.steps": 2048,
        "parallelism.tensor_parallel_degree": 8,
    }


def test_what_only_running_it_would_tell_stays_open():
    found = _read("c = Config(a=os.environ['TP'], b=f(3).x, c=[1, g()], d=-(2 - 5))")
    assert found["a"] == Unresolved("os.environ['TP']")
    assert found["b"] == Unresolved("f(3).x")
    assert found["d"] == 3


def test_calls_in_lists_are_told_by_name_and_number():
    text = "c = Config(several=[A.Config(x=1), A.Config(x=2), g(1)[0], B(y=3)])"
    assert _read(text) == {
        "several.A.x": 1,
        "several.A#2.x": 2,
        "several.B.y": 3,
        "several": [Unresolved("g(1)[0]")],
    }


def test_what_a_list_gains_is_in_it():
    text = "c = Config(several=[], n=[1])\nc.several.append(A(x=1))\nc.several.append(A(x=2))\n"
    expected = {"several.A.x": 1, "several.A#2.x": 2, "n": [1, 2]}
    assert _read(f"{text}c.n.append(2)\n") == expected


def test_positional_arguments_are_beside_the_settings():
    root = read_configuration('c = f(registry("8B", n=2 * 4), n=1)', "config.py", {}).root
    (made,) = root.positional
    assert (root.name, made.name, made.positional) == ("f", "registry", ("8B",))
    assert made["n"].value == 2 * 4


def test_short_names_of_classes():
    rows = [("A.Config", "A"), ("a.b.C", "C"), ("Config", "Config"), ("", ""), ("f", "f")]
    assert [short_name(target) for target, _ in rows] == [name for _, name in rows]


def test_what_is_not_followed_is_said():
    text = """
def config():
    made = Config(a=1)
    if os.environ:
        made.a = 2
    other.b = 3
    return made
"""
    one = read_configuration(text, "config.py", {})
    assert [note.partition(":")[2] for note in one.notes] == [
        "4: 'if' was not followed",
        "6: 'other.b' belongs to nothing that was read",
    ]


def test_nothing_is_dropped_in_silence():
    rows = [
        ("made['a'] = 2", "'made['a']' belongs to nothing that was read"),
        ("part = made.absent; part.a = 2", "'part.a' belongs to nothing that was read"),
        ("made.b = B(**others)", "'**others' was not followed"),
        ("made.b = {'x': 1, **others}", "'**others' was not followed"),
        ("made.absent.append(1)", "'made.absent.append' was not followed"),
        ("with context(): made.a = 2", "'with' was not followed"),
        ("for i in range(3): made.a += 1", "'for' was not followed"),
    ]
    for line, note in rows:
        text = f"def config():\n    made = Config(a=1)\n    {line}\n    return made\n"
        assert read_configuration(text, "c.py", {}).notes == (f"c.py:3: {note}",)


def test_a_ring_of_assignments_ends():
    found = _read("c = Config(a=1)\nc.itself = c\nc.b = 2")
    assert found["b"] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:", "config.py:1: expected a configuration in Python"),
        ("\0", "expected a configuration in Python"),
        ("x = 1", "settings such as cfg.model.x = 1, found neither"),
        ("def f():\n    return 1", "f: expected a configuration: a call with settings, found none"),
        ("return 1", "found neither"),
        ("x = " + "-" * 5000 + "1", "config.py"),
        ("c = A(x=" + "+".join("1" * 5000) + ")", "found maximum recursion|too deep a nesting"),
        ("a = A()\n" + "a = A(x=a)\n" * 2000, "too deep a nesting"),
        ("a = A(x=1)\n" + "a = A(x=a, y=a)\n" * 40, "at most 200,000 values"),
    ],
    ids=["syntax", "null", "nothing", "number", "return", "signs", "sums", "depth", "doubling"],
)
def test_what_is_no_configuration_is_refused(text, message):
    with pytest.raises(SpecError, match=message):
        read_configuration(text, "config.py", {})


def test_calls_of_functions_are_bounded():
    several = "".join(f"def f{i}():\n    return C(a=f{i + 1}(), b=f{i + 1}())\n" for i in range(20))
    with pytest.raises(SpecError, match=r"at most 100,000 statements|read within"):
        _read(f"{several}def f20():\n    return C(x=1)\n")


@pytest.mark.parametrize("text", ["10**18 * 10", "'%99999999999d' % 1"])
def test_results_of_arithmetic_are_bounded(text):
    assert isinstance(_read(f"c.a = {text}\n")["a"], Unresolved)


def test_a_number_that_grows_without_end_is_open():
    assert isinstance(_read("x = 9\n" + "x = x * x\n" * 50 + "c.a = x\n")["a"], Unresolved)


def test_a_function_that_is_called_by_itself_ends():
    text = "def f(a=1):\n    c = f(a + 1)\n    return Config(a=a)"
    assert _read(text) == {"a": 1}


def test_attributes_are_settings_with_their_lines():
    text = "cfg = base()\ncfg.model.a = 4\ncfg.model.b = -1\ncfg.train.c = [1] * 3\n"
    found = dict(_leaves(text))
    assert found["model.a"].value == 4
    assert found["model.a"].line == 2
    assert found["model.b"].value == -1
    assert found["train.c"].value == [1, 1, 1]


def test_a_later_assignment_wins():
    assert _read("c.model.a = 4\nc.model.a = 8\n") == {"model.a": 8}


def test_arguments_have_their_defaults_or_what_a_variable_says():
    text = "def f(tp: int = 8, pp=2):\n    return C(model=M(tp=tp, both=tp * pp))\n"
    assert _read(text) == {"model.tp": 8, "model.both": 16}
    assert _read(text, tp="4") == {"model.tp": 4, "model.both": 8}


def test_an_argument_without_default_is_open_and_says_what_it_needs():
    (value,) = _read("def f(tp):\n    return C(tp=tp)\n").values()
    assert value == Unresolved("tp", "tp")


def test_functions_of_the_file_are_followed():
    text = (
        "def layout(model):\n    model.stages = 3\n\n"
        "def trainer(nodes=1):\n    return T(nodes=nodes)\n\n"
        "def pretrain_recipe():\n    cfg = C(model=M(), trainer=trainer(nodes=2 * 4))\n"
        "    layout(cfg.model)\n    return cfg\n"
    )
    assert _read(text) == {"model.stages": 3, "trainer.nodes": 8}


def test_functions_of_other_files_are_named_where_they_may_change_settings():
    assert _read("def f():\n    c = C(a=1)\n    tune(c)\n    return c\n") == {
        "a": 1,
        "calls.tune": True,
    }


def test_conditions_on_known_values_are_decided():
    rows = [("tp > 4", 1), ("tp < 4", 2), ("mode is None", 1), ("tp in (2, 4)", 2), ("not tp", 2)]
    for condition, value in rows:
        text = f"def f(tp=8, mode=None):\n    c = C()\n    if {condition}:\n        c.a = 1\n"
        found = _read(f"{text}    else:\n        c.a = 2\n    return c\n")
        assert found == {"a": value}, condition


def test_what_depends_on_an_unknown_condition_is_open():
    found = _read("def f():\n    c = C(a=1)\n    if gpus() > 8:\n        c.a = 2\n    return c\n")
    assert found == {"a": Unresolved("2 (where gpus() > 8)")}


def test_types_of_torch_are_names_of_types():
    assert _read("c.a = torch.bfloat16\nc.b = torch.half\n") == {"a": "bfloat16", "b": "float16"}


def test_a_value_that_has_settings_below_it_keeps_itself():
    assert _read('c.precision = "bf16"\nc.precision.reduce = False\n') == {
        "precision": "bf16",
        "precision.reduce": False,
    }


def test_what_a_wrapper_configures_is_its_target():
    leaves = _leaves("c = run.Config(nl.Trainer, devices=8)\n")
    assert {name: leaf.value for name, leaf in leaves} == {
        TARGET: "nl.Trainer",
        "devices": 8,
    }


def test_configurations_in_a_list_are_below_their_names():
    text = "c.callbacks = [run.Config(A, x=1)]\nc.callbacks.append(run.Config(m.B, y=2))\n"
    assert _read(text) == {"callbacks.A.x": 1, "callbacks.B.y": 2}


def test_a_configuration_that_is_handed_on_below_a_condition_counts_before_functions():
    text = "def f():\n    return C(x=1)\ncfg = C(y=2)\nif __name__ == '__main__':\n    train(cfg)\n"
    assert _read(text)["y"] == 2


def test_nothing_is_run():
    text = "import os\nos.abort()\nc.a = __import__('os').abort()\nc.b = open('/nowhere')\n"
    assert "c.a" not in _read(text)


def test_repetitions_are_bounded():
    with pytest.raises(SpecError, match="at most 2,000,000 characters after expansion"):
        _read("c.a = [0] * 10 ** 9\nc.b = [0] * 999999999\n")


def test_constants_of_a_file_are_no_configuration_beside_its_functions():
    text = "BASE = Optimizer(a=1, b=2)\ndef f():\n    return C(x=1)\n"
    assert _read(text) == {"x": 1}


@pytest.mark.parametrize(
    "last", ["c.x = 2", "c = f()\nc.x = 2", "train(c)", "if __name__ == '__main__':\n    train(c)"]
)
def test_statements_that_act_are_the_configuration(last):
    text = f"def f(x=2):\n    return C(x=x)\nc = other(x=2)\n{last}\n"
    assert {path: one for path, one in _read(text).items() if "calls" not in path} == {"x": 2}


def test_what_is_set_of_an_argument_without_value_is_read():
    text = (
        "def tune(config):\n    config.a = 1\n\n"
        "def planned(config):\n    tune(config)\n    config.b = 2\n    return config\n"
    )
    assert _read(text, recipe="planned") == {"a": 1, "b": 2}


def test_a_named_function_that_returns_nothing_is_read():
    text = "def main():\n    cfg = base(a=1)\n    cfg.b = 2\n"
    assert _read(text, recipe="main") == {"a": 1, "b": 2}


def test_modules_of_names_are_kept():
    one = read_configuration("from a.b import C as D\nfrom . import e\nc = D(x=1)", "c.py", {})
    assert one.imports == {"D": "a.b", "e": "."}
