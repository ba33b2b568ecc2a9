"""``--deploy DIR``: write the files that start a deployment, all at once, into a new or empty folder."""

import argparse
import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from calculon.base.errors import Problem, SpecError
from calculon.cli.options import STDOUT, Log, Parser
from calculon.cli.streams import print_stderr
from calculon.declarations import catalog
from calculon.declarations.files import json_text, reason

if TYPE_CHECKING:
    from calculon.advise.deployed import Deployed
    from calculon.serving.serve import Served

GENERATED = (
    *("README.md", "prediction.json", "bench.sh", "compose.yaml", "kubernetes.yaml"),
    *("llm-d.yaml", "dynamo.yaml", "router.yaml", "serve*.sh", "prefill*.sh", "decode*.sh"),
)
"""Patterns of all files that are written, which ``--force`` replaces; other files of the folder stay."""


def add_deploy(parser: Parser) -> None:
    """Declare the options."""
    parser.option(
        "--deploy DIR",
        "write start scripts, docker compose, Kubernetes, llm-d and Dynamo files, the benchmark and the prediction",
        "; --set engine=sglang chooses the engine (default vllm)",
    )
    parser.option(
        "--checkpoint NAME",
        "checkpoint of --deploy: a name or a folder (default: MODEL if a repository, else the source of its file)",
    )
    parser.switch("--force", "replace the files of an earlier --deploy in DIR")


def check_deploy(arguments: argparse.Namespace) -> None:
    """Check before any work that the folder can be written; SpecError for options without ``--deploy``."""
    if arguments.deploy is None:
        for name in ("checkpoint", "force"):
            if getattr(arguments, name):
                raise SpecError(f"--{name}", Problem("", "--deploy DIR together with it", "none"))
        return
    folder = Path(arguments.deploy)
    if folder.exists() and not folder.is_dir():
        raise SpecError(arguments.deploy, Problem("", "a folder", "a file"))
    if folder.is_dir() and any(folder.iterdir()) and not arguments.force:
        hint = "--force replaces the files of an earlier --deploy and keeps all others"
        raise SpecError(arguments.deploy, Problem("", "an empty or a new folder", "files", hint))
    if not folder.parent.is_dir():
        hint = f"mkdir -p {str(folder.parent)!r}"
        raise SpecError(arguments.deploy, Problem("", "a folder that exists", "none", hint))


def report_deploy(arguments: argparse.Namespace, log: Log) -> None:
    """Report the folder after the page, if one was written and the output is for people."""
    printed = arguments.format not in (None, "text") or arguments.file == STDOUT
    if arguments.deploy is not None and not printed:
        log(f"Output: {arguments.deploy} (README.md explains the files)")


def write_deploy(arguments: argparse.Namespace, served: "Served") -> "Deployed | None":
    """Write the folder of ``--deploy`` ; return the deployment as its engine runs it, None without."""
    if arguments.deploy is None:
        return None
    from calculon.advise.deployed import deployed
    from calculon.documents.deploy_readme import PREDICTION, readme

    found = deployed(served, "", _checkpoint(arguments, served))
    texts = found.files | {"README.md": readme(found)}
    texts[PREDICTION] = json_text(found.served.to_dict()) + "\n"
    write_folder(arguments.deploy, texts)
    return found


def _checkpoint(arguments: argparse.Namespace, served: "Served") -> str:
    """Return the name of the checkpoint, or its absolute folder."""
    stated: str | None = arguments.checkpoint
    if stated is not None:
        return str(Path(stated).resolve()) if Path(stated).is_dir() else stated
    from calculon.advise.deployed import checkpoint_of
    from calculon.declarations.spellings.catalog_words import is_repository, same_model

    asked = str(arguments.model)
    if is_repository(asked) and not Path(asked).exists():
        return asked.strip()
    origin = served.model.origin
    known = origin is not None and origin.source
    name = checkpoint_of(catalog.load("model", origin.source)[1]) if origin and known else ""
    if not name:
        wanted = "the name of the checkpoint, which the model file does not state"
        raise SpecError("--deploy", Problem("", wanted, "none", "--checkpoint NAME"))
    # an alias names another model of the same shape, whose weights and longest context differ
    alias = not (Path(asked).exists() or same_model(asked, served.model.name))
    other = f", of {served.model.name}; state that of {asked}" if alias else ""
    print_stderr(f"assumed: --checkpoint {name}{other}")
    return name


def write_folder(path: str, texts: Mapping[str, str]) -> None:
    """Write files into a new folder, which appears complete, or into an existing one, replacing files of earlier calls.

    Raises:
        SpecError: If the folder cannot be written.
    """
    target = Path(path).resolve()
    try:
        # In the same file system, so that renaming is possible.
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name[:100]}.", dir=target.parent))
        try:
            for name, text in texts.items():
                file = temporary / name
                file.write_text(text, encoding="utf-8")
                if name.endswith(".sh"):
                    file.chmod(0o755)
            _place(temporary, target, texts)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise SpecError(path, Problem("", "a writable folder", reason(error))) from None


def _place(temporary: Path, target: Path, texts: Mapping[str, str]) -> None:
    """Move a complete folder to its place, or its files into the folder that is there.

    An existing folder stays, since a shell may be in it.
    """
    if not target.exists():
        umask = os.umask(0)  # the only way to read it is to set it
        os.umask(umask)
        temporary.chmod(0o777 & ~umask)  # temporary folders are private
        temporary.replace(target)
        return
    for pattern in GENERATED:
        for old in target.glob(pattern):
            if old.name not in texts:
                with contextlib.suppress(IsADirectoryError):
                    old.unlink()
    for name in texts:
        (temporary / name).replace(target / name)
