"""``calculon check``: compare a serving benchmark with the prediction of its deployment."""

import argparse

from calculon.cli.options import Log, Parser, add_answer, check_answer, check_inputs


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Compare the result of a serving benchmark with the prediction for the same deployment: time to the first "
        "token, time per token, throughput, the ranges, and the part of a request that differs. Reads results of vllm "
        "bench serve (--save-result), sglang.bench_serving (JSON lines), TensorRT-LLM's benchmark_serving, "
        "trtllm-bench (--report_json), GenAI-Perf and AIPerf.",
        "calculon serve llama3-8B tp=2 h100 --prompt 1024 --output 256 --users 8 --set engine=tensorrt-llm "
        "-o served.json\n"
        "calculon check examples/measurements/llama3-8B_h100x2_served.json --prediction served.json -o check.html",
        "calculon serve --deploy DIR writes the benchmark and prediction.json. Exit code 0 whatever the difference is. "
        "calculon serve --evidence DIR/bench.json then uses the measurement in its ranges.",
    )
    parser.argument("BENCH", "the result file of the benchmark")
    parser.option(
        "--prediction FILE",
        "the prediction, as calculon serve -o writes it (default: prediction.json next to BENCH)",
    )
    add_answer(parser, tables="one line per figure")


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Compare, and print the page or write the file."""
    files = [arguments.bench, *([arguments.prediction] if arguments.prediction else [])]
    check_inputs(files)
    check_answer(arguments, files)
    from calculon.documents.check_page import check_page
    from calculon.validate.served_check import check_benchmark

    found = check_benchmark(arguments.bench, arguments.prediction or "")
    log.answer(arguments, lambda: check_page(found), found.to_dict)
    return 0
