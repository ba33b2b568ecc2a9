"""The picture of ``calculon calibrate``: a panel for each fitted part."""

from typing import Any

import numpy as np

from calculon.calibrate.fit_result import MEMORY, Calibration, Fitted
from calculon.documents.charts.calibration_chart import Comparison, Rates
from calculon.documents.drawn_charts import drawn
from calculon.render import canvas


def save(found: Calibration, output: str) -> None:
    """Draw the parts of a calibration into a file."""
    name = found.document.get("name", "")
    title = f"Calibration of {name}" if name else "Calibration"
    parts = [panel(part) for part in found.parts]
    canvas.save(drawn("calibration_chart:calibration", title, parts), output)


def panel(part: Fitted) -> Rates | Comparison:
    """Return the panel of a part: rates by size, or times where the size does not determine them."""
    records = [record for record in part.residuals() if record["rows"] not in ("left out", MEMORY)]
    errors = [f"{record['rows']} {record['mape']:.1f} %" for record in records]
    large = [text for text in errors if ", above" in text]
    lines = [", ".join(text for text in errors if text not in large), ", ".join(large)]
    title = "\n".join([part.part, "mean error: " + lines[0], *filter(None, lines[1:])])
    seconds = part.seconds

    def pair(x: Any, y: Any, which: Any) -> tuple[list[float], list[float]]:
        return x[which].tolist(), y[which].tolist()

    fitted = ~part.held & ~part.left
    if part.time is None:
        times = part.predicted
        return Comparison(title, pair(times, seconds, fitted), pair(times, seconds, part.held))
    sizes, rates = part.sizes, part.sizes / seconds
    fine = np.geomspace(sizes.min(), sizes.max(), 400)
    return Rates(
        title,
        part.unit,
        pair(sizes, rates, fitted),
        pair(sizes, rates, part.held),
        (fine.tolist(), (fine / part.time(fine)).tolist()),
        pair(sizes, rates, part.left),
    )
