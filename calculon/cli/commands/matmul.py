"""``calculon matmul``: time of a matrix product (GEMM) on the roofline, alone and overlapping a copy from the host."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from calculon.base.errors import Problem, SpecError
from calculon.base.units import GIGA, TERA, duration, scaled
from calculon.cli.changes import add_changes, with_changes
from calculon.cli.options import (
    STDOUT,
    Log,
    Parser,
    add_format,
    check_outputs,
    log_machine,
    one_of,
    positive,
)
from calculon.cli.sizes import size, size_text
from calculon.declarations.named_values import MATMUL_BYTES
from calculon.declarations.spellings.precisions import number_type
from calculon.render.document import Block, Section, labeled
from calculon.render.text_tables import FORMATS, Column, Table
from calculon.render.texts import bandwidth, percent

if TYPE_CHECKING:
    from calculon.estimate.product import ConcurrentCopy, MatrixProduct


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Time a product of an M x K and a K x N matrix on one processor: arithmetic at the rate the system reaches "
        "for this size or shape, memory traffic of both operands and the result, and both "
        "combined according to its processing_mode. A model layer takes the same time in edition corrected.\n\n"
        "With --copy a copy between host and processor memory (PCIe) begins at the same time on a second stream, from "
        "pinned memory. Copy engines run it, so the product keeps all multiprocessors, but its traffic shares the "
        "memory bandwidth with the copy. Together they take as long as the longer one; the "
        "hidden time is the sum of both alone minus that.",
        "calculon matmul 16384 16384 16384 h100_80g_sxm\n"
        "calculon matmul 16384 16384 16384 h100_80g_sxm --copy 1GiB\n"
        "calculon matmul 4096 14336 4096 a100_80g_sxm --datatype float32 --format json\n"
        "calculon matmul 16384 16384 16384 a100_80g_sxm --copy 1GiB -o streams.csv",
    )
    for name, words in (
        ("M", "rows of the result"),
        ("N", "columns of the result"),
        ("K", "depth: terms of each sum"),
    ):
        parser.argument(name, words, type=positive)
    parser.argument("SYS", "the system: a name of the catalog, a file, or -", "system")
    parser.option(
        "-d, --datatype, --dtype TYPE",
        f"type of the arithmetic: {', '.join(MATMUL_BYTES)} (default: bfloat16 if the system has it)",
        type=lambda text: one_of(*MATMUL_BYTES)(number_type(text)),
        choices=tuple(MATMUL_BYTES),
    )
    parser.option(
        "-c, --copy SIZE",
        "also copy this many bytes from or to the host on a second stream: 64MB, 1GiB",
        type=size,
    )
    parser.option("-o, --output FILE", "NAME.csv or NAME.json: one row with everything")
    add_changes(parser, "system")
    add_format(parser, FORMATS, "format of the printed output (default: text)", None)


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Time the product, and print or write the result."""
    output = arguments.output
    if output == STDOUT:
        hint = "--format csv or json prints"
        raise SpecError("--output", Problem("", "NAME.csv or NAME.json", "'-'", hint))
    if output is not None:
        check_outputs([output], [arguments.system], (".csv", ".json"))
        if arguments.format:
            wanted = "--format for what is printed, or --output"
            raise SpecError("matmul", Problem("", wanted, "both"))
    from calculon.estimate.product import datatype_of, matrix_product, with_concurrent_copy
    from calculon.inputs import system

    machine = system(with_changes(arguments.changes, system=arguments.system)["system"])
    datatype = datatype_of(machine, arguments.datatype)
    product = matrix_product(machine, arguments.m, arguments.n, arguments.k, datatype)
    overlap = None if arguments.copy is None else with_concurrent_copy(product, arguments.copy)
    # One row serves CSV and JSON; the page is for people only.
    row = _row(product, overlap)
    table = Table(tuple(Column(key, key, right=True) for key in row), [row])
    if output is not None:
        log.write(row, output, table)
    elif arguments.format not in (None, "text"):
        log.table(table, arguments.format)
    else:
        log_machine(log, machine)
        log.parts(*_page(product, overlap))
    return 0


def _row(product: "MatrixProduct", overlap: "ConcurrentCopy | None") -> dict[str, Any]:
    """Return all results of the product and copy, in seconds, bytes, TFLOP/s and GB/s."""
    row: dict[str, Any] = {
        "system": product.system.name,
        "m": product.m,
        "n": product.n,
        "k": product.k,
        "datatype": product.datatype,
        "flops": product.flops,
        "bytes": product.accessed,
        "arithmetic_seconds": product.arithmetic,
        "memory_seconds": product.memory,
        "seconds": product.time,
        "tflops": product.flops / product.time / TERA,
        "share_of_peak": product.share_of_peak,
    }
    if overlap is None:
        return row
    return row | {
        "copy_bytes": overlap.size,
        "copy_seconds": overlap.copy,
        "copy_GBps": overlap.size / overlap.copy / GIGA,
        "copy_share_of_mem1": overlap.share,
        "beside_seconds": overlap.product,
        "together_seconds": overlap.together,
        "hidden_seconds": overlap.hidden,
    }


def _page(product: "MatrixProduct", overlap: "ConcurrentCopy | None") -> Iterator[Block]:
    """Yield the product, and the effect of a simultaneous copy."""
    rate = scaled(product.flops / product.time, "FLOP/s", digits=1)
    traffic = scaled(product.accessed, "B", binary=True)
    yield (
        f"{product.m:,} x {product.k:,} times {product.k:,} x {product.n:,} in {product.datatype} "
        f"on {product.system.name}"
    )
    figures = {
        "arithmetic": f"{scaled(product.flops, 'FLOP')}, {duration(product.arithmetic)}",
        "memory": f"{traffic}, {duration(product.memory)}",
        "time": f"{duration(product.time)}: {rate}, {percent(product.share_of_peak)} of the peak",
    }
    yield Section("", (labeled(figures),))
    if overlap is None:
        return
    alone, shorter = product.time + overlap.copy, min(product.time, overlap.copy)
    size, rates = size_text(overlap.size), bandwidth(overlap.size / overlap.copy)
    yield f"Overlapping a copy of {size} between host and processor, on a second stream"
    hidden = percent(overlap.hidden / shorter)
    figures = {
        "copy alone": f"{duration(overlap.copy)}: {rates}, {percent(overlap.share)} of memory bandwidth",
        "product ends": f"after {duration(overlap.product)}",
        "together": f"{duration(overlap.together)}; one after the other {duration(alone)}",
        "hidden": f"{duration(overlap.hidden)}, {hidden} of the shorter one",
    }
    yield Section("", (labeled(figures),))
