"""Memory that goes back to the system."""

import ctypes
import gc
import sys
import weakref
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from calculon.explore import result_cache
from calculon.explore.result_cache import WORKED, ResultCache, share_heaps, trim_memory


@pytest.fixture(autouse=True)
def _nothing_of_other_tests():
    """Spare the collector of garbage what other tests left."""
    gc.freeze()


class Cycle:
    """What only the collector of garbage frees."""

    def __init__(self):
        self.itself = self


def test_what_refers_to_itself_is_freed_after_some_seconds_of_computing():
    memo = ResultCache()
    gc.disable()
    try:
        gone = weakref.ref(Cycle())
        memo.tidy(WORKED / 2)
        assert gone() is not None
        memo.tidy(WORKED / 2)
        assert gone() is None
    finally:
        gc.enable()


def _resident():
    """Return the bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"),
    reason="the C library keeps nothing, or cannot be asked",
)
def test_what_a_thread_needed_goes_back_to_the_system():
    pieces, kept = [], []

    def need():
        for number in range(4_000):
            pieces.append(np.ones(2_000))
            if number % 40 == 0:
                kept.append(np.ones(10))
        pieces.clear()

    before = _resident()
    thread = Thread(target=need)
    thread.start()
    thread.join()
    trim_memory()
    assert _resident() < before + 4_000 * 2_000 * 8 / 2
    assert len(kept) == 100


def test_other_c_libraries_do_without(monkeypatch):
    def none(_):
        raise TypeError("no library")

    for loaded in (lambda _: object(), none):
        monkeypatch.setattr(result_cache.ctypes, "CDLL", loaded)
        share_heaps()
        trim_memory()
