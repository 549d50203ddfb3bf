"""Draws a metric grouped by x, one bar for each value of a series, and the papers' numbers over the
bars."""

from dataclasses import dataclass, field

from matplotlib.patches import Patch

from sparfuse_report import cells as selection
from sparfuse_report import imported, marks, style, wording
from sparfuse_report import published as papers
from sparfuse_report.drawn import Drawn, caption

TALLEST = 1.6  # the highest end of the axis, as a multiple of the highest bar
CROWDED = 14  # bars in a panel; one with more does not fit beside two others


@dataclass
class Bar:
    """A slot with our number, the paper's, or both (harness/report/figures/grouped_bars.hpp)."""

    place: int
    name: str  # of the series
    cell: object  # None if only the paper has it
    value: float | None
    low: float | None
    high: float | None
    dots: list
    why: str  # the words if there is no number
    printed: list  # published numbers: (Row, height)
    imported: list = field(default_factory=list)  # heights of imported results

    @staticmethod
    def of(part, published, given):
        cell = None if given["cell"] is None else part.cells[given["cell"]]
        printed = [(published.rows[row], height) for row, height in given["printed"]]
        return Bar(**{**given, "cell": cell, "printed": printed})


class Panel(selection.Panel):
    def __init__(self, part, published, given, metric):
        super().__init__(part, given)
        self.places = list(given["places"])  # words of ticks
        self.bars = [Bar.of(part, published, bar) for bar in given["bars"]]
        perplexity = (bar.place for bar in self.bars if bar.cell and "perplex" in bar.cell.unit(metric))
        for place in set(perplexity):
            self.places[place] += "\n(perplexity: lower is better)"


def _imported_marks(panels, beside, y):
    """Puts imported absolute numbers over the bars of their settings."""
    values = [bar.value for panel in panels for bar in panel.bars if bar.value is not None]
    most = imported.BEYOND * max(values, default=1.0)
    for panel in panels:
        for bar in panel.bars:
            if bar.cell is not None:
                bar.imported = [value for _, value in beside.of(bar.cell, y, most)]


class _Drawing:
    """Draws the bars of one figure's panels with shared looks, and remembers the marks it used."""

    def __init__(self, looks, order, strangers):
        self.looks, self.strangers = looks, strangers
        self.slots = {name: position for position, name in enumerate(order + strangers)}
        self.width = 0.84 / max(len(self.slots), 1)
        self.marks, self.paired, self.dots = marks.Marks(), False, False

    def bar(self, axes, bar, scale):
        at = bar.place + self.width * (self.slots[bar.name] - (len(self.slots) - 1) / 2)
        if bar.cell is None:
            stranger = bar.name in self.strangers
            for row, height in bar.printed if stranger else []:
                look = marks.only_published(self.strangers.index(bar.name))
                axes.bar(at, height * scale, self.width * 0.9, **look)
                if row.calibrated:
                    self.marks.value(axes, at, self.width, height * scale, row)
            if stranger:
                return
        elif bar.value is None:
            style.write_failure(axes, at, bar.why)
        else:
            self.marks.mode(bar.cell.mode)
            look = marks.bar(self.looks[bar.name], bar.cell.mode)
            axes.bar(at, bar.value * scale, self.width * 0.92, **look)
            if bar.low is not None:
                self.paired = True
                marks.whisker(axes, at, bar.value * scale, bar.low * scale, bar.high * scale)
            if len(bar.dots) > 1:
                self.dots = True
                marks.dots(axes, at, self.width, [value * scale for value in bar.dots])
        for row, height in bar.printed:
            if row.stated:
                self.marks.text(axes, at, height * scale)
            else:
                self.marks.value(axes, at, self.width, height * scale, row)
        for height in bar.imported:
            self.marks.imported(axes, at, self.width, height * scale)


def _tops(panels):
    """(highest number, highest whisker) in the panels."""
    values, ends = [], []
    for bar in (bar for panel in panels for bar in panel.bars):
        printed = [height for _, height in bar.printed]
        values += [bar.value, *bar.dots, *printed, *bar.imported]
        ends.append(bar.high)
    known = [[value for value in some if value is not None] for some in (values, ends)]
    return max(known[0], default=1.0), max(known[1], default=0.0)


def whose_whiskers(cells, over):
    """The words for the meaning of whiskers' ends."""
    declared = [cell.declared for cell in cells]
    ranges = f"interval of the ratio to {over} from the ranges of the cluster's inputs"
    blocks = f"95 % t interval of the paired log-ratio to {over} over blocks"
    return ranges if all(declared) else f"{blocks}; {ranges}" if any(declared) else blocks


def grouped_bars(experiment, part, figure, styles):
    """Draws `y` grouped by `x`, one bar for each value of `series`. With `normalise`, bars are ratios
    to that method within each group; only such ratios compare between unlike hardware. A figure of
    kind "normalised_bars" has such ratios by workload, and published numbers that are ratios."""
    x, y, series = figure["x"], selection.metric_of(figure), figure.get("series", "method")
    normalise, published = figure.get("normalise"), papers.Published(figure)
    chosen = selection.shown_with(part, figure, y, but=normalise)
    panels = [Panel(part, published, given, y) for given in figure["panels"]]
    labels = dict(figure["names"])
    looks, order = styles, list(labels)
    if series == "method":
        order = styles.sort(order)
    else:
        looks = style.Styles(order)
    beside = imported.Beside(part)
    if not normalise:  # nothing is divided by imported numbers
        _imported_marks(panels, beside, y)
    named = [bar.name for panel in panels for bar in panel.bars]
    strangers = list(dict.fromkeys(name for name in named if name not in order))
    draw = _Drawing(looks, order, strangers)
    crowd = max(len(panel.places) for panel in panels) * len(draw.slots)
    widest = 3 if crowd <= CROWDED or not published else 1 if crowd > 2 * CROWDED else 2
    made, rows = style.rows_of_workloads(
        panels, widest, 2.05, lambda panel: len(panel.places), sharey="row"
    )
    cut = False
    for row, axes_row in rows:
        units = [cell.unit(y) for panel in row for cell in panel.cells]
        unit = " or ".join(dict.fromkeys(filter(None, units)))
        largest, whisker = _tops(row)
        scale, unit = (1.0, "") if normalise else wording.unit_scale(unit, largest)
        for panel, axes in zip(row, axes_row):
            for bar in panel.bars:
                draw.bar(axes, bar, scale)
            style.groups_of_bars(axes, panel.places)
            if normalise:
                marks.level(axes, 1.0, normalise)
            style.thousands(axes.yaxis)
            style.panel_title(axes, panel.head, panel.rest)
            axes.set_xlabel(wording.axis(x))
        # Two blocks can give whiskers as high as several bars: they are cut, and the caption says so.
        top, highest = max(largest * 1.15, whisker * 1.04), largest * TALLEST
        cut = cut or top > highest
        axes_row[0].set_ylim(0, min(top, highest) * scale)
        axes_row[0].set_ylabel(wording.over(y, normalise) if normalise else wording.axis(y, unit))
    handles = [Patch(label=labels[name], **looks[name].bar()) for name in order]
    handles += [
        Patch(label=f"{name} (published only)", **marks.only_published(position))
        for position, name in enumerate(strangers)
    ]
    handles += draw.marks.handles() + beside.handles()
    if draw.dots:
        handles.append(marks.dot_handle("one block"))
    words = wording.over(y, normalise) if normalise else wording.metric_name(y)
    title = figure.get("title") or (
        f"{words} by {wording.axis(x).lower()} and {wording.axis(series).lower()}"
    )
    over = normalise or part.reference
    ends = "; the longest are cut by the axis" if cut else ""
    text = caption(
        chosen,
        "Bars: geometric mean over blocks"
        + (f" of the ratio to {normalise} in the same block" if normalise else "")
        + ("; dots: single blocks." if draw.dots else "."),
        f"Whiskers: {whose_whiskers(chosen, over)}, drawn around the bar{ends}." if draw.paired else "",
        published.source,
        "The paper's models and data differ: compare only the order."
        if published and figure["kind"] == "normalised_bars"
        else "",
        published.elsewhere,
        beside.words(),
    )
    return Drawn(made, title, text, handles)
