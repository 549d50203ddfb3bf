"""Published values that stand beside ours: the rows of a figure's entry (results/published), which
panel and place they belong to, and which of them a profile was calibrated with."""

import re

import cells as selection
import wording


def _number(text):
    try:
        return float(text)
    except ValueError:
        return None


def plain(name):
    """A sparsifier's name without origin, remark, case and punctuation: "gaussiank"."""
    return re.sub(r"[^a-z0-9]", "", re.split(r"[@(]", str(name))[0].lower())


class Row:
    """One published number. `value` is None where the paper gives a range."""

    def __init__(self, fields):
        self.fields = fields
        self.workload = fields.get("of")  # ours; None: whichever the figure shows
        self.artifact, self.method = fields["artifact"], fields["method"]
        self.model, self.metric, self.unit = fields["model"], fields["metric"], fields["unit"]
        self.value = _number(fields["value"])
        self.printed = fields["value"]
        self.from_text = fields["confidence"].startswith("verbatim")
        self.stated = bool(fields.get("stated"))  # a gain "A vs B" in percent
        workers = fields["workers"]
        self.workers = int(workers) if workers.isdigit() else None
        self.density = _number(fields["density"])
        speed = re.search(r"(\d+(?:\.\d+)?)\s*Gbps", fields["network"])
        self.gbps = float(speed[1]) if speed else None
        self.sparsifier = plain(fields["sparsifier"])

    def place(self, x):
        """The row's value of the axis `x`; None where the paper does not say it."""
        return {
            "workers": self.workers,
            "density": self.density,
            "link": self.gbps,
            "sparsifier": self.sparsifier or None,
        }.get(x)

    def gain(self):
        """(A, B, A / B) of a stated gain "A vs B"; None of a range."""
        names = self.method.split(" vs ")
        if not self.stated or len(names) != 2 or self.value is None or self.unit != "%":
            return None
        return names[0], names[1], 1.0 + self.value / 100.0

    def setting(self):
        """Where the paper's number was taken, in a few words."""
        words = [self.model]
        if self.workers:
            words.append(f"{self.workers} workers")
        words.append(self.fields["network"])
        return ", ".join(word for word in words if word and not word.startswith("not stated"))


class Published:
    """What an entry's `published` brings; falsy where it has none."""

    def __init__(self, figure):
        given = figure.get("published") or {}
        self.paper = given.get("paper", "")
        self.rows = [Row(fields) for fields in given.get("rows", [])]
        self._ours = {
            theirs: ours for ours, names in given.get("methods", {}).items() for theirs in names
        }

    def __bool__(self):
        return bool(self.rows)

    def ours(self, method):
        """Our name of a published method; None where nobody maps it."""
        return self._ours.get(method)

    def name(self, method):
        return self._ours.get(method, method)

    def of(self, workload):
        """The numbers that stand beside a workload of ours, stated gains left out."""
        return [row for row in self.rows if row.workload in (None, workload) and not row.stated]

    def stated(self, workload):
        return [row for row in self.rows if row.workload in (None, workload) and row.stated]

    def artifacts(self, rows=None):
        """ "Fig14a to Fig14d" would hide gaps: all of them, in order."""
        rows = self.rows if rows is None else rows
        return ", ".join(dict.fromkeys(row.artifact for row in rows))

    def source(self, rows=None):
        """One line of provenance."""
        rows = self.rows if rows is None else rows
        how = dict.fromkeys(re.split(r"[;(]", row.fields["confidence"])[0].strip() for row in rows)
        return f"Published: {self.paper}, {self.artifacts(rows)} ({'; '.join(how)})."


def fits(row, cell, x):
    """Whether what the paper says of the row's setting, `x` apart, is the cell's."""
    wanted = [("workers", row.workers, cell.workers)]
    if not selection.is_dense(cell):
        wanted.append(("density", row.density, cell.density))
        wanted.append(("sparsifier", row.sparsifier or None, plain(cell.get("sparsifier"))))
    wanted.append(("link", row.gbps, cell.get("link_gbps")))
    return all(
        key == x or theirs is None or ours is None or theirs == ours for key, theirs, ours in wanted
    )


def spread(published, panels, x):
    """{position of a panel: its rows}, and the settings of rows that had to stand elsewhere. A row
    stands in the panels of its workload whose setting is the paper's; where an artifact has no such
    row, in all panels of the workload."""
    found, elsewhere = {position: [] for position in range(len(panels))}, []
    artifacts = {}
    for row in published.rows:
        if not row.stated:
            artifacts.setdefault((row.workload, row.artifact), []).append(row)
    for (workload, _), rows in artifacts.items():
        mine = [
            position
            for position, (_, inside) in enumerate(panels)
            if any(workload in (None, cell.workload) for cell in inside)
        ]
        same = {
            position: [
                row for row in rows if any(fits(row, cell, x) for cell in panels[position][1])
            ]
            for position in mine
        }
        if mine and not any(same.values()):
            elsewhere += rows
            same = {position: rows for position in mine}
        for position, fitting in same.items():
            found[position] += fitting
    return found, list(dict.fromkeys(row.setting() for row in elsewhere))


def settings_words(settings):
    return f"The paper's numbers are of {'; '.join(settings)}." if settings else ""


def calibration(cells):
    """What the profiles of these cells' trials were calibrated with, as {paper, artifact, method,
    metric} each; from the outcome of modelled trials on a declared cluster."""
    inputs = []
    for cell in cells:
        if not wording.declared_cluster(cell.config):
            continue
        for trial in cell.trials.values():
            for entry in trial.outcome().get("calibration") or []:
                if entry not in inputs:
                    inputs.append(entry)
    return inputs


def is_calibration(row, paper, inputs):
    """Whether a profile has been fitted to this very number, which then proves nothing."""
    theirs = {
        "paper": paper,
        "artifact": row.artifact,
        "method": row.method,
        "metric": row.metric,
    }
    return any(
        entry.get("artifact") == row.artifact
        and all(entry.get(key) in (None, value) for key, value in theirs.items())
        for entry in inputs
    )
