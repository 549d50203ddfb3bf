"""Draws the variants of a method in sequence, and the gain of each over the one before it."""

from matplotlib.patches import Patch

from sparfuse_report import cells as selection
from sparfuse_report import marks, style, wording
from sparfuse_report import published as papers
from sparfuse_report.drawn import Drawn, caption

LEAST_SCALE = 5.0  # percent, the least height of the axis of gains
STEP_WIDTH = 0.92  # width of a group of bars


class _Steps:
    """A panel's cells by variant and place, and each variant's gain over the variant before it."""

    def __init__(self, inside, variants, x, metric):
        self.inside, self.variants, self.x, self.metric = inside, variants, x, metric
        self.places = []
        for cell in sorted(inside, key=lambda cell: selection.sort_key(cell.get(x))):
            if cell.get(x) not in self.places:
                self.places.append(cell.get(x))

    def cell(self, variant, place):
        mine = (cell for cell in self.inside if cell.method == variant)
        return next((cell for cell in mine if cell.get(self.x) == place), None)

    def ratio(self, variant, over, place):
        cell = self.cell(variant, place)
        return cell.ratio(self.metric, over) if cell else None

    def gains(self, step):
        """{place: ratio} of variant `step` over the variant before it."""
        found = {}
        for place in self.places:
            ratio = self.ratio(self.variants[step], self.variants[step - 1], place)
            if ratio:
                found[place] = ratio
        return found


def _percent(ratio):
    gain = round(100 * (ratio - 1))
    return f"{gain:+d}{wording.THIN}%" if gain else f"0{wording.THIN}%"


def _sequence(axes, steps, styles, found):
    """Draws each variant over the first as a bar; above it, its gain over the variant before."""
    variants = steps.variants
    width = STEP_WIDTH / len(variants)
    top = 1.0
    turn = len(variants) * len(steps.places) > 20
    for group, place in enumerate(steps.places):
        for position, variant in enumerate(variants):
            at = group + width * (position - (len(variants) - 1) / 2)
            cell = steps.cell(variant, place)
            ratio = steps.ratio(variant, variants[0], place)
            if ratio is None:
                why = cell.failure() if cell else None
                why = why or ("not in the file" if cell is None else f"no {variants[0]}")
                style.write_failure(axes, at, why)
                continue
            found.mode(cell.mode)
            axes.bar(at, ratio.value, width * 0.92, **marks.bar(styles[variant], cell.mode))
            high = ratio.high if ratio.low is not None else ratio.value
            if ratio.low is not None and position:
                marks.whisker(axes, at, ratio.value, ratio.low, ratio.high)
            high = min(high, 2 * ratio.value)
            top = max(top, high)
            gain = steps.ratio(variant, variants[position - 1], place) if position else None
            if gain:
                look = {"ha": "center", "va": "bottom", "fontsize": 5.8, "rotation": 90 if turn else 0}
                words = _percent(gain.value).replace(wording.THIN, "")
                style.note(axes, words, (at, high), (0, 2), **look)
    marks.level(axes, 1.0)
    axes.set_ylim(0, top * (1.3 if turn else 1.14))
    words = [
        wording.tick(steps.x, next(c for c in steps.inside if c.get(steps.x) == place))
        for place in steps.places
    ]
    style.groups_of_bars(axes, words)
    axes.set_xlabel(wording.axis(steps.x))
    axes.set_ylabel(wording.over(steps.metric, variants[0]))


def _largest(axes, steps, styles, found, published, printed):
    """Draws each step's largest gain over all places, and the paper's gain."""
    ends = [0.0]
    for step in range(1, len(steps.variants)):
        variant, gains = steps.variants[step], steps.gains(step)
        if gains:
            best = 100 * (max(ratio.value for ratio in gains.values()) - 1)
            cell = steps.cell(variant, steps.places[0]) or steps.inside[0]
            axes.bar(step, best, 0.7, **marks.bar(styles[variant], cell.mode))
            ends.append(best)
        if theirs := printed[step - 1]["largest"]:
            position, gain = theirs
            found.value(axes, step, 0.8, gain, published.rows[position])
            ends.append(gain)
        if (position := printed[step - 1]["stated"]) is not None:
            stated = published.rows[position].value
            found.text(axes, step, stated)
            ends.append(stated)
    marks.level(axes, 0.0)
    low, high = min(ends), max(ends)
    # On an axis of their own, gains of less than a percent would look large.
    high = max(high, LEAST_SCALE)
    room = (high - low) * 0.12
    axes.set_ylim(low - (room if low < 0 else 0), high + room)
    axes.set_xlim(0.4, len(steps.variants) - 0.4)
    axes.set_xticks([])
    axes.set_xlabel(wording.axis("variant"))
    axes.set_ylabel(wording.axis("largest_gain", "%"))


def ablation(experiment, part, figure, styles):
    x, metric = figure["x"], selection.metric_of(figure)
    chosen = part.shown(figure)
    variants = figure["variants"]
    if len(variants) < 2:
        raise selection.SpecError(
            f"part '{part.id}': an ablation needs two methods or more; its cells have "
            f"{', '.join(variants) or 'none'}"
        )
    chosen = [cell for cell in chosen if cell.method in variants]
    if not any(cell.values(metric) for cell in chosen):
        raise selection.NoData(f"no trial of part '{part.id}' counts that has '{metric}'")
    published, found = papers.Published(figure), marks.Marks()
    panels = selection.panels(part, figure)
    made, grid = style.figure(len(panels), 2, 2.1, gridspec_kw={"width_ratios": [3.4, 1]})
    for panel, (left, right) in zip(panels, grid):
        steps = _Steps(panel.cells, variants, x, metric)
        _sequence(left, steps, styles, found)
        _largest(right, steps, styles, found, published, panel.given["steps"])
        style.panel_title(left, panel.head, panel.rest)
    handles = [Patch(label=name, **styles[name].bar()) for name in variants] + found.handles()
    title = figure.get("title") or f"Gain of each step from {variants[0]} to {variants[-1]}"
    text = caption(
        chosen,
        f"Left: geometric mean over blocks of the ratio to {variants[0]}; above a bar its gain over "
        "the bar before it. Whiskers: 95 % t interval of the paired log-ratio, if there are "
        f"several blocks. Right: the largest gain of a step over all {wording.axis(x).lower()}.",
        f'{published.source} A stated gain is an "up to" in the paper.' if published else "",
        published.elsewhere,
    )
    return Drawn(made, title, text, handles)
