"""States of a page, and the files that it gives of them."""

import json

from calculon.explore.exports.exports import written
from calculon.explore.page_state import State, read_state
from tests.explore.asking import answers
from tests.store import cache_by_repr

OWN = "tensor_par=4&pipeline_par=2&data_par=8&microbatch_size=2&activation_recompute=full"
MACHINE = "system.mem1.GiB=120&system.networks[0].latency=3e-6"
SMALL = "model=gpt3-13B&system=a100_80g_sxm&procs=64"
TINY = "model=mlp-2x1024&system=a100_80g_sxm"
TINY_OWN = f"{TINY}&procs=1&tensor_par=1&pipeline_par=1&batch=256kseq&system.mem1.GiB=1.5"

STATES = {
    "best": SMALL,
    "own": f"{SMALL}&{OWN}",
    "best on a changed machine": f"{SMALL}&{MACHINE}&tokens=15T",
    "own, all words": f"{SMALL}&{OWN}&{MACHINE}&seq=1k&batch=1M&dtype=fp16&preset=megatron-lm&tokens=1T",
    "uneven stages": f"{SMALL}&tensor_par=2&pipeline_par=4&pipeline_interleaving=2&zero_stage=1",
    "tiny": f"{TINY}&procs=1&system.mem1.GiB=40",
    "tiny, own": f"{TINY_OWN}&microbatch_size=2&tokens=1T&seq=2&dtype=fp16&preset=megatron-lm",
    "a machine of another framework": "model=llama3-8B&system=tpu_v5p&procs=64",
}
CANNOT = {
    "it is none": f"{SMALL}&tensor_par=7",
    "it breaks a rule": f"{TINY}&procs=2&tensor_par=1&pipeline_par=1&pipeline_interleaving=2",
    "memory is too small": f"{TINY_OWN}&microbatch_size=262144",
}
"""Plans that cannot run."""


def state_of(address, view="plan"):
    pairs = [tuple(one.split("=", 1)) for one in address.split("&")]
    first = State(model="llama3-8B", system="h100_80g_sxm", procs=8)
    return read_state([*pairs, ("view", view)], answers().allowed, first)


@cache_by_repr
def _text_of(name, state):
    return written(name, state, answers()).text


def exported(name, state):
    """Return a file, read where it is a document."""
    text = _text_of(name, state)
    return json.loads(text) if name.endswith(".json") else text
