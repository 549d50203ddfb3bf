"""Draws a metric of training and the rate of missing tensors over a swept option, on two axes."""

import re

from sparfuse_report import cells as selection
from sparfuse_report import published as papers
from sparfuse_report import style, wording
from sparfuse_report.drawn import Drawn, caption

LEFT, RIGHT = "#1f4fa3", "#b3362b"
BROKEN, SOLID = (4, 1.4), (None, None)
THIN = {"linewidth": 0.8, "alpha": 0.75}  # look of published lines
FRACTION = 1.02  # end of an axis of fractions
RATE = "missing_rate"  # fraction of the sparsified tensors that sent no element in a step


def _points(cells, x, metric):
    """[(x, mean, low, high)], with the interval of the mean over blocks."""
    points = []
    for cell in sorted(cells, key=lambda cell: cell.get(x)):
        if mean := cell.average(metric):
            points.append((cell.get(x), mean.value, mean.low, mean.high))
    return points


def _line(axes, points, colour, **look):
    xs, ys = ([point[i] for point in points] for i in (0, 1))
    edge = {"markeredgecolor": style.INK, "markeredgewidth": 0.5}
    axes.plot(xs, ys, color=colour, markersize=4.4, zorder=4, **edge, **look)
    for at, _, low, high in points:
        if low is not None:
            axes.plot([at, at], [low, high], color=colour, linewidth=0.9, zorder=3)


def _degree(row):
    """The fusion degree in a published method's name, in [0, 1]."""
    found = re.search(r"degree=(\d+(?:\.\d+)?)\s*%", row.fields["method"])
    return float(found[1]) / 100 if found else None


def _published_line(axes, rows, look):
    points = sorted((_degree(row), row.value) for row in rows if _degree(row) is not None)
    axes.plot(*zip(*points), **look, **THIN, zorder=2)


def _is_fraction(unit):
    return unit.lower() in ("", "1", "fraction", "accuracy", "f1")


def dual_line(experiment, part, figure, styles):
    """Draws the final metric (left) and the missing rate (right) over `x`, a panel for each setting."""
    x = figure["x"]
    chosen = [cell for cell in part.shown(figure) if cell.get(x) is not None]
    if not any(cell.values(RATE) or cell.values("final_metric") for cell in chosen):
        raise selection.NoData(
            f"no trial of part '{part.id}' counts that has the metrics of a dual_line"
        )
    printed = papers.Published(figure)
    panels = selection.panels(part, figure)
    made, places = style.panels(len(panels), 2, 2.5)
    failed, thin = [], {}
    for panel, axes in zip(panels, places):
        inside = panel.cells
        units = [cell.unit("final_metric") for cell in inside if cell.n]
        unit = units[0] if units else ""
        right = axes.twinx()
        right.spines["right"].set_visible(True)
        right.grid(False)
        metric = _points(inside, x, "final_metric")
        rates = _points(inside, x, RATE)
        _line(axes, metric, LEFT, marker="o", linestyle="-", linewidth=1.5)
        _line(right, rates, RIGHT, marker="^", dashes=BROKEN, linewidth=1.5)
        theirs = printed.of(inside[0].workload)
        for row_metric in dict.fromkeys(row.metric for row in theirs):
            rows = [row for row in theirs if row.metric == row_metric and row.value is not None]
            missing = row_metric == "tensor missing rate"
            if not missing and not _is_fraction(unit):
                continue  # a perplexity and an accuracy have no axis in common
            look = {"color": RIGHT, "dashes": BROKEN} if missing else {"color": LEFT, "dashes": SOLID}
            _published_line(right if missing else axes, rows, look)
            thin[f"published: {row_metric}"] = look
        failed += [
            f"{wording.axis(x).lower()} {cell.get(x):g}: {cell.failure()}"
            for cell in inside
            if cell.failure()
        ]
        axes.set_xlabel(wording.axis(x))
        axes.set_ylabel(wording.axis("final_metric", unit or "fraction"), color=LEFT)
        right.set_ylabel(wording.axis(RATE, "fraction"), color=RIGHT)
        right.set_ylim(0, FRACTION)
        if _is_fraction(unit):
            axes.set_ylim(0, FRACTION)
        axes.tick_params(axis="y", colors=LEFT)
        right.tick_params(axis="y", colors=RIGHT)
        style.panel_title(axes, panel.head, panel.rest)
    handles = [
        style.entry("final metric (left)", color=LEFT, marker="o", markersize=4.4),
        style.entry("missing tensors (right)", color=RIGHT, marker="^", markersize=4.4, dashes=BROKEN),
        *(style.entry(label, **look, **THIN) for label, look in thin.items()),
    ]
    title = figure.get("title") or (
        f"Final metric and missing tensors over {wording.axis(x).lower()}"
    )
    text = caption(
        chosen,
        "Points: mean over seeds (blocks); lines: 95 % t interval of the mean, where there are "
        "several. Missing: the fraction of the sparsified tensors without a sent "
        "element in a step.",
        f"{printed.source} The paper's model and data differ: compare only the shape." if thin else "",
        f"Not shown: {', '.join(failed)}." if failed else "",
    )
    return Drawn(made, title, text, handles)
