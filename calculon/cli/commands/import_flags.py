"""``calculon import-flags``: read the script or configuration of a launcher as an execution."""

import argparse
import sys

from calculon.base.errors import Problem, SpecError
from calculon.cli.options import STDOUT, Log, Parser, add_format, check_outputs, positive
from calculon.declarations.files import STDIN, json_text, write_json


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Turn a launch script or configuration into an execution, and into a model if its settings describe one. "
        "Nothing is executed and nothing is dropped: every setting is read, or reported as having no effect on time "
        "or memory, as not modeled, or as unknown. A missing setting means the "
        "launcher's default. Formats: megatron-lm, megatron-bridge, nemo, primus, mlperf, torchtitan, "
        "deepspeed, accelerate; "
        "default recognized from the file. Every command that accepts an execution accepts such a file. A command "
        "that starts vllm, sglang or tensorrt-llm, in a file or as text, becomes a deployment for calculon serve.",
        "calculon import-flags run.sh\n"
        "calculon import-flags run.sh -o plan.json -m model.json\n"
        "calculon import-flags megatron-lm run.sh --procs 128 -o plan.json\n"
        "calculon import-flags run.sh --env MODEL_SIZE=70B --env 1=dsw\n"
        "calculon import-flags 'vllm serve some/model -tp 8' --model llama3-70B --system h100 -o served.json",
    )
    parser.argument(
        "FORMAT", "its format (default: recognized from the file)", "dialect", nargs="?", default=""
    )
    parser.argument("FILE", "the script or configuration, or -; or a command of an engine")
    parser.option(
        "-o, --output FILE",
        "the execution, or deployment (.json); - prints it, with the page on standard error",
    )
    parser.option("-m, --model-output FILE", "the model that the settings describe (.json)")
    parser.option("-p, --procs N", "processors (default: from the file)", type=positive)
    parser.option(
        "-e, --env NAME=VALUE",
        "value of an environment variable, or of a script argument (1=VALUE), that the file uses; may be "
        "repeated",
        action="append",
        default=[],
    )
    for kind in ("model", "system"):
        parser.option(
            f"--{kind} NAME|FILE",
            f"{kind} of a serving engine: with both, its share of all memory becomes a share of free memory",
        )
    meaning = "format of the printed output: a page (text, default) or everything (json)"
    add_format(parser, meaning=meaning)


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Read the file, write the requested outputs, and print how each setting was handled."""
    from calculon.advise.launch_flags import import_flags
    from calculon.launch.launch_files import is_command

    outputs = [name for name in (arguments.output, arguments.model_output) if name is not None]
    command = is_command(arguments.file)
    check_outputs([name for name in outputs if name != STDOUT], [] if command else [arguments.file])
    # Two documents on one stream could not be separated again.
    if outputs.count(STDOUT) + (arguments.format == "json") > 1:
        raise SpecError("import-flags", Problem("", "one output on standard output", "several"))
    launch = import_flags(
        arguments.file,
        arguments.dialect,
        num_procs=arguments.procs,
        variables=_variables(arguments.env),
        model=arguments.model,
        system=arguments.system,
    )
    file = "<stdin>" if arguments.file == STDIN else "" if command else arguments.file
    from calculon.documents.launch_page import launch_page

    page = launch_page(launch, file)
    if arguments.model_output is not None and not launch.model:
        wanted = "settings that describe a model (blocks, width, heads, sequence)"
        raise SpecError(
            file or "command", Problem("", wanted, "not all of these", "leave out --model-output")
        )
    if arguments.format == "json":
        log(json_text({"file": file, **launch.to_dict()}))
    elif STDOUT in outputs:
        from calculon.render.console import show

        if not log.quiet:
            show(page, sys.stderr)
    else:
        log.show(page)
    documents = {
        arguments.output: dict(launch.deployment or launch.execution),
        arguments.model_output: {**launch.model, "about": {"source": file}},
    }
    for path in outputs:
        if path == STDOUT:
            log(json_text(documents[path]))
        else:
            write_json(path, documents[path])
            if STDOUT not in outputs and arguments.format != "json":
                log(f"Output: {path}")
    return 0


def _variables(texts: list[str]) -> dict[str, str]:
    """Parse ``NAME=VALUE`` texts into variables by name."""
    result: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            wanted = "NAME=VALUE, such as MODEL_SIZE=70B, or 1=VALUE for an argument"
            raise SpecError("--env", Problem("", wanted, repr(text)))
        result[name] = value
    return result
