"""Launch files: their detection, and their use as executions."""

import os
import warnings
from collections.abc import Mapping

from calculon.base.errors import Problem, SpecError, printable
from calculon.declarations import catalog
from calculon.declarations.decode import SpecWarning
from calculon.declarations.files import STDIN, read_bytes
from calculon.declarations.model import Model
from calculon.declarations.origin import plain_name
from calculon.launch.dialect import Launch, read
from calculon.launch.dialects import read_launch, recognized, recognized_engine
from calculon.launch.engines.engine_files import CHECKPOINT
from calculon.launch.server import Server

_LOST = "changes the result, and is not modeled"
_MOST = 3
"""Number of settings that a warning names."""

SHAPE = ("num_blocks", "hidden", "feedforward", "attn_heads", "num_experts", "sliding_window")
"""Fields that distinguish two models."""


def launch_text(path: str) -> str:
    """Return the text of a file, or of standard input for ``-``.

    Raises:
        SpecError: If it cannot be read, or is not text.
    """
    file = "<stdin>" if path == STDIN else path
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        raise SpecError(file, Problem("", "UTF-8 text", "other bytes")) from None


def read_launch_file(
    path: str,
    dialect: str = "",
    *,
    num_procs: int | None = None,
    variables: Mapping[str, str] | None = None,
    server: Server | None = None,
) -> Launch:
    """Read a launch file, or a command that starts an engine.

    Other arguments and errors as in :func:`calculon.launch.dialects.read_launch`.

    Args:
        path: Path of the file, ``-`` for standard input; or the command itself, as one text.
    """
    if is_command(path):
        text, file = path, "command"
    else:
        text, file = launch_text(path), "<stdin>" if path == STDIN else path
    return read_launch(
        text, file, dialect=dialect, num_procs=num_procs, variables=variables, server=server
    )


def is_command(text: str) -> bool:
    """Return true for a command that starts an engine, and false for the path of a file.

    >>> is_command("vllm serve some/model -tp 4"), is_command("serve.sh")
    (True, False)
    """
    there = os.path.exists(text)  # noqa: PTH110 (a text that cannot be a path does not exist)
    return " " in text and recognized_engine(text, "") is not None and not there


def launched_execution(path: str, num_procs: int | None = None) -> Launch | None:
    """Return the contents of a launch file; None for any other file.

    Raises:
        SpecError: If it is a launch file with an error, or starts a serving engine.
    """
    try:
        text = launch_text(path)
    except SpecError:
        return None  # the reader of executions reports the problem
    found = recognized(text, path)
    if found is None and (engine := recognized_engine(text, path)) is not None:
        wanted = "an execution, which describes a training"
        hint = "calculon serve takes it as a deployment"
        raise SpecError(path, Problem("", wanted, f"a server of {engine.title}", hint))
    return None if found is None else read(found, text, path, num_procs=num_procs)


def is_engine_script(path: str) -> bool:
    """Return true if a file starts a serving engine, whatever its errors."""
    try:
        return recognized_engine(launch_text(path), path) is not None
    except SpecError:
        return False


def is_launch_file(path: str) -> bool:
    """Return true if a file is a training launch file, whatever its errors.

    Raises:
        SpecError: For a file of an unsupported launcher.
    """
    try:
        text = launch_text(path)
    except SpecError:
        return False
    return recognized(text, path) is not None


def warn_of_lost_settings(path: str, launch: Launch) -> None:
    """Warn about settings of a file that the result does not include."""
    if lost := lost_settings(launch):
        warnings.warn(printable(f"{path}: {lost}"), SpecWarning, stacklevel=3)


def warn_of_other_model(path: str, launch: Launch, model: Model) -> None:
    """Warn if a file describes a different model than the requested one."""
    if found := differences_of_model(launch, model):
        words = f"{path}: it describes a different model; {model.name} is used ({found})"
        warnings.warn(printable(words), SpecWarning, stacklevel=3)


def differences_of_model(launch: Launch, model: Model) -> str:
    """Return the fields in which the model of a file differs from a model; empty if they agree."""
    # Only the shape is compared: names of models differ between launchers.
    other = {name: launch.model[name] for name in SHAPE if name in launch.model}
    wrong = [name for name, value in other.items() if value != getattr(model, name)]
    return ", ".join(f"{name} {other[name]:,}, not {getattr(model, name):,}" for name in wrong)


def warn_of_other_checkpoint(path: str, launch: Launch, model: Model) -> None:
    """Warn if a script starts an engine for a catalog model other than the requested one; unknown names are ignored."""
    stated = launch.stated.get(CHECKPOINT)
    try:
        name = "" if stated is None else catalog.exact("model", str(stated.value))
    except SpecError:
        return
    if name not in ("", plain_name(model.name)):
        words = f"{path}: it serves {stated.value}; {model.name} is used" if stated else ""
        warnings.warn(printable(words), SpecWarning, stacklevel=3)


def lost_settings(launch: Launch) -> str:
    """Return a warning that lists settings which the result does not include; empty if there are none.

    It names the first few settings and counts the others.
    """
    unknown = [setting.name for setting in launch.unknown]
    names = [setting.name for setting, _ in launch.not_modelled] + unknown
    if not names:
        return ""
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    listed = ", ".join(names[:_MOST]) + more
    what = f"{listed}: {_LOST}" if not unknown else f"{listed}: not modeled, or unknown"
    return f"{what} (calculon import-flags FILE lists them)"
