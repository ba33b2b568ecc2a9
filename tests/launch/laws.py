"""Laws of all dialects: nothing of a file is lost, and what was written is read again."""

from pathlib import Path
from typing import Any

import numpy as np

import calculon
from calculon import inputs
from calculon.errors import SpecError
from calculon.launch.dialect import Dialect, Launch, Parsed, read, write
from calculon.search.driver import feasible_numbers
from calculon.search.request import make_space
from calculon.spec.execution import Execution

SCRIPTS = Path(__file__).parent / "scripts"


def collected(folder: str) -> list[Path]:
    """List the public files of a dialect."""
    return sorted(path for path in (SCRIPTS / folder).iterdir() if path.is_file())


def of_all_settings(launch: Launch, parsed: Parsed) -> None:
    """Hold that every setting of a file is used, ignored, not modelled, open or unknown, and in one list only."""
    told = [
        *launch.used,
        *launch.ignored,
        *(setting for setting, _ in launch.not_modelled),
        *launch.unknown,
        *launch.unresolved,
    ]
    assert sorted(one.name for one in told) == sorted(parsed.settings)
    assert all(effect for _, effect in launch.not_modelled)


def sampled(
    model: str, num_procs: int, most_batch: int, preset: str, **options: Any
) -> tuple[calculon.System, list[Execution]]:
    """Return a system, and some of the feasible executions of a space, drawn evenly from all of them."""
    options.setdefault("most", 12)
    most = options.pop("most")
    space = make_space(
        model, "h100_80g_sxm", num_procs, most_batch, "bfloat16", preset=preset, **options
    )
    numbers = np.concatenate(list(feasible_numbers(space)))
    chosen = np.random.default_rng(1).choice(numbers, min(most, len(numbers)), replace=False)
    plan = space.plan(chosen)
    return space.system, [plan.row(row) for row in range(len(chosen))]


def round_trips(dialect: Dialect, model: str, system: Any, executions: list[Execution]) -> int:
    """Hold that what is written is read as it was, statistics to the last bit; return how many could be written."""
    shape, written = inputs.model(model), 0
    for one in executions:
        fields = one.to_dict()
        text = _text(dialect, fields, shape)
        if not text:
            continue
        written += 1
        launch = read(dialect, text, f"plan{dialect.suffix}", num_procs=one.num_procs)
        assert not launch.unknown
        assert not launch.not_modelled
        again = inputs.execution(launch.execution)
        length = {"seq_length": fields["seq_length"] or shape.seq_size}
        expected = fields | (length if "seq_length" in dialect.fields else {})
        read_again = {name: getattr(again, name) for name in dialect.fields}
        assert read_again == {name: expected[name] for name in dialect.fields}
        before, after = (calculon.estimate(shape, each, system) for each in (one, again))
        assert after.stats == before.stats
    return written


def _text(dialect: Dialect, fields: dict[str, Any], shape: Any) -> str:
    """Return a file; empty for an execution that the launcher cannot express."""
    try:
        return write(dialect, fields, shape)
    except SpecError:
        return ""
