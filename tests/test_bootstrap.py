"""The checkout sets itself up: no network, stub interpreters in place of pip."""

import ast
import importlib.machinery
import importlib.util
import re
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
BARE = [sys._base_executable, "-S"]  # an interpreter without any installed package
OLD = (3, 8, 18, "final", 0)
LOCKS = ("scripts/constraints.txt", "scripts/constraints-test.txt")


def load(path: Path, name: str) -> ModuleType:
    """Import a script from its file, whatever its suffix."""
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def executable(path: Path, text: str) -> Path:
    """Write a shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout whose calculon prints its interpreter and arguments."""
    root = tmp_path / "checkout"
    for name in ("bin/calculon", "scripts/bootstrap.py", "scripts/test", "pyproject.toml", *LOCKS):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    (root / "calculon" / "cli").mkdir(parents=True)
    (root / "calculon" / "cli" / "main.py").write_text(
        "import sys\ndef main(argv=None):\n    print(sys.executable, sys.argv[1:])\n    return 7\n"
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return root


@pytest.fixture
def bootstrap(checkout):
    """Load bootstrap.py of the checkout."""
    return load(checkout / "scripts" / "bootstrap.py", "checkout_bootstrap")


def run(*command, cwd=None) -> subprocess.CompletedProcess:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def everything(bootstrap: ModuleType) -> list[str]:
    """Return what the stamp of an environment for bin/calculon says."""
    return bootstrap.requirements(*bootstrap.EXTRAS) + bootstrap.pins()


def make_venv(bootstrap: ModuleType, requirements: list[str] | None, python: str) -> Path:
    """Make a stand-in for an environment; its interpreter is a shell script."""
    folder = Path(bootstrap.ROOT, ".venv")
    executable(folder / "bin" / "python", python)
    (folder / "pyvenv.cfg").write_text(f"prompt = '{bootstrap.PROMPT}'\nversion = 3.12.1\n")
    if requirements is not None:
        (folder / bootstrap.STAMP).write_text("\n".join(requirements) + "\n")
    return folder


def pretend_to_build(bootstrap, monkeypatch, version="3.12.1") -> list[list[str]]:
    """Record the commands of a set-up instead of running them."""
    commands = []

    def call(command, *_held, **_steps):
        commands.append(command)
        if "venv" in command:
            folder = Path(command[-1])
            shutil.rmtree(folder, ignore_errors=True)
            executable(folder / "bin" / "python", "")
            (folder / "pyvenv.cfg").write_text(
                f"prompt = '{bootstrap.PROMPT}'\nversion = {version}\n"
            )

    monkeypatch.setattr(bootstrap, "call", call)
    return commands


# What it reads


def test_reads_the_requirements_that_pyproject_declares(bootstrap):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert bootstrap.requirements() == project["dependencies"]
    for name, listed in extras.items():
        assert bootstrap.requirements(name) == project["dependencies"] + listed


def test_modules_are_those_of_the_dependencies(bootstrap):
    names = [re.split("[^a-z]", requirement)[0] for requirement in bootstrap.requirements()]
    owners = packages_distributions()
    assert [owners[module][0].lower() for module in bootstrap.MODULES] == names


@pytest.mark.parametrize("name", ["bin/calculon", "scripts/bootstrap.py", "scripts/test"])
def test_an_old_python_can_parse_it(name):
    ast.parse((ROOT / name).read_text(), feature_version=(3, 6))


# bin/calculon


def test_runs_directly_when_the_dependencies_are_importable(checkout):
    done = run(sys.executable, checkout / "bin" / "calculon", "a", "b c")
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout == f"{sys.executable} ['a', 'b c']\n"
    assert not (checkout / ".venv").exists()


def test_runs_through_a_link_from_another_folder(checkout, tmp_path):
    link = tmp_path / "elsewhere" / "c"
    link.parent.mkdir()
    link.symlink_to(checkout / "bin" / "calculon")
    assert run(sys.executable, "elsewhere/c", cwd=tmp_path).returncode == 7


def test_restarts_in_an_environment_that_has_them(checkout, bootstrap):
    make_venv(
        bootstrap,
        [*everything(bootstrap), "another>=1"],
        'echo "in venv: $*"; exit 5',
    )
    done = run(*BARE, checkout / "bin" / "calculon", "a", "b")
    assert (done.returncode, done.stderr) == (5, "")
    assert done.stdout == f"in venv: {checkout}/bin/calculon a b\n"


def test_updates_an_environment_whose_stamp_is_stale(checkout, bootstrap):
    needed = everything(bootstrap)
    folder = make_venv(bootstrap, needed[:-1], f'echo "$*" >> {checkout}/calls')
    done = run(*BARE, checkout / "bin" / "calculon", "a")
    pip, restart = (checkout / "calls").read_text().splitlines()
    assert pip.startswith("-I -m pip install ")
    assert "--require-hashes" in pip
    assert pip.endswith(f"-r {checkout}/scripts/constraints.txt")
    assert restart == f"{checkout}/bin/calculon a"
    assert (folder / bootstrap.STAMP).read_text().splitlines() == needed
    assert done.returncode == 0
    assert done.stdout == ""
    assert "updating" in done.stderr


def test_a_failure_of_pip_is_one_message_and_exit_code_2(checkout, bootstrap):
    folder = make_venv(bootstrap, ["old"], 'echo "ERROR: no route to the index"; exit 1')
    done = run(*BARE, checkout / "bin" / "calculon", "a")
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip could not install" in done.stderr
    assert "  | ERROR: no route to the index" in done.stderr
    assert "PIP_INDEX_URL" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / bootstrap.STAMP).exists()


# The lock


def test_the_lock_pins_what_pyproject_asks_for(bootstrap):
    releases = [one.partition("==") for one in bootstrap.pins("test")]
    assert all(mark == "==" for _, mark, _ in releases)
    locked = {name: Version(version) for name, _, version in releases}
    assert len(locked) == len(releases)
    for text in bootstrap.requirements(*bootstrap.EXTRAS, "test"):
        wanted = Requirement(text)
        assert locked[canonicalize_name(wanted.name)] in wanted.specifier, "run scripts/lock"


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_release_has_hashes(name):
    text = (ROOT / name).read_text().replace(" \\\n", "")
    for line in text.splitlines()[1:]:
        assert re.fullmatch(r"[a-z0-9.-]+==\S+(    --hash=sha256:[0-9a-f]{64})+", line), line


def test_a_python_beyond_the_lock_gets_the_plain_requirements(bootstrap, monkeypatch, capsys):
    commands = pretend_to_build(bootstrap, monkeypatch, version="3.99.0")
    bootstrap.environment()
    assert "--require-hashes" not in commands[1]
    assert commands[1][-len(bootstrap.requirements()) :] == bootstrap.requirements()
    assert "does not cover Python 3.99; installing without it" in capsys.readouterr().err
    bootstrap.environment()
    assert len(commands) == 2  # complete: the notice is given once


def test_a_lock_behind_pyproject_is_left_out(bootstrap, monkeypatch, capsys):
    project = Path(bootstrap.ROOT, "pyproject.toml")
    project.write_text(project.read_text().replace('"psutil>=5.9"', '"unheard-of>=5.9"'))
    commands = pretend_to_build(bootstrap, monkeypatch)
    bootstrap.environment()
    assert "unheard-of>=5.9" in commands[1]
    assert "scripts/lock refreshes it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "without_lock"),
    [
        ("ERROR: ... (from versions: 1.0)\nERROR: No matching distribution found for numpy", True),
        (
            "ERROR: ... (from versions: none)\nERROR: No matching distribution found for numpy",
            False,
        ),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", False),
    ],
    ids=["no wheel for this machine", "offline", "other files"],
)
def test_only_a_missing_file_goes_on_without_the_lock(bootstrap, monkeypatch, words, without_lock):
    commands = pretend_to_build(bootstrap, monkeypatch)
    call = bootstrap.call

    def pip(command, *held, **steps):
        call(command, *held, **steps)
        return words if "--require-hashes" in command else None

    monkeypatch.setattr(bootstrap, "call", pip)
    if without_lock:
        bootstrap.environment()
        assert len(commands) == 3
    else:
        with pytest.raises(bootstrap.SetupError, match="could not install") as error:
            bootstrap.environment()
        assert ("other files" in str(error.value)) == ("MATCH" in words)


# Making an environment


def test_makes_one_with_hashes_and_stamps_it(bootstrap, monkeypatch):
    commands = pretend_to_build(bootstrap, monkeypatch)
    python = bootstrap.environment("test")
    make, install = commands
    assert (make[0], make[3], install[3]) == (sys._base_executable, "venv", "pip")
    assert {"--require-hashes", "--no-deps", "--only-binary=:all:"} <= set(install)
    files = (bootstrap.lock_files()[0], bootstrap.lock_files("test")[1])
    assert install[-4:] == ["-r", files[0], "-r", files[1]]
    assert python == f"{bootstrap.ROOT}/.venv/bin/python"
    assert bootstrap.environment("test") == bootstrap.environment() == python
    assert len(commands) == 2


def test_starts_over_after_an_interrupted_set_up(bootstrap, monkeypatch):
    commands = pretend_to_build(bootstrap, monkeypatch)
    left_over = make_venv(bootstrap, None, "") / "half"
    left_over.touch()
    bootstrap.environment()
    assert "--clear" in commands[0]
    assert not left_over.exists()


def test_starts_over_when_its_own_packages_are_gone(bootstrap, monkeypatch):
    folder = make_venv(bootstrap, everything(bootstrap), "")
    monkeypatch.setattr(sys, "prefix", str(folder))
    monkeypatch.setattr(bootstrap, "missing_modules", lambda: ["rich"])
    commands = pretend_to_build(bootstrap, monkeypatch)
    bootstrap.environment()
    assert [command[3] for command in commands] == ["venv", "pip"]


def test_two_at_once_build_once(bootstrap, monkeypatch):
    commands = pretend_to_build(bootstrap, monkeypatch)
    call = bootstrap.call
    monkeypatch.setattr(bootstrap, "call", lambda *args, **steps: (time.sleep(0.1), call(*args))[1])
    threads = [threading.Thread(target=bootstrap.environment) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(commands) == 2


def test_leaves_an_environment_of_the_user_alone(bootstrap, monkeypatch, tmp_path):
    mine = make_venv(bootstrap, None, "") / "pyvenv.cfg"
    mine.write_text("prompt = 'mine'\n")
    pretend_to_build(bootstrap, monkeypatch)
    assert bootstrap.environment().startswith(f"{tmp_path}/cache/calculon/venv-")
    assert mine.read_text() == "prompt = 'mine'\n"


def test_uses_the_cache_folder_when_the_checkout_cannot_be_written(
    bootstrap, monkeypatch, tmp_path
):
    pretend_to_build(bootstrap, monkeypatch)
    monkeypatch.setattr(bootstrap.os, "access", lambda path, _: path != bootstrap.ROOT)
    assert bootstrap.environment().startswith(f"{tmp_path}/cache/calculon/venv-")


def test_says_so_when_nothing_can_be_written(bootstrap, monkeypatch):
    monkeypatch.setattr(bootstrap.os, "access", lambda *_: False)
    with pytest.raises(bootstrap.SetupError, match="XDG_CACHE_HOME"):
        bootstrap.environment()


# Finding a Python


def test_an_old_python_says_what_is_needed(bootstrap, monkeypatch, capsys, tmp_path):
    executable(tmp_path / "shims" / "python3.12", "echo not installed >&2; exit 127")
    monkeypatch.setenv("PATH", str(tmp_path / "shims"))
    monkeypatch.setattr(sys, "version_info", OLD)
    with pytest.raises(SystemExit) as stop:
        bootstrap.enter()
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "needs Python 3.11 or newer, found 3.8.18" in captured.err


def test_an_old_python_finds_a_newer_one_that_works(bootstrap, monkeypatch, tmp_path):
    executable(tmp_path / "shims" / "python3.12", "echo not installed >&2; exit 127")
    good = executable(tmp_path / "good" / "python3.11", f'exec {sys._base_executable} "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path}/shims:{tmp_path}/good")
    monkeypatch.setattr(sys, "version_info", OLD)
    assert bootstrap.find_builder() == str(good)


def test_says_how_to_go_on_without_ensurepip(bootstrap, monkeypatch):
    find_spec = importlib.util.find_spec
    lacking = {"ensurepip": None}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: lacking.get(name, name) and find_spec(name)
    )
    monkeypatch.setenv("PATH", "")
    with pytest.raises(bootstrap.SetupError, match="python3-venv"):
        bootstrap.find_builder()


# scripts/test


def test_failed_checks_count_in_the_closing_line(checkout, monkeypatch):
    monkeypatch.syspath_prepend(checkout / "scripts")
    script = load(checkout / "scripts" / "test", "checkout_test")
    closing = "== 2 failed, 10 passed, 1 skipped, 4 errors in 3.21s =="
    assert script.count_in(closing, 1) == "10 passed, 7 failed"
    assert script.count_in("no tests ran in 0.01s", 2) == "0 passed, 2 failed"
