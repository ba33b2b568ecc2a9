"""The four tables of the published tool, digit by digit."""

import pytest

from calculon.validate.published_errors import published_tables
from tests.shipped_studies import compared

FIG1_WEIGHTS = """\
*Params & Opt
,none profile,none calc,none delta,seqsel profile,seqsel calc,seqsel delta
megatron-22B,45.56,40.62,10.84%,45.56,40.62,10.84%
gpt3-175B,45.56,40.93,10.17%,45.56,40.93,10.17%
turing-530B,31.64,29.30,7.40%,31.64,29.30,7.40%
megatron-1T,32.96,31.13,5.55%,32.96,31.13,5.55%
Ave,,8.49%
Max,,10.84%
,"""
FIG1_ACTIVATIONS = """\
*Activations
,none profile,none calc,none delta,seqsel profile,seqsel calc,seqsel delta
megatron-22B,59.25,59.44,-0.32%,9.56,10.40,-8.74%
gpt3-175B,66.84,66.94,-0.14%,12.35,12.69,-2.75%
turing-530B,114.02,114.18,-0.14%,23.08,23.56,-2.12%
megatron-1T,131.25,131.45,-0.15%,26.56,27.17,-2.30%
Ave,,2.08%
Max,,8.74%
,"""
MODES = ("none", "seq", "sel", "seqsel", "full")
FIG7 = {
    "megatron-22B": ((100, 66.84, 49.42, 16.18, 7.64), (100, 66.92, 43.17, 17.49, 9.96)),
    "gpt3-175B": ((100, 62.04, 56.53, 18.49, 8.71), (100, 62.03, 48.32, 18.96, 9.63)),
    "turing-530B": ((100, 58.31, 62.04, 20.27, 9.42), (100, 58.41, 52.79, 20.64, 10.37)),
    "megatron-1T": ((100, 58.31, 62.04, 20.27, 9.42), (100, 58.41, 52.82, 20.67, 10.44)),
}
"""Profiled and calculated, per mode."""

TAB5 = """\
End-to-end
,full profile,full calc,full delta,full GiB,seqsel profile,seqsel calc,seqsel delta,seqsel GiB
megatron-22B,1.42,1.40,1.72%,48.15,1.10,1.14,-3.33%,52.08
gpt3-175B,18.13,18.03,0.56%,48.10,13.75,13.64,0.81%,54.07
turing-530B,49.05,49.89,-1.72%,42.27,37.83,34.47,8.87%,53.54
megatron-1T,94.42,90.08,4.60%,46.27,71.49,66.04,7.62%,59.15
Ave,,3.65%
Max,,8.87%
,"""


def _tables(name):
    return published_tables(compared(name))


@pytest.mark.parametrize(
    ("study", "text"),
    [("seqsel/fig1", f"{FIG1_WEIGHTS}\n{FIG1_ACTIVATIONS}"), ("seqsel/tab5", TAB5)],
)
def test_published_table(study, text):
    assert _tables(study) == text.splitlines()


def test_published_figure_7():
    title, head, *lines, average, largest, end = _tables("seqsel/fig7")
    assert (title, average, largest, end) == ("Activations", "Ave,,6.69%", "Max,,30.41%", ",")
    headings = [f"{mode} {what}" for mode in MODES for what in ("profile", "calc", "delta")]
    assert head.split(",") == ["", *headings]
    assert len(lines) == len(FIG7)
    for line in lines:
        name, *cells = line.split(",")
        profiled, calculated = FIG7[name]
        assert cells[0::3] == [f"{value:.2f}" for value in profiled]
        assert cells[1::3] == [f"{value:.2f}" for value in calculated]


def test_a_study_without_a_layout_prints_no_table():
    assert _tables("mt_nlg") == []
