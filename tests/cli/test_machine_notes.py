"""Every page that estimates on a machine says what the machine borrows, and that nobody measured it."""

import json

import pytest

from calculon.documents.page_title import lettered_notes
from calculon.explore.allowed_inputs import AllowedInputs
from calculon.explore.answers import Answers
from calculon.explore.controls import controls
from calculon.explore.page_state import State
from tests.draws import FACTOR

GRACE, B300, GAUDI, H100, WORD = "gh200_96g", "b300_sxm", "gaudi3", "h100_80g_sxm", "h100"
BORROWED = "borrowed: kernels, links within a node and network between nodes of {}"
NOTES = {
    GRACE: ("unmeasured machine", BORROWED.format(H100)),
    B300: (BORROWED.format("b200_sxm"),),
    GAUDI: ("unmeasured machine",),
    H100: (),
    WORD: ("h100: h100_80g_sxm; also h100-pcie, h100-nvl",),
}
SAID_OF_SOME = ("unmeasured machine", "borrowed: ", "also h100-pcie")
ASKED = "--prompt 500 --output 100"
ONE_PAGE = ("llm llama3-8B llama3-8B_h100x64 {} -", "matmul 4096 4096 4096 {}")
COMMANDS = (
    *ONE_PAGE,
    "why mlp-4x1024 mlp-4x1024_x2_ddp {}",
    "sensitivity mlp-4x1024 mlp-4x1024_x2_ddp {}",
    "block llama3-8B llama3-8B_h100x64 {}",
    "campaign gpt2-124M gpt2-124M_a100x2_ddp {} --tokens 1T",
    "plan mlp-4x1024 2 {} --batch 8 --preset common --fix tensor_par=1 -v",
    "loe mlp-4x1024 2 8 bfloat16 {} - --preset common --fix tensor_par=1",
    "compare llama3-8B,llama3-8B_h100x64,{0} llama3-8B,llama3-8B_h100x64_p4,{0}",
    f"compare llama3-8B,8,{{0}} llama3-8B,16,{{0}} {ASKED} --tpot 50ms",
    f"serve llama3-8B 1 {{}} {ASKED} --users 32",
    f"sop gpt2-124M 1 {{}} {ASKED}",
    f"plot batch gpt2-124M 1 {{}} {ASKED}",
    f"plot frontier gpt2-124M 1 {{}} {ASKED} --fix token_budget=2048",
    "collective all_reduce 1GiB 4 {}",
    "dispatch mixtral-8x7B 4 {}",
)


SLOW = "compare llama3-8B,8"


@pytest.mark.usefixtures("without_help")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=[pytest.mark.large] * command.startswith(SLOW))
        for command in COMMANDS
    ],
)
def test_a_page_has_the_notes_of_its_machine(command, run):
    machines = [*NOTES] if FACTOR > 1 or command in ONE_PAGE else [GRACE, WORD]
    if "_ddp" in command and GAUDI in machines:
        machines.remove(GAUDI)  # these executions are in float32, which it does not compute
    if command.startswith(("compare", "plot")):
        machines.remove(WORD)  # these say exact names alone
    for system in machines:
        code, out, err = run(*command.format(system).split())
        assert code == 0, err
        text = " ".join(out.lower().split())
        assert all(note in text for note in NOTES[system])
        for note in SAID_OF_SOME:
            assert (note in text) == (note in str(NOTES[system]))


@pytest.mark.parametrize("command", [one for one in COMMANDS if one.startswith(("block", "serve"))])
def test_the_note_on_a_word_follows_the_title_in_every_format_of_a_page(command, run):
    for form, title in {"text": "", "markdown": "# ", "html": "<h1>"}.items():
        _, out, _ = run(*command.format(WORD).split(), "-f", form)
        assert title in out.partition(NOTES[WORD][0])[0]
        assert NOTES[WORD][0] in out


@pytest.mark.usefixtures("unvalidated", "unrendered")
def test_a_report_and_the_file_of_a_result_have_the_notes(run, tmp_path):
    assert run("llm", "llama3-8B", "llama3-8B_h100x64", GRACE, "one.json").code == 0
    told = json.loads((tmp_path / "one.json").read_text())["question"]["system"]
    assert told["unmeasured"]
    assert told["borrowed"] == dict.fromkeys(("kernels", "links", "network"), H100)
    assert run("report", "one.json", "-o", "one.html").code == 0
    assert all(note in (tmp_path / "one.html").read_text() for note in NOTES[GRACE])


def test_the_page_in_a_browser_has_the_notes():
    answers = Answers(AllowedInputs())
    for system, notes in NOTES.items() if FACTOR > 1 else [(GRACE, NOTES[GRACE]), (H100, ())]:
        shown = str(controls(State(model="gpt2-124M", system=system, procs=2), answers))
        found = {note for note in {*NOTES[GRACE], *NOTES[B300]} if note in shown}
        assert found == {*notes}, system


def test_compared_results_share_the_notes_of_one_machine():
    machine = {"unmeasured": True, "borrowed": {"kernels": H100}}
    notes = [*lettered_notes("ABC", [machine, {}, machine])]
    assert notes == [f"A, C: unmeasured machine; borrowed: kernels of {H100}"]
