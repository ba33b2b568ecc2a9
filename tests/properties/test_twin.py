"""The array model agrees with its scalar twin, which shares no code with it, in the published edition.

``test_twin_fields.py`` has the corrected edition.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import strategies as st

import calculon
from calculon.declarations.statistics import FITS
from tests import twin
from tests.draws import draws
from tests.helpers import differences, floor
from tests.properties.table import Table, collected, evaluated, holds
from tests.store import stored
from tests.strategies import changed, executions, models, systems

REASONS = {
    2: {"degrees_product"},
    3: {"batch_split", "microbatch_split"},
    5: {
        "recompute_needs_training",
        "modules_need_training",
        "modules_alone",
        "modules_of_products",
        "modules_of_blocks",
        "modules_of_model",
        "modules_say_attention",
        "every_block_recomputes",
        "some_blocks_recompute",
        "latent_operators",
    },
    6: {"interleaving_needs_pipeline"},
    7: {"sharding_needs_data_par"},
    8: {"overlap_needs_tensor_par"},
    9: {"redo_needs_sequence_parallel"},
    10: {"dp_overlap_needs_training"},
    11: {"optimizer_offload_needs_training"},
    12: {"network_number"},
    13: {"network_size", "network_filled"},
    15: {"interleaving_size"},
    16: {"interleaving_split"},
    17: {"offload_blocks"},
    18: {"tokens_split"},
    19: {"hidden_split", "feedforward_split", "attn_heads_split"},
    20: {"datatype_engine"},
    21: {"mem1_capacity"},
    22: {"mem2_capacity"},
}
"""Reasons of ours for the numbered requirements of the twin."""


MOVED = {
    "act_offload_bw_req": ("block_act_storage_space", "block_act_checkpoint_size"),
    "weight_offload_bw_req": ("block_weight_space",),
    "optim_offload_bw_req": ("block_weight_grad_space", "block_optimizer_space"),
    "offload_mem_bw_req": ("block_weight_space",),
    "dp_bw_overlap_req_chunk": ("block_dp_size",),
    "dp_bw_overlap_req_tail": ("block_dp_size",),
}
"""Bandwidths, and what has to move in the time that a block leaves for it."""


def _settled(stats):
    """Replace what rounding leaves of a difference of equal times: an exposed time, a window."""
    settled = dict(stats)
    for name in filter(floor, stats):
        if abs(stats[name]) < 1e-12 * stats["total_time"]:
            settled[name] = 0
    passes = ("block_fw", "block_re", "block_agrad", "block_wgrad")
    links = ("edgeblock_fw_tp", "edgeblock_recomm", "edgeblock_agrad_tp")
    time = sum(stats[f"{name}_time"] for name in (*passes, *links))
    for name, sizes in MOVED.items():
        if (stats[name] or 0) > 1e5 * sum(stats[size] for size in sizes) / time:
            settled[name] = None
    return settled


def disagreements(found, expected):
    """List the statistics in which ours differ from those of the twin."""
    ours, theirs = _settled(found), _settled(expected)
    # Differences of sums of times, and what is added to them. A sum of less than 4,096 times has an error of less than
    # 4096 * 2**-53 < 1e-12 of a batch.
    for name in (name for name in theirs if name.endswith("_time")):
        close = abs(ours[name] - theirs[name]) < 1e-12 * theirs["total_time"]
        ours[name] = theirs[name] if close else ours[name]
    if FITS in theirs and abs(ours[FITS] - theirs[FITS]) < 1e-4:  # ours is read from a table
        ours[FITS] = theirs[FITS]
    return differences(ours, theirs)


@st.composite
def asked(draw, rows=5):
    """A model, a system, and executions of which some contradict themselves."""
    model, system = draw(models()), draw(systems())
    found = [draw(executions(model, system)) for _ in range(rows)]
    return Table(model, system, found + [draw(changed(row)) for row in found[:3]])


@stored
def published():
    """Draw tables, and evaluate them."""
    return evaluated(collected(asked(), draws(24)))


def twin_of(model, execution, system):
    """Return what the twin finds, or how and by which rule it refuses."""
    try:
        return twin.estimate(model, execution, system), "", None
    except twin.Rejected as error:
        return None, "malformed", error.rule
    except twin.DoesNotFit as error:
        return None, "infeasible", error.rule


def _ours(model, execution, system):
    try:
        return calculon.estimate(model, execution, system).stats, ""
    except calculon.SpecError:
        return None, "malformed"
    except calculon.Infeasible as error:
        return None, f"infeasible: {error.reason}"


@pytest.mark.quick
def test_outcomes_and_statistics_of_any_execution():
    outcomes = Counter()

    def wrong(table):
        found = []
        for i, row in enumerate(table.rows):
            expected, kind, rule = twin_of(table.model, row, table.system)
            outcomes[kind or "feasible"] += 1
            reason = table.found.reason[i]
            if expected is None:
                found.append(reason not in REASONS[rule])
            else:
                ours = {name: float(table.found[name][i]) for name in table.found.names}
                ours = {name: None if np.isnan(v) else v for name, v in ours.items()}
                found.append(bool(reason) or len(differences(ours, expected)))
            if i == 0:
                _, outcome = _ours(table.model, row, table.system)
                found[-1] += outcome != (f"{kind}: {reason}" if kind == "infeasible" else kind)
        return np.array(found, float)

    holds(wrong, published(), least=150)
    assert min(outcomes.values()) > 7, "the strategies are to reach every outcome often"
    assert outcomes["feasible"] > 80


def test_every_layer_of_any_execution():
    for table in published()[: draws(16)]:
        for row in np.array(table.rows)[table.found.feasible][:1]:
            found = calculon.estimate(table.model, row, table.system, layers=True).layers
            for ours, theirs in zip(
                found, twin.layers(table.model, row, table.system), strict=True
            ):
                assert differences(ours, theirs) == [], row
