"""The package agrees with the scalar twin of serving."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.draws import draws
from tests.serving.drawn import deployments, machines, served, workloads
from tests.serving.twin import Twin
from tests.strategies import divisors, models

pytestmark = pytest.mark.usefixtures("machine_list")


@st.composite
def decoders(draw):
    """Models of today: RMSNorm, gated MLPs, rotary positions; shared heads or latents, windows, experts."""
    found = draw(models()) | {
        "activation": "swiglu",
        "norm": "rmsnorm",
        "dropout": False,
        "vocab": draw(st.integers(1, 150_000)),
        "tied": draw(st.booleans()),
    }
    if draw(st.booleans()):
        nope, rope = draw(st.integers(1, 130)), draw(st.integers(1, 33)) * 2
        found |= {
            "kv_lora_rank": draw(st.integers(1, 600)),
            "attn_size": nope + rope,
            "q_lora_rank": draw(st.sampled_from((0, 0, 700))),
            "qk_nope_head_dim": nope,
            "qk_rope_head_dim": rope,
            "v_head_dim": draw(st.integers(1, 300)),
        }
    else:
        found |= {
            "attn_size": 2 * draw(st.integers(1, 128)),
            "kv_heads": draw(st.sampled_from(divisors(found["attn_heads"]))),
            "rotary": 1.0,
        }
        if draw(st.booleans()):
            found["sliding_window"] = draw(st.integers(1, 4000))
            found["full_attention_every"] = draw(st.integers(1, 5))
    if draw(st.booleans()):
        experts = draw(st.sampled_from((4, 8, 60)))
        common = found["attn_heads"]
        found |= {
            "num_experts": experts,
            "experts_per_token": draw(st.integers(1, experts - 1)),
            "expert_feedforward": common * draw(st.integers(1, 300)),
            "first_k_dense": draw(st.integers(0, found["num_blocks"] - 1)),
        }
        if draw(st.booleans()):
            found["shared_feedforward"] = common * draw(st.integers(1, 300))
    found["feedforward"] = found["attn_heads"] * draw(st.integers(1, 400))
    return found


PLAIN = {
    "attn_data_par": 1,
    "context_par": 1,
    "redundant_experts": 0,
    "routing": "balanced",
    "exchange": "fastest",
    "overlap": "none",
    "dispatch_dtype": "same",
}
"""What the twin does not know."""


@st.composite
def questions(draw):
    """A decoder, its deployment, a machine and a load."""
    model, system = draw(decoders()), draw(machines(tiles=False))
    if draw(st.booleans()):
        system["ext"]["networks"] = [{"kind": "nvlink"}]
    return model, draw(deployments(model, **PLAIN)), system, draw(workloads())


@settings(max_examples=draws(12))
@given(questions())
def test_figures(question):
    found = served(*question)
    assume(found)
    twin, replicas = Twin(*question), found.deployment.replicas
    expected = twin.steady(found.batch) | twin.memory(found.batch)
    expected["prefill_time"] = twin.prefill()[0]
    for name in ("request_rate", "output_rate"):
        expected[name] *= replicas
    # elements of experts on three ranks are rounded down, of a few of them to one more or less
    thirds = "num_experts" in question[0] and question[1]["tensor_par"] % 3 == 0
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-4 if thirds else 1e-9, abs=1e-300), name
    limit = question[1]["max_batch"]
    assert found["max_concurrency"] == min(limit, twin.fitting(), 2**20)
