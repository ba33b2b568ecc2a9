"""Resolve user spellings of catalog names: ``llama-3.1-70b``, ``meta-llama/Llama-3.1-70B-Instruct``, ``H100 SXM``.

A file lists further names of itself under ``about.aliases``: a list of texts, or an object with a reason for each. An
alias that two files list is ambiguous. It resolves to the usual one of them: the system that lists, under
``about.usual``, words for the other systems of its family. Without a usual one the alias is refused.

Names of models are compared without case and separators, without the organization of a repository, and without suffixes
for fine-tuned models of the same shape; a point between digits counts. Names of systems are compared as sets of words,
in any order; words of its name and its memory size may be added to an alias: the system with the alias ``h100`` also
matches ``h100-80gb``. Files of the published tool match only by exact name if there is a more complete file: this
applies to every system without aliases, and to every model NAME for which NAME-hf exists.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from itertools import chain, islice
from pathlib import Path

from calculon.base.errors import SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.declarations.files import read_document

ORGANISATIONS = (
    *("meta-llama", "qwen", "mistralai", "google", "microsoft", "nvidia", "openai", "allenai"),
    *("openai-community", "tiiuae", "bigscience", "mosaicml", "facebook", "unsloth"),
    *("nousresearch", "eleutherai", "huggyllama", "deepmind", "anthropic", "databricks"),
    *("ibm-granite", "xai-org", "minimaxai", "deepseek-ai", "zai-org", "moonshotai"),
    *("01-ai", "huggingfacetb", "tinyllama", "bigcode", "coherelabs", "lgai-exaone"),
    *("bytedance-seed", "baidu", "inclusionai", "tencent", "rednote-hilab", "codellama"),
)
"""Owners of repositories that may prefix a model name."""

_TUNED = frozenset(("instruct", "chat", "it", "pt", "base", "hf", "pretrained", "thinking"))
"""Suffixes of model names that do not change the shape of the model."""

_RELEASE = re.compile(r"v0\.[12]|2[3-9](?:0[1-9]|1[0-2])")
"""Last words that name a release of the same shape: ``v0.2``, or year and month (``2507``)."""

_UNSTATED = {
    "turing-530B": ("mt-nlg", "mt-nlg-530b", "megatron-turing-530b", "megatron-turing-nlg-530b"),
    "megatron-1T": ("megatron-gpt-1t", "megatron-lm-1t"),
    "chinchilla": ("chinchilla-70b",),
    "gopher-280B": ("gopher",),
    "lamda": ("lamda-137b",),
}
"""Aliases of models of the published tool, whose files are unmodified and list none."""

_VENDORS = frozenset(
    ("nvidia", "amd", "intel", "google", "aws", "amazon", "geforce", "tesla", "instinct", "habana")
) | {"cloud", "gpu", "gpus", "accelerator", "accelerators", "tensor", "core", "generation"}
"""Words in system names that do not distinguish systems."""

_PROCESSOR = re.compile(r"([a-z]+)(\d+)")
"""Letters and number of a processor name."""

_VERSION = re.compile(r"\d+(?:\.\d+)?")
"""Version of a model; a size has a letter, too."""

_MAX_NEAR = 10  # a family of models
_MIN_WORD = 3  # letters of a meaningful prefix
_ALIKE = 0.8  # similarity of difflib: one letter of five may differ
_LIKE_PROCESSOR = 0.6  # one digit of three may differ
_MAX_SPLITS = 32
_LONGEST = 100  # characters of a name


@dataclass(frozen=True, slots=True)
class Meaning:
    """Meaning of a text: one catalog name, several, or none with similar names."""

    names: tuple[str, ...]
    near: tuple[str, ...] = ()

    @property
    def hint(self) -> str:
        """Question that offers the names, or else similar names; empty without any."""
        *some, last = self.names or self.near or ("",)
        listed = f"{', '.join(some)} or {last}" if some else f"'{last}'"
        return f"did you mean {listed}?" if last else ""


def meaning(kind: str, text: str, known: Mapping[str, Path]) -> Meaning:
    """Return the meaning of a text that is not an exact catalog name.

    Args:
        kind: ``model``, ``system``, or another kind, whose names may differ only in case and separators.
        text: User text.
        known: Catalog files of this kind by name.
    """
    # Spelling distances are slow for long texts, and no catalog name is long.
    if len(text) > _LONGEST or not text.isascii():
        return Meaning(())
    return _of_system(text, known) if kind == "system" else _of_model(kind, text, known)


@dataclass(frozen=True, slots=True)
class _Stated:
    """Statements of a file about its names.

    Attributes:
        anything: True if it lists aliases.
        aliases: Further names with their reasons.
        size: Its memory size as a word.
        usual: Words for other systems, if this is the usual one of its family.
    """

    anything: bool
    aliases: Mapping[str, str]
    size: tuple[str, ...] = ()
    usual: tuple[str, ...] = ()


def aliases(path: Path) -> Mapping[str, str]:
    """Return the aliases of a catalog file, with their reasons."""
    return _stated(path).aliases


@cache
def _stated(path: Path) -> _Stated:
    try:
        raw = read_document(str(path))
    except SpecError:
        raw = None  # a damaged file of the catalog has no aliases; reading it by name reports the error
    if not isinstance(raw, Mapping) or not isinstance(about := raw.get("about"), Mapping):
        return _Stated(anything=False, aliases={})
    found, memory = about.get("aliases", ()), raw.get("mem1")
    named = found if isinstance(found, Mapping) else dict.fromkeys(found, "")
    size = memory.get("GiB") if isinstance(memory, Mapping) else None
    words = (f"{size}g",) if isinstance(size, int) else ()
    reasons = {str(name): str(reason) for name, reason in named.items()}
    return _Stated("aliases" in about, reasons, words, tuple(map(str, about.get("usual", ()))))


def usual_note(text: str, name: str, known: Mapping[str, Path]) -> str:
    """Return a line with the system that an ambiguous alias resolved to and words for the others, or an empty text.

    >>> from calculon.declarations import catalog
    >>> usual_note("a100", "a100_80g_sxm", catalog.names("system"))
    'a100: a100_80g_sxm; also a100-40g, a100-pcie'
    """
    if text in known:
        return ""
    words_of = {
        other: {word for one in (path.stem, *aliases(path)) for word in _words(one)}
        for other in _stated(known[name]).usual
        for path in [known[meaning("system", other, known).names[0]]]
    }
    asked = [*_readings(text, {*chain(*words_of.values())})]
    others = [other for other, words in words_of.items() if any(words >= {*one} for one in asked)]
    return f"{text}: {name}; also {', '.join(others)}" if others else ""


def _of_model(kind: str, text: str, known: Mapping[str, Path]) -> Meaning:
    """Return the meaning of a text by its key, which may be the key of a name or of an alias."""
    keys: dict[str, set[str]] = {}
    parts: dict[str, set[str]] = {}
    for name, path in known.items():
        if f"{name}-hf" in known:
            continue  # the more complete file answers to the aliases
        others = (*aliases(path), *_UNSTATED.get(name, ())) if kind in ("model", "preset") else ()
        for written in (name, *others):
            parts.setdefault(name, set()).update(_parts(written))
            for key in _keys(written):
                keys.setdefault(key, set()).add(name)
    text = _without_organization(text)
    asked = _keys(text)
    names = {name for key in asked for name in keys.get(key, ())}
    if names:
        return Meaning(_in_order(names, known))
    some = _parts(text)
    near = {name for name, own in parts.items() if some and some <= own}
    near = near or _with_like_words(some, parts) or _of_nearest_version(some, parts)
    near = near or keys.get(
        _nearest(asked[0], [key for key in keys if _alike(asked[0], key)]), set()
    )
    return Meaning((), _shortest(near, known))


def same_model(text: str, other: str) -> bool:
    """Return True if two names differ only in spelling, organization or last words.

    >>> same_model("qwen3-235b", "Qwen/Qwen3-235B-A22B"), same_model("llama-3.1-70b", "llama3-70B")
    (True, False)
    """
    first, second = (_keys(_without_organization(one)) for one in (text, other))
    return any(a.startswith(b) or b.startswith(a) for a in first for b in second)


def is_repository(text: str) -> bool:
    """Return True for the name of a repository of a known organization.

    >>> is_repository("meta-llama/Llama-3.1-70B-Instruct"), is_repository("models/llama3-70B.json")
    (True, False)
    """
    return _without_organization(text) != text


def _alike(text: str, other: str) -> bool:
    """Return True if two names start with similar words, which tell ``mamba`` from ``llama``.

    >>> _alike("llamma3", "llama2.7b"), _alike("mamba2.8b", "llama3.8b")
    (True, False)
    """
    first, second = (re.sub(r"[^a-z].*", "", name) for name in (text, other))
    return first == second or SequenceMatcher(None, first, second).ratio() >= _ALIKE


def _keys(text: str) -> tuple[str, ...]:
    """Return the text without case, separators and suffixes of tuned models; also with its version digits joined.

    >>> _keys("Llama-3.1-70B-Instruct"), _keys("gpt2 xl")
    (('llama3.1.70b', 'llama31.70b'), ('gpt2xl',))
    """
    words = re.split(r"[\s_:-]+", text.strip().lower())
    while len(words) > 1 and (words[-1] in _TUNED or _RELEASE.fullmatch(words[-1])):
        words.pop()
    joined = "-".join(words)
    joined = joined.removeprefix("meta-")
    versions = [joined, re.sub(r"^([a-z]+-?\d)\.(\d)(?=-)", r"\1\2", joined)]
    keys = (re.sub(r"(?<=\d)-(?=\d)", ".", version).replace("-", "") for version in versions)
    return tuple(dict.fromkeys(keys))


def _with_like_words(asked: set[str], parts: Mapping[str, set[str]]) -> set[str]:
    """Return the models with every number of a text, and with words that start with or resemble its words."""
    words = {one for one in asked if one.isalpha() and len(one) >= _MIN_WORD}
    known = {one for own in parts.values() for one in own if one.isalpha()}
    like = {
        word: {one for one in known if one.startswith(word)}
        | {*get_close_matches(word, known, n=len(known), cutoff=_ALIKE)}
        for word in words
    }
    if not words:
        return set()
    return {
        name
        for name, own in parts.items()
        if asked - words <= own and all(own & like[word] for word in words)
    }


def _of_nearest_version(asked: set[str], parts: Mapping[str, set[str]]) -> set[str]:
    """Return the models of the nearest version with the words of a text, whose own version and size are unknown.

    >>> sorted(_of_nearest_version({"llama", "5"}, {"llama1-7B": {"llama", "1", "7b"}, "llama4": {"llama", "4"}}))
    ['llama4']
    """
    words = {one for one in asked if one.isalpha()}
    wanted = [float(one) for one in asked if _VERSION.fullmatch(one)]
    if not words or not wanted:
        return set()
    away = {
        name: min(abs(float(one) - wanted[0]) for one in versions)
        for name, own in parts.items()
        if words <= own and (versions := [one for one in own if _VERSION.fullmatch(one)])
    }
    return {name for name, one in away.items() if one == min(away.values())}


def _without_organization(text: str) -> str:
    owner, _, rest = text.strip().partition("/")
    return rest if rest and "/" not in rest and owner.lower() in ORGANISATIONS else text


def _parts(text: str) -> set[str]:
    """Return the words and numbers of a model name; a size is a number with its letter.

    >>> sorted(_parts("llama3.1-70B"))
    ['3.1', '70b', 'llama']
    """
    words = re.split(r"[\s_:-]+", text.strip().lower())
    pattern = re.compile(r"\d+(?:\.\d+)?[bmt](?![a-z])|[a-z]+|\d+(?:\.\d+)?")
    return {part for word in words for part in pattern.findall(word)}


def _of_system(text: str, known: Mapping[str, Path]) -> Meaning:
    """Return the meaning of a text by its words: words of a name or an alias, or of an alias and part of the name."""
    stated = {name: _stated(path) for name, path in known.items()}
    claims = {
        name: [_words(one) for one in (name, *file.aliases)]
        for name, file in stated.items()
        if file.anything
    }
    words_of = {name: {*some[0], *stated[name].size} for name, some in claims.items()}
    vocabulary = {word for some in claims.values() for words in some for word in words}
    vocabulary |= {*chain(*words_of.values())}
    asked = [frozenset(words) for words in _readings(text, vocabulary)]
    exact = {name for name, some in claims.items() if any(frozenset(one) in asked for one in some)}
    wider = exact or {
        name
        for name, some in claims.items()
        if any(set(one) <= words <= {*one, *words_of[name]} for one in some for words in asked)
    }
    if wider:
        usual = {name for name in wider if stated[name].usual}
        return Meaning(_in_order(usual or wider, known))
    return Meaning((), _shortest(_near_systems(text, asked, claims, known), known))


def _near_systems(
    text: str,
    asked: Sequence[frozenset[str]],
    claims: Mapping[str, Sequence[Sequence[str]]],
    known: Iterable[str],
) -> set[str]:
    """Return similar systems: with all words of a text, else with words that start so, else with the same processor.

    Without any of these, return the system with the nearest spelling.
    """
    words_of = {name: {*chain(*claims.get(name, ()), _words(name))} for name in known}
    whole = {name for name, own in words_of.items() if any(some and some <= own for some in asked)}
    if whole:
        return whole
    if near := {name for name in claims if _begin(_words(text), words_of[name])}:
        return near
    processor = {word for word in _words(text) if re.search(r"[a-z]\d", word)} - {"nvl72"}
    if near := {name for name in claims if processor & words_of[name]}:
        return near
    spelled = {"".join(one): name for name, some in claims.items() for one in some}
    spelled |= {name.replace("_", ""): name for name in known}
    key, asked_words = "".join(_words(text)), _words(text)
    named = any(_PROCESSOR.match(word) for word in asked_words)
    if named:
        away = {name: one for name in claims if (one := _away(asked_words, words_of[name])) >= 0}
        return {name for name, one in away.items() if one == min(away.values())}
    close = spelled.get(_nearest(key, [one for one in spelled if _alike(key, one)]))
    return {close} if close else set()


def _away(asked: Iterable[str], words: Iterable[str]) -> int:
    """Return how far a processor's number is from one of the same line; below 0 if there is none.

    A name may be a misspelling, or a processor that the catalog lacks: ``h1000`` of ``h100``, and ``b100`` next to
    ``b200``, not to ``v100``.

    >>> _away(["h300"], ["h200"]), _away(["h1000"], ["h100"]), _away(["vr200"], ["v100"])
    (100, 900, -1)
    """
    found = [[one for word in some if (one := _PROCESSOR.match(word))] for some in (asked, words)]
    away = (
        abs(int(one[2]) - int(other[2]))
        for one in found[0]
        for other in found[1]
        if one[1] == other[1]
        and (len(one[2]) == len(other[2]) or one[2].startswith(other[2]))
        and SequenceMatcher(None, one.string, other.string).ratio() >= _LIKE_PROCESSOR
    )
    return min(away, default=-1)


def _begin(asked: Sequence[str], words: set[str]) -> bool:
    """Return True if each word of a text starts a word of a system, and at least one word is long enough."""
    meaningful = any(len(one) >= _MIN_WORD for one in asked)
    return meaningful and all(any(word.startswith(one) for word in words) for one in asked)


def _words(text: str) -> tuple[str, ...]:
    """Return the words of a system name: lower case, sizes as ``80g``, form factors without their number.

    >>> _words("NVIDIA A100-SXM4-80GB"), _words("h100_80g_sxm")
    (('a100', 'sxm', '80g'), ('h100', '80g', 'sxm'))
    """
    text = re.sub(r"\bpci-?e\b", "pcie", re.sub(r"[_/,;:()+]", " ", text.lower()))
    text = re.sub(r"(?<![a-z0-9])(\d+) ?(?:gib|gb|g)\b", r"\1g", re.sub(r"sxm\d\b", "sxm", text))
    words = (word.strip(".") for word in re.split(r"[\s-]+", text))
    return tuple(word for word in words if word and word not in _VENDORS)


def _readings(text: str, vocabulary: set[str]) -> Iterator[tuple[str, ...]]:
    """Yield the words of a text as written, and as words of a vocabulary with any separators."""
    words = _words(text)
    sizes = {word[:-1]: word for word in vocabulary if re.fullmatch(r"\d+g", word)}
    sizes = {short: word for short, word in sizes.items() if short not in vocabulary}
    yield tuple(sizes.get(word, word) for word in words)
    known = {word: word for word in vocabulary} | sizes
    yield from islice(_splits("".join(words), known), _MAX_SPLITS)


def _splits(text: str, known: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield all splits of a text without separators into known words.

    A backward pass first marks the positions from which the end can be reached, so that no text takes exponential time
    without yielding a split.
    """
    whole = len(text)
    ends: dict[int, list[int]] = {whole: []}
    for start in reversed(range(whole)):
        fits = [
            end for end in range(start + 1, whole + 1) if end in ends and text[start:end] in known
        ]
        if fits:
            ends[start] = fits

    def ways(start: int) -> Iterator[tuple[str, ...]]:
        if start == whole:
            yield ()
        for end in ends.get(start, ()):
            for rest in ways(end):
                yield (known[text[start:end]], *rest)

    if text:
        yield from ways(0)


def _nearest(key: str, keys: Sequence[str]) -> str:
    """Return the most similar key, or an empty text."""
    found = nearest(key, keys)
    return found.split("'")[1] if found else ""


def _in_order(names: set[str], known: Mapping[str, Path]) -> tuple[str, ...]:
    return tuple(name for name in known if name in names)


def _shortest(names: set[str], known: Mapping[str, Path]) -> tuple[str, ...]:
    """Return a few names, shortest first."""
    return tuple(sorted(_in_order(names, known), key=len)[:_MAX_NEAR])
