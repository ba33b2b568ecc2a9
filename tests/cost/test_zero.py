"""Memory of model states: figure 1 of Rajbhandari et al., *ZeRO*, arXiv 1910.02054."""

import pytest

import calculon
from tests.cases import for_each
from tests.helpers import document

PARAMETERS, RANKS = 7.5e9, 64
MODEL = document("models", "mlp-4x1024") | {"hidden": 10_000, "feedforward": 10_000}
MODEL["num_blocks"] = 75
EXECUTION = document("examples", "mlp-4x1024_x2_ddp") | {
    "num_procs": RANKS,
    "data_par": RANKS,
    "data_par_net": 1,
    "microbatch_size": 1,
    "datatype": "float16",
    "grad_dtype": "float16",
    "main_grad": False,
    "optimizer": "adam",
}
TABLE = {"0": ((), 120.0), "1": ("O", 31.4), "2": ("GO", 16.6), "3": ("PGO", 1.9)}
"""What a stage splits of weights (P), gradients (G) and optimizer state (O), and the gigabytes that are printed."""


@for_each("stage", TABLE)
def test_model_states_are_those_of_the_paper(stage):
    split, printed = TABLE[stage]
    changes = {"zero_stage": stage, "optimizer_sharding": stage != "0", "batch_size": RANKS}
    stats = calculon.estimate(MODEL, EXECUTION | changes, "h200_141g_sxm").stats
    names = {"P": "weight_space", "G": "weight_grad_space", "O": "optimizer_space"}
    bytes_each = {"P": 2, "G": 2, "O": 12}
    for kind, name in names.items():
        ranks = RANKS if kind in split else 1
        assert stats[name] == pytest.approx(bytes_each[kind] * PARAMETERS / ranks, rel=1e-12)
    assert round(sum(stats[name] for name in names.values()) / 1e9, 1) == printed
