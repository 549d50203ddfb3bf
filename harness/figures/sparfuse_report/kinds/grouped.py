"""Draws a metric grouped by x, one bar for each value of a series, and the papers' numbers over the
bars."""

import collections
from dataclasses import dataclass, field

from matplotlib.patches import Patch

from sparfuse_report import (
    cells as selection,
)
from sparfuse_report import (
    imported,
    marks,
    skill,
    style,
    tables,
    wording,
)
from sparfuse_report import (
    published as papers,
)
from sparfuse_report.drawn import Drawn, caption

TALLEST = 1.6  # the highest end of the axis, as a multiple of the highest bar
CROWDED = 14  # bars in a panel; one with more does not fit beside two others


@dataclass
class Bar:
    """One slot with our number, the paper's, or both; `name` names the series."""

    place: object
    name: str
    cell: object = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    dots: list = field(default_factory=list)
    why: str = "no value"  # the words if there is no number
    printed: list = field(default_factory=list)  # published numbers: (Row, height)
    imported: list = field(default_factory=list)  # heights of imported results


@dataclass
class Panel:
    fields: dict
    cells: list
    rows: list
    places: dict = field(default_factory=dict)  # {place: words of its tick}
    bars: list = field(default_factory=list)

    def bar(self, place, name):
        return next((bar for bar in self.bars if (bar.place, bar.name) == (place, name)), None)


def _place(x, value):
    """The value that cells and published rows of one group have in common."""
    if x == "link":
        return value.get("gbps") if isinstance(value, dict) else value
    return papers.plain(value) if x == "sparsifier" else value


def _namer(found, x, series):
    """A function that gives the name of a cell's bar. With labels, a method has its name alone if no
    panel has two of its cells at a place. Published numbers use such names, and so stand over it."""
    several = set()
    for _, cells in found:
        count = collections.Counter((cell.method, _place(x, cell.get(x))) for cell in cells)
        several |= {method for (method, _), bars in count.items() if bars > 1}
    return lambda cell: (
        cell.method
        if series == "label" and cell.method not in several
        else str(cell.get(series))
    )


def _our_bars(part, panel, x, name_of, y, normalise):
    for cell in sorted(panel.cells, key=lambda cell: selection.sort_key(cell.get(x))):
        place = _place(x, cell.get(x))
        panel.places.setdefault(place, wording.tick(x, cell.get(x), cell))
        bar = Bar(place, name_of(cell), cell)
        panel.bars.append(bar)
        values = cell.values(y)
        bar.why = cell.failure() or ("exactly 0" if values else bar.why)
        if normalise:
            ratio, base = cell.ratio(y, normalise), cell.compared_with(normalise)
            if values and not (base and base.values(y)):
                bar.why = f"no {normalise}"
            if ratio:
                bar.value, bar.low, bar.high = ratio.value, ratio.low, ratio.high
                bar.dots = list(ratio.values.values())
        elif interval := cell.interval(y):
            bar.value, bar.dots = interval.value, list(values.values())
            ratio = part.ratio(cell, y)
            if ratio and ratio.low is not None:
                bar.low = bar.value * ratio.low / ratio.value
                bar.high = bar.value * ratio.high / ratio.value


def _imported_marks(panels, beside, y):
    """Puts imported absolute numbers over the bars of their settings."""
    values = [bar.value for panel in panels for bar in panel.bars if bar.value is not None]
    most = imported.BEYOND * max(values, default=1.0)
    for panel in panels:
        for bar in panel.bars:
            if bar.cell is not None:
                bar.imported = [value for _, value in beside.of(bar.cell, y, most)]


def _published_bars(panel, published, x, normalise):
    """Puts every published row of the panel over its bar, or on a bar of its own."""

    def add(place, name, row, height):
        bar = panel.bar(place, name)
        if bar is None:
            bar = Bar(place, name)
            panel.bars.append(bar)
        bar.printed.append((row, height))

    for row in panel.rows:
        place, height = row.place(x), row.value
        if place is None or height is None:
            continue
        if normalise:
            same = [each for each in panel.rows if (each.artifact, each.place(x)) == (row.artifact, place)]
            base = [each.value for each in same if published.ours(each.method) == normalise]
            if not base or not base[0]:
                continue
            height /= base[0]
        panel.places.setdefault(place, wording.tick(x, place))
        add(place, published.name(row.method), row, height)
    if all(isinstance(place, (int, float)) for place in panel.places):  # published places between ours
        panel.places = dict(sorted(panel.places.items()))
    workloads = {cell.workload for cell in panel.cells}
    for row in published.stated(workloads.pop()) if len(workloads) == 1 else []:
        gain, place = row.gain(), row.place(x)
        if gain and place in panel.places and normalise and published.ours(gain[1]) == normalise:
            add(place, published.name(gain[0]), row, gain[2])


def _series_looks(styles, cells, series, name_of):
    names = {name_of(cell) for cell in cells}
    if series in ("method", "label"):
        return styles, styles.sort(names)
    other = style.Styles([str(cell.get(series)) for cell in cells])
    ordered = []
    for cell in sorted(cells, key=lambda cell: selection.sort_key(cell.get(series))):
        if str(cell.get(series)) not in ordered:
            ordered.append(str(cell.get(series)))
    return other, ordered


class _Drawing:
    """Draws the bars of one figure's panels with shared looks, and remembers the marks it used."""

    def __init__(self, looks, order, strangers, normalise, paper, inputs):
        self.looks, self.order, self.strangers = looks, order, strangers
        self.normalise, self.paper, self.inputs = normalise, paper, inputs
        shown = [name for name in order + strangers if name != normalise]
        self.slots = {name: position for position, name in enumerate(shown)}
        self.width = 0.84 / max(len(shown), 1)
        self.marks, self.paired, self.dots = marks.Marks(), False, False

    def place(self, panel, bar):
        group = list(panel.places).index(bar.place)
        return group + self.width * (self.slots[bar.name] - (len(self.slots) - 1) / 2)

    def bar(self, axes, panel, bar, scale):
        at = self.place(panel, bar)
        if bar.cell is None:
            stranger = bar.name in self.strangers
            for row, height in bar.printed if stranger else []:
                look = marks.only_published(self.strangers.index(bar.name))
                axes.bar(at, height * scale, self.width * 0.9, **look)
                if papers.is_calibration(row, self.paper, self.inputs):
                    self.marks.value(axes, at, self.width, height * scale, row, True)
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
            calibrated = papers.is_calibration(row, self.paper, self.inputs)
            if row.stated:
                self.marks.text(axes, at, height * scale)
            else:
                self.marks.value(axes, at, self.width, height * scale, row, calibrated)
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
    declared = [bool(wording.declared_cluster(cell.config)) for cell in cells]
    ranges = f"interval of the ratio to {over} from the ranges of the cluster's inputs"
    blocks = f"95 % t interval of the paired log-ratio to {over} over blocks"
    return ranges if all(declared) else f"{blocks}; {ranges}" if any(declared) else blocks


def _predictions(panels, published, x, normalise, inputs):
    """The predictions of the model, formulas and trivial predictors for published ratios to
    `normalise`."""

    def fitted(row):
        return papers.is_calibration(row, published.paper, inputs)

    found = []
    for position, panel in enumerate(panels):
        bases = {
            (row.artifact, row.place(x)): row
            for row in panel.rows
            if published.ours(row.method) == normalise
        }
        first = next(iter(panel.places), None)
        held = {}  # {series: published ratio at the first place}
        for bar in panel.bars:
            figures = [(row, height) for row, height in bar.printed if not row.stated]
            if not figures or bar.cell is None or bar.value is None:
                continue
            row, theirs = figures[0]
            by = {skill.MODEL: bar.value, **skill.gains(bar.cell, bar.cell.compared_with(normalise))}
            by[skill.NO_GAIN] = 1.0
            if bar.place == first:
                held[bar.name] = theirs
            elif bar.name in held:
                by[skill.FIRST] = held[bar.name]
            base = bases.get((row.artifact, row.place(x)))
            calibrated = fitted(row) and base is not None and fitted(base)
            strata = skill.strata_of(bar.cell)
            found.append(skill.Prediction((position, bar.place), theirs, by, calibrated, strata))
    return found


def _axes_of(figure):
    """(x, y, the key in which the bars of a place differ)."""
    x, series = figure.get("x", "workers"), figure.get("series", "method")
    x = "link" if x == "link_gbps" else x
    if series == "method" and not x.startswith(("method_options", "sparsifier")):
        series = "label"
    return x, selection.metric_of(figure), series


def _panels(part, figure, published, chosen):
    """(panels with their bars, the function that names a cell's bar, published rows of settings that
    no panel has)."""
    x, y, series = _axes_of(figure)
    normalise = figure.get("normalise")
    found = selection.panels(chosen, [x, series])
    name_of = _namer(found, x, series)
    rows_of, elsewhere = papers.spread(published, found, x)
    panels = [
        Panel(fields, inside, rows_of[position]) for position, (fields, inside) in enumerate(found)
    ]
    for panel in panels:
        _our_bars(part, panel, x, name_of, y, normalise)
        _published_bars(panel, published, x, normalise)
        panel.bars = [bar for bar in panel.bars if bar.name != normalise]
    return panels, name_of, elsewhere


def predictions(part, figure):
    """The predictions of the model, formulas and trivial predictors for the ratios that the figure
    shows beside published ones. Empty unless the cells model the paper's machines."""
    normalise, published = figure.get("normalise"), papers.Published(figure)
    x, y, _ = _axes_of(figure)
    chosen = selection.shown_with(part, figure, y)
    if not (normalise and published and all(wording.declared_cluster(each.config) for each in chosen)):
        return []
    panels, _, _ = _panels(part, figure, published, chosen)
    return _predictions(panels, published, x, normalise, papers.calibration(chosen))


def grouped_bars(experiment, part, figure, styles):
    """Draws `y` grouped by `x`, one bar for each value of `series`. With `normalise`, bars are ratios
    to that method within each group; only such ratios compare between unlike hardware."""
    x, y, series = _axes_of(figure)
    normalise, published = figure.get("normalise"), papers.Published(figure)
    chosen = selection.shown_with(part, figure, y)
    panels, name_of, elsewhere = _panels(part, figure, published, chosen)
    looks, order = _series_looks(styles, chosen, series, name_of)
    beside = imported.Beside(part)
    if not normalise:  # nothing is divided by imported numbers
        _imported_marks(panels, beside, y)
    named = [bar.name for panel in panels for bar in panel.bars]
    strangers = list(dict.fromkeys(name for name in named if name not in order))
    draw = _Drawing(looks, order, strangers, normalise, published.paper, papers.calibration(chosen))
    crowd = max(len(panel.places) for panel in panels) * len(draw.slots)
    widest = 3 if crowd <= CROWDED or not published else 1 if crowd > 2 * CROWDED else 2
    rows = style.rows_of_workloads([(panel.fields, panel) for panel in panels], widest)
    columns = max(len(row) for row in rows)
    groups = [[len(row[i][1].places) for row in rows if i < len(row)] for i in range(columns)]
    ratios = {"width_ratios": list(map(max, groups))}
    made, grid = style.figure(len(rows), columns, 2.05, sharey="row", gridspec_kw=ratios)
    cut = False
    for row, axes_row in zip(rows, grid):
        for axes in axes_row[len(row) :]:
            axes.set_visible(False)
        units = [cell.unit(y) for _, panel in row for cell in panel.cells]
        unit = " or ".join(dict.fromkeys(filter(None, units)))
        largest, whisker = _tops([panel for _, panel in row])
        scale, unit = (1.0, "") if normalise else wording.unit_scale(unit, largest)
        for (fields, panel), axes in zip(row, axes_row):
            for bar in panel.bars:
                draw.bar(axes, panel, bar, scale)
            style.groups_of_bars(axes, list(panel.places.values()))
            if normalise:
                marks.level(axes, 1.0, normalise)
            style.thousands(axes.yaxis)
            style.panel_title(axes, *selection.panel_words(fields, panel.cells, (x,)))
            axes.set_xlabel(wording.axis(x))
        # Two blocks can give whiskers as high as several bars: they are cut, and the caption says so.
        top, highest = max(largest * 1.15, whisker * 1.04), largest * TALLEST
        cut = cut or top > highest
        axes_row[0].set_ylim(0, min(top, highest) * scale)
        axes_row[0].set_ylabel(wording.over(y, normalise) if normalise else wording.axis(y, unit))
    labels = {name: name for name in order}
    if series not in ("method", "label"):
        values = [cell.get(series) for cell in chosen]
        labels = {str(value): selection.field_words(series, value) for value in values}
    ours = [name for name in order if name != normalise]
    handles = [Patch(label=labels[name], **looks[name].bar()) for name in ours]
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
        published.source() if published else "",
        papers.settings_words(elsewhere),
        beside.words(),
    )
    numbers = []
    if published:
        numbers.append(_table(panels, draw, published, x, y, normalise, elsewhere))
        numbers += _skill(part, figure)
    return Drawn(made, title, text, handles, numbers)


def _skill(part, figure):
    """[the table of the ratios' predictors], or [] if there are none."""
    found = predictions(part, figure)
    if not found:
        return []
    groups = [(f"Ratios to {figure['normalise']}", found)]
    beyond = skill.beyond_first(found)
    if beyond:
        groups.append((f"The same without the first of {wording.axis(_axes_of(figure)[0]).lower()}", beyond))
    return [skill.table(groups)]


def _table(panels, draw, published, x, y, normalise, elsewhere):
    """The table of our numbers, the paper's, and the distance between them."""
    columns = ["method", wording.axis(x).lower(), "ours", "published"]
    if normalise:
        columns += [f"ours / {normalise}", f"published / {normalise}"]
    apart = "of the ratios: ours / published − 1" if normalise else "ours / published − 1"
    columns += [apart, "n", "published in"]
    table = tables.Table(columns)
    renamed = {}  # {the paper's unit: our unit that stands for it}
    for panel in panels:
        rows = []
        units = {bar.cell.unit(y) for bar in panel.bars if bar.cell and bar.cell.interval(y)}
        places = list(panel.places)
        for bar in sorted(panel.bars, key=lambda bar: (places.index(bar.place), draw.slots[bar.name])):
            ours = bar.cell.interval(y) if bar.cell else None
            said = bar.cell.failure() if bar.cell else None
            if ours:
                said = ours.text
            figures = [(row, height) for row, height in bar.printed if not row.stated]
            texts = [height for row, height in bar.printed if row.stated]
            row, height = figures[0] if figures else (None, None)
            unit = row and row.unit.split("(")[0].strip()
            if row and len(units) == 1 and unit not in units:  # the figure shows both on one axis
                (renamed[unit],) = units
                unit = renamed[unit]
            theirs = row and f"{wording.number(row.value)} {unit}".strip()
            line = [bar.name, panel.places[bar.place], said or wording.NONE, theirs or wording.NONE]
            if normalise:
                theirs = f"{height:.2f}x" if row else ""
                if texts:
                    theirs = f"{theirs} (text {texts[0]:.2f}x)".strip()
                ratio = bar.cell.ratio(y, normalise) if bar.cell else None
                line += [selection.text_of(ratio), theirs or wording.NONE]
            calibrated = row and papers.is_calibration(row, published.paper, draw.inputs)
            line += [
                papers.apart(bar.value, height, calibrated),
                str(bar.cell.n) if bar.cell else wording.NONE,
                row.artifact if row else wording.NONE,
            ]
            rows.append(line)
        table.groups.append((selection.heading(panel.fields, panel.cells, (x,)), rows))
    if not normalise:
        table.notes.append("The hardware differs, unless our numbers are from a model of the paper's cluster.")
    table.notes += [
        f"The paper calls the unit {theirs}, which is taken as {ours}."
        for theirs, ours in sorted(renamed.items())
    ]
    table.notes += filter(None, [published.source(), papers.settings_words(elsewhere)])
    return table
