"""Which of many variations can run: their memory first, and the time of those that fit."""

import numpy as np

from calculon.editions import EDITIONS
from calculon.evaluate import evaluate, evaluate_rows
from calculon.frozen import dataclass
from calculon.hardware.system import System
from calculon.plan.plan import Plan
from calculon.plan.rules.check import check, check_memory
from calculon.spec.model import Model
from calculon.units import Array, Bytes, Seconds


@dataclass(frozen=True)
class Trials:
    """What became of a table of variations: arrays over its rows.

    Attributes
    ----------
    codes : array of int16
        Why a row cannot run, as a code of :data:`~calculon.plan.rules.check.REASONS`; 0: it can.
    time : array
        Seconds of a step; not-a-number where it cannot run.
    memory : array of shape (2, rows)
        Bytes that are needed of both tiers; not-a-number where rules forbid the row.
    """

    codes: Array
    time: Seconds
    memory: Bytes

    @property
    def runs(self) -> Array:
        """Mask of the rows that can run."""
        return self.codes == 0


def trials(model: Model, system: System, plan: Plan, *, timed: bool = True) -> Trials:
    """Try a table of variations; without `timed` only whether they can run.

    Memory alone takes a fraction of what all statistics take, and most variations of what does not fit do not, either.
    """
    codes = check(model, system, plan)
    memory = np.full((2, len(plan)), np.nan)
    for edition in EDITIONS.values():
        rows = np.flatnonzero((codes == 0) & plan.is_choice("edition", edition.name))
        machine = edition.machine(system)
        for part, batch in evaluate_rows(model, system, plan.take(rows), edition):
            here, needed = rows[part], batch.capacity
            tiers = needed.proc_mem_tier1_cap_req, needed.proc_mem_tier2_cap_req
            for tier, size in enumerate(tiers):
                memory[tier, here] = size
            codes[here] = check_memory(codes[here], *tiers, machine)
    time = np.full(len(plan), np.nan)
    good = np.flatnonzero(codes == 0)
    if timed and len(good):
        time[good] = evaluate(model, system, plan.take(good))["total_time"]
    return Trials(codes, time, memory)
