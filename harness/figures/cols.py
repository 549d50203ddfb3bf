"""Reads the columnar series of a trial directory (`*.cols`; the format is in harness/README.md)."""

import json
from pathlib import Path

import numpy as np

ALIGNMENT = 64  # the data starts at a multiple of this
PADDING = 8  # each column ends at a multiple of this
DTYPES = {"f64": "<f8", "i64": "<i8", "u32": "<u4", "str": "<u4"}


class SeriesError(Exception):
    """A series that cannot be read; the message names the file, the value and what was expected."""


class Series:
    """The columns of one file: `series["step"]` is an array, text columns are arrays of str."""

    def __init__(self, columns, units, sampling):
        self.columns = columns
        self.units = units
        self.sampling = sampling

    def __getitem__(self, name):
        return self.columns[name]

    def __contains__(self, name):
        return name in self.columns

    def __len__(self):
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def where(self, mask):
        return Series(
            {name: column[mask] for name, column in self.columns.items()}, self.units, self.sampling
        )


def _round_up(value, multiple):
    return -(-value // multiple) * multiple


def read(path):
    data = Path(path).read_bytes()
    newline = data.find(b"\n")
    if newline < 0:
        raise SeriesError(f"{path}: no header line in {len(data)} bytes")
    try:
        header = json.loads(data[:newline])
    except ValueError as error:
        raise SeriesError(f"{path}: the header line is not JSON: {error}") from error
    if header.get("format") != "sparfuse-cols-1":
        raise SeriesError(f"{path}: format '{header.get('format')}'; expected 'sparfuse-cols-1'")
    rows = header["rows"]
    offset = _round_up(newline + 1, ALIGNMENT)
    columns, units = {}, {}
    for column in header["columns"]:
        name = column["name"]
        if column["dtype"] not in DTYPES:
            raise SeriesError(
                f"{path}: column '{name}' has dtype '{column['dtype']}'; "
                f"expected one of {', '.join(DTYPES)}"
            )
        dtype = np.dtype(DTYPES[column["dtype"]])
        end = offset + rows * dtype.itemsize
        if end > len(data):
            raise SeriesError(
                f"{path}: truncated in column '{name}': {len(data)} bytes; "
                f"expected at least {end} for {rows} rows"
            )
        values = np.frombuffer(data, dtype, rows, offset)
        if column["dtype"] == "str":
            words = np.array(header["strings"][name], dtype=object)
            if rows and int(values.max()) >= len(words):
                raise SeriesError(
                    f"{path}: column '{name}' has code {int(values.max())}; "
                    f"expected below {len(words)}"
                )
            values = words[values] if rows else np.array([], dtype=object)
        columns[name] = values
        units[name] = column.get("unit", "")
        offset = _round_up(end, PADDING)
    return Series(columns, units, header.get("sampling", ""))
