"""Draws the effect of a factor on one declared input of the model on the ratio of methods."""

import math

from matplotlib.patches import Patch

from sparfuse_report import cells as selection
from sparfuse_report import style, wording
from sparfuse_report.drawn import Drawn, caption

LESS, MORE = "#a9c4dd", "#2f4b66"  # colours of a factor below 1 and above 1
EDGE = {"edgecolor": style.INK, "linewidth": 0.5}
DECLARED = {"color": style.INK, "linewidth": 1.2}
AS_REFERENCE = {"color": style.ALARM, "linewidth": 1.0, "linestyle": (0, (2, 1.5))}


def _changes(cell):
    """(words, factor) of the changed inputs; None for the declared values."""
    changed = {name: factor for name, factor in (cell.get("inputs") or {}).items() if factor != 1}
    if not changed:
        return None
    # Several changes have no single factor: their geometric mean tells the side to which they belong.
    logs = [math.log(factor) for factor in changed.values()]
    words = ", ".join(name.replace("_", " ") for name in sorted(changed))
    return words, math.exp(sum(logs) / len(logs))


class _Setting:
    """The cells of a panel: {change or None: {method: cell}}, and the ratios between them."""

    def __init__(self, panel, reference, metric):
        self.panel, self.metric, self.reference = panel, metric, reference
        self.by_change = {}
        for cell in panel.cells:
            self.by_change.setdefault(_changes(cell), {})[cell.method] = cell
        self.changes = sorted(filter(None, self.by_change))

    def words(self):
        return ", ".join(filter(None, (self.panel.head, self.panel.rest)))

    def short(self):
        """A title short enough for a narrow panel; the caption has the rest."""
        workers = {wording.count(cell.workers, "worker") for cell in self.panel.cells}
        return ", ".join([self.panel.head, *(workers if len(workers) == 1 else [])])

    def ratio(self, change, method):
        cell = self.by_change.get(change, {}).get(method)
        return cell.ratio(self.metric, self.reference) if cell else None

    def swing(self, name, methods):
        """The largest move of any method's ratio by the input, in logarithms."""
        moved = [
            abs(math.log(varied.value / declared.value))
            for change in self.changes
            if change[0] == name
            for method in methods
            if (varied := self.ratio(change, method)) and (declared := self.ratio(None, method))
        ]
        return max(moved, default=0.0)


def sensitivity(experiment, part, figure, styles):
    """Draws a tornado for each method and setting: an input's bar ends at the ratio to the reference
    to which its factors lead."""
    metric = selection.metric_of(figure)
    chosen = part.shown(figure)
    reference = figure["reference"]
    methods = [name for name in styles.sort(cell.method for cell in chosen) if name != reference]
    settings = [_Setting(panel, reference, metric) for panel in selection.panels(part, figure)]
    settings = [one for one in settings if any(one.ratio(None, name) for name in methods)]
    if not any(one.changes for one in settings):
        raise selection.NoData(
            f"no trial of part '{part.id}' counts at declared and at changed inputs"
        )
    columns = min(3, len(methods))
    rows = -(-len(methods) // columns)
    many = max(len({change[0] for change in one.changes}) for one in settings)
    made, grid = style.figure(len(settings) * rows, columns, 0.75 + 0.19 * many, sharex="row")
    for position, one in enumerate(settings):
        names = {change[0] for change in one.changes}  # sorted by effect, then by name
        names = sorted(names, key=lambda name: (one.swing(name, methods), name))
        axes_of = grid[position * rows : (position + 1) * rows].ravel()
        for axes in axes_of[len(methods) :]:
            axes.set_visible(False)
        for column, (method, axes) in enumerate(zip(methods, axes_of)):
            _tornado(axes, one, method, names, column % columns == 0)
            axes.set_xlabel(wording.over(metric, reference))
            style.panel_title(axes, method, one.short())
    factors = sorted({round(change[1], 6) for one in settings for change in one.changes})
    handles = [
        Patch(facecolor=LESS, **EDGE, label="factor below 1"),
        Patch(facecolor=MORE, **EDGE, label="factor above 1"),
        style.entry("declared inputs", **DECLARED),
        style.entry(f"as {reference}", **AS_REFERENCE),
    ]
    title = figure.get("title") or f"Effect of declared inputs on the ratio to {reference}"
    text = caption(
        chosen,
        f"{'; '.join(one.words() for one in settings)}. Bars: the ratio to {reference}, "
        f"one input at a time multiplied by "
        f"{' or '.join(f'{factor:g}' for factor in factors)}, all else as declared; inputs are ordered by their "
        "effect. A bar across the broken line changes the order with "
        f"{reference}.",
    )
    return Drawn(made, title, text, handles)


def _tornado(axes, one, method, names, with_names):
    declared = one.ratio(None, method)
    if declared is None:
        axes.annotate(
            "no number at declared inputs", (0.02, 0.5), xycoords="axes fraction", fontsize=6.5
        )
    else:
        for place, name in enumerate(names):
            moved = [
                (ratio.value - declared.value, change[1])
                for change in one.changes
                if change[0] == name and (ratio := one.ratio(change, method))
            ]
            for length, factor in sorted(moved, key=lambda pair: -abs(pair[0])):  # longest first: none is hidden
                colour = LESS if factor < 1 else MORE
                axes.barh(place, length, 0.66, left=declared.value, facecolor=colour, zorder=3, **EDGE)
        axes.axvline(declared.value, zorder=4, **DECLARED)
    axes.axvline(1.0, zorder=2, **AS_REFERENCE)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_yticks(range(len(names)), names if with_names else [""] * len(names))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
