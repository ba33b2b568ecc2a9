"""Files of pictures: their suffixes, and the library that draws them."""

from calculon.render.canvas import require_library

PICTURES = (".png", ".svg", ".pdf")


def check_library() -> None:
    """Raise SpecError with the command that installs it when matplotlib is missing."""
    require_library()
    import matplotlib as mpl

    mpl.use("agg")
