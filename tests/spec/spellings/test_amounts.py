"""Tokens, lengths, batches, times and types of numbers as people write them."""

from fractions import Fraction

import pytest

from calculon.errors import SpecError
from calculon.spec.execution import Execution
from calculon.spec.fields import spec_fields
from calculon.spec.spellings import (
    PRECISIONS,
    dollars,
    duration,
    global_batch,
    precision,
    sequence_length,
    tokens,
)

K, M = 2**10, 2**20
DAY, HOUR = 24 * 3600, 3600


def test_tokens_of_a_run_are_counted_in_powers_of_1000():
    for text, expected in [
        ("15T", 15 * 10**12),
        ("15t", 15 * 10**12),
        ("15.6T", 156 * 10**11),
        ("15 T", 15 * 10**12),
        ("15T tokens", 15 * 10**12),
        ("15 trillion", 15 * 10**12),
        ("1.4 trillion tokens", 14 * 10**11),
        ("300B", 300 * 10**9),
        ("300bn", 300 * 10**9),
        ("300 billion tokens", 300 * 10**9),
        ("300G", 300 * 10**9),
        ("1e12", 10**12),
        ("3e11", 3 * 10**11),
        ("4M", 4 * 10**6),
        ("500k", 500 * 10**3),
        ("2_000_000", 2 * 10**6),
        ("2,000,000", 2 * 10**6),
        ("2000000", 2 * 10**6),
    ]:
        assert tokens(text) == expected


def test_lengths_of_sequences_are_counted_in_powers_of_1024():
    for text, expected in [
        ("8192", 8192),
        ("8,192", 8192),
        ("8_192", 8192),
        ("8k", 8 * K),
        ("8K", 8 * K),
        ("4k tokens", 4 * K),
        ("32k", 32 * K),
        ("128k", 128 * K),
        ("0.5k", 512),
        ("1M", M),
    ]:
        assert sequence_length(text) == expected


def test_batches_are_given_in_sequences_or_in_tokens():
    for text, seq, expected in [
        ("512", 8192, 512),
        ("1,536", 2048, 1536),
        ("512seq", 8192, 512),
        ("512 sequences", 8192, 512),
        ("1 sample", 8192, 1),
        ("2kseq", 8192, 2 * K),
        ("4M", 8192, 4 * M // 8192),
        ("4M tokens", 8192, 4 * M // 8192),
        ("16Mtok", 8192, 16 * M // 8192),
        ("0.5M", 1024, M // 2 // 1024),
        ("512k tokens", 2048, 512 * K // 2048),
        ("4194304 tokens", 8192, 4 * M // 8192),
        ("4e6 tokens", 8192, round(Fraction(4 * 10**6, 8192))),
        ("3.2M", 2048, round(Fraction(32 * M, 10 * 2048))),
    ]:
        batch = global_batch(text, seq)
        assert (batch.sequences, batch.tokens) == (expected, expected * seq)


def test_a_batch_says_both():
    assert global_batch("4M", 8192).words == "512 sequences = 4.19 M tokens"
    assert global_batch("1", 8192).words == "1 sequence = 8.19 k tokens"


def test_times():
    for text, expected in [
        ("60d", 60 * DAY),
        ("60 days", 60 * DAY),
        ("12h", 12 * HOUR),
        ("1.5 h", 1.5 * HOUR),
        ("90min", 90 * 60),
        ("2w", 14 * DAY),
        ("2 weeks", 14 * DAY),
        ("1d12h", 36 * HOUR),
        ("1 day and 12 hours", 36 * HOUR),
        ("30s", 30),
    ]:
        assert duration(text) == expected


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
        (lambda: tokens("15X"), "Hint: letters are k, M, B, T: powers of 1000"),
        (lambda: tokens("0.5"), "found '0.5'"),
        (lambda: tokens("-15T"), "found '-15T'"),
        (lambda: tokens("1e99T"), "Hint: the largest is"),
        (lambda: sequence_length("8B"), "seq: expected tokens of a sequence such as 8192, 8k"),
        (lambda: sequence_length("1.3k"), "Hint: it is no whole number"),
        (lambda: sequence_length("9999M"), "Hint: the largest is"),
        (lambda: global_batch("2k", 8192), "did you mean 2kseq (sequences) or 2ktok (tokens)?"),
        (lambda: global_batch("1.5", 8192), "no whole number"),
        (lambda: global_batch("1k tokens", 8192), "at least one sequence of 8,192 tokens"),
        (lambda: global_batch("4X", 8192), "batch: expected a batch in sequences (512)"),
        (lambda: duration("60"), "Hint: say the unit: ms, s, min, h, d or w"),
        (lambda: duration("3m"), "m may be minutes (write min) or months"),
        (lambda: duration("0d"), "found '0d'"),
        (lambda: duration("soon"), "expected a time such as 60d"),
        (
            lambda: precision("fp2"),
            "expected one of bf16, fp16, fp32, tf32, fp8, fp8-tensorwise, fp8-blockwise, mxfp8, nvfp4, found 'fp2'",
        ),
        (lambda: precision("bf17"), "did you mean 'bf16'?"),
    ]:
        with pytest.raises(SpecError) as error:
            call()
        assert message in str(error.value), call


def test_money_is_counted_in_powers_of_1000():
    for text, expected in [
        ("5M", 5e6),
        ("$5M", 5e6),
        ("5 million dollars", 5e6),
        ("5,000,000 USD", 5e6),
        ("500k", 500e3),
        ("2.50", 2.5),
        ("1e6", 1e6),
        ("0.5B usd", 0.5e9),
    ]:
        assert dollars(text) == expected


def test_what_is_no_money_says_so():
    for text in ["", "M", "5 EUR", "-5M", "5MM", "five", "nan", "inf"]:
        with pytest.raises(SpecError, match="expected US dollars such as 5M"):
            dollars(text)
