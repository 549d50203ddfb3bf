"""Draws ratios to one method over the values of a key, a line for each method. Lines that cross are
orders that do not carry over, from one cluster to another for instance."""

import textwrap

from sparfuse_report import cells as selection
from sparfuse_report import marks, style, wording
from sparfuse_report.drawn import Drawn, caption
from sparfuse_report.kinds import grouped

HEIGHT = 2.4  # inches of a panel
DODGE = 0.12  # distance between neighbouring lines at a place
NAME = 18  # letters of a line under a tick


class _Lines:
    """The places of one panel in their order, and the cells of each line by place."""

    def __init__(self, cells, x, normalise, styles):
        values = list({selection.canonical(cell.get(x)): cell for cell in cells}.values())
        if x != "cluster":  # clusters stand in the order of the experiment
            values.sort(key=lambda cell: selection.sort_key(cell.get(x)))
        self.places = [selection.canonical(cell.get(x)) for cell in values]
        self.ticks = [textwrap.fill(wording.tick(x, cell), NAME) for cell in values]
        names = styles.sort({cell.label for cell in cells if cell.method != normalise})
        self.lines = {
            name: {selection.canonical(cell.get(x)): cell for cell in cells if cell.label == name}
            for name in names
        }


def _line(axes, drawn, name, y, normalise, look):
    """Draws a method's ratios with their intervals. Returns the ratios."""
    order = list(drawn.lines)
    cells = [drawn.lines[name].get(place) for place in drawn.places]
    ratios = [cell and cell.ratio(y, normalise) for cell in cells]
    ends = [ratio and (ratio.value, ratio.low, ratio.high) for ratio in ratios]
    modelled = any(cell and cell.mode == "modelled" for cell in cells)
    marks.slope(axes, order.index(name), len(order), DODGE, ends, look, modelled)
    return [ratio for ratio in ratios if ratio]


def slopes(experiment, part, figure, styles):
    """Ratios of `y` to `normalise` (the part's reference) over `x` (the cluster)."""
    x, y = figure["x"], selection.metric_of(figure)
    normalise = figure.get("normalise", part.reference)
    if not normalise:
        raise selection.NoData("a figure of slopes needs normalise = a method, or a reference of its part")
    chosen = selection.shown_with(part, figure, y, normalise)
    panels = selection.panels(part, figure)
    made, places = style.panels(len(panels), 2, HEIGHT, sharey=True)
    ratios = []
    for axes, panel in zip(places, panels):
        drawn = _Lines(panel.cells, x, normalise, styles)
        for name in drawn.lines:
            ratios += _line(axes, drawn, name, y, normalise, styles[name])
        axes.axhline(1, color=style.INK, linewidth=0.7)
        axes.set_xticks(range(len(drawn.ticks)), drawn.ticks)
        axes.set_xlim(-0.4, len(drawn.ticks) - 0.6)
        axes.set_xlabel(wording.axis(x))
        style.panel_title(axes, panel.head, panel.rest)
    if not ratios:
        raise selection.NoData(f"no trial of part '{part.id}' has a ratio of '{y}' to {normalise}")
    bounds = [end for ratio in ratios for end in (ratio.value, ratio.low, ratio.high) if end] + [1.0]
    places[0].set_yscale("log")
    places[0].set_ylim(min(bounds) / 1.15, max(bounds) * 1.15)
    style.few_ticks(places[0].yaxis)
    for axes in places[::2]:  # the left ones
        axes.set_ylabel(wording.axis("ratio", log=True, reference=normalise))
    handles = styles.lines({cell.label for cell in chosen if cell.method != normalise})
    title = figure.get("title") or f"{wording.over(y, normalise)} by {wording.axis(x).lower()}"
    text = caption(
        chosen,
        f"Lines: ratio to {normalise} at the same place; if two lines cross, the order of their methods changes.",
        f"Vertical lines: {grouped.whose_whiskers(chosen, normalise)}."
        if any(ratio.low is not None for ratio in ratios)
        else "",
        "Open marks: modelled." if any(cell.mode == "modelled" for cell in chosen) else "",
    )
    return Drawn(made, title, text, handles)
