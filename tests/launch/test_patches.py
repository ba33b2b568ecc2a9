"""A user's launch file with the settings of another plan: it says that plan, and all else stays byte for byte."""

import random
import re
from collections.abc import Iterator, Mapping
from difflib import ndiff
from pathlib import Path
from typing import Any

import pytest

from calculon import inputs
from calculon.base.errors import CalculonError, SpecError
from calculon.launch.dialect import Launch, read, settings_of
from calculon.launch.dialects import DIALECTS, read_launch
from calculon.launch.difference import Difference, difference
from calculon.launch.patches.patch import Patch, patched
from calculon.plan.plan import all_fields
from tests.cases import for_each
from tests.draws import draws
from tests.helpers import ROOT
from tests.launch.laws import collected, launch_of, variables_of

VALUES: dict[str, tuple[Any, ...]] = {
    "tensor_par": (1, 2, 4, 8),
    "pipeline_par": (1, 2, 4),
    "context_par": (1, 2),
    "microbatch_size": (1, 2, 4),
    "num_procs": (16, 64, 128, 1024),
    "zero_stage": ("0", "1", "fsdp", "3"),
    "activation_recompute": ("none", "attn_only", "full"),
    "recompute_modules": ("none", "norm", "ops"),
    "data_par_overlap": (True, False),
    "tensor_par_comm_type": ("ar", "rs_ag"),
    "pipeline_interleaving": (1, 2),
    "overlap_param_gather": (True, False),
    "fp8_recipe": ("none", "tensorwise", "delayed"),
    "reshard_after_forward": (True, False),
    "optimizer_offload": (True, False),
}
"""Values of fields of other plans."""

NO_PLACE = re.compile(
    r"a combination that Megatron-LM accepts"  # the launcher refuses the user's flags with the new ones
    r"|(converters\.\w+|(optimizer|mixed_precision)\.\w+): expected a place in the file"  # made by Python
    r"|stage_blocks: expected .* given the other settings"
)
"""Reasons for which a file is not changed."""


def _fields(launch: Launch) -> tuple[dict[str, Any], Any]:
    """Return all fields of the execution of a file, and its model where it describes one."""
    fields = dict(all_fields(inputs.execution(launch.execution, edition="corrected")))
    model = inputs.model(launch.model.get("name") or launch.model) if launch.model else None
    return fields, model


def _others(launch: Launch, count: int, seed: str) -> Iterator[dict[str, Any]]:
    """Yield other plans that the launcher can express."""
    mine, model = _fields(launch)
    chance = random.Random(seed)
    for _ in range(400):
        names = chance.sample(sorted(VALUES), chance.randint(1, 5))
        other = mine | {name: chance.choice(VALUES[name]) for name in names}
        degrees = other["tensor_par"] * other["pipeline_par"] * other["context_par"]
        other["data_par"], rest = divmod(other["num_procs"], degrees)
        if rest or other["batch_size"] % (other["data_par"] * other["microbatch_size"]):
            continue
        other["optimizer_sharding"] = other["zero_stage"] != "0"
        try:
            whole = dict(all_fields(inputs.execution(other, edition="corrected")))
            settings_of(launch.dialect, whole, model)
        except CalculonError:
            continue
        if whole != mine:
            yield whole
            count -= 1
        if not count:
            return


def _strange(line: str, between: Difference, text: str) -> bool:
    """Return whether a line has no setting that changes, and no variable that such a line refers to."""
    names = {re.split(r"[.]", one.name)[-1].strip("-").replace("-", "_") for one in between.changes}
    plain = text.replace("-", "_")
    told = [each for each in plain.splitlines() if any(name in each for name in names)]
    variables = {name for each in told for name in re.findall(r"\$\{?(\w+)", each)}
    if "processors" in names:
        names |= {"node", "NODE", "machine", "devices", "proc", "PROC"}
    written = line.replace("-", "_")
    abbreviated = any(
        name.startswith(word) for name in names for word in re.findall(r"__(\w{9,})", written)
    )
    return not (
        abbreviated
        or any(name in written for name in names)
        or any(re.search(rf"\b{name}=", line) for name in variables)
    )


def _is_in(line: str, text: str) -> bool:
    """Return whether a text has a line, in which something may be inserted."""
    words = re.findall(r"\w+|\S", line)

    def has(other: str) -> bool:
        left = iter(re.findall(r"\w+|\S", other))
        return all(word in left for word in words)

    return any(map(has, text.splitlines()))


def _wrong(path: Path, launch: Launch, other: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a file that is changed to another plan."""
    mine, model = _fields(launch)
    text, variables = path.read_text(), variables_of(path)
    between = difference(launch.dialect, mine, other, model, launch.stated)
    try:
        found = patched(text, str(path), between, other, variables)
    except SpecError as error:
        if not NO_PLACE.search(str(error)):
            yield f"{path.name}: {error}"
        return
    procs = None if not found.notes else other["num_procs"]
    try:
        again = read(launch.dialect, found.text, str(path), num_procs=procs, variables=variables)
    except SpecError as error:
        if error.field != "processors":
            raise
        count = other["num_procs"]
        again = read(launch.dialect, found.text, str(path), num_procs=count, variables=variables)
    for name in launch.dialect.fields:
        if again.execution[name] != other[name]:
            yield f"{path.name}: {name} {again.execution[name]}, not {other[name]}"
    for line in ndiff(text.splitlines(), found.text.splitlines()):
        lost = line.startswith("- ") and not _is_in(line[2:].rstrip(","), found.text)
        if lost and _strange(line[2:], between, text):
            yield f"{path.name}: lost {line[2:]!r}"


@pytest.mark.parametrize("name", DIALECTS)
def test_a_changed_file_says_the_other_plan_and_keeps_all_other_lines(name):
    files = collected(name.replace("-", "_"))
    files += [ROOT / "examples/launch/llama3-8b.sh"] * (name == "megatron-lm")
    tried, wrong = 0, []
    for path in files:
        launch = launch_of(path)
        for other in _others(launch, draws(2), path.name):
            tried += 1
            wrong += list(_wrong(path, launch, other))
    assert wrong == []
    assert tried > len(files)


@pytest.mark.parametrize("name", DIALECTS)
def test_the_own_plan_changes_nothing(name):
    for path in collected(name.replace("-", "_")):
        launch = launch_of(path)
        mine, model = _fields(launch)
        between = difference(launch.dialect, mine, mine, model, launch.stated)
        text = path.read_text()
        assert patched(text, str(path), between, mine, variables_of(path)) == Patch(text)


def _changed(text: str, file: str, model: str | None = None, **changes: Any) -> Patch:
    """Return a file of 16 processors with some fields changed."""
    launch = read_launch(text, file, num_procs=16)
    mine, _ = _fields(launch)
    other = mine | changes
    other["tp_async"] = mine["tp_async"] or (other["tensor_par"] > 1 and MEGATRON in text)
    if other["tensor_par"] == 1:
        other |= {"tensor_par_comm_type": "ar", "seq_par_ag_redo": False, "tp_async": False}
    degrees = other["tensor_par"] * other["pipeline_par"] * other["context_par"]
    other["data_par"] = other["num_procs"] // degrees
    shape = None if model is None else inputs.model(model)
    between = difference(launch.dialect, mine, other, shape, launch.stated)
    return patched(text, file, between, other)


MEGATRON = "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py"
CONNECTED = "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
TP = "--tensor-model-parallel-size"


@for_each(
    ("flags", "changes", "wanted"),
    [
        # a value, in the spelling of the file
        (
            f"{TP} 1 --bf16 --micro-batch-size 1",
            {"tensor_par": 2},
            f"{TP} 2 --bf16 --micro-batch-size 1",
        ),
        (
            f"{TP}=1 --bf16 --micro-batch-size 1",
            {"tensor_par": 2},
            f"{TP}=2 --bf16 --micro-batch-size 1",
        ),
        (
            "--tensor_model_parallel_size '1' --bf16 --micro-batch-size 1",
            {"tensor_par": 2},
            "--tensor_model_parallel_size '2' --bf16 --micro-batch-size 1",
        ),
        # a flag that is no longer wanted, in a line and in the last line of a command
        (
            "--bf16 --micro-batch-size 1 --recompute-activations --lr 1e-4",
            {"activation_recompute": "none"},
            "--bf16 --micro-batch-size 1 --lr 1e-4",
        ),
        (
            "--bf16 --micro-batch-size 1 \\\n    --recompute-activations \\\n    --lr 1e-4",
            {"activation_recompute": "none"},
            "--bf16 --micro-batch-size 1 \\\n    --lr 1e-4",
        ),
        (
            "--bf16 --micro-batch-size 1 \\\n    --recompute-activations",
            {"activation_recompute": "none"},
            "--bf16 --micro-batch-size 1 \\\n",
        ),
        # a new flag, in a line and in lines that go on
        (
            f"{TP} 1 --bf16 --micro-batch-size 1",
            {"activation_recompute": "attn_only"},
            f"{TP} 1 --recompute-activations --bf16 --micro-batch-size 1",
        ),
        (
            f"\\\n    {TP} 1 \\\n    --bf16 --micro-batch-size 1 \\\n    --lr 1e-4 2>&1 | tee log",
            {"activation_recompute": "attn_only"},
            f"\\\n    {TP} 1 \\\n    --bf16 --micro-batch-size 1 \\\n    --recompute-activations \\\n"
            "    --lr 1e-4 2>&1 | tee log",
        ),
    ],
)
def test_flags_are_changed_in_the_form_of_the_command(flags, changes, wanted):
    before, after = (
        f"{CONNECTED}{MEGATRON} --global-batch-size 64 {one}\n" for one in (flags, wanted)
    )
    assert _changed(before, "run.sh", **changes) == Patch(after)


@for_each(
    ("head", "flags", "wanted_head", "wanted_flags"),
    [
        ("TP=1\n", f"{TP} $TP", "TP=2\n", f"{TP} $TP"),
        ("export TP=1  # of 8\n", f"{TP} ${{TP}}", "export TP=2  # of 8\n", f"{TP} ${{TP}}"),
        ("TP=${TP:-1}\n", f'{TP} "$TP"', "TP=${TP:-2}\n", f'{TP} "$TP"'),
        ("", f"{TP} ${{TP:-1}}", "", f"{TP} ${{TP:-2}}"),
        ("A=1\nTP=$A\n", f"{TP} $TP", "A=2\nTP=$A\n", f"{TP} $TP"),
        # which is something else, too
        ("ONE=1\n", f"{TP} $ONE --seed $ONE", "ONE=1\n", f"{TP} 2 --seed $ONE"),
        ("TP=1\n", f"{TP} $TP --save out/tp$TP", "TP=1\n", f"{TP} 2 --save out/tp$TP"),
        ("TP=$((3 - 2))\n", f"{TP} $TP", "TP=$((3 - 2))\n", f"{TP} 2"),
        # in the branch that runs
        (
            "if [ 1 -gt 2 ]; then\n    TP=1\nelse\n    TP=1\nfi\n",
            f"{TP} $TP",
            "if [ 1 -gt 2 ]; then\n    TP=1\nelse\n    TP=2\nfi\n",
            f"{TP} $TP",
        ),
    ],
)
def test_a_variable_is_changed_where_it_is_that_setting_alone(
    head, flags, wanted_head, wanted_flags
):
    rest = "--bf16 --micro-batch-size 1 --global-batch-size 64\n"
    before = f"{CONNECTED}{head}{MEGATRON} {flags} {rest}"
    after = f"{CONNECTED}{wanted_head}{MEGATRON} {wanted_flags} {rest}"
    assert _changed(before, "run.sh", tensor_par=2) == Patch(after)


SCRIPT = f"""{CONNECTED}ARGS=(
    # the plan
    {TP} 1  # inside a node
    --micro-batch-size 1 --global-batch-size 64
    --use-distributed-optimizer --overlap-grad-reduce --bf16
    # --recompute-activations
)
{MEGATRON} "${{ARGS[@]}}" --data-path "$DATA"
"""


def test_lists_keep_their_comments_and_take_new_flags_at_their_end():
    found = _changed(SCRIPT, "run.sh", activation_recompute="attn_only", tensor_par=2)
    new = SCRIPT.replace(f"{TP} 1 ", f"{TP} 2 ")
    new = new.replace("--bf16\n", "--bf16\n    --recompute-activations\n")
    assert found.text.replace("    # --recompute-activations\n", "") == new.replace(
        "    # --recompute-activations\n", ""
    )
    assert "    # --recompute-activations\n" in found.text


def test_variables_of_the_environment_follow_the_flags():
    without = SCRIPT.replace(CONNECTED, "#!/bin/bash\n# mine\n")
    found = _changed(without, "run.sh", tensor_par=2).text
    assert found.startswith(f"#!/bin/bash\n# mine\n{CONNECTED}ARGS=(")
    fsdp = {"zero_stage": "fsdp", "grad_fusion": False, "optimizer_sharding": True}
    fsdp |= {"overlap_param_gather": False}
    assert (
        "\nunset CUDA_DEVICE_MAX_CONNECTIONS\nARGS=("
        in "\n" + _changed(SCRIPT, "run.sh", **fsdp).text
    )
    untouched = _changed(without, "run.sh", microbatch_size=2).text
    assert untouched == without.replace("--micro-batch-size 1", "--micro-batch-size 2")


@for_each(
    ("head", "start", "wanted_head", "wanted_start"),
    [
        (
            "",
            "torchrun --nproc_per_node 8 --nnodes 2",
            "",
            "torchrun --nproc_per_node 8 --nnodes 4",
        ),
        ("N=2\nNNODES=$N\n", "torchrun --nproc_per_node=8 --nnodes=$NNODES", None, None),
        (
            "#SBATCH --nodes=2 --gres=gpu:8\nNNODES=2\n",
            "torchrun --nproc_per_node 8 --nnodes $NNODES",
            "#SBATCH --nodes=4 --gres=gpu:8\nNNODES=4\n",
            "torchrun --nproc_per_node 8 --nnodes $NNODES",
        ),
        (
            "#SBATCH --nodes=2 --ntasks-per-node=8\n",
            "srun python",
            "#SBATCH --nodes=4 --ntasks-per-node=8\n",
            "srun python",
        ),
    ],
)
def test_nodes_are_changed_where_they_are_stated(head, start, wanted_head, wanted_start):
    rest = "pretrain_gpt.py --bf16 --micro-batch-size 1 --global-batch-size 64\n"
    found = _changed(f"{head}{start} {rest}", "run.sh", num_procs=32)
    if wanted_head is None:
        assert found.notes == ("run.sh runs on 16: start it on 32 processors",)
        assert found.text == f"{head}{start} {rest}"
    else:
        assert found == Patch(f"{wanted_head}{wanted_start} {rest}")


YAML = """\
# mine
model:
  tensor_model_parallel_size: 2  # inside a node
  pipeline_model_parallel_size: 1
  sequence_parallel: true

  num_layers: 32

train: {micro_batch_size: 1, global_batch_size: 64}
mixed_precision: bf16_mixed
"""
TOML = """\
[model]
name = "llama3"
flavor = "8B"  # of four

[training]
local_batch_size = 1
seq_len = 8192

[parallelism]
tensor_parallel_degree = 2
[activation_checkpoint]
mode = 'full'
"""
JSON = """\
{
  "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4,
  "zero_optimization": {
    "stage": 3,
    "mics_shard_size": 8
  },
  "bf16": {"enabled": true}
}
"""
PRIMUS = """\
modules:
  pre_trainer:
    framework: megatron
    overrides:
      micro_batch_size: 1
      global_batch_size: 64
      num_layers: 32
      recompute_granularity: full
      recompute_method: uniform
      recompute_num_layers: 1
"""
PYTHON = """\
MICRO = 1  # sequences


def pretrain_config():
    cfg = gpt_pretrain_config()
    cfg.model.tensor_model_parallel_size = 2
    cfg.train.micro_batch_size = MICRO
    cfg.train.global_batch_size = 64
    cfg.mixed_precision = "bf16_mixed"
    return cfg
"""


@for_each(
    ("text", "file", "changes", "swaps"),
    [
        (YAML, "run.yaml", {"tensor_par": 4}, [("size: 2  #", "size: 4  #")]),
        (
            YAML,
            "run.yaml",
            {"microbatch_size": 2},
            [("micro_batch_size: 1", "micro_batch_size: 2")],
        ),
        (
            YAML,
            "run.yaml",
            {"context_par": 2},
            [("size: 1\n", "size: 1\n  context_parallel_size: 2\n")],
        ),
        (
            TOML,
            "run.toml",
            {"activation_recompute": "none", "tensor_par": 4, "batch_size": 4},
            [("'full'", "'none'"), ("degree = 2", "degree = 4")],
        ),
        (TOML, "run.toml", {"microbatch_size": 2, "batch_size": 16}, [("size = 1", "size = 2")]),
        (
            JSON,
            "run.json",
            {"dp_shard": 0},
            [(',\n    "mics_shard_size": 8', "")],
        ),
        (
            JSON,
            "run.json",
            {"fsdp_prefetch": 0},
            [('"stage": 3,', '"stage": 3,\n    "stage3_prefetch_bucket_size": 0,')],
        ),
        (
            PRIMUS,
            "run.yaml",
            {"activation_recompute": "none", "recompute_modules": "norm"},
            [
                ("granularity: full", "granularity: selective"),
                ("      recompute_method: uniform\n", ""),
                ("recompute_num_layers: 1", "recompute_modules: layernorm"),
            ],
        ),
        (PYTHON, "run.py", {"microbatch_size": 2}, [("MICRO = 1", "MICRO = 2")]),
        (
            PYTHON,
            "run.py",
            {"context_par": 2, "tensor_par": 1},
            [("size = 2\n", "size = 1\n    cfg.model.context_parallel_size = 2\n")],
        ),
    ],
)
def test_configurations_are_changed_line_by_line(text, file, changes, swaps):
    wanted = text
    for old, new in swaps:
        assert old in wanted
        wanted = wanted.replace(old, new)
    assert _changed(text, file, **changes).text == wanted


BRIDGE = """\
TP=2
torchrun --nproc_per_node 8 --nnodes 2 run_recipe.py --model llama3_8b \\
    model.tensor_model_parallel_size=$TP \\
    train.micro_batch_size=1 train.global_batch_size=64 \\
    mixed_precision=bf16_mixed
"""
TITAN = """\
NGPU=8 NNODES=2 CONFIG_FILE=x.toml ./run_train.sh --training.seq_len 4096 \\
    --activation_checkpoint.mode=full --training.local_batch_size 2 --job.dump_folder out
"""


@for_each(
    ("text", "changes", "swaps"),
    [
        (BRIDGE, {"tensor_par": 4}, [("TP=2", "TP=4")]),
        (BRIDGE, {"num_procs": 32}, [("--nnodes 2", "--nnodes 4")]),
        (
            BRIDGE,
            {"context_par": 2},
            [("    mixed", "    model.context_parallel_size=2 \\\n    mixed")],
        ),
        (TITAN, {"microbatch_size": 1, "batch_size": 16}, [("size 2", "size 1")]),
        (TITAN, {"activation_recompute": "none"}, [("mode=full", "mode=none")]),
        (TITAN, {"num_procs": 32, "batch_size": 64}, [("NNODES=2", "NNODES=4")]),
    ],
)
def test_options_of_a_command_are_changed(text, changes, swaps):
    wanted = text
    for old, new in swaps:
        assert old in wanted
        wanted = wanted.replace(old, new)
    assert _changed(text, "run.sh", **changes) == Patch(wanted)


def test_ends_of_lines_stay():
    crossed = SCRIPT.replace("\n", "\r\n")
    wanted = SCRIPT.replace("--micro-batch-size 1", "--micro-batch-size 2").replace("\n", "\r\n")
    assert _changed(crossed, "run.sh", microbatch_size=2) == Patch(wanted)


def test_a_plan_that_flags_of_the_user_contradict_is_refused():
    script = SCRIPT.replace("--bf16", "--bf16 --overlap-param-gather")
    with pytest.raises(SpecError, match="--overlap-grad-reduce with --overlap-param-gather"):
        _changed(script, "run.sh", data_par_overlap=False)


def test_the_format_of_checkpoints_follows_the_flags():
    fsdp = {"zero_stage": "3", "overlap_param_gather": False}
    found = _changed(SCRIPT.replace("--bf16", "--bf16 --ckpt-format torch_dist"), "run.sh", **fsdp)
    assert "--bf16 --ckpt-format fsdp_dtensor\n" in found.text
