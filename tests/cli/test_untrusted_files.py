"""Launch files of strangers: whatever they hold, reading one ends soon, in little memory, with a message."""

import re
import time

import pytest

from tests.cases import for_each
from tests.fuzzing import forget_peak, peak
from tests.hostile import BRIDGE, FILES, HEAD, TITAN, TRAIN, lines

MAX_SECONDS = 2  # of processor time
MAX_MEMORY = 200 << 20  # more than an empty run, which takes less than 100 MiB

SLOW = ("flags", "statements", "loop", "settings in TOML", "variables", "quoted text")
SLOW += ("many words", "here documents", "open values", "empty dictionaries")
"""Files that take long to read, each of a size just below or above a limit that another file reaches, too."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.large] * (name in SLOW)) for name in FILES]
)
def test_files_of_strangers_are_read_soon_or_refused(name, run, tmp_path):
    file, text, error = FILES[name]
    (tmp_path / file).write_text(text())
    run("import-flags", "nothing.sh")  # what loads modules
    forget_peak()
    before, begin = peak(), time.thread_time()
    code, out, err = run("import-flags", file, "--procs", 8)
    seconds, grown = time.thread_time() - begin, peak() - before
    assert (code, err.count("\n")) == ((2, 1) if error else (0, 0)), (code, err[:2000])
    assert re.search(error, err), err[:2000]
    assert len(out) < 50_000
    assert seconds < MAX_SECONDS
    assert grown < MAX_MEMORY


ESCAPES = [
    ("a\x1b[31m.yaml", f'{HEAD}"\\e[31mred\\a": 1\n', r"\x1b[31mred\x07 1  a\x1b[31m.yaml:3"),
    ("a.sh", f"{TRAIN} --foo 'x\x1b[31m'\n", r"--foo x\x1b[31m"),
    ("a.sh", f"source 'x\x1b[31m'\n{TRAIN}\n", r"Note: x\x1b[31m is not read"),
    ("a.sh", f"{TRAIN} --foo $(echo '\x1b[31m')\n", r"--foo $(echo '\x1b[31m')"),
]


@for_each(("file", "text", "shown"), ESCAPES)
def test_nothing_of_a_file_acts_on_the_terminal(file, text, shown, output_of, tmp_path):
    (tmp_path / file).write_text(text)
    out = output_of("import-flags", file, "--procs", 8)
    assert shown in out
    assert all(line.isprintable() for line in out.splitlines())


def test_nothing_of_a_file_acts_on_the_terminal_in_other_pages(run, tmp_path):
    file = "a\x1b[31m.yaml"
    more = "mixed_precision: bf16\nper_device_train_batch_size: 1\nmax_length: 1024\n"
    (tmp_path / file).write_text(f'{HEAD}num_processes: 8\n{more}"\\e[31mred": 1\n')
    plan = run("plan", "gpt2-124M", "a100-80g", "8", "--mine", file, "--fix", "tensor_par=1")
    assert (plan.code, r"as a\x1b[31m.yaml" in plan.out) == (0, True)
    assert r"\x1b[31mred" in plan.err
    compared = run(
        "compare", f"gpt2-124M,{file},a100_80g", f"gpt2-124M,{file}#num_procs=8,a100_80g", "-d"
    )
    for line in (plan.out + plan.err + compared.out + compared.err).splitlines():
        assert line.isprintable()


def test_a_file_in_python_that_python_warns_of_has_one_message(refuses, tmp_path):
    (tmp_path / "a.py").write_text(BRIDGE.format("a=1if 1 else 2\n("))
    message = "expected a configuration in Python, found '(' was never closed"
    refuses(("import-flags",), [("a.py", message)])


def test_long_values_are_cut(output_of, tmp_path):
    (tmp_path / "a.sh").write_text(f"{TRAIN} --{'f' * 5000} 1 --foo {'x' * 5000}\n")
    out = output_of("import-flags", "a.sh", "--procs", 8)
    assert 2 * 200 < len(out) < 2000


def test_a_page_says_how_many_settings_it_leaves_out(output_of, tmp_path):
    (tmp_path / "a.yaml").write_text(HEAD + lines(1100, lambda i: f"k{i}: 1"))
    out = output_of("import-flags", "a.yaml", "--procs", 8)
    assert "  k1000 1" in out
    assert "and 100 settings more (--format json)" in out


@pytest.mark.parametrize("named", ["../any.toml", "{above}/any.toml", "below/link.toml", "\0.toml"])
def test_files_above_a_script_are_not_read(named, output_of, tmp_path):
    folder = tmp_path / "scripts"
    (folder / "below").mkdir(parents=True)
    (tmp_path / "any.toml").write_text('[secret]\ntoken = "abc"\n')
    (folder / "below/link.toml").symlink_to(tmp_path / "any.toml")
    word = named.format(above=tmp_path)
    (folder / "a.sh").write_text(
        f"NGPU=8 CONFIG_FILE={word} ./run_train.sh --job.config_file {word} --training.seq-len 4096\n"
    )
    for form in ("text", "json"):
        out = output_of("import-flags", "scripts/a.sh", "--procs", 8, "--format", form)
        assert "is not read" in " ".join(out.split())
        assert "abc" not in out
        assert "secret" not in out


@pytest.mark.parametrize(
    "named", ["below/any.toml", "../scripts/below/any.toml", "{above}/any.toml"]
)
def test_files_below_a_script_are_read(named, output_of, tmp_path):
    (tmp_path / "scripts/below").mkdir(parents=True)
    (tmp_path / "scripts/below/any.toml").write_text(f"{TITAN}local_batch_size=2\n")
    word = named.format(above=tmp_path / "scripts/below")
    script = tmp_path / "scripts/a.sh"
    script.write_text(f"NGPU=8 ./run_train.sh --job.config_file {word}\n")
    out = output_of("import-flags", script, "--procs", 8)
    assert "training.seq_len 4096" in out


def test_files_that_a_script_refers_to_share_its_budget(run, refuses, tmp_path):
    (tmp_path / "any.toml").write_text(f"{TITAN}#{'x' * 990_000}")
    script = "NGPU=8 ./run_train.sh --job.config_file any.toml\n"
    (tmp_path / "a.sh").write_text(script)
    assert run("import-flags", "a.sh", "--procs", 8).code == 0
    (tmp_path / "a.sh").write_text(f"{script}#{'x' * 20_000}\n")
    message = "a.sh: expected text of at most 1,000,000 characters"
    refuses(("import-flags", "a.sh"), [("--procs 8", message)])
