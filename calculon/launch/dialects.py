"""The dialects by name, and the one that a file is of."""

from collections.abc import Mapping

from calculon.base.errors import Problem, SpecError, nearest
from calculon.launch.accelerate import ACCELERATE
from calculon.launch.deepspeed import DEEPSPEED
from calculon.launch.dialect import Dialect, Launch, read
from calculon.launch.engines.sglang import SGLANG
from calculon.launch.engines.tensorrt_llm import TENSORRT_LLM
from calculon.launch.engines.vllm import VLLM
from calculon.launch.megatron.megatron_bridge import MEGATRON_BRIDGE, NEMO_1
from calculon.launch.megatron.megatron_lm import MEGATRON_LM
from calculon.launch.other_formats import other_format
from calculon.launch.server import Server
from calculon.launch.texts.reading_budget import TEXT, reading
from calculon.launch.titan.torchtitan import TORCHTITAN

_ALL = (MEGATRON_LM, MEGATRON_BRIDGE, NEMO_1, TORCHTITAN, DEEPSPEED, ACCELERATE)
DIALECTS: dict[str, Dialect] = {one.name: one for one in _ALL}
"""The dialects of training by name, in the order in which a file is tried."""

ENGINES: dict[str, Dialect] = {one.name: one for one in (VLLM, SGLANG, TENSORRT_LLM)}
"""The dialects of engines that serve, likewise."""

FORMATS: dict[str, Dialect] = DIALECTS | ENGINES
"""All of them."""


def find_dialect(name: str, among: Mapping[str, Dialect] = FORMATS) -> Dialect:
    """Return a dialect by name, of training or of an engine unless it is to be one of some.

    Raises:
        SpecError: When there is none of that name.
    """
    if name not in among:
        hint = nearest(name, list(among))
        raise SpecError(name, Problem("", f"one of {', '.join(among)}", "no such format", hint))
    return among[name]


def recognised(text: str, file: str) -> Dialect | None:
    """Return the dialect of training that a text is of, given the name of its file; nothing where it is of none.

    Raises:
        SpecError: For a file of a launcher that is not read, by name.
    """
    if len(text) > TEXT:
        return None
    _refuse_others(text, file)
    if file.endswith(".toml"):  # whatever the names of its settings
        return TORCHTITAN if TORCHTITAN.recognises(text, file) else None
    return next((one for one in DIALECTS.values() if one.recognises(text, file)), None)


def _refuse_others(text: str, file: str) -> None:
    """Raise the error of a file of a launcher that is not read."""
    if other := other_format(text, file):
        wanted = f"a launch file of {', '.join(FORMATS)}"
        hint = "write its degrees and batch as an execution: calculon describe execution"
        raise SpecError(file, Problem("", wanted, f"a file of {other}, which is not read", hint))


def recognised_engine(text: str, file: str) -> Dialect | None:
    """Return the engine that a text starts, likewise."""
    if len(text) > TEXT:
        return None
    return next((one for one in ENGINES.values() if one.recognises(text, file)), None)


def read_launch(
    text: str,
    file: str,
    *,
    dialect: str = "",
    num_procs: int | None = None,
    variables: Mapping[str, str] | None = None,
    server: Server | None = None,
) -> Launch:
    """Read a file of any launcher, or of an engine that serves.

    Args:
        text, file: What it contains, and its name.
        dialect: Name of its dialect; empty: found by looking.
        num_procs, variables, server: As in :func:`calculon.launch.dialect.read`.

    Raises:
        SpecError: For a text that is of no dialect, or of a launcher that is not read, and as
            :func:`calculon.launch.dialect.read`.
    """
    with reading(file) as budget:
        budget.spend_text(text)  # before anything looks through it
        _refuse_others(text, file)  # whatever its format is said to be
        if dialect:
            found: Dialect | None = find_dialect(dialect)
        else:
            found = recognised_engine(text, file) or recognised(text, file)
    if found is None:
        wanted = f"a launch file of {', '.join(FORMATS)}"
        hint = "state the format before the file where it is one of these"
        raise SpecError(file, Problem("", wanted, "none that is recognised", hint))
    return read(found, text, file, num_procs=num_procs, variables=variables, server=server)
