"""Words and statements of shell scripts."""

import pytest

from calculon.errors import SpecError
from calculon.launch.texts.shell_words import Simple, statements


def _words(text):
    return [one.words for one in statements(text, "run.sh") if isinstance(one, Simple)]


def test_words_keep_their_quotes_and_lose_comments_and_continuations():
    text = "train 'a b' \"$X y\" \\\n  --flag # a comment \\\nnext"
    assert _words(text) == [("train", "'a b'", '"$X y"', "--flag"), ("next",)]


def test_redirections_are_no_words():
    rows = ["> log", "2>&1 | tee log", "&> log", ">> log", "<<< text"]
    for end in rows:
        assert _words(f"train --a 1 {end}")[0] == ("train", "--a", "1"), end


def test_here_documents_that_the_file_ends_before_are_empty():
    rows = ["train <<", "train <<EOF", "train <<-EOF; more"]
    for text in rows:
        first, *_ = statements(text, "run.sh")
        assert first == Simple(("train",), 1), text


def test_what_has_no_end_is_told_with_its_line():
    rows = ["a 'b", 'a "b', "A=(1 2", "a ${B", "a $(b", "a `b"]
    for text in rows:
        with pytest.raises(SpecError, match=r"run.sh:2: expected the end of what") as caught:
            statements(f"first\n{text}", "run.sh")
        assert caught.value.found == "the end of the file"
