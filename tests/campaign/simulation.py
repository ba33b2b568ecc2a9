"""Runs under failures, simulated event by event, as the laws tell them in one line."""

import numpy as np


def segments(rng, number, length, restart, mtbf):
    """Return how long some segments take: no failure for `length`; after one, none for `restart` first."""
    time = np.zeros(number)
    running = np.ones(number, bool)
    open_ones = np.arange(number)
    while len(open_ones):
        need = np.where(running[open_ones], length, restart)
        lives = rng.exponential(mtbf, len(open_ones))
        survived = lives >= need
        time[open_ones] += np.minimum(lives, need)
        done = survived & running[open_ones]
        running[open_ones] = survived
        open_ones = open_ones[~done]
    return time


def two_level_runs(rng, number, intervals, saves, restarts, mtbf, beyond):
    """Return how long it takes from one copy on storage to the next, with copies in memory between them."""
    copies = round(intervals[1] / intervals[0])
    return np.array(
        [
            _from_storage_to_storage(rng, copies, intervals[0], saves, restarts, mtbf, beyond)
            for _ in range(number)
        ]
    )


def _from_storage_to_storage(rng, copies, interval, saves, restarts, mtbf, beyond):
    time, stage = 0.0, 0
    while stage <= copies:
        need = interval + saves[0] if stage < copies else saves[1]
        life = rng.exponential(mtbf)
        time += min(life, need)
        if life >= need:
            stage += 1
            continue
        from_storage = False
        while life < need:  # restart until one restart comes to its end
            from_storage |= rng.random() < beyond
            need = restarts[from_storage]
            life = rng.exponential(mtbf)
            time += min(life, need)
        if from_storage:
            stage = 0
    return time


def share_waiting(rng, failures, away, spares, repair=1.0):
    """Return the share of time that a job waits, whose nodes fail only while it runs and are away for `repair`."""
    now = waited = 0.0
    back: list[float] = []
    for life in rng.exponential(repair / away, failures):
        now += life
        back = [*(time for time in back if time > now), now + repair]
        if len(back) > spares:
            waited += back[0] - now
            now = back[0]
    return waited / now
