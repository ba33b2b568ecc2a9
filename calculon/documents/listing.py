"""Catalog, validation errors and measured evidence, as data frames and contexts."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from calculon.base.errors import Problem, SpecError, nearest
from calculon.declarations.named_values import CORRECTED
from calculon.documents.catalog_rows import chosen, filtered
from calculon.documents.catalog_tables import TABLES
from calculon.documents.validation_tables import VALUES
from calculon.editions import find_edition
from calculon.estimate.user_evidence import using_evidence
from calculon.render.text_tables import Column, Table
from calculon.validate import error_summary
from calculon.validate.measured_and_predicted import compare
from calculon.validate.published_study import Library
from calculon.validate.user_rows import evidence_of

if TYPE_CHECKING:
    import pandas as pd


def catalog(
    kind: str | None = None, *words: str, family: str | None = None, where: str | None = None
) -> "pd.DataFrame":
    """List the catalog, as ``calculon catalog KIND --format csv`` does.

    Args:
        kind: ``models``, ``systems``, ``executions``, ``presets``, ``studies``, ``campaigns``, ``deployments`` or
            ``workloads``; by default all of them, with the columns ``kind`` and ``name``.
        words: Only names that contain one of these.
        family: Only models or systems whose family contains this text: ``"llama"``, ``"hopper"``.
        where: Only rows that meet a condition on columns: ``"memory >= 100 and domain == 72"``.

    Returns:
        A row for each entry, with its ``name``, which all functions accept; memory in GiB, rates in the units of their
        column names.

    Raises:
        SpecError: For another kind, an unknown family, and an invalid condition.

    Examples:
        >>> from calculon import catalog
        >>> catalog("systems", "h100", where="memory == 80")["name"].tolist()
        ['azure_nd_h100_v5', 'h100_80g_nvl8', 'h100_80g_pcie', 'h100_80g_sxm', 'h100_80g_sxm_24k']
    """
    if kind is None:
        every = filtered({one: table() for one, table in TABLES.items()}, family, where)
        rows = [{"kind": one, "name": row["name"]} for one in every for row in every[one].rows]
        return _frame(Table((Column("kind"), Column("name")), rows))
    if kind not in TABLES:
        hint = nearest(str(kind), [*TABLES])
        raise SpecError("catalog", Problem("kind", "one of " + ", ".join(TABLES), repr(kind), hint))
    tables = filtered({kind: chosen(TABLES[kind](), words)}, family, where)
    return _frame(tables.get(kind) or Table(TABLES[kind]().columns, []))


def validate(study: str = "", *, edition: str = CORRECTED) -> "pd.DataFrame":
    """Compare the model with published measurements, as ``calculon validation --format csv`` does.

    Args:
        study: A study, or a folder of studies; by default all (takes a while); ``validation/studies.md`` lists them.
        edition: Edition of the cost model.

    Returns:
        A row for each measured value: the measured and estimated value in its unit, the error in percent; for step
        times ``low`` and ``high`` of the 90 % prediction interval; the probability that the plan ``fits``; for whole
        steps source and class, and True if the measured time is ``inside`` the interval derived from all other
        sources.

    Raises:
        SpecError: For an unknown study or edition.

    Examples:
        >>> from calculon import validate
        >>> errors = validate("sc21/table1")["error"].abs()
        >>> bool(errors.mean() < 15)
        True
    """
    library, known = Library.at(), find_edition(edition).name
    results = [compare(one, library, known) for one in library.studies(study)]
    return _frame(Table(VALUES, error_summary.values(results)))


def evidence(file: str) -> AbstractContextManager[None]:
    """Use your own measured steps as further evidence of intervals, in everything until the block ends.

    Predicted values do not change. Steps similar to an execution move and narrow its interval most.

    Args:
        file: CSV with one training step per row, as for ``calculon lv --rows``.

    Raises:
        SpecError: For an unreadable file or an invalid cell, with file, line and column.

    Examples:
        >>> import calculon
        >>> with calculon.evidence("mine.csv"):  # doctest: +SKIP
        ...     print(calculon.plan("llama-3.1-8b", 64, "h100").best.belief.basis)
    """
    return using_evidence(evidence_of(file))


def _frame(table: Table) -> "pd.DataFrame":
    """Return a table with all its columns and raw values."""
    import pandas as pd  # optional dependency

    return pd.DataFrame(table.records(), columns=[column.key for column in table.columns])
