"""Configurations in Python: what is read without running anything, and what stays open."""

import pytest

from calculon.errors import SpecError
from calculon.launch.dialect import Unresolved
from calculon.launch.texts.python_recipe import settings_in
from calculon.launch.texts.tree import TARGET


def _read(text: str, **variables: str) -> dict[str, object]:
    """Return the settings of a text by path, without the names of what makes them."""
    leaves = settings_in(text, "recipe.py", variables).leaves()
    return {path: leaf.value for path, leaf in leaves if not path.endswith(TARGET)}


def test_attributes_are_settings_with_their_lines():
    text = "cfg = base()\ncfg.model.a = 4\ncfg.model.b = -1\ncfg.train.c = [1] * 3\n"
    found = dict(settings_in(text, "recipe.py", {}).leaves())
    assert found["model.a"].value == 4
    assert found["model.a"].line == 2
    assert found["model.b"].value == -1
    assert found["train.c"].value == [1, 1, 1]


def test_a_later_assignment_wins():
    assert _read("c.model.a = 4\nc.model.a = 8\n") == {"model.a": 8}


def test_keywords_of_calls_are_settings_below_what_they_are_assigned_to():
    text = "def f():\n    return Container(model=Provider(a=1), ddp=Ddp(b=True))\n"
    assert _read(text) == {"model.a": 1, "ddp.b": True}


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


def test_recursion_ends():
    assert _read("def f():\n    c = C(a=1, b=f())\n    return c\n")["a"] == 1


def test_functions_of_other_files_are_named_where_they_may_change_settings():
    assert _read("def f():\n    c = C(a=1)\n    tune(c)\n    return c\n") == {
        "a": 1,
        "calls.tune": True,
    }


@pytest.mark.parametrize(
    ("condition", "value"),
    [("tp > 4", 1), ("tp < 4", 2), ("mode is None", 1), ("tp in (2, 4)", 2), ("not tp", 2)],
)
def test_conditions_on_known_values_are_decided(condition, value):
    text = f"def f(tp=8, mode=None):\n    c = C()\n    if {condition}:\n        c.a = 1\n"
    assert _read(f"{text}    else:\n        c.a = 2\n    return c\n") == {"a": value}


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
    tree = settings_in("c = run.Config(nl.Trainer, devices=8)\n", "recipe.py", {})
    assert {name: leaf.value for name, leaf in tree.leaves()} == {
        TARGET: "nl.Trainer",
        "devices": 8,
    }


def test_configurations_in_a_list_are_below_their_names():
    text = "c.callbacks = [run.Config(A, x=1)]\nc.callbacks.append(run.Config(m.B, y=2))\n"
    assert _read(text) == {"callbacks.A.x": 1, "callbacks.B.y": 2}


def test_nothing_is_run():
    text = "import os\nos.abort()\nc.a = __import__('os').abort()\nc.b = open('/nowhere')\n"
    assert "c.a" not in _read(text)


def test_repetitions_are_bounded():
    assert isinstance(_read("c.a = [0] * 10 ** 9\nc.b = [0] * 999999999\n")["b"], Unresolved)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f(:\n", "a syntax error in line 1"),
        ("x = 1\n", "settings such as cfg.model.x = 1, found neither"),
        (
            "def a():\n    return 1\n\ndef b():\n    return 2\n",
            "expected one recipe, found 2: a, b",
        ),
        ("\0", "expected a configuration in Python"),
    ],
)
def test_what_is_no_configuration_is_refused(text, words):
    with pytest.raises(SpecError, match=words.replace("(", r"\(")):
        settings_in(text, "recipe.py", {})


def test_a_recipe_is_chosen_by_its_name():
    text = "def a():\n    return C(x=1)\n\ndef b():\n    return C(x=2)\n"
    assert [v.value for p, v in settings_in(text, "r.py", {}, "b").leaves() if p == "x"] == [2]
    with pytest.raises(SpecError, match="one of the functions a, b, found 'c'"):
        settings_in(text, "r.py", {}, "c")
