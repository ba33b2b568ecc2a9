"""Parse amounts: tokens (``15T``), lengths (``8k``), batches (``4M``), times (``60d``), US dollars."""

import math
import re
from fractions import Fraction

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import scaled
from calculon.declarations.fields import LARGEST_INTEGER, shown

_NUMBER = re.compile(
    r"(?P<number>\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*)(?P<point>\.\d+)?(?P<power>[eE]\+?\d{1,2})?\s*(?P<unit>[A-Za-z].*)?"
)
_LONGEST = 80  # characters of a number

MAX_TOKENS = 10**18
"""Most tokens of a training run: ten thousand times the largest so far."""

_THOUSANDS = {
    **dict.fromkeys(("k", "thousand"), 10**3),
    **dict.fromkeys(("m", "million", "mn"), 10**6),
    **dict.fromkeys(("b", "g", "billion", "bn"), 10**9),
    **dict.fromkeys(("t", "trillion", "tn"), 10**12),
}
"""Factors for training tokens and money, counted in powers of 1000."""

_POWERS = {"k": 2**10, "m": 2**20}
"""Factors for lengths and for tokens of a batch, in practice powers of two: 4M are 4,194,304."""

_SECONDS: dict[str, Fraction | int] = {
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), Fraction(1, 1000)),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86400),
    **dict.fromkeys(("w", "wk", "week", "weeks"), 7 * 86400),
}

_MAX_SEQUENCES = 2**17
"""Most sequences of a batch given as a bare number; no published run has more."""

_TOKENS = ("tokens", "token", "toks", "tok")
_DOLLARS = ("usdollars", "usdollar", "dollars", "dollar", "usd", "us$", "$")
_SEQUENCES = ("sequences", "sequence", "samples", "sample", "seqs", "seq")


@dataclass(frozen=True, slots=True)
class GlobalBatch:
    """Global batch: number of sequences, and their length in tokens."""

    sequences: int
    seq_size: int

    @property
    def tokens(self) -> int:
        """Tokens of the batch."""
        return self.sequences * self.seq_size

    @property
    def words(self) -> str:
        """The batch in sequences and in tokens.

        >>> GlobalBatch(512, 8192).words
        '512 sequences = 4.19 M tokens'
        """
        many = "" if self.sequences == 1 else "s"
        return f"{self.sequences:,} sequence{many} = {scaled(self.tokens, digits=2)} tokens"


def tokens(text: str, name: str = "tokens") -> int:
    """Return the tokens of a training run: ``15T``, ``15.6T``, ``300B``, ``1e12``, ``2_000_000``.

    k, M, B (or G) and T are powers of 1000, in either case; the word "tokens" may follow.

    Raises:
        SpecError: For anything else, and for less than one token.

    Examples:
        >>> tokens("15T"), tokens("15.6 trillion tokens"), tokens("1e12")
        (15000000000000, 15600000000000, 1000000000000)
    """
    wanted = "a number of tokens such as 15T, 300B or 1e12"
    number, unit = _number_and_unit(text, name, wanted)
    unit = _without(unit, _TOKENS)
    if unit and unit not in _THOUSANDS:
        raise _refused(text, name, wanted, "letters are k, M, B, T: powers of 1000")
    return _whole(number * _THOUSANDS.get(unit, 1), text, name, wanted, MAX_TOKENS)


def sequence_length(text: str, name: str = "seq") -> int:
    """Return the sequence length in tokens of ``8192``, ``8k``, ``128k``, ``1M``; k and M are powers of 1024.

    Raises:
        SpecError: For anything else.

    Examples:
        >>> sequence_length("8k"), sequence_length("128K"), sequence_length("4096")
        (8192, 131072, 4096)
    """
    wanted = "tokens of a sequence such as 8192, 8k or 128k (k: 1024)"
    number, unit = _number_and_unit(text, name, wanted)
    unit = _without(unit, _TOKENS)
    if unit and unit not in _POWERS:
        raise _refused(text, name, wanted)
    return _whole(number * _POWERS.get(unit, 1), text, name, wanted, LARGEST_INTEGER)


def probability(text: str, name: str) -> float:
    """Return a probability: ``10%``, ``0.1``. A bare ``1`` is ambiguous (1 % or 100 %) and refused.

    Raises:
        SpecError: For anything else.

    Examples:
        >>> probability("10%", "risk"), probability("0.5", "risk")
        (0.1, 0.5)
    """
    wanted = "a probability such as 10% or 0.1"
    number, percent = text.strip().removesuffix("%").rstrip(), "%" in text
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        hint = f"write {number}%" if not percent and 1 < value <= 100 else ""
        raise _refused(text, name, wanted, hint)
    if value == 1 and not percent:
        raise _refused(text, name, wanted, "write 1% or 100%")
    return value


def global_batch(text: str, seq_size: int, name: str = "batch") -> GlobalBatch:
    """Return a global batch given in sequences or in tokens.

    A bare number counts sequences, and so do ``512seq`` and ``1kseq``. ``M``, and ``k`` before "tokens", count tokens
    in powers of 1024, since batches in tokens are powers of two in practice: 4M with sequences of 8,192 are 512
    sequences. Tokens are rounded to whole sequences. A bare ``k`` is ambiguous and refused.

    Args:
        text: User text.
        seq_size: Tokens of a sequence.
        name: Name of the argument, for messages.

    Raises:
        SpecError: For anything else, and for less than half a sequence.

    Examples:
        >>> global_batch("512", 8192).tokens, global_batch("4M", 8192).sequences
        (4194304, 512)
        >>> global_batch("16Mtok", 8192).words
        '2,048 sequences = 16.78 M tokens'
    """
    wanted = "a batch in sequences (512) or in tokens (4M, 512k tokens)"
    number, unit = _number_and_unit(text, name, wanted)
    in_tokens, in_sequences = _without(unit, _TOKENS), _without(unit, _SEQUENCES)
    # 512k could be 512 thousand sequences or 512 Ki tokens: a factor of the sequence length.
    if unit == "k":
        one, other = f"{text.strip()}seq", f"{text.strip()}tok"
        hint = f"did you mean {one} (sequences) or {other} (tokens)?"
        raise _refused(text, name, wanted, hint)
    if in_sequences != unit or not unit:
        factor = _POWERS.get(in_sequences, 0 if in_sequences else 1)
        sequences = number * factor
    else:
        factor = _POWERS.get(in_tokens, 0 if in_tokens else 1)
        sequences = Fraction(round(number * factor / seq_size))
    if not factor:
        raise _refused(text, name, wanted)
    if not unit and sequences > _MAX_SEQUENCES:  # probably meant as tokens
        hint = f"did you mean {text.strip()}tok (tokens) or {text.strip()}seq (sequences)?"
        raise _refused(text, name, wanted, hint)
    if sequences < 1:
        wanted = f"a batch of at least one sequence of {seq_size:,} tokens"
    return GlobalBatch(_whole(sequences, text, name, wanted, LARGEST_INTEGER), seq_size)


def duration(
    text: str,
    name: str = "time",
    *,
    zero: bool = False,
    examples: str = "60d, 12h or 90min",
) -> float:
    """Return the seconds of a time: ``60d``, ``12h``, ``90 min``, ``1d 12h``; zero only if `zero` is set.

    Error messages show the `examples`.

    Raises:
        SpecError: For anything else; ``m`` may be minutes or months.

    Examples:
        >>> duration("60d"), duration("1d12h"), duration("90 min")
        (5184000.0, 129600.0, 5400.0)
    """
    wanted = f"a time such as {examples}"
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", text[:_LONGEST])
    rest = re.sub(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)|[\s,]|and", "", text)
    if not parts or rest or any(unit.lower() not in _SECONDS for _, unit in parts):
        unknown = any(unit.lower() not in _SECONDS for _, unit in parts)
        hint = "add a unit: ms, s, min, h, d or w" if unknown or not parts else ""
        # Minutes and months differ by a factor of 43,200.
        if any(unit in ("m", "M") for _, unit in parts):
            hint = "m may be minutes (write min) or months (write days: 30d)"
        raise _refused(text, name, wanted, hint)
    seconds = sum(Fraction(number) * _SECONDS[unit.lower()] for number, unit in parts)
    # Fractions keep sums such as 0.1d + 0.2d exact until the conversion below.
    if not (seconds or zero):
        raise _refused(text, name, wanted)
    return float(seconds)


def dollars(text: str, name: str = "money") -> float:
    """Return US dollars: ``5M``, ``$5.5M``, ``500k``, ``5,000,000 USD``; letters are powers of 1000, as for tokens.

    Raises:
        SpecError: For anything else.

    Examples:
        >>> dollars("5M"), dollars("$2.50"), dollars("500k USD")
        (5000000.0, 2.5, 500000.0)
    """
    wanted = "US dollars such as 5M, 500k or 2.50"
    number, unit = _number_and_unit(text.strip().removeprefix("$"), name, wanted)
    unit = _without(unit, _DOLLARS)
    if unit and unit not in _THOUSANDS:
        raise _refused(text, name, wanted, "letters are k, M, B, T: powers of 1000")
    return float(number * _THOUSANDS.get(unit, 1))


def _number_and_unit(text: str, name: str, wanted: str) -> tuple[Fraction, str]:
    """Return a number and the unit after it, in lower case and without blanks."""
    match = _NUMBER.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if match is None or not text.isascii():
        raise _refused(text, name, wanted)
    digits = re.sub("[,_]", "", match["number"])
    number = Fraction(digits + (match["point"] or "") + (match["power"] or ""))
    return number, re.sub(r"[\s_-]", "", match["unit"] or "").lower()


def _without(unit: str, words: tuple[str, ...]) -> str:
    """Return a unit without a trailing word, if it ends with one of the words."""
    return next((unit.removesuffix(word) for word in words if unit.endswith(word)), unit)


def _whole(number: Fraction, text: str, name: str, wanted: str, most: int) -> int:
    """Return a whole number above 0."""
    if number < 1 or number.denominator != 1:
        raise _refused(text, name, wanted, "" if number < 1 else "it is not a whole number")
    if number > most:
        raise _refused(text, name, wanted, f"the largest is {most:,}")
    return int(number)


def _refused(text: str, name: str, wanted: str, hint: str = "") -> SpecError:
    return SpecError(name, Problem("", wanted, shown(text), hint))
