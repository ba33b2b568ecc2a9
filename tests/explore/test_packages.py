"""Missing packages of the page are told in one sentence, wherever they are missing."""

import sys

import pytest

import calculon
from calculon.base.errors import SpecError
from calculon.cli.main import main
from calculon.explore.packages import PACKAGES, require


@pytest.mark.parametrize("missing", [PACKAGES, PACKAGES[1:2]])
def test_all_that_are_missing_are_told(missing, monkeypatch):
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SpecError) as told:
        require("explore")
    assert told.value.found == f"no {', '.join(missing)}"
    assert "-m pip install '.[web]'" in told.value.hint


def test_python_the_command_and_pictures_say_the_same(capsys, monkeypatch):
    one = calculon.estimate("gpt2-124M", "gpt2-124M_a100x2_ddp", "a100_80g_sxm")
    for name in PACKAGES:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SpecError) as page:
        calculon.explore("gpt2-124M", "a100_80g_sxm", 2)
    with pytest.raises(SpecError) as picture:
        one.plot(interactive=True)
    assert picture.value.expected == page.value.expected
    assert picture.value.hint == page.value.hint
    assert main(["explore"]) == 2
    assert str(page.value) in capsys.readouterr().err
