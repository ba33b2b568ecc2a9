"""Every machine of the catalog: no pass beats the bandwidth of its memory, and no sequence more makes one shorter."""

import numpy as np

from calculon import inputs
from calculon.spec import catalog
from tests.cases import for_each
from tests.draws import some
from tests.serving.given import rising, timed

SYSTEMS = [inputs.system(name) for name in catalog.names("system")]
MACHINES = list({repr((one.matrix, one.mem1, one.ext.rates)): one for one in SYSTEMS}.values())
"""One of several with the same processors."""

BATCHES = np.unique(np.round(np.geomspace(1, 5000, 50)))
MODELS = ("llama3-70B", "gpt-oss-20b", "deepseek-v3")


@for_each("name", MODELS)
@for_each(("weights", "cache"), [("bfloat16", "bfloat16"), ("nvfp4", "float8")])
def test_decoding(name, weights, cache):
    model = inputs.model(name)
    for system in some(MACHINES, 5):
        split = float(min(8, system.networks[0].size))
        sizes = {"decoded": BATCHES, "context": 1000.0, "tensor_par": split}
        found = timed(model, system, weights=weights, cache=cache, **sizes)
        read = found.total("weights") + found.total("cache")
        assert np.all(found.time > read / system.mem1.bandwidth), system.name
        assert rising(found.time), system.name


@for_each("name", MODELS)
def test_prefill(name):
    model = inputs.model(name)
    chunks = np.array([1.0, 64, 500, 4000])
    for system in some(MACHINES, 5):
        found = timed(model, system, prompts=1, chunk=chunks)
        assert np.all(found.time > found.total("weights") / system.mem1.bandwidth), system.name
        engines = (*system.matrix.values(), *(system.ext.matrix or {}).values())
        peak = max(one.peak for one in engines)
        products = sum(row.flops for row in found.rows if row.name in ("qkv", "mlp", "experts"))
        assert np.all(found.time > products / peak), system.name
