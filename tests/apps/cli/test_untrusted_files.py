"""Launch files of strangers: whatever they hold, reading one ends soon, in little memory, with a message."""

import re
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.fuzzing import forget_peak, peak

MOST_SECONDS = 2  # of processor time
MOST_MEMORY = 200 << 20  # more than an empty run, which takes less than 100 MiB

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
LARGE = r"numbers below 1e\+18, found a larger one"

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
    "ten references": Untrusted(
        "a.yaml",
        lambda: (
            f"{HEAD}r0: xxxxxxxxxx\n"
            + lines(11, lambda i: f'r{i}: "' + f"${{r{i - 1}}}" * 10 + '"')
        ),
        CHARACTERS,
    ),
    "doubled": Untrusted(
        "a.sh", lambda: "A=xxxxxxxxxx\n" + "A=$A$A\n" * 50 + f"{TRAIN} --x $A\n", CHARACTERS
    ),
    "appended": Untrusted(
        "a.sh", lambda: "A=xxxxxxxxxx\n" + "A+=$A\n" * 50 + f"{TRAIN} --x $A\n", CHARACTERS
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
    "product": Untrusted(
        "a.yaml",
        lambda: f"{HEAD}num_processes: ${{multiply:{','.join(['9' * 4000] * 20)}}}\n",
        rf"a\.yaml:3: num_processes: expected {LARGE}",
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
    "long number in TOML": Untrusted(
        "a.toml",
        lambda: f"{TITAN}y={FAR_TOO_LONG}\n",
        rf"a\.toml:5: training\.y: expected {LARGE}",
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
        "too deep a nesting",
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
    "number in a list": Untrusted(
        "a.toml",
        lambda: f"{TITAN}y=[1,{FAR_TOO_LONG}]\n",
        rf"a\.toml:5: training\.y: expected {LARGE}",
    ),
    "number in JSON": Untrusted(
        "a.json",
        lambda: f'{{"zero_optimization": {{"stage": 1}}, "train_batch_size": {"9" * 4000}}}',
        rf"a\.json: train_batch_size: expected {LARGE}",
    ),
}


@pytest.mark.parametrize(("file", "text", "error"), FILES.values(), ids=FILES)
def test_files_of_strangers_are_read_soon_or_refused(file, text, error, run, tmp_path):
    (tmp_path / file).write_text(text())
    run("import-flags", "nothing.sh")  # what loads modules
    forget_peak()
    before, begin = peak(), time.thread_time()
    code, out, err = run("import-flags", file, "--procs", 8)
    seconds, grown = time.thread_time() - begin, peak() - before
    assert (code, err.count("\n")) == ((2, 1) if error else (0, 0)), (code, err[:2000])
    assert re.search(error, err), err[:2000]
    assert len(out) < 50_000
    assert seconds < MOST_SECONDS
    assert grown < MOST_MEMORY


ESCAPES = {
    "keys": (
        "a\x1b[31m.yaml",
        f'{HEAD}"\\e[31mred\\a": 1\n',
        r"\x1b[31mred\x07 1  a\x1b[31m.yaml:3",
    ),
    "values": ("a.sh", f"{TRAIN} --foo 'x\x1b[31m'\n", r"--foo x\x1b[31m"),
    "notes": ("a.sh", f"source 'x\x1b[31m'\n{TRAIN}\n", r"Note: x\x1b[31m is not read"),
    "open": ("a.sh", f"{TRAIN} --foo $(echo '\x1b[31m')\n", r"--foo $(echo '\x1b[31m')"),
}


@pytest.mark.parametrize(("file", "text", "shown"), ESCAPES.values(), ids=ESCAPES)
def test_nothing_of_a_file_acts_on_the_terminal(file, text, shown, run, tmp_path):
    (tmp_path / file).write_text(text)
    code, out, err = run("import-flags", file, "--procs", 8)
    assert (code, err) == (0, "")
    assert shown in out
    assert all(line.isprintable() for line in out.splitlines())


def test_nothing_of_a_file_acts_on_the_terminal_in_other_pages(run, tmp_path):
    file = "a\x1b[31m.yaml"
    more = "mixed_precision: bf16\nper_device_train_batch_size: 1\nmax_length: 1024\n"
    (tmp_path / file).write_text(f'{HEAD}num_processes: 8\n{more}"\\e[31mred": 1\n')
    plan = run("plan", "gpt2-124M", "a100-80g", "8", "--mine", file)
    assert (plan.code, r"as a\x1b[31m.yaml" in plan.out) == (0, True)
    assert r"\x1b[31mred" in plan.err
    compared = run(
        "compare", f"gpt2-124M,{file},a100_80g", f"gpt2-124M,{file}#num_procs=8,a100_80g", "-d"
    )
    for line in (plan.out + plan.err + compared.out + compared.err).splitlines():
        assert line.isprintable()


def test_a_file_in_python_that_python_warns_of_has_one_message(run, tmp_path):
    (tmp_path / "a.py").write_text(BRIDGE.format("a=1if 1 else 2\n("))
    code, _, err = run("import-flags", "a.py")
    assert (code, err.count("\n")) == (2, 1)
    assert "expected a configuration in Python, found '(' was never closed" in err


def test_long_values_are_cut(run, tmp_path):
    (tmp_path / "a.sh").write_text(f"{TRAIN} --{'f' * 5000} 1 --foo {'x' * 5000}\n")
    code, out, _ = run("import-flags", "a.sh", "--procs", 8)
    assert code == 0
    assert 2 * 200 < len(out) < 2000


def test_a_page_says_how_many_settings_it_leaves_out(run, tmp_path):
    (tmp_path / "a.yaml").write_text(HEAD + lines(1100, lambda i: f"k{i}: 1"))
    code, out, _ = run("import-flags", "a.yaml", "--procs", 8)
    assert code == 0
    assert "  k1000 1" in out
    assert "and 100 settings more, which --format json lists" in out


@pytest.mark.parametrize("named", ["../any.toml", "{above}/any.toml", "below/link.toml", "\0.toml"])
def test_files_above_a_script_are_not_read(named, run, tmp_path):
    folder = tmp_path / "scripts"
    (folder / "below").mkdir(parents=True)
    (tmp_path / "any.toml").write_text('[secret]\ntoken = "abc"\n')
    (folder / "below/link.toml").symlink_to(tmp_path / "any.toml")
    word = named.format(above=tmp_path)
    (folder / "a.sh").write_text(
        f"NGPU=8 CONFIG_FILE={word} ./run_train.sh --job.config_file {word} --training.seq-len 4096\n"
    )
    for form in ("text", "json"):
        code, out, err = run("import-flags", "scripts/a.sh", "--procs", 8, "--format", form)
        assert (code, err) == (0, "")
        assert "is not read" in " ".join(out.split())
        assert "abc" not in out
        assert "secret" not in out


@pytest.mark.parametrize(
    "named", ["below/any.toml", "../scripts/below/any.toml", "{above}/any.toml"]
)
def test_files_below_a_script_are_read(named, run, tmp_path):
    (tmp_path / "scripts/below").mkdir(parents=True)
    (tmp_path / "scripts/below/any.toml").write_text(f"{TITAN}local_batch_size=2\n")
    word = named.format(above=tmp_path / "scripts/below")
    script = tmp_path / "scripts/a.sh"
    script.write_text(f"NGPU=8 ./run_train.sh --job.config_file {word}\n")
    code, out, _ = run("import-flags", script, "--procs", 8)
    assert code == 0
    assert "training.seq_len 4096" in out


def test_files_that_a_script_refers_to_share_its_budget(run, tmp_path):
    (tmp_path / "any.toml").write_text(f"{TITAN}#{'x' * 990_000}")
    script = "NGPU=8 ./run_train.sh --job.config_file any.toml\n"
    (tmp_path / "a.sh").write_text(script)
    assert run("import-flags", "a.sh", "--procs", 8).code == 0
    (tmp_path / "a.sh").write_text(f"{script}#{'x' * 20_000}\n")
    code, _, err = run("import-flags", "a.sh", "--procs", 8)
    assert code == 2
    assert "a.sh: expected text of at most 1,000,000 characters" in err
