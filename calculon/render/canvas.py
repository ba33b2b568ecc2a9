"""Common base of all matplotlib pictures: size, fonts and reproducible files."""

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calculon.base.errors import Problem, SpecError
from calculon.declarations.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GREY, INK = "#6b6b6b", "#222222"
DOTS_PER_INCH = 160

_SETTINGS: dict[str, Any] = {
    "text.parse_math": False,  # names of models and files may contain "$"
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.labelcolor": "#222222",
    "axes.labelsize": 9,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.dpi": DOTS_PER_INCH,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",  # ships with matplotlib: identical glyphs on every machine
    "font.size": 9,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 5,
    # TrueType fonts in PDF (type 42) stay searchable; paths in SVG need no fonts on the reader's
    # machine.
    "pdf.fonttype": 42,
    "savefig.dpi": DOTS_PER_INCH,
    "svg.fonttype": "path",
    "svg.hashsalt": "calculon",  # identifiers that do not change from run to run
    "xtick.color": GREY,
    "xtick.labelcolor": "#222222",
    "xtick.labelsize": 8,
    "ytick.color": GREY,
    "ytick.labelcolor": "#222222",
    "ytick.labelsize": 8,
}


LIBRARY = "matplotlib>=3.8"
"""Requirement string of the extra ``plot``."""


def require_library() -> None:
    """Raise SpecError with the installation command if matplotlib is missing."""
    try:
        import matplotlib as mpl  # noqa: F401
    except ImportError:
        wanted = "the library matplotlib, for pictures"
        hint = f"{sys.executable} -m pip install '{LIBRARY}'"
        raise SpecError("plot", Problem("", wanted, "it is not installed", hint)) from None


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Apply the settings of all pictures, independent of the user's matplotlib configuration."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        settings: Any = _SETTINGS  # newer type stubs list every key
        mpl.rcParams.update(settings)
        yield


def figure(width: float, height: float) -> "Figure":
    """Return an empty figure, with its size in inches, that uses constrained layout and displays in notebooks."""
    from calculon.render.notebook_figure import NotebookFigure

    return NotebookFigure(drawing, figsize=(width, height), layout="constrained")


def save(picture: "Figure", path: str, *, colors: int | None = None) -> None:
    """Write a picture in the format of its suffix, without time stamps or program names.

    The picture is rendered in memory first, so that the file appears under its name only when it is complete. Limiting
    a PNG to a few `colors` makes it smaller.
    """
    suffix = Path(path).suffix.lower()
    metadata = {
        ".png": {"Software": None},
        ".svg": {"Date": None, "Creator": None},
        ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    }
    with drawing():
        smaller: dict[str, Any] = {"pil_kwargs": {"optimize": True}} if suffix == ".png" else {}
        drawn = io.BytesIO()
        picture.savefig(drawn, format=suffix[1:], metadata=metadata[suffix], **smaller)
        if suffix == ".png" and colors is not None:
            drawn = _of_few_colors(drawn, colors)
    with replacing(path) as stream:
        stream.write(drawn.getbuffer())


def svg(picture: "Figure", words: str) -> str:
    """Return a picture as an SVG element for an HTML page, with `words` as its accessible label."""
    from html import escape

    drawn = io.StringIO()
    with drawing():
        picture.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    element = drawn.getvalue()
    element = element[element.index("<svg ") :].rstrip()
    # Metadata and namespace declarations are not needed inside an HTML document.
    element = re.sub(
        r"<metadata>.*?</metadata>| xmlns(:xlink)?=\"[^\"]*\"", "", element, flags=re.DOTALL
    )
    return element.replace("<svg ", f'<svg role="img" aria-label="{escape(words)}" ', 1)


def _of_few_colors(drawn: io.BytesIO, colors: int) -> io.BytesIO:
    from PIL import Image

    result = io.BytesIO()
    with Image.open(drawn) as image:
        few = image.convert("RGB").quantize(colors, dither=Image.Dither.NONE)
        few.save(result, format="png", optimize=True)
    return result


def wrapped(text: str, width: int = 26) -> str:
    """Break a label into lines, preferably between words."""
    import textwrap

    lines = [
        piece
        for line in text.split("\n")
        for piece in textwrap.wrap(line, width, break_on_hyphens=False) or [""]
    ]
    return "\n".join(lines)
