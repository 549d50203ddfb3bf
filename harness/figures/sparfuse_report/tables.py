"""Holds the numbers that a figure shows, as tables of a page and as CSV. The harness makes them."""

import csv
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Table:
    columns: list  # titles; the first column is text, the others are numbers
    groups: list = field(default_factory=list)  # (heading, rows); a row is a list of str
    notes: list = field(default_factory=list)

    @property
    def length(self):
        return sum(len(rows) for _, rows in self.groups)


def of(figure):
    """The tables of a figure's entry."""
    return [Table(**each) for each in figure.get("tables", [])]


def write_csv(found, folder, name):
    """Writes one file for each table, with groups in a column of their own. Returns the paths."""
    paths = []
    for position, table in enumerate(found):
        path = Path(folder) / (f"{name}.csv" if position == 0 else f"{name}-{position + 1}.csv")
        with path.open("w", encoding="utf-8", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(["setting", *table.columns])
            for heading, rows in table.groups:
                for row in rows:
                    writer.writerow([heading, *row])
        paths.append(path)
    return paths
