"""Tables of executions as CSV or Parquet files, by suffix, streamed into a temporary file that is renamed.

The fast writers use pyarrow and polars (extra ``tables``); without them pandas writes CSV, more slowly.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.files import csv_text, document_suffix, reason, replacing

if TYPE_CHECKING:
    from concurrent.futures import Future

SUFFIXES = (".csv", ".parquet")
_WAITING = 1
"""Maximum number of tables queued for the writer, which bounds memory."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Column of named values: codes, and the name of each code."""

    codes: Array
    names: tuple[str, ...]

    def for_csv(self) -> "Labels":
        """Return the column with names that no spreadsheet interprets as formulas."""
        return Labels(self.codes, tuple(map(csv_text, self.names)))

    def text(self) -> Array:
        """Return the names, one per row."""
        return np.array(self.names)[self.codes]


Columns = Mapping[str, "Array | Labels"]
"""Table: arrays of equal length by name; NaN is an empty cell."""


class Writer(Protocol):
    """Writer of tables with the same columns, one after the other."""

    def write(self, table: Columns) -> None:
        """Append a table."""

    def close(self) -> None:
        """Finish the file."""


def write_tables(path: str, tables: Iterable[Columns], empty: Columns) -> int:
    """Write tables one below the other, and return the number of rows.

    A thread writes while the next table is computed. The file appears under its name only when it is complete.

    Args:
        path: File name that ends in ``.csv``, ``.csv.gz`` or ``.parquet``.
        tables: The tables.
        empty: Table without rows: the header, in case there are no other tables.

    Raises:
        SpecError: If the file cannot be written.
    """
    from concurrent.futures import ThreadPoolExecutor

    rows = 0
    try:
        with (
            replacing(path) as stream,
            _writer(path, stream, empty) as writer,
            ThreadPoolExecutor(1) as pool,
        ):
            waiting: list[Future[None]] = []
            for table in tables:
                while len(waiting) >= _WAITING:
                    waiting.pop(0).result()
                waiting.append(pool.submit(writer.write, table))
                rows += _length(table)
            for future in waiting:
                future.result()
    except OSError as error:
        raise SpecError(path, Problem("", "a writable file", reason(error))) from None
    return rows


def write_table(path: str, table: Columns) -> int:
    """Write one table; arguments, result and errors as for :func:`write_tables`."""
    empty = {
        name: Labels(column.codes[:0], column.names) if isinstance(column, Labels) else column[:0]
        for name, column in table.items()
    }
    return write_tables(path, [table], empty)


def check_format(path: str) -> None:
    """Check before any work that tables can be written to a file of this name.

    Raises:
        SpecError: For Parquet without its library; the hint has the installation command.
    """
    if document_suffix(path) == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            hint = "in a checkout of calculon: pip install '.[tables]'; or write .csv"
            raise SpecError(
                path, Problem("", "the library pyarrow, for Parquet", "it is not installed", hint)
            ) from None


def _length(table: Columns) -> int:
    first = next(iter(table.values()))
    return len(first.codes if isinstance(first, Labels) else first)


@contextlib.contextmanager
def _writer(path: str, stream: IO[bytes], empty: Columns) -> Iterator[Writer]:
    """Open the writer for a file name, and close it before its stream, also after an error."""
    writer: Writer
    if document_suffix(path) == ".parquet":
        writer = _ParquetWriter(stream, empty)
    else:
        try:
            writer = _FastCsvWriter(stream, empty)
        except ImportError:
            writer = _PandasCsvWriter(stream, empty)
    try:
        yield writer
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is the one to report
            writer.close()
        raise
    writer.close()


def arrow_table(table: Columns) -> Any:
    """Return a table as an Arrow table: named values as dictionaries, NaN as null."""
    import pyarrow as pa

    def column(values: Array | Labels) -> Any:
        if isinstance(values, Labels):
            return pa.DictionaryArray.from_arrays(pa.array(values.codes), list(values.names))
        return pa.array(values, from_pandas=values.dtype.kind == "f")

    return pa.table({name: column(values) for name, values in table.items()})


def _for_csv(table: Columns) -> Columns:
    return {n: c.for_csv() if isinstance(c, Labels) else c for n, c in table.items()}


class _ParquetWriter:
    """Parquet writer with a row group per table."""

    def __init__(self, stream: IO[bytes], empty: Columns):
        import pyarrow.parquet as pq

        schema = arrow_table(empty).schema
        self._writer = pq.ParquetWriter(stream, schema, compression="zstd")

    def write(self, table: Columns) -> None:
        self._writer.write_table(arrow_table(table))

    def close(self) -> None:
        self._writer.close()


class _FastCsvWriter:
    """CSV writer by polars: multithreaded, with the shortest text that reads back exactly."""

    def __init__(self, stream: IO[bytes], empty: Columns):
        import polars as pl
        import pyarrow  # noqa: F401  # polars needs it; fail here, where the caller falls back

        self._pl, self._stream = pl, stream
        self._stream.write((",".join(empty) + "\n").encode())

    def write(self, table: Columns) -> None:
        pl = self._pl
        frame = pl.from_arrow(arrow_table(_for_csv(table)))
        # Polars writes "true"; pandas and the readers of these files have "True".
        switches = [
            pl.when(pl.col(name)).then(pl.lit("True")).otherwise(pl.lit("False")).alias(name)
            for name, kind in frame.schema.items()
            if kind == pl.Boolean
        ]
        frame.with_columns(switches).write_csv(self._stream, include_header=False)

    def close(self) -> None:
        pass


class _PandasCsvWriter:
    """CSV writer by pandas: slow, but without optional dependencies."""

    def __init__(self, stream: IO[bytes], empty: Columns):
        self._stream = stream
        self._stream.write((",".join(empty) + "\n").encode())

    def write(self, table: Columns) -> None:
        import pandas as pd

        values = {
            name: column.text() if isinstance(column, Labels) else column
            for name, column in _for_csv(table).items()
        }
        frame = pd.DataFrame(values)
        self._stream.write(frame.to_csv(index=False, header=False).encode())

    def close(self) -> None:
        pass
