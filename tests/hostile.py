"""Launch files of strangers: what grows without bound when it is expanded, or is nested or long beyond measure."""

from collections.abc import Callable
from typing import NamedTuple

HEAD = "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n"
TRAIN = (
    "torchrun train.py --tensor-model-parallel-size 2 --num-layers 4 --micro-batch-size 1 --bf16"
)
BRIDGE = (
    "from megatron.bridge.x import ConfigContainer\n{}\n"
    "cfg=ConfigContainer(model=a)\ncfg.model.tensor_model_parallel_size=4\n"
)
TITAN = "[model]\nname='llama3'\n[training]\nseq_len=4096\n"
FAR_TOO_LONG = "9" * 5000


class Untrusted(NamedTuple):
    """A file, and what a command says of it; nothing where the file is read."""

    file: str
    text: Callable[[], str]
    error: str


def lines(count: int, line: Callable[[int], str], *, start: int = 1) -> str:
    """Return lines with a number."""
    return "".join(f"{line(i)}\n" for i in range(start, count + start))


TIME = r"a file that is read within 1\.2 s"
"""On a slow machine time is exhausted first."""

TEXT = "text of at most 1,000,000 characters"
VALUES = rf"at most 200,000 values after expansion, found more\. Hint: |{TIME}"
CHARACTERS = f"texts of at most 2,000,000 characters after expansion|{TIME}"
STATEMENTS = f"at most 100,000 statements|{TIME}"
LARGE = r"numbers below 1e\+18, found a larger number"

FILES = {
    "aliases": Untrusted(
        "a.yaml",
        lambda: (
            f"{HEAD}b0: &b0 {{}}\n"
            + lines(
                11,
                lambda i: (
                    f"b{i}: &b{i} {{" + ", ".join(f"k{k}: *b{i - 1}" for k in range(10)) + "}"
                ),
            )
        ),
        VALUES,
    ),
    "references": Untrusted(
        "a.yaml",
        lambda: (
            f"{HEAD}r0: xxxxxxxxxx\n" + lines(39, lambda i: f'r{i}: "${{r{i - 1}}}${{r{i - 1}}}"')
        ),
        CHARACTERS,
    ),
    "doubled": Untrusted(
        "a.sh", lambda: "A=xxxxxxxxxx\n" + "A=$A$A\n" * 50 + f"{TRAIN} --x $A\n", CHARACTERS
    ),
    "lists": Untrusted(
        "a.sh",
        lambda: "L=(a b c)\n" + 'L=("${L[@]}" "${L[@]}")\n' * 40 + f'{TRAIN} "${{L[@]}}"\n',
        VALUES,
    ),
    "conditions": Untrusted(
        "a.sh",
        lambda: (
            lines(400, lambda i: f"if [ $X{i} ]; then A{i}=1; B=$B$A{i}; else A{i}=2; fi")
            + f"{TRAIN} --x $B\n"
        ),
        "",
    ),
    "empty dictionaries": Untrusted(
        "a.py", lambda: BRIDGE.format("a={}\n" + 'a={"x":a,"y":a}\n' * 60), VALUES
    ),
    "copies": Untrusted(
        "a.py", lambda: BRIDGE.format('a={"q":1}\n' + 'a={**a,"x":a,"y":a}\n' * 40), VALUES
    ),
    "rings": Untrusted(
        "a.py",
        lambda: BRIDGE.format(
            lines(14, lambda i: f"d{i}=dict()")
            + "".join(lines(14, lambda i, j=j: f"d{i}.k{j}=d{j}") for j in range(1, 15))
            + "a=d1"
        ),
        VALUES,
    ),
    "lists of lists": Untrusted(
        "a.py", lambda: BRIDGE.format("a=[1]\n" + "a=[a,a]\n" * 26) + "cfg.model.foo=a\n", VALUES
    ),
    "many words": Untrusted("a.sh", lambda: "a b c d e f g h\n" * 60_000 + f"{TRAIN}\n", VALUES),
    "open values": Untrusted(
        "a.sh", lambda: lines(9000, lambda i: f"A=$A$V{i}") + f"{TRAIN} --x $A\n", CHARACTERS
    ),
    "here documents": Untrusted("a.sh", lambda: "cat <<E\nx\nE\n" * 10_000 + f"{TRAIN}\n", ""),
    "tables": Untrusted("a.toml", lambda: TITAN + lines(50_000, lambda i: f"[a.b{i}]"), VALUES),
    "numbers": Untrusted(
        "a.py",
        lambda: BRIDGE.format(f"a=[{'1,' * 3_000_000}]"),
        TEXT,
    ),
    "statements": Untrusted(
        "a.py",
        lambda: BRIDGE.format("def f():\n" + " x=1\n" * 20_000 + "a={}\n" + "f()\n" * 9_000),
        STATEMENTS,
    ),
    "loop": Untrusted(
        "a.sh", lambda: f"for i in {'x ' * 100_000}; do A=$A$i; done\n{TRAIN} --x $A\n", VALUES
    ),
    "factor": Untrusted(
        "a.yaml",
        lambda: f"{HEAD}a: ${{multiply:{FAR_TOO_LONG},2}}\n",
        rf"a\.yaml:3: a: expected {LARGE}",
    ),
    "number in Python": Untrusted(
        "a.py",
        lambda: BRIDGE.format("a={}") + f"cfg.model.tensor_model_parallel_size=0x{'f' * 50_000}\n",
        rf"a\.py:5: cfg\.model\.tensor_model_parallel_size: expected {LARGE}",
    ),
    "number in TOML": Untrusted(
        "a.toml",
        lambda: f"[model]\n[training]\nseq_len=0x{'f' * 50_000}\n",
        rf"a\.toml:3: training\.seq_len: expected {LARGE}",
    ),
    "long number in YAML": Untrusted(
        "a.yaml", lambda: f"y={FAR_TOO_LONG}\n{HEAD}", "an error in line 2"
    ),
    "deep tables": Untrusted(
        "a.toml",
        lambda: f"{TITAN}[{'.'.join('a' * 20_000)}]\n",
        r"a\.toml:5: 'a\.a\.a.*: expected a name of at most 100 parts",
    ),
    "huge file": Untrusted("a", lambda: "x torchtitan\n" * 4_000_000, TEXT),
    "flags": Untrusted(
        "a.sh", lambda: TRAIN + "".join(f" --f{i} 1" for i in range(60_000)), VALUES
    ),
    "settings in TOML": Untrusted("a.toml", lambda: TITAN + lines(15_000, lambda i: f"k{i}=1"), ""),
    "here documents of an engine": Untrusted(
        "a.sh", lambda: "vllm serve m -tp 4\n" + lines(20_000, lambda i: f"cat <<Q{i}"), ""
    ),
    "variables": Untrusted("a.sh", lambda: lines(20_000, lambda i: f"V{i}=1") + f"{TRAIN}\n", ""),
    "quoted text": Untrusted("a.sh", lambda: f'A="{"x" * 600_000}"\n{TRAIN}\n', ""),
    "question marks": Untrusted("a.sh", lambda: f"A=$(({'?' * 60_000}))\n{TRAIN}\n", ""),
    "replacements": Untrusted(
        "a.sh",
        lambda: f"A={'x' * 100_000}\nB=${{A//x/{'y' * 100_000}}}\n{TRAIN}\n",
        CHARACTERS,
    ),
    "documents that run themselves": Untrusted(
        "a.sh",
        lambda: f"A='bash <<X\n$A\nX\nbash <<Y\n$A\nY'\nbash <<Z\n$A\nZ\n{TRAIN}\n",
        "less deeply nested",
    ),
    "redirection first": Untrusted("a.sh", lambda: f"&> log\n{TRAIN}\n", ""),
    "compared lists": Untrusted(
        "a.py",
        lambda: BRIDGE.format("a=[1]\nb=[1]\n" + "a=[a,a]\nb=[b,b]\n" * 60 + "c=a==b"),
        VALUES,
    ),
    "list in itself": Untrusted(
        "a.py", lambda: BRIDGE.format("a=[1]\na.append(a)") + "cfg.model.foo=a\n", VALUES
    ),
    "number as a key": Untrusted(
        "a.py",
        lambda: BRIDGE.format(f"a={{}}\na[0x{'f' * 50_000}]=0x{'f' * 50_000}"),
        rf"a\.py:3: expected {LARGE}",
    ),
    "number in JSON": Untrusted(
        "a.json",
        lambda: f'{{"zero_optimization": {{"stage": 1}}, "train_batch_size": {"9" * 4000}}}',
        rf"a\.json: train_batch_size: expected {LARGE}",
    ),
}
