"""Reads the published values that stand beside ours: a figure's rows of results/published, which
panel and place they belong to, and which of them a profile was calibrated with."""

import re

from sparfuse_report import wording


def _number(text):
    """The number in a text, or the mean in "925.020 +- 4.42"; None for other texts."""
    try:
        return float(text.split(" +- ")[0])
    except ValueError:
        return None


def plain(name):
    """A sparsifier's name without origin, remark, case and punctuation: "gaussiank"."""
    return re.sub(r"[^a-z0-9]", "", re.split(r"[@(]", str(name))[0].lower())


class Row:
    """One published number. `value` is None if the paper gives a range."""

    def __init__(self, fields):
        self.fields = fields
        of = fields.get("of")  # our workload; None: any that the figure shows
        self.workload = of and wording.workload(of)
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
        self.cluster = fields.get("cluster")  # our cluster that stands for the row's network
        # The file's reason not to compare with the row: it is an input, or at odds with its label.
        self.apart = fields["confidence"].partition("; ")[2] if self.cluster else ""

    def place(self, x):
        """The row's value on the axis `x`; None if the paper does not state it."""
        return {
            "workers": self.workers,
            "density": self.density,
            "link": self.gbps,
            "sparsifier": self.sparsifier or None,
        }.get(x)

    def gain(self):
        """(A, B, A / B) of a stated gain "A vs B"; None for a range, and for other rows."""
        names = self.method.split(" vs ")
        if not self.stated or len(names) != 2 or self.value is None or self.unit != "%":
            return None
        return names[0], names[1], 1.0 + self.value / 100.0

    def setting(self):
        """The setting of the paper's number, in a few words."""
        words = [self.model, f"{self.workers} workers" if self.workers else "", self.hardware()]
        return ", ".join(word for word in words if word)

    def hardware(self):
        """Hardware and network as the paper states them; "" if it does not."""
        network = self.fields["network"].replace(";", ",")
        return "" if network.startswith(("not stated", "n/s")) else network


class Published:
    """The published numbers of a figure's entry; falsy if it has none."""

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
        """Our name of a published method; None if the entry does not map it."""
        return self._ours.get(method)

    def name(self, method):
        return self._ours.get(method, method)

    def of(self, workload):
        """The rows that stand beside our workload, without stated gains."""
        return [row for row in self.rows if row.workload in (None, workload) and not row.stated]

    def stated(self, workload):
        return [row for row in self.rows if row.workload in (None, workload) and row.stated]

    def artifacts(self, rows=None):
        """The rows' artifacts with their models, as "Fig14a (ResNet-152), Fig14c (GPT2-large)"."""
        models = {}
        for row in self.rows if rows is None else rows:
            models.setdefault(row.artifact, {})[row.model] = True
        return ", ".join(f"{name} ({'/'.join(of)})" for name, of in sorted(models.items()))

    def source(self, rows=None):
        """One line of provenance."""
        rows = self.rows if rows is None else rows
        how = dict.fromkeys(re.split(r"[;(]", row.fields["confidence"])[0].strip() for row in rows)
        return f"Published: {self.paper}, {self.artifacts(rows)}; {' and '.join(how)}."


def fits(row, cell, x):
    """Whether the setting that the paper states for the row, `x` aside, is the cell's."""
    wanted = [
        ("workers", row.workers, cell.workers),
        ("cluster", row.cluster, cell.get("cluster")),
    ]
    if not cell.dense:
        wanted.append(("density", row.density, cell.density))
        wanted.append(("sparsifier", row.sparsifier or None, plain(cell.get("sparsifier"))))
    wanted.append(("link", row.gbps, cell.get("link_gbps")))
    return all(
        key == x or theirs is None or ours is None or theirs == ours for key, theirs, ours in wanted
    )


def spread(published, panels, x):
    """({position of a panel: its rows}, the rows that stand beside another setting). A row stands in
    the panels of its workload that have the paper's setting. If an artifact has no such row, its rows
    stand in all panels of the workload."""
    found, elsewhere = {position: [] for position in range(len(panels))}, []
    artifacts = {}
    for row in published.rows:
        if not row.stated and not row.apart:
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
    return found, elsewhere


def settings_words(rows):
    """The paper's settings for the rows that stand beside another setting of ours; "" without rows."""
    workers = {}
    for row in rows:
        workers.setdefault(row.hardware() or "unstated hardware", set()).add(row.workers)
    words = []
    for hardware, counts in workers.items():
        counts = sorted(count for count in counts if count)
        span = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else "".join(map(str, counts))
        words.append(f"{span} workers, {hardware}" if counts else hardware)
    return f"The paper's setting differs: {'; '.join(words)}." if words else ""


def calibration(cells):
    """The published numbers with which the profiles of declared clusters among these cells were
    calibrated. Each is "PAPER/ARTIFACT/METHOD", perhaps with the row's "/MODEL/WORKERS/NETWORK"."""
    if not any(wording.declared_cluster(cell.config) for cell in cells):
        return []
    return cells[0].part.experiment.calibration


def apart(ours, theirs, calibrated=False):
    """A table's words for the distance of our number from theirs; either may be None."""
    if calibrated:
        return "calibration input"
    return wording.NONE if ours is None or theirs is None else wording.apart(ours, theirs)


def is_calibration(row, paper, inputs):
    """Whether a profile was fitted to this very number; then agreement with it proves nothing."""
    name = f"{paper}/{row.artifact}/{row.method}"
    one = f"{name}/{row.model}/{row.fields['workers']}/{row.fields['network']}"
    return any(named in inputs for named in (name, one, f"{one}/{row.fields['density']}"))
