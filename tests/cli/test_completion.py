"""``calculon completion``: scripts that shells accept."""

import shutil
import subprocess

import pytest

from calculon.cli.main import COMMANDS

SIMULATE = """
cd /
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_calculon 2>/dev/null
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_script_knows_every_command(output_of, shell):
    out = output_of("completion", shell)
    assert all(command.name in out for command in COMMANDS)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes(run):
    cases = {
        "calculon cat": "catalog",
        "calculon llm megatron-1": "megatron-1T",
        "calculon llm megatron-1T 3072": "3072_t4_p64_d12_mbs4_full",
        "calculon llm megatron-1T x a100_80": "a100_80g",
        "calculon campaign --campaign llama3-4": "llama3-405B",
        "calculon estimate llama3-70B t": "tp=",
        "calculon serve llama3-70B llama": "llama3.1-70B_h100x8",
        "calculon serve --workload ch": "chat",
        "calculon plan --dtype b": "bf16",
        "calculon search --format js": "json",
        "calculon wh": "why",
        "calculon describe st": "stats",
        "calculon lpc us": "usr",
    }
    script = run("completion", "bash").out
    for words, expected in cases.items():
        simulated = script + SIMULATE.format(words=words)
        done = subprocess.run(["bash"], input=simulated, capture_output=True, text=True, check=True)
        assert expected in done.stdout.split(), done.stdout


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_accept_their_script(run, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    script = run("completion", shell).out
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
