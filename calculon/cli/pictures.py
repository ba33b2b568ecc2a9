"""Picture files: their suffixes, and the library that draws them."""

from collections.abc import Sequence
from pathlib import Path

from calculon.base.errors import Problem, SpecError
from calculon.cli.options import Log, check_outputs
from calculon.render import canvas
from calculon.render.chart import Chart

PICTURES = (".png", ".svg", ".pdf")


def check_library() -> None:
    """Raise SpecError with the installation command if matplotlib is missing."""
    canvas.require_library()
    import matplotlib as mpl

    mpl.use("agg")


def check_picture(path: str, inputs: Sequence[str]) -> None:
    """Check before any work that a picture can be written and that matplotlib is installed."""
    if Path(path).suffix.lower() not in PICTURES:  # "-" and names ending in .gz fail here, too
        wanted = "a picture: a name that ends in " + ", ".join(PICTURES)
        raise SpecError(path, Problem("", wanted, "another name"))
    check_outputs([path], inputs, PICTURES)
    check_library()


def write_picture(chart: Chart, path: str, log: Log) -> None:
    """Draw a chart into a file, and report the file."""
    from calculon.render.matplotlib_charts import draw

    canvas.save(draw(chart), path)
    log(f"Output: {path}")
