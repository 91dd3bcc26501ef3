"""Columns of a table: what is in each, how it is learned from training rows, and how rows become inputs."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedsol.config.tables import DataSettings
from fedsol.data.types import Array, Category, Columns, Inputs, Number
from fedsol.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}( .*)?|\d{1,2}:\d{2}(:\d{2})?")
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
NUMERIC = ("boolean", "integer", "floating", "decimal", "mixed-integer-float")
"""What pandas calls the content of a column of Python objects that are numbers."""
MOST_CATEGORIES = 30
"""A column of text may have more categories than this only if they are at most half as many as rows."""


def encode(frame: "pd.DataFrame", columns: Columns, source: str = "the table") -> Inputs:
    """Return the inputs of a table's rows: scaled numbers (N, F), with categories also their codes (N, C).

    Columns that the model does not see are ignored, and a value that the training rows lack has the code 0.
    """
    for name in [number.name for number in columns.numbers] + [category.name for category in columns.categories]:
        if name not in frame.columns:
            raise InputError(f"{source}: has no column {name!r}; it has {', '.join(map(str, frame.columns))}")
    numbers = np.empty((len(frame), len(columns.numbers)), dtype=np.float32)
    for place, number in enumerate(columns.numbers):
        numbers[:, place] = _scaled(frame[number.name], number, source)
    if not columns.categories:
        return torch.from_numpy(numbers)
    codes = np.empty((len(frame), len(columns.categories)), dtype=np.int64)
    for place, category in enumerate(columns.categories):
        codes[:, place] = _codes(frame[category.name], category)
    return {"numbers": torch.from_numpy(numbers), "categories": torch.from_numpy(codes)}


def _scaled(series: "pd.Series", number: Number, source: str) -> NDArray[np.float64]:
    values = as_numbers(series, source)
    missing = np.isnan(values)
    if missing.any():
        if number.fill is None:
            raise _missing_error(series, missing, source)
        values = np.where(missing, number.fill, values)
    _require_finite(series, values, source)
    return (values - number.mean) / number.std


def _codes(series: "pd.Series", category: Category) -> NDArray[np.int64]:
    codes = {value: code for code, value in enumerate(category.values, start=1)}
    return np.array([0 if value is None else codes.get(value, 0) for value in texts(series)], dtype=np.int64)


def learn(frame: "pd.DataFrame", features: Sequence[str], settings: DataSettings, source: str) -> Columns:
    """Return how the columns of training rows become inputs."""
    numbers, categories = [], []
    for name in features:
        series = frame[name]
        if name in settings.categorical or is_text(series):
            categories.append(Category(name, tuple(sorted({text for text in texts(series) if text is not None}))))
        else:
            numbers.append(_learn_number(series, settings, source))
    return Columns(tuple(numbers), tuple(categories))


def _learn_number(series: "pd.Series", settings: DataSettings, source: str) -> Number:
    values = as_numbers(series, source)
    fill = None
    if settings.missing != "refuse":
        present = values[~np.isnan(values)]
        if len(present) == 0:
            raise InputError(f"{source}: column {series.name!r} has no values in the training rows; leave it out")
        fill = float(np.mean(present) if settings.missing == "mean" else np.median(present))
        values = np.where(np.isnan(values), fill, values)
    mean, std = float(values.mean()), float(values.std())
    is_constant = values.min() == values.max()  # its std may be rounded to just above 0
    return Number(str(series.name), mean, 1.0 if is_constant else std, fill)  # a constant column is only shifted


def check_column(series: "pd.Series", is_category: bool, missing: str, source: str) -> None:
    """Raise `InputError` if a column cannot be a feature: it has dates, lists, identifiers or missing values."""
    where = f"{source}: column {series.name!r}"
    absent = series.isna().to_numpy()
    if absent.all():
        raise InputError(f"{where} has no values; leave it out of data.features")
    example = series[~absent].iloc[0]
    if series.dtype.kind in "mM" or (is_text(series) and DATE.fullmatch(str(example))):
        raise InputError(
            f"{where} has dates or times, such as {str(example)!r}; convert them to numbers (a year, days since an "
            "event), or leave it out of data.features"
        )
    if isinstance(example, list | tuple | dict | np.ndarray | bytes):
        raise InputError(f"{where} has values of type {type(example).__name__}; must be numbers or text")
    if absent.any() and missing == "refuse":
        raise _missing_error(series, absent, source)
    if is_text(series) and not is_category:
        _check_text(series, where)
    elif not is_text(series):
        _require_finite(series, np.where(absent, 0.0, as_numbers(series, source)), source)


def _check_text(series: "pd.Series", where: str) -> None:
    """Raise `InputError` if a column of text was surely meant as numbers, or has an own value in most rows."""
    import pandas as pd

    present = series.dropna().astype(str)
    numbers = pd.to_numeric(present, errors="coerce").notna().to_numpy()
    if numbers.all():
        raise InputError(
            f"{where} has numbers as text, such as {present.iloc[0]!r}; convert them to numbers, or list the column in "
            "data.categorical"
        )
    if numbers.mean() >= 0.5:
        first = present[~numbers]
        hint = (
            "write decimal points" if DECIMAL_COMMA.fullmatch(str(first.iloc[0])) else "leave it empty if it is missing"
        )
        raise InputError(
            f"{where} has text among its numbers, {first.iloc[0]!r} in row {first.index[0] + 1}; {hint}, or list the "
            "column in data.categorical"
        )
    if present.str.fullmatch(DECIMAL_COMMA).all():
        raise InputError(f"{where} has numbers with decimal commas, such as {present.iloc[0]!r}; write decimal points")
    different = present.nunique()
    if different > max(MOST_CATEGORIES, len(present) / 2):
        raise InputError(
            f"{where} has {different} different texts in {len(present)} rows, too many for categories; leave it out of "
            "data.features, or list it in data.categorical"
        )


def is_text(series: "pd.Series") -> bool:
    """Return whether a column has text (or a pandas category), not numbers or booleans."""
    import pandas as pd

    types = pd.api.types
    if types.is_bool_dtype(series.dtype) or types.is_numeric_dtype(series.dtype) or series.dtype.kind in "mM":
        return False
    return types.infer_dtype(series, skipna=True) not in (
        "boolean",
        "integer",
        "floating",
        "decimal",
        "mixed-integer-float",
    )


def as_numbers(series: "pd.Series", source: str) -> NDArray[np.float64]:
    """Return a column as 64-bit floats, with NaN where a value is missing; text is an error."""
    import pandas as pd

    numbers = pd.to_numeric(series.astype(object) if is_text(series) else series, errors="coerce")
    wrong = (numbers.isna() & series.notna()).to_numpy()
    if wrong.any():
        value = series[wrong].iloc[0]
        raise InputError(
            f"{source}: column {series.name!r} must be numbers (got {str(value)!r} in row {row_of(series, wrong)})"
        )
    values: NDArray[np.float64] = numbers.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def as_classes(series: "pd.Series") -> Array:
    """Return a column without missing values as booleans, integers, text, or floats if some are not whole."""
    if is_text(series):
        return np.array(texts(series), dtype=str)
    if series.dtype == bool:
        return np.asarray(series)
    values = as_numbers(series, "")
    return values.astype(np.int64) if are_whole(values).all() else values


def are_whole(values: Array) -> NDArray[np.bool_]:
    """Return which values are whole numbers that a float holds exactly."""
    floats = values.astype(np.float64)
    whole: NDArray[np.bool_] = (np.round(floats) == floats) & (np.abs(floats) < 2**53)
    return whole


def texts(series: "pd.Series") -> list[str | None]:
    """Return a column as text, None where a value is missing; whole numbers have no decimal point."""
    codes, values = series.factorize()
    names = [_text(value) for value in values]
    return [None if code < 0 else names[code] for code in codes.tolist()]


def _text(value: Any) -> str:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def row_of(series: "pd.Series", mask: NDArray[np.bool_]) -> int:
    """Return the number of the first row of a mask, counted from 1 as in the file without its header."""
    first = int(np.argmax(mask))
    return int(series.index[first] if series.index.dtype.kind == "i" else first) + 1


def count_missing(mask: NDArray[np.bool_]) -> str:
    """Return `1 missing value` or `3 missing values`."""
    count = int(mask.sum())
    return f"{count} missing value{'' if count == 1 else 's'}"


def require_present(frame: "pd.DataFrame", names: Sequence[str], source: str) -> None:
    """Raise `InputError` if one of the columns has missing values."""
    for name in names:
        missing = frame[name].isna().to_numpy()
        if missing.any():
            raise _missing_error(frame[name], missing, source)


def _missing_error(series: "pd.Series", missing: NDArray[np.bool_], source: str) -> InputError:
    return InputError(
        f"{source}: column {series.name!r} has {count_missing(missing)}, the first in row {row_of(series, missing)}; "
        "fill them, or set data.missing to 'mean' or 'median'"
    )


def _require_finite(series: "pd.Series", values: NDArray[np.float64], source: str) -> None:
    wrong = ~np.isfinite(values)
    if wrong.any():
        raise InputError(
            f"{source}: column {series.name!r} must be finite (got {int(wrong.sum())} infinite, the first in row "
            f"{row_of(series, wrong)})"
        )
