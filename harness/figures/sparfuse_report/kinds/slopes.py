"""Draws ratios to one method over the values of a key, a line for each method. Lines that cross are
orders that do not carry over, from one cluster to another for instance."""

import math
import textwrap

from sparfuse_report import cells as selection
from sparfuse_report import style, wording
from sparfuse_report.drawn import Drawn, caption
from sparfuse_report.kinds import grouped

HEIGHT = 2.4  # inches of a panel
DODGE = 0.12  # distance between neighbouring lines at a place
NAME = 18  # letters of a line under a tick


class _Panel:
    """The places of one panel in their order, and the cells of each line by place."""

    def __init__(self, cells, x, normalise, styles):
        values = list({selection.canonical(cell.get(x)): cell for cell in cells}.values())
        if x != "cluster":  # clusters stand in the order of the experiment
            values.sort(key=lambda cell: selection.sort_key(cell.get(x)))
        self.places = [selection.canonical(cell.get(x)) for cell in values]
        self.ticks = [textwrap.fill(wording.tick(x, cell.get(x), cell), NAME) for cell in values]
        names = styles.sort({cell.label for cell in cells if cell.method != normalise})
        self.lines = {
            name: {selection.canonical(cell.get(x)): cell for cell in cells if cell.label == name}
            for name in names
        }


def _line(axes, panel, name, y, normalise, look):
    """Draws a method's ratios with their intervals. Returns the ratios."""
    order = list(panel.lines)
    shift = (order.index(name) - (len(order) - 1) / 2) * min(DODGE, 0.4 / len(order))
    cells = [panel.lines[name].get(place) for place in panel.places]
    ratios = [cell and cell.ratio(y, normalise) for cell in cells]
    xs = [place + shift for place in range(len(cells))]
    modelled = any(cell and cell.mode == "modelled" for cell in cells)
    axes.plot(xs, [ratio.value if ratio else math.nan for ratio in ratios], marker=look.marker,
              markerfacecolor="white" if modelled else look.colour, **look.line())
    for at, ratio in zip(xs, ratios):
        if ratio and ratio.low is not None:
            axes.plot([at, at], [ratio.low, ratio.high], color=look.colour, linewidth=0.8)
    return [ratio for ratio in ratios if ratio]


def slopes(experiment, part, figure, styles):
    """Ratios of `y` to `normalise` (the part's reference) over `x` (the cluster)."""
    x, y = figure.get("x", "cluster"), selection.metric_of(figure)
    normalise = figure.get("normalise", part.reference)
    if not normalise:
        raise selection.NoData("a figure of slopes needs normalise = a method, or a reference of its part")
    chosen = selection.shown_with(part, figure, y, normalise)
    panels = selection.panels(chosen, [x, "label"])
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    made, grid = style.figure(rows, columns, HEIGHT, sharey=True)
    ratios = []
    for position, axes in enumerate(grid.flat):
        if position >= len(panels):
            axes.set_visible(False)
            continue
        fields, inside = panels[position]
        panel = _Panel(inside, x, normalise, styles)
        for name in panel.lines:
            ratios += _line(axes, panel, name, y, normalise, styles[name])
        axes.axhline(1, color=style.INK, linewidth=0.7)
        axes.set_xticks(range(len(panel.ticks)), panel.ticks)
        axes.set_xlim(-0.4, len(panel.ticks) - 0.6)
        axes.set_xlabel(wording.axis(x))
        style.panel_title(axes, *selection.panel_words(fields, inside, (x,)))
    if not ratios:
        raise selection.NoData(f"no trial of part '{part.id}' has a ratio of '{y}' to {normalise}")
    bounds = [end for ratio in ratios for end in (ratio.value, ratio.low, ratio.high) if end] + [1.0]
    grid[0, 0].set_yscale("log")
    grid[0, 0].set_ylim(min(bounds) / 1.15, max(bounds) * 1.15)
    style.few_ticks(grid[0, 0].yaxis)
    for axes in grid[:, 0]:
        axes.set_ylabel(wording.axis("ratio", log=True, reference=normalise))
    names = styles.sort({cell.label for cell in chosen if cell.method != normalise})
    handles = [style.entry(name, marker=styles[name].marker, **styles[name].line()) for name in names]
    title = figure.get("title") or f"{wording.over(y, normalise)} by {wording.axis(x).lower()}"
    text = caption(
        chosen,
        f"Lines: ratio to {normalise} at the same place; those that cross are methods whose order changes.",
        f"Vertical lines: {grouped.whose_whiskers(chosen, normalise)}."
        if any(ratio.low is not None for ratio in ratios)
        else "",
        "Open marks: modelled." if any(cell.mode == "modelled" for cell in chosen) else "",
    )
    return Drawn(made, title, text, handles)
