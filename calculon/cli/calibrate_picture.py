"""The picture of ``calculon calibrate``: one panel per fitted part."""

from typing import Any

import numpy as np

from calculon.calibrate.fit_result import MEMORY, Calibration, Fitted
from calculon.documents.charts.calibration_chart import calibration_chart, rates_panel, times_panel
from calculon.render import canvas
from calculon.render.chart import Panel
from calculon.render.matplotlib_charts import draw


def save(calibration: Calibration, system: str, output: str) -> None:
    """Draw the calibrated parts of a system into a file."""
    chart = calibration_chart(system, [panel(part) for part in calibration.parts])
    canvas.save(draw(chart), output)


def panel(part: Fitted) -> Panel:
    """Return the panel of a part: rates by size, or times if size alone does not determine the time."""
    # Left-out rows and memory are not part of this panel's rates.
    records = [record for record in part.residuals() if record["rows"] not in ("left out", MEMORY)]
    errors = [f"{record['rows']} {record['mape']:.1f} %" for record in records]
    # Errors of large sizes get a line of their own, since the title would be too wide.
    large = [text for text in errors if ", above" in text]
    lines = [", ".join(text for text in errors if text not in large), ", ".join(large)]
    title = "\n".join([part.part, "mean error: " + lines[0], *filter(None, lines[1:])])
    seconds = part.seconds

    def pair(x: Any, y: Any, which: Any) -> tuple[list[float], list[float]]:
        return x[which].tolist(), y[which].tolist()

    fitted = ~part.held & ~part.left
    if part.time is None:
        times = part.predicted
        return times_panel(title, pair(times, seconds, fitted), pair(times, seconds, part.held))
    sizes, rates = part.sizes, part.sizes / seconds
    # 400 geometrically spaced points look smooth on the logarithmic size axis.
    fine = np.geomspace(sizes.min(), sizes.max(), 400)
    return rates_panel(
        title,
        part.unit,
        fitted=pair(sizes, rates, fitted),
        held=pair(sizes, rates, part.held),
        curve=(fine.tolist(), (fine / part.time(fine)).tolist()),
        left=pair(sizes, rates, part.left),
    )
