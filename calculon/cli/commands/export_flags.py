"""``calculon export-flags``: write an execution as the launch script or configuration of a launcher."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calculon.base.errors import Problem, SpecError
from calculon.cli.changes import add_changes, parsed, with_changes
from calculon.cli.emission import check_launch_file, show_changes
from calculon.cli.field_options import processors_in_place
from calculon.cli.options import STDOUT, Log, Parser, add_preset, naming
from calculon.cli.streams import print_stderr
from calculon.declarations import catalog
from calculon.declarations.files import reason, replacing
from calculon.declarations.result_selection import split
from calculon.declarations.spellings.plan_pairs import is_plan, pairs_of

if TYPE_CHECKING:
    from calculon.declarations.execution import Execution
    from calculon.declarations.model import Model
    from calculon.declarations.presets import Preset
    from calculon.launch.dialect import Dialect


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Write the launch script or configuration that runs an execution, complete with the model if it is "
        "known, for a stated version of the launcher. A value that the launcher cannot express is an error that "
        "names the field and the nearest supported value. Formats: megatron-lm, megatron-bridge, nemo, primus, mlperf, "
        "torchtitan, deepspeed, accelerate; for a deployment or a result of calculon serve, the engines vllm, sglang, "
        "tensorrt-llm.",
        'calculon export megatron-lm llama-3.1-8b "tp=4 dp=16" -o run.sh\n'
        "calculon export-flags megatron-lm llama3-8B_h100x64 llama3-8B -o run.sh\n"
        "calculon loe llama3-8B 64 256 bfloat16 h100_80g_sxm best.json --preset megatron-lm --quiet\n"
        "calculon export-flags megatron-lm best.json#0\n"
        "calculon export-flags megatron-lm best.json#0 llama3-8B --set execution.microbatch_size=2\n"
        "calculon export-flags megatron-lm best.json#0 --patch run.sh -o better.sh\n"
        "calculon serve llama3-70B 8 h100 --prompt 2000 --output 500 --tpot 50ms -o served.json\n"
        "calculon export-flags vllm served.json -o serve.sh\n"
        "calculon export-flags sglang llama3.1-70B_h100x8_fp8 llama3-70B --system h100",
    )
    parser.argument("FORMAT", "the launcher or engine", "dialect")
    parser.argument(
        "EXE",
        "the execution or deployment: a catalog name, a file, or a result (best.json#0); words "
        '("tp=4 dp=16"); or, with --system, a number of processors',
        "execution",
    )
    parser.argument(
        "APP",
        "the model, before or after the execution (default: from the result; otherwise its settings are left out)",
        "model",
        nargs="?",
    )
    parser.argument("SYSTEM", "the machine, if the file does not name it", "machine", nargs="?")
    parser.option(
        "-o, --output FILE", "the script or configuration; - prints it (default)", default=STDOUT
    )
    parser.option(
        "--patch FILE",
        "a launch file of the same launcher: change only the settings in which its execution differs, and show the "
        "changes",
    )
    parser.option(
        "--system SYSTEM",
        "machine of a deployment: with the model, converts a share of free memory into a share of all memory",
    )
    add_changes(parser, "execution", "deployment")
    add_preset(parser)


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Write or print the file."""
    from calculon.launch.dialects import find_dialect

    dialect = find_dialect(arguments.dialect)
    _set_in_order(arguments)
    output, source = arguments.output, arguments.execution
    if output != STDOUT:
        check_launch_file(output, dialect, arguments.patch or "")
        # Compare resolved paths: "./run.sh" and "run.sh" are one file.
        if Path(output).resolve() == Path(split(source)[0]).resolve():
            raise SpecError(output, Problem("", "a separate file", "an input of that name"))
    before = ""
    if arguments.patch:
        before, text, note = _patched(arguments, dialect)
    else:
        text, note = (_engine if dialect.subject == "deployment" else _training)(arguments, dialect)
    if output == STDOUT:
        log(text.rstrip("\n"))
    else:
        _write(output, text)
    if arguments.patch:
        names = (arguments.patch, f"{dialect.name}: {source}" if output == STDOUT else output)
        show_changes(before, text, names, log, aside=output == STDOUT)
    if note and not log.quiet and (arguments.patch or output == STDOUT):
        print_stderr(note)
    if output != STDOUT:
        log(f"Output: {output}")
    return 0


def _set_in_order(arguments: argparse.Namespace) -> None:
    """Swap model and execution if the model comes first; take the machine from the option or the argument."""
    first, second = arguments.execution, arguments.model
    if second is not None and _is_model(first) and not _is_model(second):
        arguments.execution, arguments.model = second, first
    arguments.system = arguments.system or arguments.machine
    if is_plan(arguments.execution) and arguments.model is None:
        hint = "calculon export FORMAT MODEL PLAN"
        raise SpecError(
            arguments.execution, Problem("", "the model of a plan in words", "none", hint)
        )


def _is_model(text: str) -> bool:
    """Return True if a text names a catalog model, and no execution or deployment."""
    if is_plan(text) or Path(text).exists():
        return False
    others = (*catalog.names("execution"), *catalog.names("deployment"))
    try:
        return text not in others and catalog.exact("model", text) in catalog.names("model")
    except SpecError:
        return False


def _write(output: str, text: str) -> None:
    """Write a file; SpecError if it cannot be written."""
    try:
        with replacing(output) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise SpecError(output, Problem("", "a writable file", reason(error))) from None


def _asked(
    arguments: argparse.Namespace, dialect: "Dialect"
) -> tuple["Execution", "Model | None", "Preset"]:
    """Return the execution, the model if it is known, and the preset."""
    from calculon import inputs

    source = arguments.execution
    changed = with_changes(arguments.changes, execution=source)["execution"]
    model = inputs.model(arguments.model) if is_plan(source) else None
    preset = arguments.preset
    if model is not None and preset is None and "preset" not in pairs_of(source):
        preset = dialect.preset
    asked = inputs.resolve_execution(changed, preset=preset, model=model)
    known = {"model": arguments.model} if arguments.model else {}
    specs: dict[str, Any] = {**inputs.sources_in(asked.question, split(source)[0]), **known}
    shape = inputs.model(specs["model"]) if "model" in specs else None
    return asked.execution, shape, asked.preset


def _training(arguments: argparse.Namespace, dialect: "Dialect") -> tuple[str, str]:
    """Return the launch file of an execution, and a note for the user (empty if none)."""
    from calculon.advise.launch_text import launch_text

    execution, model, preset = _asked(arguments, dialect)
    with naming(arguments.execution):
        text = launch_text(dialect, execution, model, preset=preset)
    unknown = "Note: the model is unknown, so its settings are left out; name it after EXE"
    return text, unknown if model is None else ""


def _patched(arguments: argparse.Namespace, dialect: "Dialect") -> tuple[str, str, str]:
    """Return the original launch file, the patched one, and notes for the user."""
    from calculon import inputs
    from calculon.advise.launch_flags import patched_file

    file = arguments.patch
    execution, model, _ = _asked(arguments, dialect)
    launch = inputs.launch_in(file, execution.num_procs)
    if launch is None or launch.dialect.name != dialect.name:
        other = "another file" if launch is None else f"one of {launch.dialect.title}"
        raise SpecError(file, Problem("", f"a launch file of {dialect.title}", other))
    if model is None and launch.model:
        model = inputs.model(launch.model.get("name") or launch.model)
    if model is None:
        raise SpecError(file, Problem("", "a model", "none", "name it after EXE"))
    mine = inputs.execution(launch.execution)
    before, found = patched_file(file, mine, execution, model, launch)
    return before, found.text, "\n".join(f"Note: {note}" for note in found.notes)


def _engine(arguments: argparse.Namespace, dialect: "Dialect") -> tuple[str, str]:
    """Return the script that starts an engine for a deployment, and an empty note."""
    from calculon.advise.engine_flags import engine_text

    source = arguments.execution
    count = processors_in_place(source)
    changes = parsed(arguments.changes, ("deployment",))["deployment"]
    with naming(source):
        text = engine_text(
            dialect,
            source if count is None else count,
            model=arguments.model,
            system=arguments.system,
            changes=changes,
        )
    return text, ""
