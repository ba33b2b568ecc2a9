"""Published measurements: half of the sizes of a machine predict the other half, and the table in examples says so."""

import csv

import numpy as np

from calculon.calibrate.readers import read_collectives
from calculon.calibrate.solve import LARGE
from calculon.declarations.decode import decode
from calculon.hardware.system import System
from tests.calibrate.measured import calibrated
from tests.draws import some
from tests.helpers import ROOT, document
from tests.store import cache

TARGET = 10.0
"""Percent: mean absolute error above 1 MiB of sizes that were held out."""

FOLDER = ROOT / "examples" / "measurements"
NODES = "b200_sxm_4_nodes_all_reduce"
MACHINES = {
    "h100_sxm_all_reduce": "h100_80g_sxm",
    "h200_sxm_all_reduce": "h200_141g_sxm",
    "b200_sxm_all_reduce": "b200_sxm",
    NODES: "b200_sxm",
    "a100_sxm_all_reduce": "a100_80g_sxm",
}
"""Measurements of many sizes, and the system to start from."""
SOME = some(MACHINES, 2)


def base(name):
    """Return the system to start from; a ring over whole nodes uses all eight ports of each."""
    raw = document("systems", MACHINES[name])
    if name == NODES:
        raw["networks"][1]["bandwidth"] *= raw["networks"][0]["size"]
    return raw


def read(name):
    """Return base and rows of a machine."""
    raw = base(name)
    return raw, read_collectives(str(FOLDER / f"{name}.csv"), decode(System, raw, name))[0]


def halves(rows):
    """Yield both ways to fit every other size: the rows to fit, and those above 1 MiB of the other sizes."""
    sizes = sorted({row.message for row in rows})
    for first in (0, 1):
        chosen = sizes[first::2]
        yield (
            [row for row in rows if row.message in chosen],
            [row for row in rows if row.message not in chosen and row.message > LARGE],
        )


def error(raw, fitted, others, **options):
    """Return the mean absolute error in percent of rows that were not fitted: each as it was published."""
    time = calibrated(raw, fitted, **options).parts[0].time
    predicted = time(np.array([row.size for row in others]))
    return float(100 * np.abs(predicted / [row.seconds for row in others] - 1).mean())


def errors(raw, rows, **options):
    return [error(raw, fitted, others, **options) for fitted, others in halves(rows)]


@cache
def of_halves(name):
    """Return the errors of both halves of the sizes of a machine, each predicted by the other."""
    return errors(*read(name))


@cache
def held_out_error(name):
    """Return the mean absolute error in percent of held-out messages of a machine above 1 MiB."""
    records = calibrated(*read(name), hold_out=0.5).residuals()
    return next(one["mape"] for one in records if one["rows"] == "held out, above 1 MiB")


def test_half_of_the_sizes_predicts_the_other_half_above_a_mebibyte():
    for name in SOME:
        assert max(of_halves(name)) <= TARGET, name
        assert held_out_error(name) <= TARGET, name


def test_a_ramp_predicts_better_than_none():
    for name in SOME:
        plain = errors(*read(name), ramp=False)
        assert np.mean(of_halves(name)) < np.mean(plain), name


def test_every_published_row_names_its_source():
    for file in FOLDER.glob("*.csv"):
        for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
            assert row["source"], (file.name, row)
            assert row["device"], (file.name, row)


def rows_of_the_table():
    """Return rows of the table of systems/calibration.md."""
    for name in SOME:
        raw, rows = read(name)
        values = calibrated(raw, rows).document["calibration"]["fits"][0]["parameters"]
        cells = [
            f"`{name}`",
            f"`{MACHINES[name]}`" + (", 400 GB/s" if name == NODES else ""),
            f"{len(rows)}",
            f"{len({row.message for row in rows})}",
            f"{values['latency'] * 1e6:.1f} μs",
            f"{values['efficiency']:.3f}",
            f"{values['ramp'] * 1e6:.1f} μs",
            f"{held_out_error(name):.1f} %",
            " and ".join(f"{one:.1f}" for one in of_halves(name)) + " %",
        ]
        yield "| " + " | ".join(cells) + " |"


def test_the_table_of_the_page_is_true():
    written = (ROOT / "systems" / "calibration.md").read_text(encoding="utf-8").splitlines()
    assert [row for row in rows_of_the_table() if row not in written] == []
