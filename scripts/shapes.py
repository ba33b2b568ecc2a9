"""List shapes of transformers with approximately the given number of parameters.

For each number of blocks, the hidden size is the multiple of the head size whose parameter count is closest to the
target; the feedforward size is a multiple of it. Shapes with an unusual aspect ratio (hidden size over number of
blocks) are excluded.
"""

import argparse
import json
import sys
from bisect import bisect_left

from calculon.architecture.parameters import parameter_count
from calculon.base.units import scaled
from calculon.declarations.model import Model
from calculon.render.text_tables import FORMATS, Column, Table


def main() -> int:
    """Read the budget and print the shapes, or write one of them."""
    parser = argparse.ArgumentParser(prog="scripts/model_shapes", description=__doc__)
    parser.add_argument("budget", type=float, metavar="PARAMETERS", help="such as 175e9")
    parser.add_argument("--seq-size", type=int, default=2048, metavar="N", help="default 2048")
    parser.add_argument(
        "--attn-size", type=int, default=128, metavar="N", help="head size, default 128"
    )
    parser.add_argument(
        "--feedforward", type=int, default=4, metavar="N", help="times hidden, default 4"
    )
    parser.add_argument(
        "--aspect",
        type=int,
        nargs=2,
        default=(64, 256),
        metavar=("LOW", "HIGH"),
        help="hidden per block",
    )
    parser.add_argument(
        "--most", type=int, default=20, metavar="N", help="shapes to list, default 20"
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="default text")
    parser.add_argument(
        "--write", type=int, metavar="BLOCKS", help="print the spec with this number of blocks"
    )
    arguments = parser.parse_args()
    if not 1e6 <= arguments.budget <= 1e16:
        parser.error(f"PARAMETERS: expected a number from 1e6 to 1e16, found {arguments.budget:g}")
    shapes = list_shapes(arguments)
    if arguments.write is not None:
        chosen = [shape for shape in shapes if shape.num_blocks == arguments.write]
        if not chosen:
            parser.error(f"--write: no shape of this budget has {arguments.write} blocks")
        print(json.dumps(chosen[0].to_dict(), indent=2))
        return 0
    shapes = sorted(shapes, key=lambda shape: abs(parameter_count(shape) - arguments.budget))
    shapes = sorted(shapes[: arguments.most], key=lambda shape: shape.num_blocks)
    table = Table(COLUMNS, [_row(shape, arguments.budget) for shape in shapes])
    print(table.written(arguments.format))
    return 0


COLUMNS = (
    *(
        Column(name, name, right=True)
        for name in ("num_blocks", "hidden", "feedforward", "attn_heads", "attn_size")
    ),
    Column("seq_size", "seq_size", right=True),
    Column("parameters", "parameters", right=True, text=scaled),
    Column("off", "off %", right=True, text="{:+.2f}".format),
    Column("aspect", "hidden/block", right=True, text="{:.0f}".format),
)


def list_shapes(arguments: argparse.Namespace) -> list[Model]:
    """Return for each number of blocks the shape nearest to the budget, within the aspect ratios."""
    shapes = []
    low, high = arguments.aspect
    for blocks in range(2, 513):
        heads = [h for h in range(1, 2049) if low <= h * arguments.attn_size / blocks <= high]
        # More heads, more parameters: the nearest are those around the first that has too many.
        above = bisect_left(
            heads,
            arguments.budget,
            key=lambda h: parameter_count(_shape(blocks, h, arguments)),
        )
        made = [_shape(blocks, h, arguments) for h in heads[max(0, above - 1) : above + 1]]
        if made:
            best = min(made, key=lambda shape: abs(parameter_count(shape) - arguments.budget))
            if abs(parameter_count(best) / arguments.budget - 1) < 0.1:
                shapes.append(best)
    return shapes


def _shape(blocks: int, heads: int, arguments: argparse.Namespace) -> Model:
    hidden = heads * arguments.attn_size
    return Model(
        hidden=hidden,
        feedforward=arguments.feedforward * hidden,
        seq_size=arguments.seq_size,
        attn_heads=heads,
        attn_size=arguments.attn_size,
        num_blocks=blocks,
    )


def _row(shape: Model, budget: float) -> dict[str, object]:
    count = parameter_count(shape)
    return {
        **shape.to_dict(),
        "parameters": count,
        "off": (count / budget - 1) * 100,
        "aspect": shape.hidden / shape.num_blocks,
    }


if __name__ == "__main__":
    sys.exit(main())
