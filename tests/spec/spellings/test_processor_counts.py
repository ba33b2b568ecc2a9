"""Processor counts as people write them."""

import pytest

from calculon.errors import SpecError
from calculon.spec.spellings.processor_counts import processor_counts


def test_reads():
    for text, counts in [
        ("1024", (1024,)),
        ("512,1024", (512, 1024)),
        ("1024,512", (1024, 512)),
        ("512, 1024 ", (512, 1024)),
        ("512:4096:256", tuple(range(512, 4097, 256))),
        ("8:4096:x2", (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)),
        ("3:8", (3, 4, 5, 6, 7, 8)),
        ("10:20:7", (10, 17)),
        ("8:8:8", (8,)),
        ("8,8:32:8,16", (8, 16, 24, 32)),
        ("2147483647", (2147483647,)),
        ("1k", (1024,)),
        ("1K", (1024,)),
        ("1.5k", (1536,)),
        ("16_384", (16384,)),
        ("64,1k", (64, 1024)),
        ("512-2048", (512, 1024, 2048)),
        ("512-3000", (512, 1024, 2048)),
        ("24-200", (24, 48, 96, 192)),
        ("1k-4k", (1024, 2048, 4096)),
        ("1k:2k:512", (1024, 1536, 2048)),
        ("8-8", (8,)),
    ]:
        assert processor_counts(text) == counts


def test_refuses():
    for text, message in [
        ("", "num_procs: expected counts such as 512,1024 or an inclusive range"),
        ("many", "found 'many'"),
        ("8,,16", "found '' in '8,,16'"),
        ("8:", "found '8:'"),
        ("1:2:3:4", "found '1:2:3:4'"),
        ("-8", "found '-8'"),
        ("8 16", "found '8 16'. Hint: write 8,16"),
        ("8 : 16", "Hint: write 8:16"),
        ("512,1k 2048", "found '1k 2048' in '512,1k 2048'. Hint: write 512,1k,2048"),
        ("8 - 16", "Hint: write 8-16"),
        ("8..16", "Hint: write 8-16"),
        ("1,024", "Hint: commas separate counts; write 1024"),
        ("64 GPUs", "Hint: the processors alone: 64"),
        ("8xH100", "Hint: the processors alone: 8"),
        ("2048-512", "expected a range that ascends, found '2048-512'. Hint: write 512-2048"),
        ("1.3k", "expected whole numbers from 1 to 2147483647, found 1.3k"),
        ("8M", "found '8M'"),
        ("1e3", "found '1e3'"),
        ("8.5", "found '8.5'"),
        ("٨", "found '٨'"),
        ("0", "expected whole numbers from 1 to 2147483647, found 0 in '0'"),
        ("2147483648", "found 2147483648"),
        ("4096:8:x2", "expected a range that ascends, found '4096:8:x2'. Hint: write 8:4096:x2"),
        ("8:4096:0", "expected a step of at least 1, found '8:4096:0'"),
        ("8:4096:x1", "expected a factor of at least 2 after x, found '8:4096:x1'"),
        ("1:2000000000", "expected at most 100,000 counts"),
    ]:
        with pytest.raises(SpecError) as error:
            processor_counts(text)
        assert message in str(error.value), text


def test_a_message_names_the_argument():
    with pytest.raises(SpecError, match=r"^NUM_PROCS: "):
        processor_counts("x", "NUM_PROCS")
