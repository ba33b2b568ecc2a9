"""``scripts/measure`` on a stand-in for PyTorch: what it writes is what ``calculon calibrate`` reads."""

import csv
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from calculon import inputs
from calculon.calibrate.readers import read_collectives, read_gemm, read_memory
from calculon.calibrate.shapes import Products, fit_shapes
from calculon.hardware.kernels.laws import Gemm, alignment
from tests.helpers import ROOT

TORCH = """
import types
__version__ = "2.9.1"
version = types.SimpleNamespace(cuda="12.6")
bfloat16, float16, float32, uint8 = "bfloat16", "float16", "float32", "uint8"
backends = types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=types.SimpleNamespace()))
clock = [0.0]


class Tensor:
    def __init__(self, *shape, value=0.0):
        self.shape, self.value = shape, value

    def zero_(self): clock[0] += 1.0
    def t(self): return Tensor(*self.shape[::-1])
    def item(self): return self.value
    def copy_(self, other):
        assert other.shape == self.shape
        clock[0] += other.shape[0] * 1e-9


def make(*shape, **_): return Tensor(*shape)
randn = empty = zeros = make
def empty_like(other): return Tensor(*other.shape)
def tensor(value, **_): return Tensor(value=value)
def matmul(a, b, out):
    assert a.shape[1] == b.shape[0] and out.shape == (a.shape[0], b.shape[1])
    clock[0] += a.shape[0] * a.shape[1] * b.shape[1] * 1e-11


class Event:
    def __init__(self, enable_timing): pass
    def record(self): self.at = clock[0]
    def synchronize(self): pass
    def elapsed_time(self, end): return (end.at - self.at) * 1e3


cuda = types.SimpleNamespace(
    is_available=lambda: AVAILABLE, Event=Event, mem_get_info=lambda: (2**31, 2**32),
    get_device_name=lambda: "Stand-in, 80 GB", set_device=lambda number: None,
)
"""

DISTRIBUTED = """
import torch
class ReduceOp: MAX = "max"
def init_process_group(backend): assert backend == "nccl"
def destroy_process_group(): pass
def get_world_size(): return 4
def get_rank(): return 0
def barrier(): pass
def all_reduce(whole, op=None):
    torch.clock[0] += sum(whole.shape) * 2e-9
def all_gather_into_tensor(whole, part):
    assert whole.shape[0] == 4 * part.shape[0]
    torch.clock[0] += whole.shape[0] * 1e-9
def reduce_scatter_tensor(part, whole):
    assert whole.shape[0] == 4 * part.shape[0]
    torch.clock[0] += whole.shape[0] * 1e-9
"""


@pytest.fixture
def measure(tmp_path):
    """Run the script beside a stand-in for PyTorch; return the process."""

    def call(*arguments, torch=True, available=True, **environment):
        folder = tmp_path / "modules"
        (folder / "torch").mkdir(parents=True)
        text = TORCH + f"AVAILABLE = {available}\n" if torch else "raise ImportError"
        (folder / "torch" / "__init__.py").write_text(text)
        (folder / "torch" / "distributed.py").write_text(DISTRIBUTED)
        return subprocess.run(
            [sys.executable, str(ROOT / "scripts" / "measure"), *arguments],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(folder)} | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return call


@pytest.mark.parametrize(
    ("what", "read", "environment"),
    [
        ("gemm", read_gemm, {}),
        ("memory", read_memory, {}),
        ("collectives", read_collectives, {"RANK": "0"}),
    ],
)
def test_what_is_measured_is_read(measure, tmp_path, what, read, environment):
    done = measure(what, "-o", "x.csv", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    rows, told = read(str(tmp_path / "x.csv"), inputs.system("h100_80g_sxm"))
    assert done.stdout == f"Output: x.csv ({len(rows)} rows)\n"
    assert told == {"device": "Stand-in  80 GB", "software": "PyTorch 2.9.1; CUDA 12.6"}
    with (tmp_path / "x.csv").open() as file:
        raw = list(csv.DictReader(file))
    rates = {
        "gemm": lambda r: int(r["m"]) * int(r["n"]) * int(r["k"]) * 1e-11,
        "memory": lambda r: int(r["bytes"]) / 2 * 1e-9,  # half is read, half is written
        "collectives": lambda r: (
            int(r["bytes"]) / 2 * (2e-9 if r["operation"] == "all_reduce" else 1e-9)
        ),
    }
    for one in raw:
        assert float(one["seconds"]) == pytest.approx(rates[what](one), rel=1e-3, abs=1e-9)


def test_the_products_tell_depth_and_every_class_of_alignment(measure, tmp_path):
    assert measure("gemm", "-o", "x.csv").returncode == 0
    system = inputs.system("h100_80g_sxm")
    rows, _ = read_gemm(str(tmp_path / "x.csv"), system, shapes=True)
    assert len({row.name for row in rows}) == len(rows) < 350
    of_class = Counter(
        int(alignment([np.array([float(v)]) for v in row.shape[1:]], 2)[0]) for row in rows
    )
    assert all(of_class[size] >= 9 for size in (2, 4, 8, 16, 32, 64))
    assert len({row.shape[2] for row in rows if row.shape[:2] == (4096, 4096)}) >= 8
    _, left, _ = fit_shapes(system, "ext.gemm.bfloat16", timed(rows, system), 132)
    assert (~left).sum() > 80


def timed(rows, system):
    """Return rows with the times of a rate by shape."""
    times = Products.of(system, "bfloat16", rows).times(
        Gemm(max_efficiency=0.8, multiprocessors=132)
    )
    return [replace(row, seconds=time) for row, time in zip(rows, times.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("gemm",), {"torch": False}, "has no PyTorch"),
        (("memory",), {"available": False}, "PyTorch sees no GPU here"),
        (("collectives",), {}, "start it as: torchrun"),
    ],
)
def test_what_is_missing_is_said(measure, tmp_path, arguments, options, message):
    done = measure(*arguments, "-o", "x.csv", **options)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x.csv").exists()
