"""The journal of a study: nothing finished is lost, and nothing foreign is taken for one's own."""

from collections import Counter

import pytest

from calculon.apps.sweep import journal as study_journal
from calculon.apps.sweep.journal import Journal
from calculon.apps.sweep.task import Outcome
from calculon.errors import SpecError
from calculon.search.select import Counts

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
    return Journal.open(output, "s.yaml", fingerprint, total, **options)


@pytest.fixture
def journal(output, tmp_path):
    with opened(output) as started:
        for outcome in OUTCOMES:
            started.add(outcome)
    return tmp_path / "result.csv.journal"


def test_gives_back_what_it_was_given_to_the_bit(output, journal):
    with opened(output) as again:
        assert list(again.outcomes.values()) == OUTCOMES


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


def test_finds_every_changed_byte(output, journal):
    whole = journal.read_bytes()
    for i in range(0, len(whole) - 1, 3):
        journal.write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        with pytest.raises(SpecError, match="expected a sound journal"):
            opened(output)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fingerprint": "g"}, "found one of s.yaml with 3 searches, other than they are now"),
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
    monkeypatch.setattr(study_journal, "__version__", "9.9")
    with pytest.raises(SpecError, match=r"expected a journal of version 9\.9"):
        opened(output)


@pytest.mark.parametrize("content", [b"name,price\n1,2\n", b"no line", b"\x00\xff\n" * 9])
def test_refuses_and_keeps_another_file(output, tmp_path, content):
    foreign = tmp_path / "result.csv.journal"
    foreign.write_bytes(content)
    with pytest.raises(SpecError, match="expected a sound journal of a study, found another file"):
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
    with opened(output), pytest.raises(SpecError, match="another process that is at work on it"):
        opened(output)
