"""Files of launchers: found by looking, and as specs of an execution."""

import os
import warnings
from collections.abc import Mapping

from calculon.base.errors import Problem, SpecError, printable
from calculon.declarations.decode import SpecWarning
from calculon.declarations.files import STDIN, read_bytes
from calculon.declarations.model import Model
from calculon.launch.dialect import Launch, read
from calculon.launch.dialects import read_launch, recognised, recognised_engine
from calculon.launch.server import Server

_LOST = "changes the result, and is not modelled"
_MOST = 3
"""Settings that a warning names."""

_SHAPE = ("num_blocks", "hidden", "feedforward", "attn_heads", "num_experts", "sliding_window")
"""Figures by which two models are told apart."""


def launch_text(path: str) -> str:
    """Return the text of a file, or of standard input for ``-``.

    Raises:
        SpecError: When it cannot be read, or is no text.
    """
    file = "<stdin>" if path == STDIN else path
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        raise SpecError(file, Problem("", "a text in UTF-8", "other bytes")) from None


def read_launch_file(
    path: str,
    dialect: str = "",
    *,
    num_procs: int | None = None,
    variables: Mapping[str, str] | None = None,
    server: Server | None = None,
) -> Launch:
    """Read a file of a launcher, or a command that starts an engine.

    Other arguments and errors as of :func:`calculon.launch.dialects.read_launch`.

    Args:
        path: The file, ``-`` for standard input; or the command itself, in one text.
    """
    if is_command(path):
        text, file = path, "command"
    else:
        text, file = launch_text(path), "<stdin>" if path == STDIN else path
    return read_launch(
        text, file, dialect=dialect, num_procs=num_procs, variables=variables, server=server
    )


def is_command(text: str) -> bool:
    """Return whether a text is a command that starts an engine, and no path of a file.

    >>> is_command("vllm serve some/model -tp 4"), is_command("serve.sh")
    (True, False)
    """
    there = os.path.exists(text)  # noqa: PTH110 (a text that can be no path has none)
    return " " in text and recognised_engine(text, "") is not None and not there


def launched_execution(path: str, num_procs: int | None = None) -> Launch | None:
    """Return what a file says where it is one of a launcher; nothing for any other.

    Raises:
        SpecError: When it cannot be read, and for anything wrong with a file of a launcher.
    """
    try:
        text = launch_text(path)
    except SpecError:
        return None  # whoever reads it as a spec says what is wrong
    found = recognised(text, path)
    if found is None and (engine := recognised_engine(text, path)) is not None:
        wanted = "an execution: how a model is trained"
        hint = "calculon serve takes it as a deployment"
        raise SpecError(path, Problem("", wanted, f"a server of {engine.title}", hint))
    return None if found is None else read(found, text, path, num_procs=num_procs)


def is_engine_script(path: str) -> bool:
    """Return whether a file starts an engine that serves, whatever is wrong with it."""
    try:
        return recognised_engine(launch_text(path), path) is not None
    except SpecError:
        return False


def is_launch_file(path: str) -> bool:
    """Return whether a file is one of a launcher, whatever is wrong with it.

    Raises:
        SpecError: For a file of a launcher that is not read.
    """
    try:
        text = launch_text(path)
    except SpecError:
        return False
    return recognised(text, path) is not None


def tell_lost(path: str, launch: Launch) -> None:
    """Warn of the settings of a file that are not in its result."""
    if lost := lost_in_words(launch):
        warnings.warn(printable(f"{path}: {lost}"), SpecWarning, stacklevel=3)


def tell_other_model(path: str, launch: Launch, model: Model) -> None:
    """Warn where a file describes another model than the one that is asked about."""
    other = {name: launch.model[name] for name in _SHAPE if name in launch.model}
    if wrong := [name for name, value in other.items() if value != getattr(model, name)]:
        found = ", ".join(f"{name} {other[name]:,}, not {getattr(model, name):,}" for name in wrong)
        words = f"{path}: it describes another model than {model.name} ({found}), which counts here"
        warnings.warn(printable(words), SpecWarning, stacklevel=3)


def lost_in_words(launch: Launch) -> str:
    """Say which settings are not in the result, for a warning; empty where all are.

    Their names, the first of them, and how many there are.
    """
    unknown = [setting.name for setting in launch.unknown]
    names = [setting.name for setting, _ in launch.not_modelled] + unknown
    if not names:
        return ""
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    listed = ", ".join(names[:_MOST]) + more
    what = f"{listed}: {_LOST}" if not unknown else f"{listed}: not modelled, or unknown"
    return f"{what} (calculon import-flags lists them)"
