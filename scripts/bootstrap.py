"""Give a checkout the Python packages it needs, without being asked.

``bin/calculon`` and ``scripts/test`` come here first. When the running interpreter has the
dependencies, nothing happens. Otherwise they are installed once into ``.venv`` in the checkout
(or, when that cannot be written, into the user's cache folder).

What is installed stands in ``scripts/constraints.txt``: releases and the hashes of their files
(scripts/lock refreshes it). A Python or machine that it does not cover gets the newest releases
that ``pyproject.toml`` allows, and a notice.

An environment is complete when it carries a stamp: requirements and releases that were installed,
one a line. The stamp is written last, so an interrupted set-up is redone, and one that no longer
covers what the checkout asks for is brought up to date.

This file must run on Python 3.6, to be able to say that 3.11 is needed. It imports late: every
call of calculon pays for the imports at the top.
"""

import os
import sys

MINIMUM = (3, 11)
NEWEST = 14  # the newest 3.x that the lock covers, and that is looked for by name
MODULES = ("numpy", "pandas", "psutil", "yaml", "rich", "shtab")  # of `dependencies`
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STAMP = "calculon-requirements.txt"
EXTRAS = ("tables", "plot", "fit", "web")  # also: fast table files, pictures, calibration, explore
PROMPT = "calculon-checkout"  # in its pyvenv.cfg: tells our environment from one of the user's
FAILED = 2
INTERRUPTED = 130


class SetupError(Exception):
    """The environment cannot be made; the message says why and what to do."""


def enter() -> None:
    """Return when this interpreter can run calculon; otherwise restart in one that can.

    Ends the process with exit code 2 and a message when there is none and none can be made.
    """
    if sys.version_info >= MINIMUM and not missing_modules():
        return
    python = environment_or_exit(*EXTRAS)
    os.execv(python, [python, *sys.argv])


def environment_or_exit(*extras: str) -> str:
    """Like :func:`environment`, but a failure ends the process with a message."""
    try:
        return environment(*extras)
    except SetupError as error:
        tell(str(error))
        sys.exit(FAILED)
    except KeyboardInterrupt:
        tell("interrupted; the next call starts the set-up over.")
        sys.exit(INTERRUPTED)


def run(script: str, *extras: str) -> None:
    """Replace this process by a script of this folder, in an environment with these extras."""
    python = environment_or_exit(*extras)
    os.environ["PYTHONPATH"] = ROOT
    os.execv(python, [python, os.path.join(ROOT, "scripts", script), *sys.argv[1:]])


def environment(*extras: str) -> str:
    """Return the interpreter of an environment with the dependencies and these extras.

    Makes or repairs the environment when needed; raises :class:`SetupError` when that fails.
    """
    needed = requirements(*extras) + pins(*extras)
    folders = (os.path.join(ROOT, ".venv"), cache_folder())
    for folder in folders:
        if is_complete(folder, needed):
            return interpreter(folder)
    for folder in folders:
        if is_ours_to_make(folder):
            try:
                return make(folder, extras)
            except OSError as error:
                raise SetupError(f"could not set up {folder}: {error}.") from error
    raise SetupError(
        f"needs a folder to install its dependencies in, but can write neither {folders[0]} nor "
        f"{folders[1]}. Make one of them writable, or name another cache folder (XDG_CACHE_HOME)."
    )


def requirements(*extras: str) -> "list[str]":
    """Read the requirements of the project and of these extras from ``pyproject.toml``."""
    found = {}  # type: dict[str, list[str]]
    name = ""
    with open(os.path.join(ROOT, "pyproject.toml"), encoding="utf-8") as file:
        for line in file:
            if line.endswith("= [\n"):
                name = line.split()[0]
            elif line.startswith("]"):
                name = ""
            elif name and line.lstrip().startswith('"'):
                found.setdefault(name, []).append(line.split('"')[1])
    return [one for group in ("dependencies", *extras) for one in found.get(group, [])]


def lock_files(*extras: str) -> "list[str]":
    """Return the files that pin what the project and these extras need."""
    names = ["constraints.txt"] + ["constraints-test.txt"] * ("test" in extras)
    return [os.path.join(ROOT, "scripts", name) for name in names]


def pins(*extras: str) -> "list[str]":
    """Read the pinned releases, such as ``numpy==2.4.6``; none in a checkout without lock."""
    found = []
    for path in lock_files(*extras):
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                found += [line.split()[0] for line in file if line[0] not in " #"]
    return found


def names(requirements: "list[str]") -> "list[str]":
    """Return the names of packages, from requirements or releases."""
    return [one.replace("=", ">").split(">")[0].lower() for one in requirements]


def missing_modules() -> "list[str]":
    """Name the dependencies that this interpreter cannot import, without importing them."""
    from importlib.machinery import PathFinder  # importlib.util would take longer to load

    specs = ((name, PathFinder.find_spec(name)) for name in MODULES)
    # An empty folder, left by a package that was removed, has a spec without an origin.
    return [name for name, spec in specs if spec is None or spec.origin is None]


def interpreter(folder: str) -> str:
    """Return where the environment in `folder` has its interpreter."""
    return os.path.join(folder, "bin", "python")


def is_complete(folder: str, needed: "list[str]") -> bool:
    """Tell whether `folder` holds a working environment with everything `needed`."""
    try:
        with open(os.path.join(folder, STAMP), encoding="utf-8") as file:
            stamped = file.read().splitlines()
    except OSError:
        return False
    if not os.path.exists(interpreter(folder)) or not set(needed) <= set(stamped):
        return False
    # Running in it and yet here: somebody removed packages, or replaced the Python below it.
    running_in_it = os.path.realpath(sys.prefix) == os.path.realpath(folder)
    return not (running_in_it and missing_modules())


def is_ours_to_make(folder: str) -> bool:
    """Tell whether an environment may be made in `folder`: never over one of the user's."""
    if not os.path.exists(folder):
        while not os.path.exists(folder):
            folder = os.path.dirname(folder)
        return os.access(folder, os.W_OK)
    try:
        with open(os.path.join(folder, "pyvenv.cfg"), encoding="utf-8") as file:
            return PROMPT in file.read() and os.access(folder, os.W_OK)
    except OSError:
        return False


def cache_folder() -> str:
    """Return the folder for the environment of a checkout that cannot be written."""
    import hashlib

    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    mark = hashlib.sha256(ROOT.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return os.path.join(home, "calculon", "venv-" + mark)


def make(folder: str, extras: "tuple[str, ...]") -> str:
    """Make or repair the environment in `folder` and return its interpreter."""
    try:
        import fcntl
    except ImportError:
        raise SetupError(
            "sets itself up on Linux and macOS only. Here, run `python -m pip install .` in "
            f"{ROOT} and then `calculon`."
        ) from None

    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(folder + ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"another set-up of {folder} is under way, waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_complete(folder, requirements(*extras) + pins(*extras)):
            build(folder, extras, lock.fileno())
    return interpreter(folder)


def build(folder: str, extras: "tuple[str, ...]", lock: int) -> None:
    """Install the dependencies and these extras into `folder`.

    The caller holds the `lock` (a file descriptor).
    """
    import time

    begin = time.time()
    stamp = os.path.join(folder, STAMP)
    outdated = os.path.exists(stamp) and os.path.exists(interpreter(folder))
    if outdated and os.path.realpath(sys.prefix) != os.path.realpath(folder):
        tell(f"updating {folder} to what this checkout asks for.")
        os.remove(stamp)
    else:
        python = find_builder()
        tell(f"setting up {folder} with {python} (once; takes about a minute).")
        command = [python, "-I", "-m", "venv", "--clear", "--prompt", PROMPT, folder]
        words = call(command, lock)
        if words is not None:
            raise SetupError(
                f"could not set up {folder}: {python} -m venv failed.\n{words}\n"
                "Make sure that this Python is complete (Debian, Ubuntu: apt install "
                "python3-venv) and that the disk is not full, then run the command again."
            )
    install(folder, extras, lock)
    with open(stamp, "w", encoding="utf-8") as file:
        file.write("\n".join(requirements(*extras) + pins(*extras)) + "\n")
    tell(f"ready after {time.time() - begin:.0f} s.")


def install(folder: str, extras: "tuple[str, ...]", lock: int) -> None:
    """Install the locked releases, or where the lock does not fit, what ``pyproject.toml`` allows.

    An index that serves other files under a locked name is an error: nothing is installed.
    """
    pip = [interpreter(folder), "-I", "-m", "pip", "install", "--no-input", "--progress-bar=off"]
    pip += ["--disable-pip-version-check"]
    needed = requirements(*extras)
    reason = lock_gap(folder, extras)
    if not reason:
        releases = pins(*extras)
        tell(f"downloading {len(releases)} packages: {', '.join(names(releases))}.")
        command = [*pip, "--require-hashes", "--no-deps", "--only-binary=:all:"]
        for path in lock_files(*extras):
            command += ["-r", path]
        words = call(command, lock, steps=len(releases))
        if words is None:
            return
        if "No matching distribution" not in words or "(from versions: none)" in words:
            raise pip_failed(folder, words)
        reason = "has no files for this machine, or not on this package index"
    tell(f"the lock (scripts/constraints.txt) {reason}; installing without it.")
    tell(f"installing {', '.join(needed)}.")
    words = call([*pip, "--prefer-binary", *needed], lock)
    if words is not None:
        raise pip_failed(folder, words)


def lock_gap(folder: str, extras: "tuple[str, ...]") -> str:
    """Say why the lock cannot be used in an environment; nothing when it can."""
    releases = pins(*extras)
    if not releases:
        return "is not there"
    if not set(names(requirements(*extras))) <= set(names(releases)):
        return "is older than pyproject.toml (scripts/lock refreshes it)"
    with open(os.path.join(folder, "pyvenv.cfg"), encoding="utf-8") as file:
        versions = [line.split()[-1] for line in file if line.startswith("version")]
    minor = int(versions[0].split(".")[1]) if versions else 0
    if not MINIMUM[1] <= minor <= NEWEST:
        return f"does not cover Python 3.{minor}"
    return ""


def pip_failed(folder: str, words: str) -> SetupError:
    """Return the error for a failed installation, with what pip said last and what to do."""
    if "No space left" in words:
        advice = "The disk is full: free about 500 MB and run the command again."
    elif "DO NOT MATCH THE HASHES" in words:
        advice = (
            "The package index serves other files than scripts/constraints.txt was made from: do "
            "not use it before you know why. Files that changed for a good reason are locked anew "
            "by scripts/lock."
        )
    else:
        advice = (
            "pip needs a package index: check the network, or name a mirror or proxy "
            "(PIP_INDEX_URL, HTTPS_PROXY), and run the command again. Or install the packages "
            "yourself: calculon uses them when the Python that runs it can import them."
        )
    return SetupError(
        f"could not set up {folder}: pip could not install these packages.\n{words}\n{advice}"
    )


def call(command: "list[str]", *held: int, steps: int = 0) -> "str | None":
    """Run a command quietly; return None, or the last lines it wrote if it failed.

    A terminal shows the line it wrote last, with the number of packages out of `steps` that pip
    has begun to download. The command keeps the `held` file descriptors too. With the lock among
    them, should this process be killed, the next one waits until the command, which lives on, has
    ended.
    """
    import subprocess
    from collections import deque

    # pip in an environment cannot install for the user, whatever the user's settings say.
    variables = dict(os.environ, PIP_USER="0", PYTHONUNBUFFERED="1")
    width = terminal_width()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=held,
        env=variables,
        universal_newlines=True,
        errors="replace",
    )
    last = deque(maxlen=12 if steps else 5)  # type: deque[str]
    done = 0
    assert process.stdout is not None
    try:
        with process.stdout as output:
            for line in output:
                if line.strip():
                    last.append("  | " + line.rstrip()[:160])
                done += line.startswith(("Collecting", "Processing"))
                if width and not line.startswith("WARNING"):
                    shown = f"[{done}/{steps}] {line.strip()}" if steps else line.strip()
                    sys.stderr.write("\r\033[K" + shown[: width - 1])
                    sys.stderr.flush()
                elif steps and line.startswith("Installing collected packages"):
                    tell("installing them.")
    except BaseException:
        process.kill()
        raise
    finally:
        if width:
            sys.stderr.write("\r\033[K")
    return "\n".join(last) if process.wait() else None


def find_builder() -> str:
    """Find a Python that is new enough and can make environments.

    The running one when it will do, else the newest on the ``PATH`` that really runs: a
    version manager leaves commands there that only say they are not installed.
    """
    from contextlib import suppress
    from importlib.util import find_spec

    new_enough = sys.version_info >= MINIMUM
    if new_enough and find_spec("venv") and find_spec("ensurepip"):
        return str(getattr(sys, "_base_executable", None) or sys.executable)
    probe = f"import sys, venv, ensurepip; sys.exit(sys.version_info < {MINIMUM})"
    for path in candidates():
        with suppress(OSError):
            if call([path, "-I", "-c", probe]) is None:
                return path
    found = f"{'.'.join(map(str, sys.version_info[:3]))} ({sys.executable})"
    if not new_enough:
        raise SetupError(
            f"needs Python 3.11 or newer, found {found} and no newer one on the PATH that can "
            "make environments. Install one (python.org, your system's packages, conda or uv) and "
            "run the command again."
        )
    raise SetupError(
        f"cannot install its dependencies: Python {found} lacks the modules venv and ensurepip. "
        "Install them (Debian, Ubuntu: apt install python3-venv) and run the command again, or "
        f"install the dependencies for this Python yourself: {' '.join(requirements())}."
    )


def candidates() -> "list[str]":
    """List the commands on the ``PATH`` that may be a new enough Python, newest first."""
    names = [f"python3.{minor}" for minor in range(NEWEST, MINIMUM[1] - 1, -1)] + ["python3"]
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    paths = (os.path.join(folder, name) for name in names for folder in folders if folder)
    return [path for path in paths if os.access(path, os.X_OK) and not os.path.isdir(path)]


def tell(message: str) -> None:
    """Write to stderr; stdout belongs to calculon."""
    sys.stderr.write(f"calculon: {message}\n")
    sys.stderr.flush()


def terminal_width() -> int:
    """Return the width of the terminal on stderr, 0 when it is none."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return 0
