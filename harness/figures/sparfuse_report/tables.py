"""Makes the tables of a report: a part's methods beside one another, group by group.

No number stands without unit, n and interval; failed cells print their kind, excluded ones a dash
and a footnote.
"""

import csv
from dataclasses import dataclass, field
from pathlib import Path

from sparfuse_report import cells as selection
from sparfuse_report import wording
from sparfuse_report.wording import NONE


@dataclass
class Table:
    columns: list  # of str; the first is text, the others are numbers
    groups: list = field(default_factory=list)  # (heading, rows); a row: a list of str or a Failed
    notes: list = field(default_factory=list)

    @property
    def length(self):
        return sum(len(rows) for _, rows in self.groups)


@dataclass
class Failed:
    """A row of one method without numbers."""

    method: str
    why: str

    @property
    def quiet(self):
        """Whether nothing went wrong: it did not run, or is excluded."""
        return self.why == "not run" or self.why.startswith(NONE)


def write_csv(found, folder, name):
    """One file a table, groups in a column of their own. Returns the paths."""
    paths = []
    for position, table in enumerate(found):
        path = Path(folder) / (f"{name}.csv" if position == 0 else f"{name}-{position + 1}.csv")
        with path.open("w", encoding="utf-8", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(["setting", *table.columns])
            for heading, rows in table.groups:
                for row in rows:
                    writer.writerow(
                        [heading, *([row.method, row.why] if isinstance(row, Failed) else row)]
                    )
        paths.append(path)
    return paths


def _share(part, whole):
    return f" ({100 * part / whole:.0f}{wording.THIN}%)" if part is not None and whole else ""


def _mean(cell, metric):
    value = cell.mean(metric)
    return NONE if value is None else wording.quantity(value, cell.unit(metric))


def _density(value):
    return NONE if value is None else f"{value:.4f}" if value < 0.1 else f"{value:.3f}"


def _throughput_row(part, cell):
    throughput = cell.interval("throughput")
    exposed, step = cell.mean("exposed_communication_seconds"), cell.mean("step_seconds")
    missing = cell.mean("tensors_missing")
    reference = part.is_reference(cell)
    return [
        cell.label,
        _density(cell.density),
        _density(cell.mean("achieved_density")),
        wording.with_interval(throughput, cell.unit("throughput")) if throughput else NONE,
        "reference" if reference else wording.ratio(part.ratio(cell, "throughput")),
        _mean(cell, "step_seconds"),
        _mean(cell, "exposed_communication_seconds") + _share(exposed, step),
        _mean(cell, "payload_bytes"),
        _mean(cell, "sent_bytes"),
        NONE if missing is None else wording.count(missing),
        str(cell.n),
    ]


def _convergence_row(part, cell):
    final = cell.interval("final_metric")
    steps, seconds = cell.interval("steps_to_target"), cell.interval("seconds_to_target")
    reached = len(cell.values("steps_to_target"))
    reference = part.is_reference(cell)
    target = cell.config.get("target")
    return [
        cell.label,
        _density(cell.density),
        wording.with_interval(final, cell.unit("final_metric")) if final else NONE,
        f"{target:g}" if target is not None else NONE,
        f"{reached} of {cell.n}" if target is not None else NONE,
        wording.with_interval(steps, "steps") if steps else NONE,
        wording.with_interval(seconds, "s") if seconds else NONE,
        "reference" if reference else wording.ratio(part.ratio(cell, "seconds_to_target")),
        str(cell.n),
    ]


def _excluded_rows(part, fields, notes):
    """Rows of cells that the file excludes and that would stand in the group `fields`."""
    rows = []
    for entry in part.excluded:
        cell, reason = entry.get("cell") or {}, entry.get("reason") or "no reason given"
        if not isinstance(cell, dict) or "method" not in cell:
            continue
        if all(key in cell and cell[key] == value for key, value in fields.items()):
            if reason not in notes:
                notes.append(reason)
            rows.append(Failed(str(cell["method"]), f"{NONE} [{notes.index(reason) + 1}]"))
    return rows


def part_table(part, styles):
    """None for a part of which nothing is to be tabulated (profiles, or no cells)."""
    if part.kind == "profile" or not part.cells:
        return None
    over = (
        f"vs {part.reference} (95{wording.THIN}%)"
        if part.reference
        else f"ratio (95{wording.THIN}%)"
    )
    if part.kind == "convergence":
        row_of = _convergence_row
        table = Table(
            [
                "method",
                "density",
                "final metric",
                "target",
                "reached",
                "steps to target",
                "training time to target",
                "time " + over,
                "n",
            ]
        )
    else:
        row_of = _throughput_row
        table = Table(
            [
                "method",
                "density",
                "achieved",
                "throughput",
                over,
                "step time",
                "exposed comm.",
                "payload/step",
                "sent/step",
                "tensors missing/step",
                "n",
            ]
        )
    reasons = []
    for fields, inside in selection.panels(part.cells, ["label"]):
        rows = []
        for cell in sorted(inside, key=lambda cell: styles.order.index(cell.label)):
            rows.append(row_of(part, cell) if cell.n else Failed(cell.label, cell.failure()))
        rows += _excluded_rows(part, fields, reasons)
        table.groups.append(
            (
                ", ".join(
                    words
                    for words in selection.panel_words(fields, inside, full_link=True)
                    if words
                ),
                rows,
            )
        )
    table.notes += [
        f"[{position}] excluded: {reason}" for position, reason in enumerate(reasons, 1)
    ]
    headline = (
        "Final metric, steps and training time to target"
        if part.kind == "convergence"
        else "Throughput"
    )
    table.notes.append(
        f"{headline}: geometric mean over n blocks; ± or [ ]: its 95 % t interval on logarithms. "
        "Ratios: 95 % t interval of paired log-ratios over the blocks that both have."
    )
    if part.kind != "convergence":
        table.notes.append(
            "Step time, exposed communication (and its share of the step), bytes, densities and "
            "counts: mean over n blocks; bytes per step and rank."
        )
    timed = [cell.n for cell in part.cells if cell.n and cell.mode != "modelled"]
    least = part.experiment.preliminary_below
    if timed and min(timed) < least:
        table.notes.append(f"Preliminary: fewer than {least} blocks ({wording.blocks(timed)}).")
    if any(cell.mode == "modelled" and cell.n == 1 for cell in part.cells):
        table.notes.append(
            "Modelled numbers of one seed are computed: without an interval, but for steps and "
            "throughput whose profile says how well its times are known."
        )
    return table


def prediction_table(result):
    """Every cell that both engines ran; the oversubscribed ones in a group of their own."""
    table = Table(
        ["cell", "observed step time", "predicted step time", "error", "within interval", "n"]
    )
    for crowded, heading in (
        (False, "Not oversubscribed"),
        (True, "Oversubscribed: ranks times threads exceed the cores"),
    ):
        rows = []
        for pair in result.pairs:
            if pair.oversubscribed != crowded:
                continue
            observed = pair.observed
            inside = {None: NONE, True: "yes", False: "no"}[pair.within_interval]
            rows.append(
                [
                    pair.live.describe(),
                    wording.with_interval(observed, "s"),
                    wording.quantity(pair.predicted, "s"),
                    f"{100 * pair.error:+.1f}{wording.THIN}%",
                    inside,
                    str(observed.n),
                ]
            )
        if rows:
            table.groups.append(
                (
                    f"{heading}: median error "
                    f"{100 * result.median_error(crowded):.1f}{wording.THIN}% "
                    f"({len(rows)} cells)",
                    rows,
                )
            )
    return table
