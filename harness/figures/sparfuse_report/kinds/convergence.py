"""Draws the evaluated metric of training against time and against steps."""

import numpy as np

from sparfuse_report import cells as selection
from sparfuse_report import imported, style, wording
from sparfuse_report.drawn import Drawn, caption

BAND_FROM = 5  # seeds; if there are fewer, every seed is a line of its own
OUTLINE = {"markeredgecolor": style.INK, "markeredgewidth": 0.5}


def _curves(cells):
    """{config hash: [(step, seconds, metric)]} for the cells that have evaluations."""
    curves = {}
    for cell in cells:
        for _, trial in sorted(cell.trials.items()):
            series = trial.series("evaluations.npy")
            if series is not None and len(series):
                run = series["step"].astype(float), series["seconds"], series["metric"]
                curves.setdefault(cell.hash, []).append(run)
    return curves


def _band(axes, lines, look):
    """Draws the median of many seeds, and the band between the lowest and the highest. No seed is
    extended past its end: the band ends with the first seed that ends."""
    stop, start = min(x[-1] for x, _ in lines), max(x[0] for x, _ in lines)
    at = np.linspace(start, stop, 200)
    stacked = np.array([np.interp(at, x, y) for x, y in lines])
    axes.fill_between(
        at, stacked.min(0), stacked.max(0), color=look.colour, alpha=0.16, linewidth=0
    )
    axes.plot(at, np.median(stacked, 0), **look.line(), linewidth=1.6)


def _mark_reached(axes, lines, target, look):
    """Marks the ends of the lines that reached the target; returns whether any did."""
    reached = False
    for x, y in lines:
        rising = y[-1] >= y[0]
        if target is not None and (y[-1] >= target if rising else y[-1] <= target):
            reached = True
            axes.plot(x[-1], y[-1], marker=look.marker, color=look.colour, markersize=6, zorder=5,
                      clip_on=False, **OUTLINE)
    return reached


def _write_targets(axes, targets, named):
    for target in targets:
        axes.axhline(target, color=style.QUIET, linewidth=0.9, linestyle=(0, (1, 1.5)))
        if named:
            style.note(axes, f"target {target:g}", (1, target), (0, -2.5), fontsize=6.8,
                       xycoords=("axes fraction", "data"), color=style.QUIET, ha="right", va="top")


def _imported_curves(axes_row, result, look):
    """Draws the evaluations of an imported result over time, if it has times, and over steps."""
    for trial in result.trials:
        series = trial.series("evaluations.npy")
        if series is None:
            continue
        for axes, x in zip(axes_row, (series["seconds"], series["step"])):
            line = {**look.line(), "color": style.IMPORTED}
            axes.plot(x, series["metric"], **line, linewidth=1.3, marker="|", markersize=4)


def convergence(experiment, part, figure, styles):
    """Draws the evaluated metric against training time (left) and against steps (right)."""
    chosen = part.shown(figure)
    panels = selection.panels(part, figure)
    curves = _curves(chosen)
    if not curves:
        raise selection.NoData(f"no trial of part '{part.id}' counts that has evaluations")
    shown = [cell for cell in chosen if cell.hash in curves]
    units = {cell.workload: cell.unit("final_metric") for cell in shown}
    panels = [panel for panel in panels if any(cell.hash in curves for cell in panel.cells)]
    made, grid = style.figure(len(panels), 2, 2.5, sharey="row")
    names = styles.sort(cell.label for cell in chosen)
    beside = imported.Beside(part)
    banded = targeted = reached = False
    for panel, axes_row in zip(panels, grid):
        inside = panel.cells
        targets = sorted({cell.target for cell in inside if cell.target is not None})
        targeted = targeted or bool(targets)
        for column, (axes, what) in enumerate(zip(axes_row, (("training_time", "s"), ("training_steps", "")))):
            for cell in sorted(inside, key=lambda cell: names.index(cell.label)):
                look, runs = styles[cell.label], curves.get(cell.hash, [])
                lines = [(run[1] if column == 0 else run[0], run[2]) for run in runs]
                if len(lines) >= BAND_FROM:
                    banded = True
                    _band(axes, lines, look)
                else:
                    for x, y in lines:
                        axes.plot(x, y, **look.line(), linewidth=1.15, alpha=0.9)
                reached |= _mark_reached(axes, lines, cell.target, look)
            for cell in inside:
                for result, _ in beside.of(cell, "final_metric") if column else ():
                    _imported_curves(axes_row, result, styles[cell.label])
            _write_targets(axes, targets, column == 1)
            axes.set_xlim(left=0)
            axes.set_xlabel(wording.axis(*what))
            style.thousands(axes.xaxis)
        said = [wording.evaluated(units[cell.workload]) for cell in inside if cell.workload in units]
        axes_row[0].set_ylabel(" or ".join(dict.fromkeys(said)))
        style.panel_title(axes_row[0], panel.head, panel.rest)
    handles = [
        style.entry(name, **styles[name].line(), marker=styles[name].marker if reached else None, **OUTLINE)
        for name in names
        if any(cell.label == name for cell in shown)
    ] + beside.handles()
    title = figure.get("title") or "Convergence against training time and against steps"
    failed = [f"{cell.label}: {cell.failure()}" for cell in chosen if cell.hash not in curves]
    text = caption(
        shown,
        "Time is training alone, without evaluation.",
        "Lines: median over seeds; bands: lowest to highest seed, as far as all seeds ran."
        if banded
        else "Each line is one seed (block).",
        "Markers: the target was reached and the trial stopped." if targeted and reached else "",
        f"Not shown: {', '.join(failed)}." if failed else "",
        beside.words(),
    )
    return Drawn(made, title, text, handles)
