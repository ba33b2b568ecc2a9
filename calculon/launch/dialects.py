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
from calculon.launch.megatron.mlperf import MLPERF
from calculon.launch.megatron.primus import PRIMUS
from calculon.launch.other_formats import other_format
from calculon.launch.server import Server
from calculon.launch.texts.reading_budget import TEXT, reading
from calculon.launch.titan.torchtitan import TORCHTITAN

_ALL = (MEGATRON_LM, PRIMUS, MLPERF, MEGATRON_BRIDGE, NEMO_1, TORCHTITAN, DEEPSPEED, ACCELERATE)
DIALECTS: dict[str, Dialect] = {one.name: one for one in _ALL}
"""Training dialects by name, in the order in which a file is tried."""

ENGINES: dict[str, Dialect] = {one.name: one for one in (VLLM, SGLANG, TENSORRT_LLM)}
"""Dialects of serving engines by name, in the order in which a file is tried."""

FORMATS: dict[str, Dialect] = DIALECTS | ENGINES
"""All dialects."""


def find_dialect(name: str, among: Mapping[str, Dialect] = FORMATS) -> Dialect:
    """Return a dialect by name, among all dialects or the given ones.

    Raises:
        SpecError: For an unknown name.
    """
    if name not in among:
        hint = nearest(name, list(among))
        raise SpecError(name, Problem("", f"one of {', '.join(among)}", "no such format", hint))
    return among[name]


def recognized(text: str, file: str) -> Dialect | None:
    """Return the training dialect of a text, given the name of its file; None if there is none.

    Raises:
        SpecError: For a file of a known launcher that is not supported.
    """
    if len(text) > TEXT:
        return None
    _refuse_others(text, file)
    if file.endswith(".toml"):  # settings in TOML have names that other dialects use, too
        return TORCHTITAN if TORCHTITAN.recognizes(text, file) else None
    return next((one for one in DIALECTS.values() if one.recognizes(text, file)), None)


def _refuse_others(text: str, file: str) -> None:
    """Raise an error for a file of an unsupported launcher."""
    if other := other_format(text, file):
        wanted = f"a launch file of {', '.join(FORMATS)}"
        hint = "write its degrees and batch as an execution: calculon describe execution"
        raise SpecError(
            file, Problem("", wanted, f"a file of {other}, which is not supported", hint)
        )


def recognized_engine(text: str, file: str) -> Dialect | None:
    """Return the engine that a text starts; None if there is none."""
    if len(text) > TEXT:
        return None
    return next((one for one in ENGINES.values() if one.recognizes(text, file)), None)


def read_launch(
    text: str,
    file: str,
    *,
    dialect: str = "",
    num_procs: int | None = None,
    variables: Mapping[str, str] | None = None,
    server: Server | None = None,
) -> Launch:
    """Read a launch file of any training framework or serving engine.

    Args:
        text, file: Contents and name of the file.
        dialect: Name of the dialect; empty to detect it.
        num_procs, variables, server: As in :func:`calculon.launch.dialect.read`.

    Raises:
        SpecError: For a text of no dialect or of an unsupported launcher, and as :func:`calculon.launch.dialect.read`.
    """
    with reading(file) as budget:
        budget.spend_text(text)  # before any pattern searches the text
        _refuse_others(text, file)  # even if the caller names a format
        if dialect:
            found: Dialect | None = find_dialect(dialect)
        else:
            # Engines first: their commands are unmistakable, while training formats are guessed from settings.
            found = recognized_engine(text, file) or recognized(text, file)
    if found is None:
        wanted = f"a launch file of {', '.join(FORMATS)}"
        hint = "if it is one of these, state the format before the file"
        raise SpecError(file, Problem("", wanted, "none that is recognized", hint))
    return read(found, text, file, num_procs=num_procs, variables=variables, server=server)
