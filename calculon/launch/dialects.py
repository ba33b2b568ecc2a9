"""The dialects by name, and the one that a file is of."""

from collections.abc import Mapping

from calculon.errors import Problem, SpecError, nearest
from calculon.launch.accelerate import ACCELERATE
from calculon.launch.deepspeed import DEEPSPEED
from calculon.launch.dialect import Dialect, Launch, read
from calculon.launch.megatron.megatron_bridge import MEGATRON_BRIDGE, NEMO_1
from calculon.launch.megatron.megatron_lm import MEGATRON_LM
from calculon.launch.titan.torchtitan import TORCHTITAN

_ALL = (MEGATRON_LM, MEGATRON_BRIDGE, NEMO_1, TORCHTITAN, DEEPSPEED, ACCELERATE)
DIALECTS: dict[str, Dialect] = {one.name: one for one in _ALL}
"""The dialects by name, in the order in which a file is tried."""


def find_dialect(name: str) -> Dialect:
    """Return a dialect by name.

    Raises
    ------
    SpecError
        When there is none of that name.
    """
    if name not in DIALECTS:
        hint = nearest(name, list(DIALECTS))
        raise SpecError(name, Problem("", f"one of {', '.join(DIALECTS)}", "no such format", hint))
    return DIALECTS[name]


def recognised(text: str, file: str) -> Dialect | None:
    """Return the dialect that a text is of, given the name of its file; nothing where it is of none."""
    if file.endswith(".toml"):  # whatever the names of its settings
        return TORCHTITAN if TORCHTITAN.recognises(text, file) else None
    return next((one for one in DIALECTS.values() if one.recognises(text, file)), None)


def read_launch(
    text: str,
    file: str,
    *,
    dialect: str = "",
    num_procs: int | None = None,
    variables: Mapping[str, str] | None = None,
) -> Launch:
    """Read a file of any launcher.

    Parameters
    ----------
    text, file : str
        What it contains, and its name.
    dialect : str
        Name of its dialect; empty: found by looking.
    num_procs, variables
        As in :func:`calculon.launch.dialect.read`.

    Raises
    ------
    SpecError
        For a text that is of no dialect, and as :func:`calculon.launch.dialect.read`.
    """
    found = find_dialect(dialect) if dialect else recognised(text, file)
    if found is None:
        wanted = f"a launch file of {', '.join(DIALECTS)}"
        hint = "state the format before the file where it is one of these"
        raise SpecError(file, Problem("", wanted, "none that is recognised", hint))
    return read(found, text, file, num_procs=num_procs, variables=variables)
