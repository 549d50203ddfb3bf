"""Draws the epochs and seconds that training needs to reach targets."""

from statistics import median

from sparfuse_report import cells as selection
from sparfuse_report import style, wording
from sparfuse_report.drawn import Drawn, caption


def _points(found, position, what):
    """[(target, median, whether all runs reached it)] of a cell."""
    points = []
    for row in found["rows"]:
        if row["cell"] == position and row[what]:
            every = row["reached"] == row["n"]
            points.append((row["target"], median(row[what].values()), every))
    return points


def time_to_target(experiment, part, figure, styles):
    """Draws the epochs and seconds to targets that the harness found, a line for each method.

    harness/report/time_to_target.hpp finds them.
    """
    found = figure.get("time_to_target") or {"rows": []}
    if not found["rows"]:
        raise selection.NoData(f"no trial of part '{part.id}' counts that has evaluations")
    positions = list(dict.fromkeys(row["cell"] for row in found["rows"]))
    chosen = [part.cells[position] for position in positions]
    made, grid = style.figure(1, 2, 2.5)
    columns = (("epochs", "training_epochs", ""), ("seconds", "training_time", "s"))
    drawn, missed = set(), False
    for axes, (what, words, unit) in zip(grid[0], columns):
        for position, cell in zip(positions, chosen):
            points = _points(found, position, what)
            if not points:
                continue
            look = styles[cell.label]
            drawn.add(cell.label)
            axes.plot([p[0] for p in points], [p[1] for p in points], **look.line(), linewidth=1.15)
            for target, value, every in points:
                missed = missed or not every
                axes.plot(target, value, marker=look.marker, markersize=5.4, zorder=4,
                          markeredgecolor=look.colour, color=look.colour if every else "white")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("Target")
        axes.set_ylabel(wording.axis(words, unit))
    text = caption(
        chosen,
        "Medians over the seeds (blocks) that reached the target, without evaluation.",
        "Hollow: some seeds did not." if missed else "",
        "A method without a mark reached no target." if len(drawn) < len(chosen) else "",
    )
    title = figure.get("title") or "Epochs and training time to targets"
    return Drawn(made, title, text, styles.lines(drawn))
