"""Fastest published runs of MoE models, next to the best plans: ``validation/fastest.csv``.

The first columns are written by hand. ``scripts/render`` adds facts of the model and the system, and with ``--plans``
the best plan under the default preset, which takes minutes.
"""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import calculon
from calculon import inputs
from calculon.architecture.parameters import model_flops_per_token, parameter_count
from calculon.declarations.execution import Execution
from calculon.declarations.named_values import PRODUCT_FIELDS, product_type
from calculon.declarations.recipes import NO_RECIPE
from calculon.declarations.spellings.precisions import precision
from calculon.documents.confidence import above_label
from calculon.estimate.exceeded_runs import FASTEST
from calculon.estimate.run_table import peak
from calculon.render.text_tables import Column, Table

PATH = Path(__file__).resolve().parent.parent / FASTEST

Row = Mapping[str, str]


def rows() -> list[dict[str, str]]:
    """Return the rows of the file."""
    with PATH.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def fastest_file(*, plans: bool = False) -> str:
    """Return the file with current facts, and with current plans if they shall be searched."""
    every = [row | _facts(row) | (_planned(row) if plans else {}) for row in rows()]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(every[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(every)
    return out.getvalue()


def _facts(row: Row) -> dict[str, Any]:
    """Return the facts of a run by which a prediction is compared with it."""
    model, system = inputs.model(row["model"]), inputs.system(row["system"])
    seq, rate = int(row["seq_size"]), float(row["tokens_per_second_per_proc"])
    flops = model_flops_per_token(model, training=True, causal=True, seq_length=seq)
    asked = {"matmul_dtype": "same", "fp8_recipe": NO_RECIPE, **precision(row["dtype"])}
    datatype = product_type(*(asked[name] for name in PRODUCT_FIELDS))
    return {
        "type": datatype,
        "accelerator": system.provenance.processor,
        "family": system.provenance.family,
        "peak": f"{peak(system):.6g}",
        "bandwidth": f"{system.mem1.bandwidth:.6g}",
        "parameters": parameter_count(model),
        "hidden": model.hidden,
        "experts": model.num_experts,
        "mfu_causal": f"{rate * float(flops) / system.product_engine(datatype).peak:.6g}",
    }


def _planned(row: Row) -> dict[str, Any]:
    """Return the rate of the best plan, the plan, and the warning of its page."""
    size = {name: int(row[f"{name}_size"]) for name in ("batch", "seq")}
    procs, words = int(row["num_procs"]), row["dtype"]
    answer = calculon.plan(row["model"], procs, row["system"], dtype=words, **size)
    best = answer.best
    if best is None:
        return {"best": "", "plan": "", "said": ""}
    above = best.belief.to_dict()["above"] if best.belief else []
    return {
        "best": f"{float(best.stats['tokens_per_second_per_proc']):.5g}",
        "plan": _words(best.execution),
        "said": above_label(above) if above else "",
    }


def _words(execution: Execution) -> str:
    """Return the degrees, the chunks and the microbatch of a plan, those above 1."""
    degrees = {
        "TP": execution.tensor_par,
        "PP": execution.pipeline_par,
        "chunks": execution.pipeline_interleaving,
        "CP": execution.context_par,
        "DP": execution.data_par,
        "EP": execution.expert_par,
        "ETP": execution.expert_tensor_par,
        "microbatch": execution.microbatch_size,
    }
    return " ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1)


def fastest_table() -> str:
    """Return the table of the fastest published runs and the best plans as Markdown."""
    columns = (
        Column("model", "model"),
        Column("system", "system"),
        Column("num_procs", "processors", right=True),
        Column("dtype", "type"),
        Column("published", "published tokens/s", right=True),
        Column("best", "best plan", right=True),
        Column("excess", "faster by %", right=True),
        Column("said", "the page says"),
        Column("plan", "plan"),
        Column("source", "source"),
    )
    return Table(columns, [*map(_cells, rows())]).markdown()


def _cells(row: Row) -> dict[str, str]:
    published, best = float(row["tokens_per_second_per_proc"]), float(row["best"] or "nan")
    notes = ", ".join(filter(None, (row["study"], row["label"], row["note"])))
    return {
        **row,
        "published": f"{published:,.0f}",
        "best": f"{best:,.0f}" if row["best"] else "none fits",
        "excess": f"{100 * (best / published - 1):+.0f}" if row["best"] else "",
        "source": notes,
    }
