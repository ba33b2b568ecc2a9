"""``calculon block``: one transformer block, or part of one, operator by operator."""

import argparse

from calculon.cli.changes import add_changes, with_changes
from calculon.cli.options import (
    Log,
    Parser,
    add_answer,
    add_edition,
    add_preset,
    add_specs,
    check_answer,
    check_inputs,
    naming,
)
from calculon.declarations.model import PARTS


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "List the operators of one block for one microbatch, on one rank: arithmetic, memory traffic and time of each "
        "pass, weights, activations, and tensor-parallel collectives. The model does not have to fit into memory.",
        "calculon block gpt3-175B 3072_t4_p64_d12_mbs4_full a100_80g\n"
        "calculon block llama3-8B llama3-8B_h100x64 h100_80g_sxm --part mlp\n"
        "calculon block nanogpt-mlp nanogpt-mlp_t4 a100_80g_sxm --set tp_async=true\n"
        "calculon block nanogpt-mlp nanogpt-mlp_t4 a100_80g_sxm -o block.json\n"
        "calculon block nanogpt-mlp nanogpt-mlp_t4 a100_80g_sxm --set matmul_impl=mul_sum",
        "Passes are forward, input gradients, weight gradients, and activation recomputation; "
        "collectives list message size, bytes per port, time, and exposed time. Sums equal those of calculon "
        "llm them for the same settings (block_*, baseblock_*).\n\n"
        "--part selects attention or the MLP alone, without its norm, final dropout and residual sum, in edition "
        "corrected; the model's field part does the same. --set changes a value for this call, usually a field of the "
        "execution, to compare variants:\n"
        "  tensor_par_comm_type=rs_ag    sequence parallelism\n"
        "  tp_impl=allgather             every product column-parallel, its output gathered\n"
        "  tp_async=true                 input-gradient all-reduce overlaps weight gradients\n"
        "  bias_after_reduce=true        biases added in a separate kernel; false: in the product\n"
        "  matmul_impl=mul_sum           products as multiplication, then sum",
    )
    add_specs(parser, "model", "MODEL")
    parser.option(
        "--part",
        "the whole block, or one part of it (default: as the model says, usually block)",
        choices=PARTS,
    )
    add_changes(parser, "model", "execution", "system")
    add_answer(parser, tables="a row for each operator")
    add_edition(parser)
    add_preset(parser)


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Cost the block, and print the page or write the file."""
    specs = [arguments.model, arguments.execution, arguments.system]
    check_inputs(specs)
    check_answer(arguments, specs)
    changed = with_changes(arguments.changes, model=specs[0], execution=specs[1], system=specs[2])
    from calculon.estimate.operators import block

    # The only model field that a call changes directly is the part, so its errors belong to --part.
    with naming(specs[1], Model="--part"):
        found = block(
            **changed,
            part=arguments.part,
            edition=arguments.edition,
            preset=arguments.preset,
        )
    from calculon.documents.operator_page import block_page
    from calculon.render.text_tables import Column, Table

    log.answer(
        arguments,
        lambda: block_page(found),
        found.to_dict,
        lambda: Table(tuple(map(Column, found.rows[0])), found.rows),
    )
    return 0
