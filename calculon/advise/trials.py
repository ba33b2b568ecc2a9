"""Which of many variations can run: their memory first, and the time of those that fit."""

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes, Seconds
from calculon.declarations.model import Model
from calculon.editions import EDITIONS
from calculon.estimate.evaluate import evaluate_rows
from calculon.hardware.system import System
from calculon.plan.plan import Plan
from calculon.plan.rules.all_rules import MEMORY_REASONS, REASONS, check, check_memory


@dataclass(frozen=True)
class Trials:
    """What became of a table of variations: arrays over its rows.

    Attributes:
        codes: Why a row cannot run, as a code of :data:`~calculon.plan.rules.all_rules.REASONS`; 0: it can.
        time: Seconds of a step; not-a-number where it cannot run.
        memory (shape (2, rows)): Bytes that are needed of both tiers; not-a-number where rules forbid the row.
    """

    codes: Array
    time: Seconds
    memory: Bytes

    @property
    def legal(self) -> Array:
        """Mask of the rows that rules allow, whether their memory fits or not."""
        mask: Array = np.isin(self.codes, (0, *MEMORY_CODES))
        return mask

    @property
    def runs(self) -> Array:
        """Mask of the rows that can run."""
        mask: Array = self.codes == 0
        return mask


MEMORY_CODES = tuple(REASONS.index(reason) for reason in MEMORY_REASONS)

NOT_TRIED = -1
"""Code of a row that was left out."""


def trials(model: Model, system: System, plan: Plan, codes: Array | None = None) -> Trials:
    """Try a table of variations: their memory, and the time of those that fit.

    Memory alone takes a fraction of what all statistics take, and most variations of what does not fit do not, either.

    Args:
        codes: What rules say of the rows (:func:`~calculon.plan.rules.all_rules.check`), with :data:`NOT_TRIED` where a
            row is left out; by default all are checked and tried.
    """
    codes = check(model, system, plan) if codes is None else codes.copy()
    memory, time = np.full((2, len(plan)), np.nan), np.full(len(plan), np.nan)
    for edition in EDITIONS.values():
        rows = np.flatnonzero((codes == 0) & plan.is_choice("edition", edition.name))
        machine = edition.machine(system)
        for part, batch in evaluate_rows(model, system, plan.take(rows), edition):
            here, needed = rows[part], batch.capacity
            tiers = needed.proc_mem_tier1_cap_req, needed.proc_mem_tier2_cap_req
            for tier, size in enumerate(tiers):
                memory[tier, here] = size
            codes[here] = check_memory(codes[here], *tiers, machine)
            if (codes[here] == 0).any():
                time[here] = np.where(codes[here] == 0, batch.times.total_time, np.nan)
    return Trials(codes, time, memory)
