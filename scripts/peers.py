"""Errors of predictions on identical rows: this tool, the published tool, other tools and rules of thumb."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import numpy as np

from calculon.base.units import GIB, GIGA
from calculon.declarations.named_values import CORRECTED, PUBLISHED
from calculon.estimate.run_table import Run
from calculon.render.text_tables import Column, Table
from calculon.validate.measured_and_predicted import Comparison, Result
from calculon.validate.run_rows import run_rows

PUBLISHED_PREDICTIONS = Path(__file__).resolve().parent.parent / "examples" / "peers.csv"

SMALLEST = GIGA
"""Smallest dense model, in parameters, whose steps are quoted: below, launches decide."""

MODELS = {"simumax": "Llama 3 70B", "simumax/deepseek_v2": "DeepSeek-V2"}
"""Models of the studies for which another tool published its predictions."""

RULE_MFU = 0.4
"""MFU that the rule of thumb 6 N D assumes."""

STATE_BYTES = 16
"""Bytes of weights (2), gradients (2) and Adam (12) for each parameter (ZeRO, arXiv:1910.02054, section 3.1)."""
WHOLE_BYTES = {"0": 16, "1": 4, "2": 2}
"""Bytes of these that every replica keeps, by ZeRO stage; else none."""

OWN_VALIDATION = ("seqsel/tab5",)
"""Study that the published tool was validated with."""
GPT_STUDIES = ("bigscience", "megatron_2020", "mt_nlg", "sc21/table1", "vtrain/multi")
"""Studies of GPT models on A100 and V100, which the fields of the published tool can describe."""

TIME: Callable[[Run], float] = attrgetter("error")
MEMORY: Callable[[Run], float] = attrgetter("memory_error")
"""Errors of a run in percent."""

Results = Mapping[tuple[str, str], Result]
Errors = Sequence[float]


def accuracy_line(results: Results) -> str:
    """Return the median errors on measured training steps, in one line."""
    runs = unfitted_runs(results)
    measured = [run for run in runs if run.measured_memory]
    parts = (
        ("step time of dense models from 1 B parameters", dense_runs(runs), TIME),
        ("of mixtures of experts", [run for run in runs if run.experts], TIME),
        ("memory", measured, MEMORY),
    )
    texts = (
        f"{name} **{_signed(_median(errors))} %** (absolute {_absolute(errors):.1f} %, n = {len(errors)})"
        for name, chosen, error in parts
        for errors in [[error(run) for run in chosen]]
    )
    meaning = "each row has the same weight; negative is too fast"
    said = f"Median error on published runs ({meaning}): {'; '.join(texts)}."
    all_errors = "[All errors](validation/README.md), with the same weight for each source"
    causes = "validation/studies.md#causes-of-the-largest-errors"
    return f"{said} {all_errors}, and [their causes]({causes})."


def unfitted_runs(results: Results) -> list[Run]:
    """Return the measured steps of edition corrected, without functional tests and rows that a fit saw."""
    runs = run_rows(one for (_, edition), one in results.items() if edition == CORRECTED)
    return [run for run in runs if not run.functional and not run.fitted]


def dense_runs(runs: Iterable[Run]) -> list[Run]:
    """Return the runs of dense models that are not small."""
    return [run for run in runs if not run.experts and run.parameters >= SMALLEST]


def rule_time_error(run: Run) -> float:
    """Return the error of 6 N D over all processors at the assumed MFU."""
    flops = 6 * run.parameters * run.batch_size * run.seq_size
    seconds = flops / (RULE_MFU * run.peak * run.num_procs)
    return replace(run, predicted=seconds).error


def rule_memory_error(run: Run) -> float:
    """Return the error of the bytes of weights, gradients and optimizer alone."""
    whole = WHOLE_BYTES.get(run.zero_stage, 0)
    of_parameter = whole + (STATE_BYTES - whole) / run.data_par
    share = run.parameters / (run.tensor_par * run.pipeline_par)
    return MEMORY(replace(run, predicted_memory=share * of_parameter))


TOOLS: tuple[tuple[str, str, str], ...] = (
    ("Calculon 0.1.0", "training; searches plans", "a CPU"),
    ("SimuMax 1.2", "training; searches plans", "kernels measured on the machine"),
    ("vTrain", "training", "a profile of one GPU of the machine"),
    ("Phantora", "training, of unmodified scripts", "one GPU of the machine"),
    ("AIConfigurator", "serving; searches plans", "kernels measured by machine and engine"),
    ("Rules of thumb", "6 N D at 40 % MFU; 16 bytes a parameter", "a pencil"),
)
"""Other tools: name, what they predict, and what they need."""


def comparison(results: Results) -> str:
    """Return the short table of other tools."""
    compared: dict[str, list[str]] = {}
    for row in identical_rows(results):
        text = f"{row['what']}: {row['theirs']:.1f} : {row['ours']:.1f} % ({row['rows']} rows)"
        compared.setdefault(str(row["tool"]), []).append(text)
    rows: list[dict[str, object]] = [
        {
            "tool": "calculon",
            "predicts": "training, serving, whole runs; searches plans",
            "needs": "a CPU",
            "errors": "",
        }
    ]
    rows += [
        {
            "tool": tool,
            "predicts": predicts,
            "needs": needs,
            "errors": "; ".join(compared.get(tool, ["no identical rows"])),
        }
        for tool, predicts, needs in TOOLS
    ]
    columns = (
        Column("tool", "tool"),
        Column("predicts", "predicts"),
        Column("needs", "needs"),
        Column("errors", "its median absolute error : ours"),
    )
    return Table(columns, rows).markdown()


def peers(results: Results) -> str:
    """Return the table of errors on identical rows."""
    return Table(COLUMNS, identical_rows(results)).markdown()


def identical_rows(results: Results) -> list[dict[str, object]]:
    """Return the errors of other tools and rules on rows that both predict."""
    runs = unfitted_runs(results)
    dense, measured = dense_runs(runs), [run for run in runs if run.measured_memory]
    plain = [run for run in measured if not run.experts]
    rules = "Rules of thumb"
    return [
        _published(results, "time, its own validation", OWN_VALIDATION),
        _published(results, "time, GPT", GPT_STUDIES),
        *_predicted(runs),
        _row(rules, "time, dense models", dense, rule_time_error, TIME),
        _row(rules, "memory, dense models", plain, rule_memory_error, MEMORY),
    ]


COLUMNS = (
    Column("tool", "tool"),
    Column("what", "quantity"),
    Column("rows", "rows", right=True),
    *(
        Column(name, title, right=True, text=lambda value: f"{value:.1f}")
        for name, title in (
            ("theirs", "its median abs. error"),
            ("their_bias", "its median error"),
            ("ours", "ours, abs."),
            ("our_bias", "ours"),
        )
    ),
)


def _row(
    tool: str,
    what: str,
    runs: Sequence[Run],
    theirs: Callable[[Run], float],
    ours: Callable[[Run], float],
) -> dict[str, object]:
    return _errors(tool, what, [theirs(run) for run in runs], [ours(run) for run in runs])


def _errors(tool: str, what: str, theirs: Errors, ours: Errors) -> dict[str, object]:
    return {
        "tool": tool,
        "what": what,
        "rows": len(theirs),
        "theirs": _absolute(theirs),
        "their_bias": _median(theirs),
        "ours": _absolute(ours),
        "our_bias": _median(ours),
    }


def _published(results: Results, what: str, studies: Iterable[str]) -> dict[str, object]:
    """Return errors of both editions on the rows that both compare."""
    theirs: list[float] = []
    ours: list[float] = []
    for study in studies:
        old, new = (_step_errors(results[study, edition]) for edition in (PUBLISHED, CORRECTED))
        common = sorted(old.keys() & new.keys())
        theirs += [old[number] for number in common]
        ours += [new[number] for number in common]
    return _errors("Calculon 0.1.0", what, theirs, ours)


def _step_errors(result: Result) -> dict[int, float]:
    """Return the error of each step time by the number of its row."""
    times: Comparison = next(one for one in result.own.comparisons if one.quantity.name == "time")
    return {row.number: e for row, e in zip(times.rows, times.errors.tolist(), strict=True)}


def _predicted(runs: Iterable[Run]) -> list[dict[str, object]]:
    """Return the errors of predictions that other tools published, of each study and quantity."""
    by_label = {(run.study, run.label): run for run in runs}
    with PUBLISHED_PREDICTIONS.open(newline="", encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    found = []
    for tool, study in dict.fromkeys((line["tool"], line["study"]) for line in lines):
        pairs = [
            (line, by_label[study, line["row"]])
            for line in lines
            if (line["tool"], line["study"]) == (tool, study)
        ]
        others = [
            replace(
                run,
                predicted=float(line["seconds"]),
                predicted_memory=float(line["GiB"]) * GIB,
            )
            for line, run in pairs
        ]
        own = [run for _, run in pairs]
        name = MODELS[study]
        found += [
            _errors(tool, f"time, {name}", list(map(TIME, others)), list(map(TIME, own))),
            _errors(tool, f"memory, {name}", list(map(MEMORY, others)), list(map(MEMORY, own))),
        ]
    return found


def _median(errors: Errors) -> float:
    return float(np.median(errors))


def _absolute(errors: Errors) -> float:
    return float(np.median(np.abs(errors)))


def _signed(percent: float) -> str:
    return f"{round(percent, 1) + 0.0:+.1f}"
