"""What is shipped, and how far the model is from measurements, as data frames."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from calculon.base.errors import Problem, SpecError, nearest
from calculon.declarations.named_values import CORRECTED
from calculon.documents.catalog_rows import chosen, filtered
from calculon.documents.catalog_tables import TABLES
from calculon.documents.validation_tables import VALUES
from calculon.editions import find_edition
from calculon.estimate.user_evidence import using_evidence
from calculon.render.text_tables import Table
from calculon.validate import error_summary
from calculon.validate.measured_and_predicted import compare
from calculon.validate.published_study import Library
from calculon.validate.user_rows import evidence_of

if TYPE_CHECKING:
    import pandas as pd


def catalog(
    kind: str, *words: str, family: str | None = None, where: str | None = None
) -> "pd.DataFrame":
    """List what comes with calculon, as ``calculon catalog KIND --format csv`` does.

    Args:
        kind: ``models``, ``systems``, ``executions``, ``presets`` or ``studies``.
        words: Only names that have one of these in them.
        family: Only models or systems with this text in their family: ``"llama"``, ``"hopper"``.
        where: Only rows that meet a condition on columns: ``"memory >= 100 and domain == 72"``.

    Returns:
        A row for each, with its ``name``, which all functions take; memory is in GiB, rates in the units of their
        columns' names.

    Raises:
        SpecError: For another kind, for a family that is none, and for a text that is no condition.

    Examples:
        >>> from calculon import catalog
        >>> catalog("systems", "h100", where="memory == 80")["name"].tolist()
        ['azure_nd_h100_v5', 'h100_80g_nvl8', 'h100_80g_pcie', 'h100_80g_sxm', 'h100_80g_sxm_24k']
    """
    if kind not in TABLES:
        hint = nearest(str(kind), [*TABLES])
        raise SpecError("catalog", Problem("kind", "one of " + ", ".join(TABLES), repr(kind), hint))
    tables = filtered({kind: chosen(TABLES[kind](), words)}, family, where)
    return _frame(tables.get(kind) or Table(TABLES[kind]().columns, []))


def validate(study: str = "", *, edition: str = CORRECTED) -> "pd.DataFrame":
    """Compare the model with published measurements, as ``calculon validation --format csv`` does.

    Args:
        study: A study, or a folder of some; by default all, which takes a while; ``validation/studies.md`` lists them.
        edition: Edition of the cost model.

    Returns:
        A row for each measured value: what was measured and estimated in its unit, the error in percent; of a step
        time ``low`` and ``high`` of the 90 % interval of the prediction; the probability that the plan ``fits``; of a
        whole step its source and class, and whether the measured time is ``inside`` of the interval that all other
        sources give.

    Raises:
        SpecError: For a study or an edition that there is not.

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
    """Let intervals rest on measured steps of your own, too, until the block ends: in all that is computed and shown.

    Predicted values do not change. Steps that have much in common with an execution move and narrow its interval most.

    Args:
        file: A CSV with one training step a row, as ``calculon lv --rows`` takes it.

    Raises:
        SpecError: For a file that cannot be read, or a cell that means nothing; names file, line and column.

    Examples:
        >>> import calculon
        >>> with calculon.evidence("mine.csv"):  # doctest: +SKIP
        ...     print(calculon.plan("llama-3.1-8b", 64, "h100").best.belief.basis)
    """
    return using_evidence(evidence_of(file))


def _frame(table: Table) -> "pd.DataFrame":
    """Return a table with all its columns and raw values."""
    import pandas as pd  # only for people who want frames

    return pd.DataFrame(table.records(), columns=[column.key for column in table.columns])
