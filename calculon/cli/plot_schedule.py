"""``calculon plot schedule``: the passes of each pipeline stage over time, for the first microbatches of a batch."""

import argparse
from collections.abc import Sequence

from calculon.base.errors import Problem, SpecError
from calculon.cli.changes import with_changes
from calculon.cli.options import check_inputs, naming
from calculon.declarations import catalog
from calculon.declarations.result_selection import split
from calculon.documents.charts.schedule_chart import Gantt
from calculon.documents.schedule_passes import passes
from calculon.estimate.estimate import estimate
from calculon.inputs import Source, sources_in


def gantt(arguments: argparse.Namespace) -> Gantt:
    """Return the passes of each stage, as the estimate of an execution has them."""
    specs = _specs(arguments.specs)
    check_inputs([one for one in specs.values() if isinstance(one, str)])
    with naming(str(specs["execution"])):
        found = estimate(
            **with_changes(arguments.changes, **specs),
            edition=arguments.edition,
            preset=arguments.preset,
        )
    return passes(found, arguments.microbatches, "--microbatches")


def _specs(texts: Sequence[str]) -> dict[str, Source]:
    """Return model, execution and system: the three, or those of a result."""
    if len(texts) == 3:
        return dict(zip(("model", "execution", "system"), texts, strict=True))
    if len(texts) != 1:
        raise SpecError(
            "plot schedule",
            Problem("", "APP EXE SYS, or one result of loe or llm", " ".join(texts)),
        )
    _, _, question = catalog.read("execution", texts[0])
    specs = sources_in(question, split(texts[0])[0])
    if missing := [kind for kind in ("model", "system") if kind not in specs]:
        wanted = f"a result that says its {' and '.join(missing)}, and where to find them"
        hint = "give three: APP EXE SYS"
        raise SpecError(texts[0], Problem("", wanted, "one that does not", hint))
    return {"model": specs["model"], "execution": texts[0], "system": specs["system"]}
