"""Files of measurements: what is read, and one clear message for what cannot be."""

import pytest

from calculon import inputs
from calculon.base.errors import SpecError
from calculon.calibrate.readers import (
    TOO_FAST,
    CollectiveOptions,
    is_log,
    read_collectives,
    read_gemm,
    read_memory,
)
from tests.calibrate.measured import calibrated
from tests.helpers import document, refusal

H100 = inputs.system("h100_80g_sxm")
HEAD, PRODUCTS = "operation,bytes,members,seconds\n", "m,n,k,datatype,seconds\n"

LOG = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid  71 on       node device  0 [0x1b] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  71 on       node device  1 [0x43] NVIDIA H100 80GB HBM3
NCCL version 2.21.5+cuda12.4
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           0             0     float     sum      -1     0.10    0.00    0.00      0     0.10    0.00    0.00      0
        1024           256     float     sum      -1    13.67    0.00    0.00      0    13.03    0.00    0.00      0
     1048576        262144     float     sum      -1    27.37   38.31   38.31      0    26.93   38.94   38.94    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 19.2
#
# Collective test concluded: all_reduce_perf
"""


@pytest.fixture
def file(tmp_path):
    def write(text, name="x.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def volume(operation, size, members):
    scalar = document("systems", "h100_80g_sxm")["networks"][0]["ops"][operation]
    return size * scalar[0] * (1 + (scalar[1] or 0) / members)


def refused(path, message, read=read_collectives, **options):
    """Check that a file is refused with one problem, which names the file."""
    with pytest.raises(SpecError) as caught:
        read(path, H100, **options)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert len(caught.value.problems) == 1


def test_a_csv_is_read_with_its_places(file):
    text = "\ufeff# mine\n operation , bytes,members,seconds,source,extra\n\nall_gather,4096,4,2e-5,lab,7\n"
    path = file(text)
    (row,), told = read_collectives(path, H100)
    assert (row.part, row.seconds, row.message, row.group) == ("networks[0]", 2e-5, 4096, "2^12")
    assert row.size == pytest.approx(volume("all_gather", 4096, 4))
    assert (row.file, row.place) == (path, "line 4")
    assert told == {"source": "lab"}


@pytest.mark.parametrize(
    ("operation", "members", "factor"),
    [
        ("all_reduce", 8, 2 * 7 / 8),
        ("all_gather", 4, 3 / 4),
        ("reduce_scatter", 4, 3 / 4),
        ("p2p", 2, 1),
    ],
)
def test_bus_bandwidth_stands_for_seconds(file, operation, members, factor):
    path = file(f"operation,bytes,members,busbw\n{operation},1000000,{members},125.5\n")
    (row,), _ = read_collectives(path, H100)
    assert row.seconds == pytest.approx(1e6 * factor / 125.5e9)
    assert row.column == "busbw"


def test_seconds_come_before_bus_bandwidth(file):
    head = "operation,bytes,members,seconds,busbw\n"
    rows = (
        "all_reduce,1024,2,1e-5,0.00\nall_reduce,1000000,2,2e-5,50.01\nall_reduce,2000000,2,,40\n"
    )
    found, _ = read_collectives(file(head + rows), H100)
    assert [row.seconds for row in found] == pytest.approx([1e-5, 2e-5, 5e-5])
    assert [row.column for row in found] == ["seconds", "seconds", "busbw"]


def test_bad_bus_bandwidth_is_one_message(file):
    for row, message in [
        ("2e-5,60", "line 2, busbw: expected about 50, the GB/s of 2e-05 s, found '60'"),
        ("2e-5,0.05", "busbw is in GB/s as nccl-tests prints it"),
        (",", "line 2, seconds: expected a number above 0, found ''"),
        (",-1", "line 2, busbw: expected a number above 0, found '-1'"),
        (",N/A", "line 2, busbw: expected a number above 0, found 'N/A'"),
    ]:
        refused(file(f"{HEAD[:-1]},busbw\nall_reduce,1000000,2,{row}\n"), message)


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (1e9, ", busbw: expected at most 1.05 times the peak"),
        (8, "GB/s are expected"),
        (1e-3, "not TB/s"),
    ],
    ids=["B/s", "Gb/s", "TB/s"],
)
def test_bus_bandwidth_in_another_unit_is_refused(file, factor, message):
    rows = "".join(f"all_gather,{2**i},8,{300 * factor!r}\n" for i in range(20, 34))
    read = read_collectives(file("operation,bytes,members,busbw\n" + rows), H100)
    assert message in refusal(fit, read)


def test_a_log_is_read(file):
    assert is_log(LOG)
    assert not is_log(HEAD)
    (small, large), told = read_collectives(file(LOG), H100)
    assert [small.message, large.message] == [1024, 1048576]
    assert [small.seconds, large.seconds] == pytest.approx([13.67e-6, 27.37e-6])
    assert large.size == pytest.approx(volume("all_reduce", 1048576, 2))
    assert large.place == "line 13"
    assert told == {"device": "NVIDIA H100 80GB HBM3"}


def test_what_a_log_does_not_say_is_said_beside_it(file):
    bare = "\n".join(
        line for line in LOG.splitlines() if "Rank" not in line and "_perf" not in line
    )
    with pytest.raises(SpecError, match=r"the name of the program.*--operation"):
        read_collectives(file(bare), H100)
    with pytest.raises(SpecError, match=r"each member, at least 2, found none.*--members N"):
        read_collectives(file(bare), H100, CollectiveOptions("all_gather"))
    rows, told = read_collectives(file(bare), H100, CollectiveOptions("all_gather", 4))
    assert rows[1].size == pytest.approx(volume("all_gather", 1048576, 4))
    assert told == {}


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (
            CollectiveOptions("all_gather"),
            "line 2, operation: expected all_gather, as --operation says",
        ),
        (CollectiveOptions(members=4), "line 2, members: expected 4, as --members says, found '8'"),
    ],
)
def test_what_is_said_beside_a_csv_must_not_contradict_it(file, known, message):
    path = file("operation,bytes,members,seconds\nall_reduce,1048576,8,0.001\n")
    assert read_collectives(path, H100, CollectiveOptions("all_reduce", 8)) == read_collectives(
        path, H100
    )
    refused(path, message, known=known)


def test_a_bad_log_is_one_message(file):
    for old, new, message in [
        (
            LOG[LOG.index("   26.93") :],
            "",
            "line 13: expected 13 columns, as in the header, found 9",
        ),
        (LOG[LOG.index("#       size") :], "", "is the log cut short?"),
        (LOG[LOG.index("# Out of") :], "", "closing line '# Avg bus bandwidth', found the end of"),
        (
            "27.37   38.31   38.31      0",
            "27.37   38.31   38.31      3",
            "line 13, #wrong: expected 0",
        ),
        ("27.37", "nan", "line 13, time: expected a number above 0, found 'nan'"),
        ("all_reduce_perf", "broadcast_perf", "found broadcast_perf"),
        (
            LOG[LOG.index("           0 ") : LOG.index("# Out")],
            "",
            "expected rows below the header",
        ),
        (
            "# Out of",
            LOG[LOG.index("#       size") :] + "# Out of",
            "expected one table, found a second table",
        ),
    ]:
        assert old in LOG, (old, new)
        refused(file(LOG.replace(old, new, 1), "x.log"), message)


def test_bad_collectives_are_one_message(file):
    for text, message in [
        ("", "a CSV with the columns operation, bytes, members, seconds or busbw, found nothing"),
        (HEAD, "found no rows"),
        ("operation,bytes,member,seconds\n", "line 1: expected a header with the columns"),
        ("operation,bytes,members,time_us\nx,1,2,3\n", "found no column seconds or busbw"),
        (
            "operation,bytes,members,seconds,bytes\n",
            "line 1: expected each column once, found bytes",
        ),
        (HEAD + "all_reduce,1024,8\n", "line 2: expected 4 columns, as in the header, found 3"),
        (HEAD + "all_reduce,1024,8,0\n", "line 2, seconds: expected a number above 0, found '0'"),
        (HEAD + "all_reduce,1024,8,inf\n", "line 2, seconds: expected a number above 0"),
        (
            HEAD + "all_reduce,1 KiB,8,1e-5\n",
            "line 2, bytes: expected a number above 0, found '1 KiB'",
        ),
        (HEAD + "all_reduce,1024,1,1e-5\n", "members: expected a whole number of at least 2"),
        (HEAD + "all_reduce,1024,8.5,1e-5\n", "line 2, members: expected a whole number"),
        (HEAD + "all_reduce,1024,99999,1e-5\n", "line 2, members: expected at most 65536 members"),
        (HEAD + "allreduce,1024,8,1e-5\n", "line 2, operation: expected one of all_reduce,"),
        (b"\xff\xfe\x00", "expected a text file"),
    ]:
        refused(file(text), message)


def test_bad_products_and_copies_are_one_message(file):
    for read, text, message in [
        (read_gemm, PRODUCTS + "1,2,3,bf16,1\n", "line 2, datatype: expected a datatype of"),
        (read_gemm, PRODUCTS + "1,0,3,float16,1\n", "line 2, n: expected a whole number"),
        (read_gemm, "m,n,datatype,seconds\n", "found no column k"),
        (read_memory, "bytes,seconds,tier\n1,2,3\n", "line 2, tier: expected 1 or 2, found 3"),
        (read_memory, "bytes,us\n1,2\n", "found no column seconds"),
        (read_memory, "bytes,seconds\n0.5,2\n", "line 2, bytes: expected whole bytes, not KiB"),
    ]:
        refused(file(text), message, read)


def test_products_and_copies_are_read(file):
    text = "16,1024,512,bfloat16,1e-5\n8,1024,512,float8,1e-5\n"
    (first, second), _ = read_gemm(file(PRODUCTS + text), H100)
    assert (first.part, second.part) == ("matrix.bfloat16", "matrix.float8")
    assert first.size == 2 * 16 * 1024 * 512
    assert first.group == second.group == "n=1024 k=512"
    (one, two), _ = read_memory(file("bytes,seconds,tier\n5000,1e-6,\n5000,1e-6,2\n"), H100)
    assert (one.part, two.part, one.size, one.group) == ("mem1", "mem2", 5000, "2^12")


def fit(read, hold_out=0.0):
    return calibrated(document("systems", "h100_80g_sxm"), *read, hold_out=hold_out)


BANDWIDTH = H100.networks[0].bandwidth
SIZES = [2**i for i in range(10, 34)]


def timed(share, sizes=SIZES, members=8):
    rows = [(s, volume("all_gather", s, members) / (BANDWIDTH * share)) for s in sizes]
    return HEAD + "".join(f"all_gather,{s},{members},{t!r}\n" for s, t in rows)


def test_times_faster_than_the_link_are_refused(file):
    for share in (1.0, 0.999 * TOO_FAST):
        found = fit(read_collectives(file(timed(share)), H100))
        assert found.document["networks"][0]["efficiency"] == pytest.approx(1)
    message = ", seconds: expected at most 1.05 times the peak of networks[0], 450 GB/s"
    assert message in refusal(fit, read_collectives(file(timed(1.001 * TOO_FAST)), H100))


def test_products_faster_than_the_peak_are_refused(file):
    seconds = 2 * 4096**3 / (989e12 * 1.06)
    text = f"{PRODUCTS}4096,4096,4096,bfloat16,{seconds!r}\n"
    with pytest.raises(
        SpecError, match=r"line 2, seconds: .* peak of matrix.bfloat16, 9.89e\+05 GFLOP/s"
    ):
        fit(read_gemm(file(text), H100))


def test_one_measurement_is_in_one_group(file):
    text = "bytes,seconds,group\n1e6,1e-6,a\n1e6,1e-6,b\n"
    with pytest.raises(
        SpecError, match=r"line 3, group: expected one group for .*, found 'a' and 'b'"
    ):
        fit(read_memory(file(text), H100))


def test_rows_that_contradict_each_other_are_refused(file):
    message = "line 26, seconds: expected about the same time for each all_gather"
    with pytest.raises(SpecError, match=message):
        fit(read_collectives(file(timed(0.8) + "all_gather,1024,8,1.0\n"), H100))
