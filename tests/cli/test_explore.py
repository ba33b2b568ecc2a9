"""``calculon explore``: what is asked for is the first page, and how the program begins and ends."""

import signal
import socket
import sys
from urllib.parse import parse_qsl, urlsplit
from urllib.request import urlopen

import pytest

import calculon
from calculon.cli.commands import explore
from calculon.explore.allowed_inputs import AllowedInputs
from calculon.explore.answers import Answers
from calculon.explore.page_state import State, read_state
from calculon.explore.web import listening
from tests.cli.conftest import started


@pytest.fixture
def unserved(monkeypatch):
    """Let the command end where it would serve its page."""
    monkeypatch.setattr(listening, "serve", lambda page, listener, endings: listener.close())


@pytest.fixture
def shown(output_of, unserved):
    """Call the command without serving; return the state of its first page."""

    def call(*arguments: object, model: str | None = None) -> State:
        out = output_of("explore", "--no-browser", "--port", "0", *arguments)
        pairs = parse_qsl(urlsplit(out.split()[0]).query)
        return read_state(pairs, AllowedInputs(model), State(model="", system="", procs=1))

    return call


def test_the_machine_and_its_count_come_in_both_orders(shown):
    for arguments in ("llama3-8B 64 h100_80g_sxm", "llama-3-8b h100 64"):
        found = shown(*arguments.split())
        assert (found.model, found.system, found.procs) == ("llama3-8B", "h100_80g_sxm", 64)


def test_what_is_left_out_is_as_the_help_says(shown):
    found = shown()
    first = explore.MODEL, explore.SYSTEM, int(explore.PROCS)
    assert (found.model, found.system, found.procs) == first
    assert shown("llama3-8B", "2k").procs == 2048
    assert shown("llama3-8B", "2k").system == explore.SYSTEM


def test_options_of_a_question_are_words_of_the_address(shown):
    options = "--preset torchtitan --batch 4M --seq 4k --dtype fp8 --tokens 15T --view machine"
    found = shown("llama3-8B", "64", "h100", *options.split(), "--set", "system.mem1.GiB=120")
    words = [part for name in explore.WORDS for part in (f"--{name}", getattr(found, name))]
    assert {*words} == {*options.split()}
    assert found.machine == {"mem1.GiB": 120}


def test_a_plan_of_ones_own_is_that_of_the_page(shown):
    found = shown("llama3-8B", "64", "h100", "--mine", "tp=4 pp=2 recompute=off gbs=256")
    assert found.batch == "256"
    plan = {"tensor_par": 4, "pipeline_par": 2, "activation_recompute": "none"}
    assert found.plan == plan


def test_a_file_of_ones_own_is_shown_as_it_is_estimated(shown, tmp_path):
    file = tmp_path / "run.sh"
    own = {"base": "megatron-lm", "num_procs": 8, "tensor_par": 2, "pipeline_par": 1}
    script = calculon.export_flags(own | {"batch_size": 32}, "megatron-lm", model="gpt2-124M")
    file.write_text(script)
    question = ("gpt2-124M", "8", "h100_80g_sxm", "--mine", file)
    mine = calculon.estimate("gpt2-124M", str(file), "h100_80g_sxm")
    fields = mine.execution.to_dict() | {"seq_length": 0}  # that of the model, which scripts state
    found = Answers(AllowedInputs()).plan(shown(*question))
    assert found.estimate is not None
    assert found.estimate.stats["total_time"] == mine.stats["total_time"]
    assert {name: found.fields[name] for name in fields} == fields


def test_a_model_of_ones_own_has_a_name_on_the_page(shown, spec):
    spec("models", "llama3-8B", "small.json", num_blocks=30)
    found = shown("small.json", "64", "h100", model="small.json")
    assert found.model == "small"
    assert Answers(AllowedInputs("small.json")).question(found).model.num_blocks == 30


def test_what_means_nothing_is_said_before_anything_is_served(refuses, monkeypatch):
    monkeypatch.setattr(listening, "serve", lambda *_: pytest.fail("served"))
    options = [
        ("--set system.name=x", "expected a number"),
        ("--set system.name=4", "no such field"),
        ("--mine datatype=float16", "--dtype"),
        ("--mine tp=8 --mine tp=4", "one plan"),
        ("--preset nothing", "expected one of"),
        ("--batch some", "some"),
        ("--host nowhere.invalid", "--host"),
        ("--port 99999", "65535"),
    ]
    refuses(("explore", "--no-browser", "llama3-8B", "64", "h100"), options)
    words = [("llama9 64 h100", "llama9"), ("llama3-8B many h100", "many")]
    refuses(("explore", "--no-browser"), words)


def test_a_port_that_is_taken_is_refused_where_it_is_asked_for(refuses):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refuses(("explore", "--no-browser"), [(f"--port {port}", f"{port} in use")])


@pytest.mark.usefixtures("unserved")
def test_the_network_is_warned_of(run):
    _, out, err = run("explore", "--no-browser", "--port", "0", "--host", "0.0.0.0")
    assert "warning: everybody" in err
    assert out.split("/?")[0] in err


@pytest.mark.usefixtures("unserved")
def test_a_browser_is_opened_where_there_is_a_screen(run, monkeypatch):
    opened = []
    monkeypatch.setattr(listening, "open_browser", opened.append)
    for name in ("BROWSER", "WAYLAND_DISPLAY", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert run("explore", "--port", "0").code == 0
    assert not opened
    monkeypatch.setenv("DISPLAY", ":0")
    assert run("explore", "--port", "0", "--no-browser").code == 0
    assert not opened
    out = run("explore", "--port", "0").out
    assert opened == [out.split()[0]]


def test_a_signal_ends_it_at_once_also_while_it_searches(tmp_path):
    question = ("deepseek-v3", "h100", "2048")
    with started(tmp_path, "explore", *question, "--no-browser", "--port", "0") as child:
        address = child.stdout.readline().split()[0]
        with urlopen(address, timeout=60) as page:
            assert b"part-searching" in page.read()
        child.send_signal(signal.SIGTERM)
        err = child.stderr.read()
    assert child.returncode == 143
    assert err == "calculon: terminated: the page is no longer served\n"
