"""Holds what a figure kind hands back, and lists the numbers that it drew."""

from dataclasses import dataclass, field

from matplotlib.patches import Rectangle


@dataclass
class Drawn:
    figure: object  # matplotlib's
    title: str
    caption: str
    handles: list  # of the legend, which style.finish places
    tables: list = field(default_factory=list)  # of tables.Table: the figure's numbers


def numbers(drawn):
    """What stands in each panel: bars as [left, bottom, width, height], lines as [xs, ys], all in
    the units of the axes; and the words on them."""
    panels = []
    for axes in drawn.figure.axes:
        boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        panels.append(
            {
                "title": axes.get_title(),
                "x": axes.get_xlabel(),
                "y": axes.get_ylabel(),
                "bars": [
                    [float(each) for each in (*box.get_xy(), box.get_width(), box.get_height())]
                    for box in boxes
                ],
                "lines": [
                    [[float(x) for x in line.get_xdata()], [float(y) for y in line.get_ydata()]]
                    for line in axes.lines
                ],
                "words": [text.get_text() for text in axes.texts if text.get_text()],
            }
        )
    return {"title": drawn.title, "caption": drawn.caption, "panels": panels}
