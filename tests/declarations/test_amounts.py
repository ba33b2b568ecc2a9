"""Processors, tokens, lengths, batches, times and types of numbers as people write them."""

from fractions import Fraction

import pytest

from calculon.base.errors import SpecError
from calculon.declarations.execution import Execution
from calculon.declarations.fields import spec_fields
from calculon.declarations.spellings import (
    PRECISIONS,
    dollars,
    duration,
    global_batch,
    precision,
    sequence_length,
    tokens,
)
from calculon.declarations.spellings.processor_counts import processor_counts
from tests.helpers import refusal

K, M = 2**10, 2**20
DAY, HOUR = 24 * 3600, 3600


READ = {
    tokens: [
        ("15.6T", 156 * 10**11),
        ("15T tokens", 15 * 10**12),
        ("15 trillion", 15 * 10**12),
        ("300B", 300 * 10**9),
        ("300bn", 300 * 10**9),
        ("300 billion tokens", 300 * 10**9),
        ("300G", 300 * 10**9),
        ("4M", 4 * 10**6),
        ("500k", 500 * 10**3),
        ("2_000_000", 2 * 10**6),
        ("2,000,000", 2 * 10**6),
        ("1".zfill(80), 1),
        ("1000000T", 10**18),
    ],
    sequence_length: [
        ("8192", 8192),
        ("8,192", 8192),
        ("4k tokens", 4 * K),
        ("128k", 128 * K),
        ("0.5k", 512),
        ("1M", M),
    ],
    duration: [
        ("12h", 12 * HOUR),
        ("90min", 90 * 60),
        ("2 weeks", 14 * DAY),
        ("1 day and 12 hours", 36 * HOUR),
        ("30s", 30),
        ("1500 ms", 1.5),
    ],
    dollars: [
        ("$5M", 5e6),
        ("5 million dollars", 5e6),
        ("5,000,000 USD", 5e6),
        ("500k", 500e3),
        ("1e6", 1e6),
        ("0.5B usd", 0.5e9),
    ],
    processor_counts: [
        ("1024", (1024,)),
        ("512, 1024 ", (512, 1024)),
        ("512:4096:256", tuple(range(512, 4097, 256))),
        ("8:4096:x2", (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)),
        ("10:20:7", (10, 17)),
        ("8,8:32:8,16", (8, 16, 24, 32)),
        ("2147483647", (2147483647,)),
        ("1.5k", (1536,)),
        ("16_384", (16384,)),
        ("24-200", (24, 48, 96, 192)),
        ("1k-4k", (1024, 2048, 4096)),
        ("1k:2k:512", (1024, 1536, 2048)),
        ("8-8", (8,)),
    ],
}
"""Texts beyond the examples of the functions. Powers are of 1000 for tokens of a run and money, of 1024 for lengths."""


def test_amounts_are_read_as_people_write_them():
    for read, cases in READ.items():
        for text, expected in cases:
            assert read(text) == expected, (read, text)


def test_batches_are_given_in_sequences_or_in_tokens():
    for text, seq, expected in [
        ("512", 8192, 512),
        ("1,536", 2048, 1536),
        ("131072", 1, 2**17),
        ("131073seq", 1, 2**17 + 1),
        ("512seq", 8192, 512),
        ("1 sample", 8192, 1),
        ("2kseq", 8192, 2 * K),
        ("4M", 8192, 4 * M // 8192),
        ("4M tokens", 8192, 4 * M // 8192),
        ("0.5M", 1024, M // 2 // 1024),
        ("4194304 tokens", 8192, 4 * M // 8192),
        ("4e6 tokens", 8192, round(Fraction(4 * 10**6, 8192))),
        ("3.2M", 2048, round(Fraction(32 * M, 10 * 2048))),
    ]:
        batch = global_batch(text, seq)
        assert (batch.sequences, batch.tokens) == (expected, expected * seq)


def test_a_batch_says_both():
    assert global_batch("4M", 8192).words == "512 sequences = 4.19 M tokens"
    assert global_batch("1", 8192).words == "1 sequence = 8.19 k tokens"


def test_precisions():
    for word, texts in [
        ("bf16", ("bf16", "BF16", "bfloat16", "torch.bfloat16", "bf16-mixed", "amp_bf16")),
        ("fp16", ("fp16", "FP16", "half", "float16", "fp16-mixed")),
        ("fp32", ("fp32", "float32", "single", "full precision")),
        ("tf32", ("tf32", "TF32", "tfloat32")),
        ("fp8", ("fp8", "FP8", "float8", "fp8-hybrid", "amp_fp8")),
    ]:
        for text in texts:
            assert precision(text) == PRECISIONS[word], (word, texts)


def test_precisions_are_fields_of_executions_and_8_bits_are_never_stored():
    choices = {field.key: field.declaration.choices for field in spec_fields(Execution)}
    for fields in PRECISIONS.values():
        assert all(value in choices[name] for name, value in fields.items())
        assert fields["datatype"] != "float8"


def test_what_means_nothing_or_two_things_is_refused():
    for call, message in [
        (lambda: tokens("many"), "tokens: expected a number of tokens such as 15T"),
        (lambda: tokens("0"), "found '0'"),
        (lambda: tokens("1".zfill(81)), "expected a number of tokens"),
        (lambda: tokens("15X"), "Hint: letters are k, M, B, T: powers of 1000"),
        (lambda: tokens("-15T"), "found '-15T'"),
        (lambda: tokens("1e99T"), "Hint: the largest is"),
        (lambda: sequence_length("8B"), "seq: expected tokens of a sequence such as 8192, 8k"),
        (lambda: sequence_length("1.3k"), "Hint: it is not a whole number"),
        (lambda: global_batch("2k", 8192), "did you mean 2kseq (sequences) or 2ktok (tokens)?"),
        (lambda: global_batch("1.5", 8192), "not a whole number"),
        (lambda: global_batch("1k tokens", 8192), "at least one sequence of 8,192 tokens"),
        (lambda: global_batch("4X", 8192), "batch: expected a batch in sequences (512)"),
        (lambda: duration("60"), "Hint: add a unit: ms, s, min, h, d or w"),
        (lambda: duration("2h 60x"), "Hint: add a unit: ms, s, min, h, d or w"),
        (lambda: duration("0s"), "found '0s'"),
        (lambda: tokens("1000001T"), f"Hint: the largest is {10**18:,}"),
        (lambda: global_batch("131073", 1), "mean 131073tok (tokens) or 131073seq (sequences)?"),
        (lambda: duration("3m"), "m may be minutes (write min) or months"),
        (lambda: duration("soon"), "expected a time such as 60d"),
        (
            lambda: precision("fp2"),
            "fp8-blockwise, mxfp8, nvfp4, nvfp4-plain, found 'fp2'",
        ),
        (lambda: precision("bf17"), "did you mean 'bf16'?"),
    ]:
        assert message in refusal(call), call


def test_what_is_no_money_says_so():
    for text in ["", "M", "5 EUR", "-5M", "5MM", "five", "nan", "inf"]:
        with pytest.raises(SpecError, match="expected US dollars such as 5M"):
            dollars(text)


def test_what_is_no_count_of_processors_is_refused():
    for text, message in [
        ("", "num_procs: expected counts such as 512,1024 or an inclusive range"),
        ("many", "found 'many'"),
        ("8,,16", "found '' in '8,,16'"),
        ("1:2:3:4", "found '1:2:3:4'"),
        ("-8", "found '-8'"),
        ("8 16", "found '8 16'. Hint: write 8,16"),
        ("8 : 16", "Hint: write 8:16"),
        ("512,1k 2048", "found '1k 2048' in '512,1k 2048'. Hint: write 512,1k,2048"),
        ("8 - 16", "Hint: write 8-16"),
        ("8..16", "Hint: write 8-16"),
        ("1,024", "Hint: commas separate counts; write 1024"),
        ("64 GPUs", "Hint: state only the number of processors: 64"),
        ("8xH100", "Hint: state only the number of processors: 8"),
        ("2048-512", "expected a range that ascends, found '2048-512'. Hint: write 512-2048"),
        ("1.3k", "expected whole numbers from 1 to 2147483647, found 1.3k"),
        ("1e3", "found '1e3'. Hint: write 1000"),
        ("1.5e2", "Hint: write 150"),
        ("8,1e9", "found '1e9' in '8,1e9'. Hint: write 1000000000"),
        ("128x8", "found '128x8'. Hint: write 1024"),
        ("٨", "found '٨'"),
        ("0", "expected whole numbers from 1 to 2147483647, found 0 in '0'"),
        ("2147483648", "found 2147483648"),
        ("4096:8:x2", "expected a range that ascends, found '4096:8:x2'. Hint: write 8:4096:x2"),
        ("8:4096:0", "expected a step of at least 1, found '8:4096:0'"),
        ("8:4096:x1", "expected a factor of at least 2 after x, found '8:4096:x1'"),
        ("1:2000000000", "expected at most 100,000 counts"),
    ]:
        assert message in refusal(processor_counts, text), text


def test_a_message_names_the_argument_of_counts():
    with pytest.raises(SpecError, match=r"^NUM_PROCS: "):
        processor_counts("x", "NUM_PROCS")
