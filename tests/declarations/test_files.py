import errno
import gzip
import io
import json
import os
import stat
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.base.errors import SpecError
from calculon.declarations import files
from calculon.declarations.files import indented
from tests.helpers import refusal

DOCUMENT = {"hidden": 768, "latency": 1e-5, "names": ["a", None, True]}
JSON = json.dumps(DOCUMENT).encode()
YAML = b"hidden: 768\nlatency: 1e-5  # a number, as in JSON\nnames: [a, null, true]\n"


def test_reads_the_same_document_from_every_format(tmp_path):
    for name, data in [
        ("plain.json", JSON),
        ("bom.json", b"\xef\xbb\xbf" + JSON),
        ("packed.json.gz", gzip.compress(JSON, mtime=0)),
        ("plain.yaml", YAML),
        ("plain.yml", YAML),
        ("json.yaml", JSON),
        ("packed.yaml.gz", gzip.compress(YAML, mtime=0)),
        ("UPPER.JSON", JSON),
        ("json.txt", JSON),
        ("63", YAML),
        ("packed", gzip.compress(JSON, mtime=0)),
    ]:
        (tmp_path / name).write_bytes(data)
        assert files.read_document(str(tmp_path / name)) == DOCUMENT, (name, data)


@pytest.mark.parametrize(
    "data", [JSON, YAML, gzip.compress(JSON, mtime=0)], ids=["JSON", "YAML", "gzip"]
)
def test_reads_standard_input(data, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert files.read_document("-") == DOCUMENT


def test_a_file_that_cannot_be_read_says_why(tmp_path):
    for name, data, message in [
        ("empty.json", b"", "found an empty file"),
        ("cut.json", JSON[:-1], "a JSON document, found Expecting ',' delimiter at line 1"),
        (
            "twice.json",
            b'{"a": {"b": 1, "b": 2}}',
            "b: expected each field once, found the field twice",
        ),
        ("twice.yaml", b"a: 1\na: 2", "a: expected each field once, found the field twice"),
        ("latin.json", b'{"a": "\xe9"}', "text in UTF-8, found byte 0xe9 at offset 7"),
        ("plain.json.gz", JSON, "a gzip file, found something else. Hint: name it without .gz"),
        (
            "cut.json.gz",
            gzip.compress(JSON, mtime=0)[:-9],
            "a readable file, found Compressed file ended",
        ),
        ("bad.yaml", b"a: [1, 2", "at line 1, column 9"),
        ("yaml.json", YAML, "at line 1, column 1. Hint: name YAML files .yaml"),
        ("long.json", b'{"a": ' + b"9" * 5000 + b"}", "found a number of more than 4,300 digits"),
    ]:
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(SpecError) as error:
            files.read_document(str(path))
        assert error.value.file == str(path), (name, data)
        assert message in str(error.value), (name, data)


def test_missing_files_and_folders_say_so(tmp_path):
    with pytest.raises(SpecError, match=r"\(also with .gz\), found '.csv'"):
        files.read_document(str(tmp_path / "missing.csv"))
    with pytest.raises(SpecError, match="no such file or directory"):
        files.read_document(str(tmp_path / "missing.json"))
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(SpecError, match="is a directory"):
        files.read_document(str(tmp_path / "folder.json"))


@pytest.mark.parametrize("name", ["stats.json", "stats.json.gz"])
def test_writes_what_it_reads(name, tmp_path):
    path = tmp_path / name
    files.write_json(str(path), DOCUMENT)
    assert files.read_document(str(path)) == DOCUMENT
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert stat.S_IMODE(path.stat().st_mode) & 0o444


def test_compressed_output_is_the_same_every_time(tmp_path):
    one, two = tmp_path / "a.json.gz", tmp_path / "folder" / "a.json.gz"
    two.parent.mkdir()
    for path in (one, two):
        files.write_json(str(path), DOCUMENT)
    assert one.read_bytes()[:8] == two.read_bytes()[:8]
    assert gzip.decompress(one.read_bytes()) == gzip.decompress(two.read_bytes())


def test_an_error_while_writing_names_its_file_and_leaves_the_older_one_and_nothing_else(tmp_path):
    path = tmp_path / "stats.json"
    path.write_text("older")

    def interrupted():
        with files.replacing(str(path)) as stream:
            stream.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space") as error:
        interrupted()
    assert error.value.filename == str(path)
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


def test_writing_through_a_link_replaces_what_it_points_to(tmp_path):
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("older")
    link.symlink_to(target)
    files.write_json(str(link), DOCUMENT)
    assert link.is_symlink()
    assert json.loads(target.read_text()) == DOCUMENT


def test_an_output_name_is_checked_before_any_work(tmp_path):
    (tmp_path / "folder.json").mkdir()
    files.check_output(str(tmp_path / "new.json.gz"), (".json",))
    files.check_output("/dev/null", (".json",))  # as there is one format
    tables = (".csv", ".parquet")
    for name, suffixes, message in (
        ("stats.xml", (".json",), "name that ends in .json (also with .gz), found '.xml'"),
        ("stats", (".json",), "found no suffix"),
        ("missing/stats.json", (".json",), "a folder that exists, found no such folder. Hint: cre"),
        ("folder.json", (".json",), "a file name, found a directory"),
        ("x.parquet.gz", tables, "Hint: Parquet is compressed by itself"),
        ("/dev/null", tables, "found no suffix"),
    ):
        assert message in refusal(files.check_output, str(tmp_path / name), suffixes), name


def test_yaml_numbers_are_those_of_json(tmp_path):
    for text, value in [
        ("1e-5", 1e-5),
        ("125e6", 125e6),
        ("-.5", -0.5),
        ("20_000", 20_000),
        ("0", 0),
        ("8:32:8", "8:32:8"),
        ("12abc", "12abc"),
        ("true", True),
    ]:
        path = tmp_path / "x.yaml"
        path.write_text(f"a: {text}")
        found = files.read_document(str(path))
        assert found == {"a": value}, value
        assert type(found["a"]) is type(value), value


def test_an_output_keeps_the_permissions_of_the_file_it_replaces(tmp_path):
    path = tmp_path / "stats.json"
    path.touch(0o600)
    files.write_json(str(path), DOCUMENT)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_a_killed_process_left_is_removed_at_the_next_write(tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    left = []
    for process, name in (
        (child.pid, "stats.json"),
        (os.getpid(), "stats.json"),
        (child.pid, "b.json"),
    ):
        left.append(tmp_path / f".{name}.{os.uname().nodename[:50]}-{process}.abc.part")
        left[-1].touch()
    files.write_json(str(tmp_path / "stats.json"), DOCUMENT)
    assert [path.exists() for path in left] == [False, True, True]


BIG = files.LARGEST_FILE + 1


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_a_file_is_not_read_beyond_its_bound(packed, tmp_path):
    path = tmp_path / ("big.json.gz" if packed else "big.json")
    if packed:
        path.write_bytes(gzip.compress(b" " * BIG, 1))
    else:
        with path.open("wb") as stream:
            stream.truncate(BIG)
    with pytest.raises(SpecError, match=r"at most 64 MiB, unpacked, found more\. Hint: "):
        files.read_document(str(path))


def test_standard_input_is_not_read_beyond_its_bound(monkeypatch):
    with open("/dev/zero", encoding="utf-8") as stream:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", stream)
        with pytest.raises(SpecError, match="<stdin>: expected at most 64 MiB"):
            files.read_document("-")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom", "/dev/null"])
def test_a_device_is_no_document(device):
    with pytest.raises(SpecError, match="a regular file or a pipe, found a device"):
        files.read_document(device)


@pytest.mark.parametrize("named", [True, False], ids=["named pipe", "process substitution"])
def test_a_pipe_is_read_to_its_end(named, tmp_path):
    if named:
        os.mkfifo(tmp_path / "pipe")
    inside, outside = (None, None) if named else os.pipe()

    def write():
        with (tmp_path / "pipe").open("wb") if named else os.fdopen(outside, "wb") as stream:
            stream.write(JSON)

    writer = threading.Thread(target=write)
    writer.start()
    path = str(tmp_path / "pipe") if named else f"/dev/fd/{inside}"
    assert files.read_document(path) == DOCUMENT
    writer.join()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(document=VALUES)
def test_it_says_the_same(document):
    assert json.loads(indented(document)) == document


def test_lists_of_plain_values_are_on_one_line():
    text = indented({"a": [1, None, "b, [c]"], "d": [[2, 3.5], []]})
    assert text.splitlines()[1:-1] == [
        '  "a": [1, null, "b, [c]"],',
        '  "d": [',
        "    [2, 3.5],",
        "    []",
        "  ]",
    ]
