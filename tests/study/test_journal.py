"""The journal of a study: nothing finished is lost, and nothing foreign is taken for one's own."""

import errno
import io
import os
from collections import Counter

import pytest

import calculon
from calculon.base.errors import SpecError
from calculon.declarations.decode import SpecWarning
from calculon.search.search_counts import Counts
from calculon.search.task import Outcome, program
from calculon.study import journal as study_journal
from calculon.study.journal import Journal, _line

OUTCOMES = [
    Outcome(
        0,
        Counts(10, 3, Counter(mem1_capacity=7), {"mem1_capacity": 1e9 / 3}),
        (5, 2),
        ((0.1, 1 / 3),),
    ),
    Outcome(1, Counts(4, 0, Counter(network_size=4)), (), ((),)),
    Outcome(2, Counts(2**40, 1), (2**62,), ((float("inf"),), (-1e-300,))),
]


@pytest.fixture
def output(tmp_path):
    return str(tmp_path / "result.csv")


def opened(output, fingerprint="f", total=3, **options):
    return Journal.open(output, "s.yaml", fingerprint, total, Outcome, **options)


@pytest.fixture
def journal(output, tmp_path):
    with opened(output) as started:
        for outcome in OUTCOMES:
            started.add(outcome)
    return tmp_path / "result.csv.journal"


def test_loses_at_most_the_last_line_wherever_a_write_was_cut_off(output, journal):
    whole = journal.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for length in {*range(0, len(whole), 5), *ends, *(end - 1 for end in ends)}:
        journal.write_bytes(whole[:length])
        with opened(output) as again:
            finished = sum(1 for end in ends[1:] if end <= length)
            assert list(again.outcomes.values()) == OUTCOMES[:finished]
            for outcome in OUTCOMES[finished:]:
                again.add(outcome)
        assert journal.read_bytes() == whole


def test_leaves_out_a_damaged_line_and_keeps_the_others(output, journal):
    whole = journal.read_bytes()
    head = whole.index(b"\n") + 1
    for i in range(head, len(whole) - 1, 3):
        joined = whole[i] == ord("\n")  # with the next line
        journal.write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        with pytest.warns(SpecWarning, match="1 damaged lines, the first in line [234]; their"):
            again = opened(output)
        with again:
            assert len(again.outcomes) == (1 if joined else 2)
            for outcome in OUTCOMES:
                again.add(outcome)
        assert journal.read_bytes().endswith(whole[head:])


def test_refuses_a_changed_head(output, journal):
    whole = journal.read_bytes()
    for i in range(0, whole.index(b"\n") - 1, 3):
        journal.write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        with pytest.raises(SpecError, match="expected an intact journal"):
            opened(output)


@pytest.mark.parametrize("line", [b"", b"no line", b"00000000 ", _line({"search": 3})[:-1]])
def test_survives_any_line(output, journal, line):
    head, rest = journal.read_bytes().split(b"\n", 1)
    journal.write_bytes(b"\n".join([head, line, rest]))
    with pytest.warns(SpecWarning, match="1 damaged lines, the first in line 2"):
        again = opened(output)
    assert list(again.outcomes.values()) == OUTCOMES
    again.close()


class NearlyFull(io.FileIO):
    """A file on a disk that takes 100 bytes, then says that it is full, then has room again."""

    writes = 0

    def write(self, data):
        self.writes += 1
        if self.writes == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data[:100])


def test_a_full_disk_costs_only_the_line_that_does_not_fit(output, tmp_path):
    with opened(output) as journal:
        journal.add(OUTCOMES[0])
        journal._stream.close()
        journal._stream = NearlyFull(journal.path, "a+")
        with pytest.raises(OSError, match="No space left on device") as error:
            journal.add(OUTCOMES[1])
        assert error.value.filename == journal.path
        journal.add(OUTCOMES[2])  # written in several parts
    with opened(output) as again:
        assert list(again.outcomes.values()) == [OUTCOMES[0], OUTCOMES[2]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fingerprint": "g"}, "found one of s.yaml with 3 searches, which have changed since"),
        ({"total": 4}, "found one of s.yaml with 3 searches"),
    ],
)
def test_refuses_the_journal_of_another_study(output, journal, arguments, message):
    before = journal.read_bytes()
    with pytest.raises(SpecError) as error:
        opened(output, **arguments)
    assert message in str(error.value)
    assert "begin again with --restart" in error.value.hint
    assert journal.read_bytes() == before


def test_refuses_the_journal_of_another_version(output, journal, monkeypatch):
    monkeypatch.setattr(study_journal, "program", lambda: "9.9+abc")
    with pytest.raises(SpecError, match=r"expected a journal written by calculon 9\.9\+abc"):
        opened(output)


def test_a_changed_source_is_another_program(tmp_path, monkeypatch):
    source = tmp_path / "__init__.py"
    monkeypatch.setattr(calculon, "__file__", str(source))
    found = []
    for text in ("RATE = 1\n", "RATE = 2\n"):
        source.write_text(text)
        found.append(program.__wrapped__())
    assert len(set(found)) == 2
    assert all(one.startswith(f"{calculon.__version__}+") for one in found)


@pytest.mark.parametrize("content", [b"name,price\n1,2\n", b"no line", b"\x00\xff\n" * 9])
def test_refuses_and_keeps_another_file(output, tmp_path, content):
    foreign = tmp_path / "result.csv.journal"
    foreign.write_bytes(content)
    with pytest.raises(
        SpecError, match="expected an intact journal of a study, found another file"
    ):
        opened(output)
    assert foreign.read_bytes() == content


def test_refuses_a_result_without_its_journal(output, tmp_path):
    (tmp_path / "result.csv").write_text("something")
    with pytest.raises(SpecError, match="found a file without its journal"):
        opened(output)
    opened(output, restart=True).close()


def test_restart_forgets(output, journal):
    with opened(output, "g", restart=True) as again:
        assert again.outcomes == {}
    with opened(output, "g") as again:
        assert again.outcomes == {}


def test_only_one_process_at_a_time(output):
    pytest.importorskip("fcntl")
    with opened(output), pytest.raises(SpecError, match="another process that writes to it"):
        opened(output)
