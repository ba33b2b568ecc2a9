"""Configurations in Python are followed, not executed: what is read, and what stays open."""

from typing import Any

import pytest

from calculon.base.errors import SpecError
from calculon.launch.dialect import Unresolved
from calculon.launch.texts.python_config import read_configuration, short_name
from calculon.launch.texts.tree import TARGET
from tests.cases import for_each


def _leaves(text, **variables):
    return read_configuration(text, "config.py", variables).root.leaves()


def _read(text, **variables):
    """Return the settings of a text by path, without the names of what makes them."""
    leaves = _leaves(text, **variables)
    return {path: leaf.value for path, leaf in leaves if not path.endswith(TARGET)}


CALL = """
def config():
    return Trainer.Config(
        training=TrainingConfig(steps=10, seq_len=2 * 4096),
        loss=Chunked.Config(n=8),
        empty=None,
    )
"""
FUNCTIONS = """
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
LARGER = {
    "training.seq_len": 4096,
    "training.steps": 2048,
    "parallelism.tensor_parallel_degree": 8,
}
HELPERS = """
def layout(model):
    model.stages = 3

def trainer(nodes=1):
    return T(nodes=nodes)

def pretrain_recipe():
    cfg = C(model=M(), trainer=trainer(nodes=2 * 4))
    layout(cfg.model)
    return cfg
"""
DEFAULTS = "def f(tp: int = 8, pp=2):\n    return C(model=M(tp=tp, both=tp * pp))\n"
CONDITION = """
def f(tp=8, mode=None):
    c = C()
    if {}:
        c.a = 1
    else:
        c.a = 2
    return c
"""
UNKNOWN = "def f():\n    c = C(a=1)\n    if gpus() > 8:\n        c.a = 2\n    return c\n"
TUNED = """
def tune(config):
    config.a = 1

def planned(config):
    tune(config)
    config.b = 2
    return config
"""
ACTS = "def f(x=2):\n    return C(x=x)\nc = other(x=2)\n{}\n"
MAIN = "if __name__ == '__main__':\n    train(c)"

READ: list[tuple[str, dict[str, str], dict[str, Any]]] = [
    (CALL, {}, {"training.steps": 10, "training.seq_len": 8192, "loss.n": 8, "empty": None}),
    (FUNCTIONS, {"recipe": "base"}, {"training.seq_len": 512, "training.steps": 1}),
    (FUNCTIONS, {"recipe": "larger"}, LARGER),
    (HELPERS, {}, {"model.stages": 3, "trainer.nodes": 8}),
    (DEFAULTS, {}, {"model.tp": 8, "model.both": 16}),
    (DEFAULTS, {"tp": "4"}, {"model.tp": 4, "model.both": 8}),
    ("def f(tp):\n    return C(tp=tp)\n", {}, {"tp": Unresolved("tp", "tp")}),
    (CONDITION.format("tp > 4"), {}, {"a": 1}),
    (CONDITION.format("tp < 4"), {}, {"a": 2}),
    (CONDITION.format("mode is None"), {}, {"a": 1}),
    (CONDITION.format("tp in (2, 4)"), {}, {"a": 2}),
    (CONDITION.format("not tp"), {}, {"a": 2}),
    (UNKNOWN, {}, {"a": Unresolved("2 (where gpus() > 8)")}),
    (TUNED, {"recipe": "planned"}, {"a": 1, "b": 2}),
    ("def main():\n    cfg = base(a=1)\n    cfg.b = 2\n", {"recipe": "main"}, {"a": 1, "b": 2}),
    ("def f():\n    c = C(a=1)\n    tune(c)\n    return c\n", {}, {"a": 1, "calls.tune": True}),
    ("def f(a=1):\n    c = f(a + 1)\n    return Config(a=a)", {}, {"a": 1}),
    ("BASE = Optimizer(a=1, b=2)\ndef f():\n    return C(x=1)\n", {}, {"x": 1}),
    (ACTS.format("c.x = 2"), {}, {"x": 2}),
    (ACTS.format("c = f()\nc.x = 2"), {}, {"x": 2}),
    (ACTS.format("train(c)"), {}, {"x": 2, "calls.train": True}),
    (ACTS.format(MAIN), {}, {"x": 2, "calls.train": True}),
    ("c.model.a = 4\nc.model.a = 8\n", {}, {"model.a": 8}),
    ("c.a = torch.bfloat16\nc.b = torch.half\n", {}, {"a": "bfloat16", "b": "float16"}),
    ('c.p = "bf16"\nc.p.reduce = False\n', {}, {"p": "bf16", "p.reduce": False}),
    (
        "c = Config(several=[A.Config(x=1), A.Config(x=2), g(1)[0], B(y=3)])",
        {},
        {
            **{"several.A.x": 1, "several.A#2.x": 2, "several.B.y": 3},
            "several": [Unresolved("g(1)[0]")],
        },
    ),
    (
        "c = Config(s=[], n=[1])\nc.s.append(A(x=1))\nc.s.append(A(x=2))\nc.n.append(2)\n",
        {},
        {"s.A.x": 1, "s.A#2.x": 2, "n": [1, 2]},
    ),
    (
        "c.callbacks = [run.Config(A, x=1)]\nc.callbacks.append(run.Config(m.B, y=2))\n",
        {},
        {"callbacks.A.x": 1, "callbacks.B.y": 2},
    ),
]


@for_each(("text", "variables", "settings"), READ)
def test_settings_are_read(text, variables, settings):
    assert _read(text, **variables) == settings


@for_each(
    "text",
    ["c.a = 10**18 * 10", "c.a = '%99999999999d' % 1", "x = 9\n" + "x = x * x\n" * 50 + "c.a = x"],
)
def test_results_of_arithmetic_are_bounded(text):
    assert isinstance(_read(f"{text}\n")["a"], Unresolved)


def test_what_only_running_it_would_tell_stays_open():
    found = _read("c = Config(a=os.environ['TP'], b=f(3).x, c=[1, g()], d=-(2 - 5))")
    assert found["a"] == Unresolved("os.environ['TP']")
    assert found["b"] == Unresolved("f(3).x")
    assert found["d"] == 3


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


@for_each(
    ("text", "message"),
    [
        ("def f(:", "config.py:1: expected a configuration in Python"),
        ("\0", "expected a configuration in Python"),
        ("x = 1", "settings such as cfg.model.x = 1, found neither"),
        ("def f():\n    return 1", "f: expected a configuration: a call with settings, found none"),
        ("return 1", "found neither"),
        ("x = " + "-" * 5000 + "1", "config.py"),
        ("c = A(x=" + "+".join("1" * 5000) + ")", "found maximum recursion|less deeply nested"),
        ("a = A()\n" + "a = A(x=a)\n" * 2000, "less deeply nested"),
        ("a = A(x=1)\n" + "a = A(x=a, y=a)\n" * 40, "at most 200,000 values"),
    ],
)
def test_what_is_no_configuration_is_refused(text, message):
    with pytest.raises(SpecError, match=message):
        read_configuration(text, "config.py", {})


def test_calls_of_functions_are_bounded():
    several = "".join(f"def f{i}():\n    return C(a=f{i + 1}(), b=f{i + 1}())\n" for i in range(20))
    with pytest.raises(SpecError, match=r"at most 100,000 statements|read within"):
        _read(f"{several}def f20():\n    return C(x=1)\n")


def test_attributes_are_settings_with_their_lines():
    text = "cfg = base()\ncfg.model.a = 4\ncfg.model.b = -1\ncfg.train.c = [1] * 3\n"
    found = dict(_leaves(text))
    assert found["model.a"].value == 4
    assert found["model.a"].line == 2
    assert found["model.b"].value == -1
    assert found["train.c"].value == [1, 1, 1]


def test_what_a_wrapper_configures_is_its_target():
    leaves = _leaves("c = run.Config(nl.Trainer, devices=8)\n")
    assert {name: leaf.value for name, leaf in leaves} == {
        TARGET: "nl.Trainer",
        "devices": 8,
    }


def test_a_configuration_that_is_handed_on_below_a_condition_counts_before_functions():
    text = "def f():\n    return C(x=1)\ncfg = C(y=2)\nif __name__ == '__main__':\n    train(cfg)\n"
    assert _read(text)["y"] == 2


def test_nothing_is_run():
    text = "import os\nos.abort()\nc.a = __import__('os').abort()\nc.b = open('/nowhere')\n"
    assert "c.a" not in _read(text)


def test_repetitions_are_bounded():
    with pytest.raises(SpecError, match="at most 2,000,000 characters after expansion"):
        _read("c.a = [0] * 10 ** 9\nc.b = [0] * 999999999\n")


def test_modules_of_names_are_kept():
    one = read_configuration("from a.b import C as D\nfrom . import e\nc = D(x=1)", "c.py", {})
    assert one.imports == {"D": "a.b", "e": "."}
