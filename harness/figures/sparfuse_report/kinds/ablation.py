"""Draws the variants of a method in sequence, and what each gains over the one before it."""

from matplotlib.patches import Patch

from sparfuse_report import cells as selection
from sparfuse_report import marks, style, tables, wording
from sparfuse_report import published as papers
from sparfuse_report.drawn import Drawn, caption

LEAST_SCALE = 5.0  # percent, the least height of the axis of gains
STEP_WIDTH = 0.92  # width of a group of bars


def _variants(figure, chosen, styles):
    """The variants in the order of `methods`, else in the figures' own order: from the least part of a
    system to the whole."""
    present = styles.sort(cell.method for cell in chosen)
    wanted = figure.get("methods")
    wanted = [wanted] if isinstance(wanted, str) else wanted or present
    return [name for name in wanted if name in present]


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


def _published_gains(published, rows, variants, step, x):
    """{place: (row, ratio)} of a step's gains in a paper's figure."""
    found = {}
    for row in rows:
        if published.ours(row.method) != variants[step] or row.value is None:
            continue
        for other in rows:
            if (
                published.ours(other.method) == variants[step - 1]
                and other.artifact == row.artifact
                and other.place(x) == row.place(x)
                and other.value
            ):
                found[row.place(x)] = (row, row.value / other.value)
    return found


def _stated_gain(published, workload, variants, step):
    """The row of a step's gain of "up to" so much in a paper's text; None without one."""
    wanted = [variants[step], variants[step - 1]]
    for row in published.stated(workload):
        gain = row.gain()
        if gain and [published.ours(name) for name in gain[:2]] == wanted:
            return row
    return None


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
        wording.tick(steps.x, place, next(c for c in steps.inside if c.get(steps.x) == place))
        for place in steps.places
    ]
    style.groups_of_bars(axes, words)
    axes.set_xlabel(wording.axis(steps.x))
    axes.set_ylabel(wording.over(steps.metric, variants[0]))


def _largest(axes, steps, styles, found, published, rows):
    """Draws each step's largest gain over all places, and the paper's gain beside it."""
    ends = [0.0]
    for step in range(1, len(steps.variants)):
        variant, gains = steps.variants[step], steps.gains(step)
        if gains:
            best = 100 * (max(ratio.value for ratio in gains.values()) - 1)
            cell = steps.cell(variant, steps.places[0]) or steps.inside[0]
            axes.bar(step, best, 0.7, **marks.bar(styles[variant], cell.mode))
            ends.append(best)
        printed = _published_gains(published, rows, steps.variants, step, steps.x)
        if printed:
            row, ratio = max(printed.values(), key=lambda pair: pair[1])
            found.value(axes, step, 0.8, 100 * (ratio - 1), row)
            ends.append(100 * (ratio - 1))
        stated = _stated_gain(published, steps.inside[0].workload, steps.variants, step)
        if stated:
            found.text(axes, step, stated.value)
            ends.append(stated.value)
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
    x = figure.get("x", "workers")
    x = "link" if x == "link_gbps" else x
    metric = selection.metric_of(figure)
    chosen = part.shown(figure)
    variants = _variants(figure, chosen, styles)
    if len(variants) < 2:
        raise selection.SpecError(
            f"part '{part.id}': an ablation needs two methods or more; its cells have "
            f"{', '.join(variants) or 'none'}"
        )
    chosen = [cell for cell in chosen if cell.method in variants]
    if not any(cell.values(metric) for cell in chosen):
        raise selection.NoData(f"no trial of part '{part.id}' counts that has '{metric}'")
    published, found = papers.Published(figure), marks.Marks()
    panels = selection.panels(chosen, [x, "method"])
    rows_of, elsewhere = papers.spread(published, panels, x)
    made, grid = style.figure(len(panels), 2, 2.1, gridspec_kw={"width_ratios": [3.4, 1]})
    table = tables.Table(
        ["step", wording.axis(x).lower(), "gain", "published (figure)", "stated", "n"]
    )
    for position, (fields, inside) in enumerate(panels):
        steps = _Steps(inside, variants, x, metric)
        left, right = grid[position]
        _sequence(left, steps, styles, found)
        _largest(right, steps, styles, found, published, rows_of[position])
        style.panel_title(left, *selection.panel_words(fields, inside, (x,)))
        rows = _table_rows(steps, published, rows_of[position])
        table.groups.append((selection.heading(fields, inside, (x,)), rows))
    handles = [Patch(label=name, **styles[name].bar()) for name in variants] + found.handles()
    title = figure.get("title") or f"What each step from {variants[0]} to {variants[-1]} gains"
    shown = [row for row in published.rows if not row.stated]
    text = caption(
        chosen,
        f"Left: geometric mean over blocks of the ratio to {variants[0]}; above a bar its gain over "
        "the bar before it. Whiskers: 95 % t interval of the paired log-ratio, if there are "
        f"several blocks. Right: the largest gain of a step over all {wording.axis(x).lower()}.",
        f'{published.source(shown)} A stated gain is an "up to" in the paper.' if published else "",
        papers.settings_words(elsewhere),
    )
    table.notes.append(
        "Gain: ours / the variant before − 1, paired over blocks, with its 95 % t interval."
    )
    return Drawn(made, title, text, handles, [table])


def _table_rows(steps, published, rows):
    lines = []
    for step in range(1, len(steps.variants)):
        variant, before = steps.variants[step], steps.variants[step - 1]
        printed = _published_gains(published, rows, steps.variants, step, steps.x)
        stated = _stated_gain(published, steps.inside[0].workload, steps.variants, step)
        for place in steps.places:
            ratio = steps.gains(step).get(place)
            cell = steps.cell(variant, place)
            theirs = printed.get(place["gbps"] if isinstance(place, dict) else place)
            if ratio and ratio.low is not None:
                gain = f"{_percent(ratio.value)} [{_percent(ratio.low)}, {_percent(ratio.high)}]"
            elif ratio:
                gain = _percent(ratio.value)
            else:
                gain = (cell.failure() if cell else None) or wording.NONE
            lines.append([
                f"{variant} over {before}",
                wording.tick(steps.x, place, cell),
                gain,
                _percent(theirs[1]) if theirs else wording.NONE,
                f"up to {stated.printed}{wording.THIN}%" if stated else wording.NONE,
                str(ratio.n) if ratio else wording.NONE,
            ])
    return lines
