"""Texts just inside and just outside the limits of an address."""

from types import SimpleNamespace

from calculon.explore.page_state import EXACT, LONGEST, MAX_PROCESSORS, State, read_good

FIRST = State(model="gpt3-13B", system="a100_80g_sxm", procs=64)
OFFER = SimpleNamespace(presets=("megatron-lm",))


def test_values_have_limits():
    for name, allowed, refused in [
        ("where", "x" * LONGEST, "x" * (LONGEST + 1)),
        ("open", "x" * 2 * LONGEST, "x" * (2 * LONGEST + 1)),
        ("procs", "1", "0"),
        ("procs", str(MAX_PROCESSORS), str(MAX_PROCESSORS + 1)),
        ("procs", "16,384 k", "16385k"),
        ("dtype", "fp8", "fp9"),
        ("preset", "megatron-lm", "megatron"),
        ("system.mem1.GiB", "1e300", "inf"),
        ("batch", "many", None),  # is read where it is asked for
        ("zero_stage", "many", None),
        ("batch_size", None, "8"),
    ]:
        assert allowed is None or not read_good([(name, allowed)], OFFER, FIRST)[1]
        assert refused is None or [*read_good([(name, refused)], OFFER, FIRST)[1]] == [name]


def test_the_condition_alone_may_be_emptied():
    state, _ = read_good([("where", ""), ("objective", ""), ("counts", "")], OFFER, FIRST)
    assert state.options == {"where": ""}
    assert ("where", "") in state.pairs()
    assert read_good((), OFFER, FIRST)[0].option("where") == "fits >= 0.9"


def test_values_are_read_as_files_have_them():
    exact = str(EXACT - 1)
    said = {"system.a": "80", "system.b": "1.50", "system.c": exact, "system.d.us": "3"}
    said |= {"tensor_par": "-8", "p2p_overlap": "on", "tp_async": "False", "data_par": "1e3"}
    state, problems = read_good(said.items(), OFFER, FIRST)
    assert not problems
    assert {**state.machine} == {"a": 80, "b": 1.5, "c": EXACT - 1, "d": 3e-6}
    assert [type(one) for one in state.machine.values()] == [int, float, int, float]
    switches = {"p2p_overlap": True, "tp_async": False}
    assert state.plan == {"tensor_par": -8, "data_par": "1e3"} | switches
