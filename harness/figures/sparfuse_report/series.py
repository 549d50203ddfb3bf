"""Reads the series of a trial: NumPy files, of which trial.json has units and sampling
(docs/reference/series.md)."""

import json
from pathlib import Path

import numpy as np


class SeriesError(Exception):
    """A series that cannot be read; the message names the file and the expected form."""


def kept(path):
    """Whether the trial wrote `path`, such as .../spans.npy; raises SeriesError for a trial of an
    earlier version."""
    path = Path(path)
    if not path.exists() and path.with_suffix(".cols").exists():
        raise SeriesError(
            f"{path.parent}: this trial's series are *.cols files of an earlier version; "
            f"expected {path.name}; run the trial again (sparfuse run EXPERIMENT --fresh)"
        )
    return path.exists()


def read(path):
    """The structured array in `path`; None if the trial did not write it. Raises SeriesError if the
    file is damaged or of an earlier version."""
    if not kept(path):
        return None
    said = describe(path)
    expected = f"a NumPy file of {said['rows']} records of {', '.join(sorted(said['units']))}"
    try:
        table = np.load(path, allow_pickle=False)
    except Exception as error:  # a damaged header fails anywhere in NumPy's parser of Python
        raise SeriesError(f"{path}: {error}; expected {expected}") from error
    columns = sorted(getattr(getattr(table, "dtype", None), "names", None) or ())
    if columns != sorted(said["units"]) or table.shape != (said["rows"],):
        found = f"{len(table)} records of {', '.join(columns)}" if columns else "no columns"
        raise SeriesError(f"{path}: {found}; expected {expected}")
    return table


def describe(path):
    """The entry of a series in trial.json: {"rows", "sampling", "units": {column: unit}}."""
    path = Path(path)
    trial = path.with_name("trial.json")
    try:
        said = json.loads(trial.read_text(encoding="utf-8"))["series"][path.name]
        rows, units = said["rows"], said["units"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise SeriesError(f'{trial}: expected series["{path.name}"]: {error!r}') from error
    if type(rows) is not int or rows < 0 or not isinstance(units, dict):
        raise SeriesError(
            f'{trial}: series["{path.name}"]: expected a number of rows, and the units of columns'
        )
    return said
