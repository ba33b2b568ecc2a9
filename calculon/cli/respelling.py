"""Translation of arguments from the spelling of other tools into a command's own.

A spelling that the command knows is never changed: only arguments that would be refused are rewritten.
"""

import argparse
import re
from collections.abc import Sequence
from itertools import islice

from calculon.declarations.axes import AXES
from calculon.declarations.short_names import FIELDS

OPTIONS = {
    **dict.fromkeys(("--seq-len", "--seq-length", "--seqlen", "--sequence-length"), "--seq"),
    **dict.fromkeys(("--context", "--max-seq-len", "--context-length"), "--seq"),
    **dict.fromkeys(
        ("--batch-size", "--global-batch-size", "--gbs", "--train-batch-size"), "--batch"
    ),
    **dict.fromkeys(("--precision", "--datatype", "--quantization", "--type"), "--dtype"),
    **dict.fromkeys(("--framework",), "--preset"),
    **dict.fromkeys(("--budget",), "--budget-usd"),
    **dict.fromkeys(("--concurrency", "--max-concurrency"), "--users"),
    **dict.fromkeys(("--input-len", "--isl", "--prompt-len"), "--prompt"),
    **dict.fromkeys(("--qps", "--request-rate", "--rps"), "--rate"),
    **dict.fromkeys(("--out", "--output-file"), "--output"),
}
"""Options of other tools, with the equivalent option."""

SWITCHES = {
    "--json": ("--format", "json"),
    **{f"--{word}": ("--dtype", word) for word in ("bf16", "fp16", "fp8", "mxfp8", "nvfp4")},
}
"""Switches of other tools, with the equivalent option and value."""

QUESTION = ("model", "num_procs", "system")
"""Arguments of a question, in order."""

SERVED = ("model", "deployment", "system")
"""Arguments of a deployment, which may be a processor count."""

PLANNED = ("model", "execution", "system")
"""Arguments of a plan, which may be given in words."""

PLACES = {
    **dict.fromkeys(("--gpus", "--num-gpus", "--n-gpus", "--ngpus", "--procs"), "num_procs"),
    **dict.fromkeys(("--num-procs", "--world-size"), "num_procs"),
    **dict.fromkeys(("--gpu", "--system", "--machine", "--hardware", "--gpu-type"), "system"),
    **dict.fromkeys(("--model", "--model-name", "--hf-model"), "model"),
}
"""Options of other tools that correspond to a positional argument of a question."""

UNKNOWN = {
    "--nodes": "state the processors: 8 nodes of 8 are 64",
    "--num-nodes": "state the processors: 8 nodes of 8 are 64",
    "--gpus-per-node": "the system file has them: calculon catalog show SYSTEM",
    **dict.fromkeys(
        ("--output-len", "--osl"), "serve takes the number of generated tokens as --output"
    ),
    **dict.fromkeys(
        ("--quantization", "--max-model-len", "--gpu-memory-utilization", "--tensor-parallel-size"),
        "serve takes the command of an engine in quotes in place of PROCS: 'vllm serve MODEL ...'",
    ),
    **dict.fromkeys(
        ("--dtype", "--precision", "--fp8"),
        "types of a served model are --set weights_dtype=float8 and kv_dtype=float8 (serve-optimal: --fix)",
    ),
    **dict.fromkeys(("--lora", "--qlora"), "LoRA is not modeled"),
    "--emit": "calculon export FORMAT MODEL PLAN SYSTEM writes it: calculon export vllm llama-3.1-70b 8 h100",
    **dict.fromkeys(
        ("--draft", "--draft-model", "--speculative-model"),
        "speculative decoding: --set draft=model:NAME, mtp or ngram",
    ),
    "--lr": "training is not simulated: only its time, memory and cost",
    "--batch-size-per-gpu": "--fix mbs=N sets the sequences of a microbatch",
    "--micro-batch-size": "--fix mbs=N sets the sequences of a microbatch",
}
"""Options of other tools without a counterpart, with advice."""

DEGREES = tuple(axis.name for axis in AXES)
"""Options of parallelism degrees, which become part of a deployment in words."""

_COUNT = re.compile(r"\d+[kK]?")
_MACHINES_OF = re.compile(r"(\d+)\s*[xX*]\s*([A-Za-z][\w.-]*)")
"""``8xH100``."""


def respelled(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return the arguments of a command in the command's own spelling.

    Args:
        parser: The parser of the command.
        words: The arguments as typed.

    Examples:
        >>> parser = argparse.ArgumentParser()
        >>> for name in (*QUESTION, "--seq", "--fix"):
        ...     _ = parser.add_argument(name)
        >>> respelled(parser, ["--gpus", "64", "--gpu=h100", "llama-3.1-8b", "--seq-len", "4k", "--tp", "8"])
        ['llama-3.1-8b', '--seq', '4k', '--fix', 'tp=8', '64', 'h100']
    """
    known = parser._option_string_actions
    asked = tuple(one.dest for one in parser._actions if not one.option_strings)
    asks = asked in (QUESTION, SERVED)
    found: list[str] = []
    places: list[int] = []  # positional arguments
    pairs: list[str] = []
    stated: dict[str, str] = {}
    # One shared iterator, so that an option can consume its value.
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        meant = next(
            (one for one in known if one.startswith(option) and option[:2] == "--"), option
        )
        pair = _pair_of(option, asked) if option[:2] == "--" and option not in known else None
        if pair:
            name, said = pair
            pairs.append(f"{name}={said or (value if equals else next(rest, ''))}")
        elif option not in known and OPTIONS.get(option) in known:
            found.append(OPTIONS[option] + equals + value)
        elif meant in known:  # including abbreviations
            found.append(word)
            if not equals and known[meant].nargs != 0:
                found += islice(rest, 1)  # skip its value, which may look like an option
        elif not option.startswith("--"):
            plain = _plain(word, "--fix" in known) if asks else [word]
            places += range(len(found), len(found) + len(plain))
            found += plain
        elif asks and option in PLACES:
            stated[PLACES[option]] = value if equals else next(rest, "")
        elif option in SWITCHES and SWITCHES[option][0] in known:
            found += SWITCHES[option]
        elif (short := option.removeprefix("--")) in FIELDS and "--fix" in known:
            found += ["--fix", f"{short}={value if equals else next(rest, '')}"]
        else:
            found.append(word)
    if pairs:
        if asked == SERVED and "num_procs" in stated:
            pairs.append(f"procs={stated.pop('num_procs')}")
        _add_pairs(found, pairs, places)
    model = [stated["model"]] if "model" in stated else []
    return [*model, *found, *(stated[one] for one in QUESTION[1:] if one in stated)]


def _pair_of(option: str, asked: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the plan or deployment word equivalent to an option, and the value if the option is a switch."""
    if asked == SERVED:
        short = option.removeprefix("--")
        return (short, "") if short in DEGREES else None
    if asked != PLANNED:
        return None
    switch, value = SWITCHES.get(option, ("", ""))
    name = "dtype" if switch == "--dtype" else _pair_name(option)
    return (name, value if switch else "") if name else None


def _pair_name(option: str) -> str:
    """Return the plan word equivalent to another tool's option; empty if there is none."""
    word = option.removeprefix("--")
    if word in FIELDS:
        return word
    if PLACES.get(option) == "num_procs":
        return "procs"
    same = OPTIONS.get(option, option)
    return same.removeprefix("--") if same in ("--seq", "--batch", "--dtype") else ""


def _add_pairs(words: list[str], pairs: list[str], places: Sequence[int]) -> None:
    """Add pairs to the plan in words or processor count at some places, or insert them after the model."""
    from calculon.declarations.spellings.plan_pairs import is_plan  # few calls need it

    counts = [place for place in places[:3] if _COUNT.fullmatch(words[place])]
    plans = [place for place in places if is_plan(words[place])]
    if plans:
        words[plans[0]] = " ".join((words[plans[0]], *pairs))
    elif counts:
        words[counts[0]] = " ".join((f"procs={words[counts[0]]}", *pairs))
    else:
        words.insert(1, " ".join(pairs))


def _plain(word: str, fixes: bool) -> list[str]:
    """Return a question argument in this tool's form: ``8xh100`` as two, ``tp=8`` as a fixed field."""
    if both := _MACHINES_OF.fullmatch(word):
        return [both[1], both[2]]
    if fixes and word.partition("=")[0].lower() in FIELDS and "=" in word:
        return ["--fix", word]
    return [word]
