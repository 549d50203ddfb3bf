"""Draws a modelled metric over workers, with the timed points on it."""

from matplotlib.ticker import FixedLocator, NullLocator

from sparfuse_report import cells as selection
from sparfuse_report import imported, style, wording
from sparfuse_report.drawn import Drawn, caption

LONGEST_LABEL = 26  # characters of a vertical axis in one line
DODGE = 0.5  # octaves of workers over which the timed points of one x are spread
OPEN = {"linewidth": 1.2, "markersize": 4.2, "markerfacecolor": "white"}
FILLED = {"linestyle": "", "markeredgecolor": style.INK, "markeredgewidth": 0.6}
RING = {"marker": "o", "markersize": 8, "linestyle": "", "markerfacecolor": "none",
        "markeredgecolor": style.QUIET, "markeredgewidth": 0.6}


def _dashes(look):
    return look.dashes if look.dashes[0] else (6, 1.2)  # no modelled line is solid


class _Drawing:
    """Draws panels of one figure and remembers the timed cells, rings and whiskers on them."""

    def __init__(self, part, y, names, styles):
        self.part, self.y, self.names, self.styles = part, y, names, styles
        self.beside = imported.Beside(part)
        self.points, self.crowded, self.whiskers = [], False, False

    def method(self, upper, lower, name, cells, scale):
        """Draws a method's modelled line, and the timed and imported points of its cells."""
        look, part, y = self.styles[name], self.part, self.y
        line = sorted((cell for cell in cells if cell.interval(y)), key=lambda cell: cell.workers)
        heights = [(cell.workers, cell.interval(y).value * scale) for cell in line]
        ratios = [
            (cell.workers, 1.0 if name == part.reference else ratio.value)
            for cell in line
            if (ratio := part.ratio(cell, y)) or name == part.reference
        ]
        for axes, places in ((upper, heights), (lower, ratios)):
            if axes is not None and places:
                axes.plot(*map(list, zip(*places)), color=look.colour, dashes=_dashes(look),
                          marker=look.marker, markeredgecolor=look.colour, markeredgewidth=0.9, **OPEN)
        for cell in line:
            for _, value in self.beside.of(cell, y):
                upper.plot(cell.workers, value * scale, marker=look.marker, linestyle="",
                           color=style.IMPORTED, markersize=5, zorder=5)
            for point in cell.points():
                if point.interval(y):
                    self._point(upper, lower, name, point, scale)

    def _point(self, upper, lower, name, point, scale):
        self.points.append(point)
        self.crowded = self.crowded or point.oversubscribed
        look, ratio = self.styles[name], point.part.ratio(point, self.y)
        # Points are spread sideways: methods of equal speed would hide one another.
        turn = self.names.index(name) / max(len(self.names) - 1, 1) - 0.5
        at = point.workers * 2 ** (DODGE * turn)
        places = [(upper, point.interval(self.y).value * scale)]
        if lower is not None and ratio and point.part.reference == self.part.reference:
            places.append((lower, ratio.value))
            if ratio.low is not None:
                self.whiskers = True
                ends = [ratio.low, ratio.high]
                lower.plot([at] * 2, ends, color=look.colour, linewidth=1.0, zorder=4)
        square = {"marker": "s", "markersize": 4.4} if point.mode == "measured" else {
            "marker": look.marker, "markersize": 5}
        for axes, value in places:
            axes.plot(at, value, color=look.colour, zorder=5, **square, **FILLED)
            if point.oversubscribed:
                axes.plot(at, value, zorder=4, **RING)

    def handles(self):
        handles = [
            style.entry(name, color=look.colour, marker=look.marker, dashes=_dashes(look), **OPEN)
            for name in self.names
            for look in [self.styles[name]]
        ]
        seen = {cell.mode for cell in self.points}
        for mode, marker, size, shape in (("emulated", "o", 5, "filled"), ("measured", "s", 4.4, "square")):
            if mode in seen:
                look = {"marker": marker, "markersize": size, "color": style.QUIET, **FILLED}
                handles.append(style.entry(f"{mode} ({shape})", **look))
        if self.crowded:
            handles.append(style.entry("oversubscribed", **RING))
        return handles + self.beside.handles(points=True)

    def words(self):
        """The sentences of the caption."""
        seen = " and ".join(sorted({cell.mode for cell in self.points}))
        return (
            "Open markers on broken lines: modelled.",
            f"Filled: {seen} cells of the same configuration, geometric mean over blocks, set apart "
            "sideways."
            if seen
            else "No emulated or measured cell has one of these configurations.",
            f"Vertical lines: 95 % t interval of the paired log-ratio to {self.part.reference} over "
            "blocks."
            if self.whiskers
            else "",
            "Ringed: more threads than the machine has cores." if self.crowded else "",
            self.beside.words(),
        )


def _frame(upper, lower, y, unit, log, workers, reference):
    """Sets scales and labels of a panel and of the ratios under it."""
    for axes in filter(None, (upper, lower)):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(workers))
        axes.xaxis.set_minor_locator(NullLocator())
        style.thousands(axes.xaxis)
        axes.tick_params(labelbottom=True)
    (lower or upper).set_xlabel(wording.axis("workers", log=True))
    if log:
        upper.set_yscale("log")
        style.few_ticks(upper.yaxis)
    else:
        upper.set_ylim(bottom=0)
        style.thousands(upper.yaxis)
    label = wording.axis(y, unit, log)
    if len(label) > LONGEST_LABEL + len(" ()"):
        label = label.replace(" (", "\n(", 1)
    upper.set_ylabel(label)
    if lower is not None:
        lower.axhline(1.0, color=style.QUIET, linewidth=0.7, zorder=1)
        lower.set_ylim(bottom=0)
        lower.set_ylabel(wording.axis("ratio", reference=reference))


def scaling(experiment, part, figure, styles):
    """Draws a modelled metric over workers, with emulated and measured cells of equal configuration.
    If the part has a reference, draws the ratios to it underneath."""
    y = selection.metric_of(figure)
    chosen = [cell for cell in part.shown(figure) if cell.mode == "modelled"]
    if not any(cell.values(y) for cell in chosen):
        raise selection.NoData(f"no modelled trial of part '{part.id}' counts that has '{y}'")
    panels = selection.panels(part, figure)
    draw = _Drawing(part, y, styles.sort(cell.label for cell in chosen), styles)
    high = 2 if any(part.ratio(cell, y) for cell in chosen) else 1  # rows of axes in a panel
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    made, grid = style.figure(rows * high, columns, 2.15, sharex="col")
    for position in range(rows * columns):
        row, column = divmod(position, columns)
        upper, *under = grid[row * high : (row + 1) * high, column]
        if position >= len(panels):
            for axes in (upper, *under):
                axes.set_visible(False)
            continue
        lower, panel = under[0] if under else None, panels[position]
        inside = panel.cells
        largest = max((value for cell in inside for value in cell.values(y).values()), default=1.0)
        unit = next((cell.unit(y) for cell in inside if cell.unit(y)), "")
        scale, unit = wording.unit_scale(unit, largest)
        for name in draw.names:
            draw.method(upper, lower, name, [cell for cell in inside if cell.label == name], scale)
        log = figure.get("log_y", True)  # log by default: throughput grows with workers
        _frame(upper, lower, y, unit, log, sorted({cell.workers for cell in inside}), part.reference)
        style.panel_title(upper, panel.head, panel.rest)
    title = (
        figure.get("title")
        or f"{wording.metric_name(y)} over workers: modelled, and timed where possible"
    )
    return Drawn(made, title, caption(chosen + draw.points, *draw.words()), draw.handles())
