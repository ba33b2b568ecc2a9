"""Flags and processors of scripts."""

import pytest

from calculon.base.errors import SpecError
from calculon.launch.dialect import Unresolved
from calculon.launch.texts.shell_flags import parse_script, plain_value

FLAGS = "train.py --micro-batch-size 1"


def _parsed(text, **variables):
    return parse_script(text, "run.sh", variables)


def test_processors_follow_from_launchers_and_batch_systems():
    rows = [
        ("torchrun --nproc_per_node 8 --nnodes 4", 32),
        ("torchrun --nproc-per-node=8", 8),
        ("python -m torch.distributed.launch --nproc_per_node=4 --nnodes=2", 8),
        ("python -u -m torch.distributed.run --nproc_per_node 8 --nnodes 2", 16),
        ("deepspeed --num_gpus 8 --num_nodes 3", 24),
        ("srun -N 4 --ntasks-per-node=8 python", 32),
        ("srun -N 4 --ntasks-per-node=1 torchrun --nproc_per_node 8 --nnodes 4", 32),
        ("srun -N 4 torchrun --nproc_per_node 8", 32),
        ("mpirun -np 16 python", 16),
        ("accelerate launch --num_processes 8", 8),
        ("WORLD_SIZE=24; python", 24),
        ("#SBATCH --nodes=4 --gpus-per-node=8\nsrun python", 32),
        ("#SBATCH -N 2\n#SBATCH --gres=gpu:a100:8\nsrun python", 16),
        (
            "#SBATCH -N 2\n#SBATCH --gres=gpu:8\ntorchrun --nproc_per_node 8 --nnodes $SLURM_NNODES",
            16,
        ),
        ("python", None),
    ]
    wrong = [
        (launcher, found)
        for launcher, processors in rows
        if (found := _parsed(f"{launcher} {FLAGS}").num_procs) != processors
    ]
    assert wrong == []


def test_processors_of_the_environment_are_open():
    found = _parsed(f"torchrun --nproc_per_node 8 --nnodes $N {FLAGS}").num_procs
    assert found == Unresolved("$N", "N")


def test_a_batch_system_and_a_launcher_that_differ_give_both_numbers():
    text = f"#SBATCH -N 4\n#SBATCH --gres=gpu:8\ntorchrun --nproc_per_node 8 --nnodes 2 {FLAGS}"
    found = _parsed(text).num_procs
    assert isinstance(found, Unresolved)
    assert "32" in found.text
    assert "16" in found.text


def test_values_are_numbers_texts_lists_and_switches():
    text = "python x.py --a 1 --b=2.5e-3 --c x --d 1 two --e --f -1 --g_h 1_000 --i ''"
    found = {name: one.value for name, one in _parsed(text).settings.items()}
    assert found == {
        "--a": 1,
        "--b": 2.5e-3,
        "--c": "x",
        "--d": [1, "two"],
        "--e": True,
        "--f": -1,
        "--g-h": 1000,
        "--i": "",
        "program": "x.py",
    }


def test_what_is_no_number_of_a_usual_size_stays_a_text():
    words = ["9" * 5000, "1e999", "nan", "inf", "1e", "0x10", "1.2.3"]
    assert [plain_value(word) for word in words] == words


def test_the_last_of_a_repeated_flag_counts_and_says_its_line():
    found = _parsed("A='--a 1'\n# --a 3\npython x.py $A \\\n --a 2\n").settings["--a"]
    assert (found.value, found.place) == (2, "run.sh:4")


def test_commands_end_where_others_begin():
    ends = ["2>&1 | tee x.log", "&> log", "; echo done", "&& echo done", "> log"]
    hows = ["{}", "CMD='{}'; eval $CMD", 'bash -c "{}"', "srun bash -x -c '{}'"]
    for text in [how.format(f"python x.py --a 1 --b {end}") for how in hows for end in ends]:
        found = {name: one.value for name, one in _parsed(text).settings.items()}
        assert found == {"--a": 1, "--b": True, "program": found["program"]}, text


def test_lists_of_flags_without_a_command_are_read_with_a_note():
    found = _parsed("MODEL_ARGS=(--a 1)\nMORE='--b 2'")
    assert [*found.settings] == ["--a", "--b"]
    assert "no training command" in found.notes[0]


def test_what_may_hold_further_flags_is_told():
    found = _parsed('python x.py --a 1 --b $MORE "$@"')
    assert found.settings["--b"].value == Unresolved("$MORE", "MORE")
    assert found.notes == ("$@ may hold further settings",)
    two = ("2 commands train: the one with the most flags is used",)
    for flags, notes in (("--a 1 --b 1", two), ("--a 1 --b 1 --c 1", ())):
        assert _parsed(f"python x.py {flags}\npython y.py --a 2").notes == notes
    assert _parsed("source other.sh\npython x.py --a").notes == ("other.sh is not read",)


def test_a_script_without_flags_is_none():
    with pytest.raises(SpecError, match="a command with flags"):
        _parsed("echo hello")
