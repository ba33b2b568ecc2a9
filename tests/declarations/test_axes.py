"""A further axis of parallelism: a row of AXES, two fields, and layers with its collective; nothing else is touched."""

from pathlib import Path

import pytest

from calculon.declarations.axes import AXES, AXIS, FURTHER_AXES, LAYER_AXES
from tests.declarations.copied_package import copied, run

CHECKS = Path(__file__).with_name("further_axis.py")

ROW = (
    "FURTHER_AXES: tuple[Axis, ...] = (",
    "FURTHER_AXES: tuple[Axis, ...] = ("
    'Axis("xp", "example_par", "example_par_net", "example", divides="seq_size"),',
)

BEFORE_FIELDS = "    packed_percent: int = declare("

FIELDS = """\
    example_par: int = declare(
        "example-parallel degree",
        at_least=1,
        default=1,
        scope=BLOCK | STEP | BATCH,
        label="example parallelism {}",
        mark="XP {}",
        adds="example-parallel degrees",
        samples=(2,),
        searched="option",
        control="Example parallel (XP)",
    )
    example_par_net: int = declare(
        "network of the example-parallel groups",
        at_least=0,
        default=0,
        scope=BLOCK | BATCH,
        label="example parallelism on network {}",
        mark="XP on {}",
        adds="networks of the example-parallel groups",
        samples=(1,),
        searched="option",
        of="circumstance",
        with_="mesh_order",
    )

"""

BEFORE_LAYERS = "    yield from (_flash(shape) if shape.choice.flash else _eager(shape))\n"

LAYERS = """\
    from calculon.architecture.layers import communication

    yield communication(
        "AttnBlock_KV_Copies",
        "xp",
        2 * shape.key_value_width * shape.tokens,
        shape.degree("xp"),
        forward="all_gather",
        backward="reduce_scatter",
        dtype_bytes=shape.widths.result,
        flags=Flags(recommunicate=When.RECOMPUTE_ALL),
    )
"""

CHANGES = {
    "declarations/axes.py": ROW,
    "declarations/execution_fields/sequence_fields.py": (BEFORE_FIELDS, FIELDS + BEFORE_FIELDS),
    "architecture/attention.py": (BEFORE_LAYERS, LAYERS + BEFORE_LAYERS),
}
"""All that a further axis with one collective takes, by source file."""


def test_three_files_make_a_further_axis(tmp_path):
    copied(tmp_path, CHANGES)
    found = run(tmp_path, CHECKS)
    assert found.returncode == 0, found.stderr


LARGE = pytest.mark.large


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["declarations/axes.py"], "fields of AXES"),
        pytest.param(
            ["declarations/execution_fields/sequence_fields.py"], "fields of AXES", marks=LARGE
        ),
        pytest.param(["architecture/attention.py"], "KeyError: 'xp'", marks=LARGE),
    ],
)
def test_a_part_of_it_fails_loudly(tmp_path, files, words):
    asked = "'megatron-1T', '3072_t4_p64_d12_mbs4_full', 'a100_80g'"
    copied(tmp_path, {name: CHANGES[name] for name in files})
    found = run(tmp_path, "-c", f"import calculon; calculon.estimate({asked})")
    assert found.returncode == 1
    assert words in found.stderr


def test_names_and_fields_of_axes_differ():
    assert list(AXIS) == [axis.name for axis in AXES]
    fields = [name for axis in AXES for name in (axis.degree, axis.network)]
    assert len(set(fields)) == len(fields)
    assert len({axis.kind for axis in AXES}) == len(AXES)


def test_collectives_of_layers_are_tensor_parallel_and_further_ones():
    assert (AXIS["tp"], *FURTHER_AXES) == LAYER_AXES
