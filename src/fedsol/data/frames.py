"""CSV and Parquet files as data frames; what is wrong with a file is one error that names it."""

import gzip
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from fedsol.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

CSV_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET_ENDINGS = (".parquet", ".pq")
SEPARATORS = ",;\t|"
MOST_BYTES = 1_000_000
"""The bytes of a first row that separators are looked for in."""


def is_table(path: Path) -> bool:
    """Return whether a file is a table by its name."""
    return path.name.lower().endswith((*CSV_ENDINGS, *PARQUET_ENDINGS))


def is_frame(data: object) -> bool:
    """Return whether an object is a pandas DataFrame, without importing pandas for it."""
    return "pandas" in sys.modules and isinstance(data, sys.modules["pandas"].DataFrame)


def read_frame(path: Path, separator: str | None = None) -> "pd.DataFrame":
    """Read a table; its rows are numbered from 0, and its columns have different names."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    is_parquet = path.name.lower().endswith(PARQUET_ENDINGS)
    if is_parquet and separator is not None:
        raise InputError(f"data.separator: only applies to CSV files, and {path} is a Parquet file")
    frame = _read_parquet(path) if is_parquet else _read_csv(path, separator)
    return checked_frame(frame, str(path))


def checked_frame(frame: "pd.DataFrame", source: str) -> "pd.DataFrame":
    """Return a frame with rows numbered from 0 and text as names of its columns, which must differ."""
    frame = frame.reset_index(drop=True)
    frame.columns = [str(name).strip() for name in frame.columns]
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        count = (frame.columns == repeated[0]).sum()
        raise InputError(f"{source}: the column {repeated[0]!r} occurs {count} times; give each another name")
    if len(frame) == 0:
        raise InputError(f"{source}: has columns but no rows")
    return frame


def _read_parquet(path: Path) -> "pd.DataFrame":
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except ImportError as error:
        raise InputError(
            f"{path}: Parquet files require pyarrow, which is not installed; run: pip install 'fedsol[parquet]'"
        ) from error
    except Exception as error:  # pyarrow may raise anything on a damaged file
        raise InputError(f"{path}: cannot be read as a Parquet file: {_first_line(error)}") from error


def _read_csv(path: Path, separator: str | None) -> "pd.DataFrame":
    import pandas as pd

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            options = {"encoding": "utf-8-sig", "skipinitialspace": True}
            options["sep"] = separator or _detect_separator(path)
            header = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False, **options)
            frame = pd.read_csv(path, index_col=False, low_memory=False, **options)
    except pd.errors.EmptyDataError as error:
        raise InputError(f"{path}: is empty") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: must be text in UTF-8: {error.reason} at byte {error.start}") from error
    except pd.errors.ParserWarning as error:
        raise InputError(f"{path}: cannot be read as CSV: its rows have more values than the first row") from error
    except (pd.errors.ParserError, ValueError, OSError) as error:
        raise InputError(f"{path}: cannot be read as CSV: {_first_line(error)}") from error
    names = [str(name) for name in header.iloc[0]]
    if len(names) == 1:
        raise InputError(
            f"{path}: has one column, {names[0][:60]!r}; set data.separator to the character between its columns"
        )
    frame.columns = names
    return frame


def _detect_separator(path: Path) -> str:
    """Return the most frequent separator of the first row; a comma in doubt."""
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        line = file.readline(MOST_BYTES)
    return max(SEPARATORS, key=line.decode(errors="replace").count)


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines() or [type(error).__name__]
    return text[0].removeprefix("Error tokenizing data. C error: ")
