"""Random executions that cannot run: broken rules of every kind, and too little memory."""

from random import Random

import calculon
from calculon import inputs
from calculon.plan.columns import field_of
from calculon.presets import find_preset
from tests.helpers import PLAIN
from tests.plan.rules.test_all_rules import BASE, INFEASIBLE, MALFORMED, MODEL, SHAPES, SYSTEMS

SPECIAL = {**MALFORMED, **INFEASIBLE}
"""A case for every rule."""

MODELS = ("gpt2-1.5B", "llama3-8B", "llama3-70B", "gpt3-175B", "mixtral-8x7B", "qwen3-30B-A3B")
MACHINES = ("a100_40g_sxm", "a100_80g_sxm", "h100_80g_sxm", "v100_sxm2_32g", "mi300x")
FRAMEWORKS = ("published", "common", "megatron-lm", "megatron-lm", "torchtitan", "deepspeed")
PROCESSORS = (1, 8, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024)
DEGREES = (1, 1, 1, 2, 2, 3, 4, 4, 8, 16)
SWITCHES = (
    *("activation_recompute", "zero_stage", "tensor_par_comm_type", "seq_par_ag_redo"),
    *("tensor_par_overlap", "p2p_overlap", "optimizer_offload", "activations_offload"),
    *("weight_offload", "recompute_modules", "pp_schedule", "pp_layout", "cp_comm", "ep_overlap"),
    *("mesh_order", "data_par_overlap", "moe_dispatcher", "overlap_param_gather"),
)


def one(seed: int):
    """Draw what may or may not run: model, execution and system, as sources."""
    random = Random(seed)
    return _special(random) if random.random() < 0.3 else _ordinary(random)


def infeasible(seed: int):
    """Draw model, execution and system of which the execution cannot run, and why; None where it runs."""
    model, execution, system = one(seed)
    try:
        whole = inputs.execution(execution)
        calculon.estimate(model, whole, system)
    except calculon.Infeasible as error:
        return inputs.model(model), whole, inputs.system(system), error.reason
    except calculon.SpecError as error:
        if error.file != "execution" or "whole" not in locals():
            return None  # it cannot be read
        return inputs.model(model), whole, inputs.system(system), f"malformed {error.field}"
    return None


def _special(random: Random):
    """Break a rule by its case, sometimes one more, in an execution of another size."""
    reason = random.choice(sorted(SPECIAL))
    changes = dict(SPECIAL[reason][0])
    if random.random() < 0.3:
        other = random.choice(sorted({*SPECIAL} - {*SHAPES} - {*SYSTEMS}))
        changes = {**SPECIAL[other][0], **changes}
    times = random.choice((1, 1, 2, 3, 4))
    base = BASE | {"batch_size": BASE["batch_size"] * times}
    return SHAPES.get(reason, MODEL), base | changes, SYSTEMS.get(reason, "a100_80g")


def _ordinary(random: Random):
    """Split a model of the catalog somehow, with some options."""
    name, procs = random.choice(MODELS), random.choice(PROCESSORS)
    model, preset = inputs.model(name), random.choice(FRAMEWORKS)
    tensor, pipeline = random.choice(DEGREES), random.choice(DEGREES)
    context = random.choice(DEGREES) if random.random() < 0.15 else 1
    data = max(1, procs // (tensor * pipeline * context))
    size = random.choice((1, 1, 2, 4, 8, 16))
    exact = random.random() < 0.85
    fields = {
        "num_procs": tensor * pipeline * context * data if exact else procs,
        "tensor_par": tensor,
        "pipeline_par": pipeline,
        "data_par": data,
        "microbatch_size": size,
        "batch_size": data * size * random.choice((1, 2, 4, 8, 12))
        if random.random() < 0.9
        else random.choice((7, 100, 512)),
    }
    published = preset == "published"
    sixteen = random.choice(("float16", "bfloat16"))
    if pipeline > 1 and random.random() < 0.4:
        fields["pipeline_interleaving"] = random.choice((2, 3, 4, 5, 8))
    if published and random.random() < 0.6 and not model.extensions:
        fields = PLAIN | fields | {"datatype": "float16", "preset": "published"}
        fields |= {
            f"{axis}_par_net": random.choice((0, 1)) for axis in ("tensor", "pipeline", "data")
        }
        known = SWITCHES[:1] + SWITCHES[2:5] + SWITCHES[6:9]
    else:
        fields |= {"context_par": context, "datatype": sixteen, "edition": "corrected"}
        fields |= PLAIN | fields if published else {}
        fields["preset"] = preset
        known = SWITCHES
        if model.mixes and random.random() < 0.7:
            fields["expert_par"] = random.choice((2, 4, 8, 3))
    entries = find_preset(preset).entries
    for field in random.sample(known, random.choice((0, 1, 2, 3))):
        runs = entries[field].runs if field in entries else ()
        fields[field] = random.choice(runs or field_of(field).values)
    return name, fields, random.choice(MACHINES)
