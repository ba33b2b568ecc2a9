"""What follows from the declarations of made-up fields, checked in a copy of the package that has them.

``gate_impl`` is a choice of the plan, by which gates are fused with the loss; ``wire_percent`` is a circumstance, which
has no formula.
"""

import contextlib
import io

import calculon
from calculon.advise.in_words import plan_in_words
from calculon.cli.main import main
from calculon.declarations.execution import Execution
from calculon.declarations.scope_choices import LayoutChoice
from calculon.explore.labels import label

MODEL, SYSTEM, RUN = "llama3-8B", "h100", "llama3-8B_h100x64"
PLAN = calculon.inputs.execution(RUN).to_dict()
FEWER = ("loe", MODEL, "8", "64", "bfloat16", SYSTEM, "-", "--fix", "tp=4", "--fix", "mbs=1")


def printed(*arguments):
    """Return the exit code of a command, and what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*arguments])
    return code, " ".join((out.getvalue() + err.getvalue()).split())


def check_help():
    """Fields are described, and a search says what it can add."""
    assert "how gates are computed" in printed("describe", "gate_impl")[1]
    assert "gate_impl" in printed("describe", "execution")[1]
    code, text = printed(*FEWER, "--add", "gate_impl=three")
    assert code == 2
    assert "one of two, one" in text


def check_records():
    """Choices of layouts have it, whose formulas read it; tables and single executions agree."""
    assert "gate_impl" in LayoutChoice.__dataclass_fields__
    rows = [PLAN, PLAN | {"gate_impl": "one", "wire_percent": 5}]
    two, one = calculon.evaluate(MODEL, SYSTEM, rows)["total_time"]
    assert one < two
    assert one == calculon.estimate(MODEL, rows[1], SYSTEM).stats["total_time"]


def check_pages():
    """Pages and plans in words tell both where they are not as by default."""
    changed = PLAN | {"gate_impl": "one", "wire_percent": 5}
    sets = ("--set", "execution.gate_impl=one", "--set", "execution.wire_percent=5")
    _, page = printed("llm", MODEL, RUN, SYSTEM, "-", *sets)
    assert "gates as one" in page
    assert "5 % on wires" in page
    assert "one gates" in plan_in_words(Execution(**changed))
    assert label("gate_impl") == "Gates"


def check_search():
    """A search finds the better value where it is added, and restricts itself to one."""
    code, text = printed(*FEWER, "--add", "gate_impl=one")
    assert code == 0
    assert "one gates" in text
    assert "one gates" not in printed(*FEWER)[1]


def check_why():
    """The choice is an option, which saves something; the circumstance is none."""
    found = calculon.why(MODEL, PLAN | {"gate_impl": "one", "wire_percent": 5}, SYSTEM).to_dict()
    fields = [one["field"] for one in found["contributions"]]
    assert "gate_impl" in fields
    assert "wire_percent" not in fields


def check_advice():
    """Other values are tried, as it has a control, and no framework is known to lack it."""
    better = calculon.why(MODEL, PLAN | {"preset": "published"}, SYSTEM).to_dict()["better"]
    assert any(one["changes"].get("gate_impl") == "one" for one in better)


def check_export():
    """A launcher keeps the circumstance, which it cannot set, and refuses the choice by name."""
    code, text = printed("export-flags", "megatron-lm", RUN, "--set", "execution.wire_percent=5")
    assert code == 0, text
    code, text = printed("export-flags", "megatron-lm", RUN, "--set", "execution.gate_impl=one")
    assert code == 2
    assert "gate_impl" in text


if __name__ == "__main__":
    check_help()
    check_records()
    check_pages()
    check_search()
    check_export()
    check_why()
    check_advice()
