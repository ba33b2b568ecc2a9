"""``calculon loe``: what it prints, refuses and writes."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from calculon.advise.in_words import plan_in_words
from calculon.advise.planning import plan
from calculon.cli.commands.optimal_execution import _SHOWN, _more
from calculon.declarations.statistics import BOUNDS, RISK
from calculon.documents.confidence import none_within
from calculon.render.digits import Digits
from calculon.search import task
from calculon.search.driver import SearchResult, search
from tests.cli.conftest import page, started
from tests.helpers import document
from tests.store import cache

SPACE = ("megatron-22B", 8, 4, "float16", "a100_80g")


NARROW = ("--fix", "tensor_par=8", "--fix", "activation_recompute=full")


def _lines(result):
    return result.out.splitlines()


def test_refuses_before_any_work(refuses):
    rows = [
        ("--pareto total_time", "2 to 4 different statistics"),
        ("--pareto total_time,total_time:max", "2 to 4 different statistics"),
        ("--pareto total_time,sample_rate -t 1", "leave out -t"),
        ("--pareto total_time,sample_rate --objective sample_rate", "leave out --objective"),
        ("--fix tensor_par=3", "--fix: tensor_par"),
        ("--fix datatype=float8", "use the argument of the datatype"),
        ("--add batch_size=128", "--add: batch_size"),
        ("--fix attn_impl=flash", "add --edition corrected"),
        ("--objective mfu", "add --edition corrected"),
        ("--where mfu>0.4", "add --edition corrected"),
        ("--objective usd", "add --tokens 15T"),
        ("--risk 5%", "--risk: expected edition corrected, found edition sc23"),
        (
            "--edition corrected --risk 1",
            "--risk: expected a probability such as 10% or 0.1, found '1'. Hint: write 1%",
        ),
        ("--fix ce_impl=fused", "expected corrected, which ce_impl=fused needs"),
        ("--edition corrected --add attn_impl=flash", "expected values other than flash"),
    ]
    refuses(("loe", *SPACE, "-", "-q"), rows)
    refuses(("loe", *SPACE, "best.parquet"), [("-l", "leave out -l")])
    refuses(("loe", SPACE[0], "8 16", *SPACE[2:]), [("-", "Hint: write 8,16")])


def test_the_published_lines_stay_and_other_objectives_have_a_unit(run):
    rate = search("megatron-22B", "a100_80g", 8, 4).estimates()[0].stats["sample_rate"]
    assert f"Best sample rate: {rate!r}" in page("loe", *SPACE, "-").splitlines()
    memory = run("loe", *SPACE, "-", "--objective", "proc_mem_tier1_cap_req").out
    assert re.search(
        r"^Best proc mem tier1 cap req: \d+\.0 \(\d\.\d\d GiB\)$", memory, re.MULTILINE
    )
    counted = _lines(run("loe", *SPACE, "-", "-d"))
    assert counted[1:3] == ["Good executions: 0", "Bad executions: 0"]
    assert "counted only" in counted[4]


def test_files_hold_what_estimates_say(run):
    found = search("megatron-22B", "a100_80g", 8, 4, top=3).estimates(layers=True)
    wanted = {
        str(rank): {"execution": one.execution.to_dict(), "stats": one.to_dict()}
        for rank, one in enumerate(found)
    }
    assert run("loe", *SPACE, "best.json", "-t", 3, "-l").code == 0
    assert json.dumps(json.loads(Path("best.json").read_text())) == json.dumps(wanted)
    assert run("loe", *SPACE, "best.csv", "-t", 3).code == 0
    rates = [one.stats["sample_rate"] for one in found]
    assert pd.read_csv("best.csv")["sample_rate"].tolist() == rates


def test_many_winners_are_written_without_estimating_each(run, monkeypatch):
    monkeypatch.setattr(SearchResult, "estimates", None)
    result = run("loe", *SPACE, "best.json", "-t", _SHOWN + 1)
    assert result.code == 0
    assert "(1 more in the output)" in _lines(result)


def test_it_says_where_winners_are_that_it_does_not_print():
    more = {name: _more(1234, SimpleNamespace(output=name)) for name in ("best.csv", "-")}
    assert more["best.csv"] == "(1,234 more in the output)"
    assert more["-"] == "(1,234 more; name an output file for all)"


def test_an_interrupted_search_says_so(run, monkeypatch):
    def interrupt(search):
        raise KeyboardInterrupt

    monkeypatch.setattr(task, "run_search", interrupt)
    result = run("loe", *SPACE, "best.json")
    assert result.code == 130
    assert (
        result.err == "calculon: interrupted: 0 of 1 processor counts searched, nothing written\n"
    )


@pytest.mark.large
def test_the_file_is_there_when_the_report_is_cut_short(tmp_path):
    with started(tmp_path, "loe", *map(str, SPACE), "best.json") as child:
        child.stdout.close()  # as `| head -0` does
    found = json.loads((tmp_path / "best.json").read_text())
    assert found["0"]["execution"]["num_procs"] == SPACE[1]


def test_an_edition_is_said_and_written(run, tmp_path):
    fix = ["--fix", "attn_impl=flash", "--fix", "tensor_par=8", "--add", "grad_buffer=full"]
    result = run("loe", *SPACE, "best.json", "--edition", "corrected", "--objective", "mfu", *fix)
    assert re.fullmatch(
        r"[\d,]+ plans tried, [\d,]+ fit \(edition corrected, preset torchtitan\)",
        _lines(result)[0],
    )
    (winner,) = json.loads((tmp_path / "best.json").read_text()).values()
    assert winner["execution"]["edition"] == "corrected"
    assert winner["execution"]["attn_impl"] == "flash"
    options = {"fix": {"attn_impl": "flash", "tensor_par": 8}, "add": {"grad_buffer": "full"}}
    found = search(SPACE[0], "a100_80g", 8, 4, edition="corrected", objective="mfu", **options)
    assert winner["stats"]["mfu"] == found[0].stats["mfu"]
    assert "dition" not in page("loe", *SPACE, "-")


@pytest.mark.parametrize("command", ["loe", "lae"])
def test_the_edition_is_the_one_that_the_model_needs(output_of, refuses, command):
    modern = ("llama3-8B", 8, 8, "bfloat16", "h100_80g_sxm")
    fix = [f"--fix={text}" for text in ("tensor_par=8", "microbatch_size=1", "attn_impl=flash")]
    out = output_of(command, *modern, "best.csv", *fix)
    assert "fit (edition corrected, preset torchtitan)" in out
    assert set(pd.read_csv("best.csv")["edition"]) == {"corrected"}
    message = "expected corrected, which llama3-8B: "
    refuses((command, *modern, "best.csv", *fix), [("--edition sc23", message)])


def test_a_value_without_effect_is_a_note(run):
    """One command line serves models with and without a vocabulary."""
    common = ("loe", *SPACE, "-", *NARROW, "-q")
    common += ("--edition", "corrected", "--preset", "common", "-v")
    plain, noted = run(*common), run(*common, "--fix", "ce_impl=fused")
    note = "search: ce_impl=fused has no effect: megatron-22B states no vocabulary"
    assert (noted.code, noted.err.count(f"calculon: warning: {note}")) == (0, 1)
    best = [line for line in plain.out.splitlines() if line.startswith(("Total", "Good", "Best"))]
    assert best
    assert all(line in noted.out for line in best)
    added = run(*common, "--add", "vocab_pad_multiple=128")
    assert "vocab_pad_multiple=128 has no effect" in added.err
    assert added.code == 0


def test_what_is_not_finite_is_null(run):
    """Where nothing is left to hide traffic behind, the bandwidth that would hide it has no bound."""
    networks = document("systems", "a100_80g_sxm")["networks"]
    wide = [network | {"size": 64 * network["size"]} for network in networks]
    raw = {"base": "a100_80g_sxm", "networks": wide, "mem1": {"GBps": 20}}
    Path("wide.json").write_text(json.dumps(raw))
    fix = "tensor_par=8 pipeline_par=2 pipeline_interleaving=3 microbatch_size=1 tp_impl=allgather"
    fix += " activation_recompute=none tensor_par_comm_type=ar data_par_overlap=true"
    fix += " optimizer_sharding=false weight_offload=false"
    options = [word for setting in fix.split() for word in ("--fix", setting)]
    space = ("megatron-126M", 256, 128, "float16", "wide.json", "best.json")
    assert run("loe", *space, "--preset", "published", *options).code == 0
    best = json.loads(Path("best.json").read_text(), parse_constant=pytest.fail)
    assert best["0"]["stats"]["dp_bw_overlap_req_chunk"] is None


TODAY = ("llama3-8B", 8, 64, "bfloat16", "h100_80g_sxm")
FEW = ("--fix", "tensor_par=2", "--fix", "attn_impl=flash", "--preset", "common")


@cache
def _best_of_today():
    fix = {"tensor_par": 2, "attn_impl": "flash"}
    options = {"edition": "corrected", "preset": "common", "top": 2}
    return search(TODAY[0], TODAY[4], *TODAY[1:4], fix=fix, **options)


def test_files_of_the_corrected_edition_have_intervals_and_how_sure_the_order_is(run):
    options = ("-t", "2", "--edition", "corrected", "--quiet")
    assert run("loe", *TODAY, "best.json", *FEW, *options).code == 0
    winners = list(json.loads(Path("best.json").read_text()).values())
    rates = [one["stats"]["sample_rate"] for one in winners]
    found = _best_of_today()
    for one, row in zip([found[0], found[1]], winners, strict=True):
        stats, order = row["stats"], row["order"]
        ends = [stats[name] for name in BOUNDS]
        assert ends == pytest.approx([one.belief.low, one.belief.high], rel=1e-12)
        assert stats["total_time"] == one.stats["total_time"]  # in full
        assert order["longer"] == pytest.approx(max(rates) / stats["sample_rate"] - 1)
        assert 0.5 <= order["probability"] <= 1
        assert order["told_apart"] == (order["longer"] > order["margin"])


# -- nothing fits ----------------------------------------------------------------------------------------------------


def test_says_what_would_do_on_the_most_processors_where_nothing_fits(run, tmp_path):
    small = tmp_path / "small.json"
    small.write_text(json.dumps({"base": "a100_80g_pcie", "mem1": {"GiB": 24}}))
    options = ("best.json", "--preset", "torchtitan", "-q")
    result = run("loe", "llama3-8B", "2,4", 64, "bfloat16", small, *options)
    assert (result.code, Path("best.json").exists()) == (1, False)
    assert "memory is too small" in result.out
    _, said = result.out.split("On 4 processors:\n")
    assert said.startswith("Nearest miss: TP 4, microbatch 1")
    words = " ".join(said.split())
    for text in ("GiB of memory per processor:", "processors with 48 GB of memory:"):
        assert text in words
    assert "8 processors instead of 4: " in words
    assert "Nothing fits" not in words  # which the table of reasons says


RUNS = ("megatron-126M", 8, 16, "float16", "a100_80g_sxm")
PLAIN = ("--fix", "tensor_par=1", "--fix", "pipeline_par=1")


def test_winners_of_whole_runs_carry_figures_and_campaign(output_of, tmp_path):
    out = tmp_path / "best.json"
    options = ["--tokens", "1G", "--price", 2.0, "--objective", "usd", "--where", "days <= 60"]
    printed = output_of("loe", *RUNS, out, *PLAIN, *options)
    best = json.loads(out.read_text())["0"]
    assert best["question"]["campaign"] == {"tokens": "1G", "fleet": {"price": 2.0}}
    assert best["stats"]["usd"] == pytest.approx(2.0 * best["stats"]["processor_hours"])
    assert re.search(r"usd +days", printed)
    assert "mtbf_processor 50,677 h (419 interruptions" in " ".join(printed.split())


@pytest.mark.usefixtures("without_fixes")
def test_limits_that_are_met_one_by_one_are_told(run):
    options = ["--tokens", "1G", "--deadline", "100d", "--budget-mwh", "1000"]
    result = run("loe", *RUNS, "-", *PLAIN, *options, "--where", "days > 100")
    assert result.code == 1
    said = "On 8 processors every limit is met by some run, but no run meets all of them"
    assert said in " ".join(result.out.split())
    assert "misses" not in result.out


def test_runs_have_the_digits_and_the_interval_of_their_time(run, tmp_path):
    out = tmp_path / "best.json"
    asked = ["--tokens", "100G", "--price", 2.0, "--objective", "usd"]
    result = run("loe", *RUNS, out, *PLAIN, *asked)
    stats = json.loads(out.read_text())["0"]["stats"]
    half = (stats["total_time_high"] - stats["total_time_low"]) / 2 / stats["total_time"]
    assert f"{Digits(half / 10).rate(stats['days'])} d\n" in result.out
    low, high = (
        Digits(half).rate(stats["days"] * stats[name] / stats["total_time"], like=stats["days"])
        for name in BOUNDS
    )
    assert f"90 % interval of the first: {low} to {high} d" in " ".join(result.out.split())
    price = {"usd": 2.0, "kind": "given", "source": "", "date": ""}
    assert json.loads(out.read_text())["0"]["question"]["price"] == price


RISKY = ("llama3-8B", 64, 512, "bfloat16", "h100_80g_sxm")


@pytest.mark.parametrize(
    ("options", "risk"), [((), RISK), (("--risk", "30%"), 0.3), (("--risk", "0.02%"), 2e-4)]
)
def test_the_best_runs_out_of_memory_with_an_acceptable_probability_only(run, options, risk):
    """By default as of ``plan``; if none does, three times the risk is tried, and so on."""
    said = " ".join(run("loe", *RISKY, "best.json", "-q", "-v", *options).out.split())
    found = json.loads(Path("best.json").read_text())["0"]
    asked = plan(*RISKY[:2], RISKY[-1], batch=512, risk=risk)
    best = asked.plans[0].execution
    assert all(value == best[name] for name, value in found["execution"].items())
    every = search("llama3-8B", "h100_80g_sxm", 64, 512, "bfloat16", edition="corrected", risk=1)
    assert found["stats"]["total_time"] > every[0].stats["total_time"]
    assert f"Fastest that is predicted to fit: {plan_in_words(every[0].execution)}" in said
    fits = found["stats"]["fits"]
    assert (none_within(risk, fits) in said) == (fits < 1 - risk)


@pytest.mark.parametrize(
    "options", [("--risk", "100%"), ("--where", "fits > 0"), ("--pareto", "total_time,mfu")]
)
def test_any_risk_is_acceptable_if_that_is_asked_for(run, options):
    said = run("loe", *RISKY, "best.json", "-q", "-v", *options).out
    best = search(
        "llama3-8B", "h100_80g_sxm", 64, 512, "bfloat16", edition="corrected", risk=1
    ).best
    found = json.loads(Path("best.json").read_text())["0"]
    assert found["stats"]["total_time"] == best.stats["total_time"]
    assert "that is predicted to fit" not in said
