"""Evaluations as columns of a table file: execution fields, statistics and prediction interval of the time."""

from collections.abc import Mapping

import numpy as np

from calculon.base.units import Array
from calculon.estimate.evaluate import Evaluation
from calculon.plan.columns import FIELDS
from calculon.render.writers import Labels


def evaluation_columns(
    table: Evaluation, bounds: Mapping[str, Array], names: Mapping[str, str]
) -> dict[str, Array | Labels]:
    """Return the execution fields, statistics and `bounds` of a table; named values are codes with labels.

    `names` are texts that are equal in every row.
    """
    columns: dict[str, Array | Labels] = {}
    for field in FIELDS:
        if field.name not in table.fields:
            continue
        column = getattr(table.plan, field.name)
        choices = field.declaration.choices
        columns[field.name] = Labels(column, tuple(choices)) if choices else column
    for name in table.names:
        columns[name] = table[name]
    columns.update(bounds)
    nothing = np.zeros(len(table), np.int8)
    columns.update({name: Labels(nothing, (text,)) for name, text in names.items()})
    return columns
