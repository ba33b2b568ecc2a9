"""Fields that are made up: their declarations, and a formula; nothing else is touched."""

import shutil
from pathlib import Path

import pytest

from tests.declarations.copied_package import ROOT, copied, run

CHECKS = Path(__file__).with_name("made_up_field.py")

FIELDS = """\
    gate_impl: str = declare(
        "how gates are computed",
        choices=("two", "one"),
        default="two",
        scope=LAYOUT,
        label="gates as {}",
        mark="{} gates",
        control="Gates",
        adds="one beside two",
    )
    wire_percent: int = declare(
        "share of wires that are broken",
        at_least=0,
        default=0,
        scope=BATCH,
        label="{} % on wires",
        mark="{} % wires",
        of="circumstance",
        adds="shares of wires",
        samples=(5,),
    )

"""

BEFORE = "    packed_percent: int = declare("
BYTES = "        return result_bytes(self.datatype, self.multiplied)\n"

CHANGES = {
    "declarations/execution_fields/sequence_fields.py": (BEFORE, FIELDS + BEFORE),
    "declarations/scope_choices.py": (
        BYTES,
        BYTES.replace("\n", ' // (2 if self.gate_impl == "one" else 1)\n'),
    ),
}
"""All that they take, by source file."""


def test_what_follows_from_declarations(tmp_path):
    copied(tmp_path, CHANGES)
    found = run(tmp_path, CHECKS)
    assert found.returncode == 0, found.stderr


def test_tests_name_the_field_that_the_twin_lacks(tmp_path):
    copied(tmp_path, CHANGES)
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=lambda *_: ["__snapshots__"])
    test = "tests/properties/test_twin_fields.py::test_the_twin_knows_every_field_of_an_execution"
    found = run(tmp_path, "-m", "pytest", "-q", f"{test}_and_every_value_of_it")
    assert found.returncode == 1
    assert "gate_impl" in found.stdout
    assert "wire_percent" in found.stdout


@pytest.mark.parametrize(
    ("left_out", "words"),
    [
        ("        scope=LAYOUT,\n", "gate_impl has no scope"),
        ("        scope=BATCH,\n", "wire_percent has no scope"),
        ('        adds="one beside two",\n', "gate_impl"),
        ("        samples=(5,),\n", "wire_percent has no value other than its default (samples)"),
    ],
)
def test_a_declaration_that_is_not_complete_fails_by_name(tmp_path, left_out, words):
    assert FIELDS.count(left_out) == 1
    name, (old, new) = next(iter(CHANGES.items()))
    copied(tmp_path, {name: (old, new.replace(left_out, ""))})
    found = run(tmp_path, "-c", "import calculon.plan.choices")
    assert found.returncode == 1
    assert words in found.stderr
