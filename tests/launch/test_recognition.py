"""A file without a stated format finds its dialect, and what is ours is none."""

import pytest

from calculon.launch.dialects import ENGINES, recognised
from calculon.spec import catalog
from tests.launch.laws import SCRIPTS, collected

_OF_ENGINES = {name.replace("-", "_") for name in ENGINES}
FILES = [
    path
    for folder in sorted(SCRIPTS.iterdir())
    if folder.name not in _OF_ENGINES
    for path in collected(folder.name)
]
OURS = [
    path
    for kind in (*catalog.KINDS, "preset", "study")
    for path in list(catalog.names(kind).values())[::7]
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_public_file_finds_its_dialect(path):
    found = recognised(path.read_text(), str(path))
    assert found is not None
    assert found.name == path.parent.name.replace("_", "-")


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_what_is_ours_is_of_none(path):
    if path.suffix != ".gz":
        assert recognised(path.read_text(), str(path)) is None


def test_a_toml_is_of_torchtitan_whatever_its_settings_are_called():
    text = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nglobal_batch_size = 64\n'
    found = recognised(text, "train.toml")
    assert found is not None
    assert found.name == "torchtitan"
    assert recognised("[tool]\nglobal_batch_size = 64\n", "other.toml") is None
