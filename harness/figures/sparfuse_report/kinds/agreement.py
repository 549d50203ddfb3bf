"""Draws how far predictions are from what a paper measured on the machines that were modelled, both
absolute, and sums it up."""

from dataclasses import dataclass

from sparfuse_report import cells as selection
from sparfuse_report import published as papers
from sparfuse_report import skill, style, tables, wording
from sparfuse_report.drawn import Drawn, caption
from sparfuse_report.skill import APART, quantile

MISS = 0.10  # errors beyond it are listed one by one


@dataclass
class Pair:
    """One of our cells and the number that was published of it."""

    cell: object
    ours: selection.Interval
    theirs: float
    error: float  # ours / theirs - 1
    unit: str  # theirs
    calibrated: bool  # the cluster was fitted to it: drawn, and never counted

    def place(self):
        """What it has in common with other methods' pairs."""
        return self.cell.get("cluster"), self.cell.workload, self.cell.workers


def _pairs(chosen, published, y, inputs):
    found = []
    for cell in chosen:
        ours = cell.interval(y)
        known = (row for row in published.of(cell.workload) if row.value is not None and not row.apart)
        mine = (row for row in known if published.ours(row.method) == cell.method)
        row = next((row for row in mine if papers.fits(row, cell, None)), None)
        if ours and row:
            calibrated = papers.is_calibration(row, published.paper, inputs)
            error = ours.value / row.value - 1
            found.append(Pair(cell, ours, row.value, error, row.unit, calibrated))
    return found


_percent = skill.percent


def _summary(pairs):
    """How far apart, over all that is no input and by what cells differ in."""
    columns = ["predictions", "n", "median |error|", "90th percentile", "largest", "within their band"]
    table = tables.Table(columns)

    def row(name, some):
        errors = [abs(pair.error) for pair in some]
        banded = [pair for pair in some if pair.ours.low is not None]
        inside = sum(pair.ours.low <= pair.theirs <= pair.ours.high for pair in banded)
        worst = max(some, key=lambda pair: abs(pair.error))
        return [
            name,
            str(len(some)),
            _percent(quantile(errors, 0.5)),
            _percent(quantile(errors, 0.9)),
            _percent(worst.error, "+"),
            f"{inside} of {len(banded)}" if banded else wording.NONE,
        ]

    table.groups.append(("All", [row("all", pairs)]))
    for key in ("cluster", "method", "workload", "workers"):
        values = list(dict.fromkeys(pair.cell.get(key) for pair in pairs))
        if len(values) > 1:
            of = [[pair for pair in pairs if pair.cell.get(key) == value] for value in values]
            names = [selection.field_words(key, value) for value in values]
            rows = list(map(row, names, of))
            table.groups.append((f"By {key}", rows))
    return table


def wrong_order(pairs):
    """(groups of equal setting, those of them in which two methods are in the wrong order)."""
    groups = {}
    for pair in pairs:
        groups.setdefault(pair.place(), []).append(pair)
    groups = {place: inside for place, inside in groups.items() if len(inside) > 1}
    wrong = {}
    for place, inside in groups.items():
        for position, one in enumerate(inside):
            for other in inside[position + 1 :]:
                theirs, ours = one.theirs / other.theirs, one.ours.value / other.ours.value
                if max(theirs, 1 / theirs) > 1 + APART and (theirs > 1) != (ours > 1):
                    wrong.setdefault(place, []).append((one, other))
    return groups, wrong


def _order(pairs):
    groups, wrong = wrong_order(pairs)
    table = tables.Table(["setting", "methods", "predicted ratio", "published ratio"])

    def words(part):
        return selection.field_words("workers", part) if isinstance(part, int) else str(part)

    rows = [
        [
            ", ".join(words(part) for part in place if part is not None),
            f"{one.cell.label} / {other.cell.label}",
            f"{one.ours.value / other.ours.value:.3f}",
            f"{one.theirs / other.theirs:.3f}",
        ]
        for place, found in wrong.items()
        for one, other in found
    ]
    heading = f"Order of methods right in {len(groups) - len(wrong)} of {len(groups)} settings"
    table.groups.append((heading, rows or [["none is wrong", *[wording.NONE] * 3]]))
    table.notes.append(
        f"Methods whose published numbers differ by {100 * APART:.0f} % or less have no order. "
        "Inputs of the calibration count here: an order takes several methods."
    )
    return table


def _scaling(pairs):
    """From the fewest workers on several nodes to the most."""
    series = {}
    for pair in pairs:
        if pair.cell.workers > (pair.cell.get("ranks_per_node") or 1):
            key = pair.cell.get("cluster"), pair.cell.workload, pair.cell.label
            series.setdefault(key, []).append(pair)
    table = tables.Table(["setting", "method", "workers", "predicted", "published", "error"])
    rows = []
    for (cluster, workload, label), found in series.items():
        least, most = (pick(found, key=lambda pair: pair.cell.workers) for pick in (min, max))
        if least is most:
            continue
        ours, theirs = most.ours.value / least.ours.value, most.theirs / least.theirs
        setting = ", ".join(str(word) for word in (cluster, workload) if word)
        span = f"{least.cell.workers} to {most.cell.workers}"
        apart = wording.apart(ours, theirs)
        rows.append([setting, label, span, f"{ours:.2f}x", f"{theirs:.2f}x", apart])
    table.groups.append(("Throughput of the most workers over that of the fewest", rows))
    return table


def _misses(pairs, y):
    table = tables.Table(["cell", "predicted", "published", "error"])
    rows = [
        [
            f"{pair.cell.describe()}, {pair.cell.get('cluster')}",
            pair.ours.text,
            wording.number(pair.theirs),
            _percent(pair.error, "+"),
        ]
        for pair in sorted(pairs, key=lambda pair: -abs(pair.error))
        if abs(pair.error) > MISS
    ]
    table.groups.append((f"More than {100 * MISS:.0f} % off: {len(rows)} of {len(pairs)}", rows))
    return table


def predictions(part, figure):
    """What the model and formulas say of the published numbers beside the part's cells."""
    y, chosen = selection.metric_of(figure), part.shown(figure)
    found = _pairs(chosen, papers.Published(figure), y, papers.calibration(chosen))
    return [
        skill.Prediction(
            pair.place(),
            pair.theirs,
            {skill.MODEL: pair.ours.value, **skill.throughputs(pair.cell, pair.ours.value)},
            pair.calibrated,
            skill.strata_of(pair.cell),
        )
        for pair in found
    ]


def agreement(experiment, part, figure, styles):
    y = selection.metric_of(figure)
    printed, chosen = papers.Published(figure), part.shown(figure)
    found = _pairs(chosen, printed, y, papers.calibration(chosen))
    counted = [pair for pair in found if not pair.calibrated]
    if not counted:
        raise selection.NoData(f"no cell of part '{part.id}' stands beside a published number")
    clusters = list(dict.fromkeys(pair.cell.get("cluster") for pair in found))
    made, grid = style.figure(1, len(clusters), 2.3, sharey="row")
    for cluster, axes in zip(clusters, grid[0]):
        axes.axhline(0, color=style.QUIET, linewidth=0.9, zorder=0.9)
        for pair in found:
            if pair.cell.get("cluster") != cluster:
                continue
            look = styles[pair.cell.label]
            marker = "x" if pair.calibrated else look.marker
            axes.plot(pair.theirs, 100 * pair.error, linestyle="", marker=marker, markersize=5.4,
                      color=look.colour, zorder=4)
        axes.set_xscale("log")
        axes.set_xlabel(wording.axis("published", found[0].unit))
        style.panel_title(axes, str(cluster or ""), "")
    grid[0][0].set_ylabel(wording.axis("off_published", "%"))
    handles = [
        style.entry(name, linestyle="", marker=look.marker, color=look.colour)
        for name in styles.sort({pair.cell.label for pair in found})
        for look in [styles[name]]
    ]
    cross = {"linestyle": "", "marker": "x", "color": style.QUIET}
    handles.append(style.entry("input: not counted", **cross))
    errors = [abs(pair.error) for pair in counted]
    title = figure.get("title") or "Predicted against published " + wording.metric_name(y).lower()
    title += f": median error {_percent(quantile(errors, 0.5))} (n = {len(counted)})"
    text = caption(
        chosen,
        "Both numbers are absolute. What the clusters were calibrated with is drawn as a cross and "
        "counted nowhere but in the order of methods.",
        printed.source(),
    )
    found_tables = [_summary(counted), _order(found), _scaling(found), _misses(counted, y)]
    found_tables.append(skill.table([("Beside formulas", predictions(part, figure))]))
    return Drawn(made, title, text, handles, found_tables)
