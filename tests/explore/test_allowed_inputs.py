"""Names that may be asked for: those of the catalog and of files that the owner named, and nothing else of the disk."""

import json

import pytest

from calculon import inputs
from calculon.base.errors import SpecError
from calculon.declarations import catalog
from calculon.explore.allowed_inputs import MODEL, SYSTEM, AllowedInputs
from tests.helpers import document


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with a model of one's own, a secret, and a file that is called as a model of the catalog."""
    monkeypatch.chdir(tmp_path)
    small = document("models", "gpt2-124M")
    (tmp_path / "small.json").write_text(json.dumps(small | {"num_blocks": 6}))
    (tmp_path / "secret.json").write_text(json.dumps(small | {"num_blocks": 7}))
    (tmp_path / "llama3-8B").write_text(json.dumps(small))
    return tmp_path


def test_all_of_the_catalog_is_offered(own):
    offer = AllowedInputs()
    for kind in (MODEL, SYSTEM):
        assert offer.names(kind) == [*catalog.names(kind)]
        for name in offer.names(kind):
            assert offer.exact(kind, name) == offer.source(kind, name) == name


def test_a_file_that_was_named_is_offered_first_and_another_is_not(own):
    offer = AllowedInputs("small.json")
    assert offer.names(MODEL)[0] == offer.model == offer.exact(MODEL, "small") == "small"
    assert offer.source(MODEL, "small") == "small.json"
    for text in ("secret", "secret.json", "./secret.json", str(own / "secret.json"), "small.json"):
        with pytest.raises(SpecError) as caught:
            offer.exact(MODEL, text)
        assert "num_blocks" not in str(caught.value)


def test_a_name_of_the_catalog_is_that_of_the_catalog_whatever_lies_about(own):
    offer = AllowedInputs()
    assert inputs.model(offer.source(MODEL, offer.exact(MODEL, "llama3-8B"))).num_blocks == 32


def test_a_file_called_as_a_model_of_the_catalog_has_another_name(own):
    (own / "llama3-8B.json").write_text((own / "secret.json").read_text())
    offer = AllowedInputs("./llama3-8B.json")
    assert offer.model == "llama3-8B (file)"
    assert offer.source(MODEL, "llama3-8B") == "llama3-8B"


def test_words_that_people_write_are_understood(own):
    assert (
        AllowedInputs("llama-3-8b", "h100").model
        == AllowedInputs().exact(MODEL, "llama-3-8b")
        == "llama3-8B"
    )
    assert AllowedInputs("llama-3-8b", "h100").system == "h100_80g_sxm"


def test_what_cannot_be_read_again_is_refused_at_once(own):
    for source in ("-", "nothing.json", "secret"):
        with pytest.raises(SpecError):
            AllowedInputs(source)
