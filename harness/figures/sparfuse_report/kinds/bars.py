"""Draws bars by method: the breakdown of a step, bytes on the wire."""

import math

from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter

from sparfuse_report import cells as selection
from sparfuse_report import published as papers
from sparfuse_report import style, wording
from sparfuse_report.drawn import Drawn, caption

BREAKDOWN = (  # metric, the kind of work that gives its look, words
    ("forward_seconds", "forward", "forward"),
    ("backward_seconds", "backward", "backward"),
    ("sparsify_seconds", "sparsify", "sparsification"),
    ("decompress_seconds", "decompress", "decompression"),
    ("exposed_communication_seconds", "exposed_communication", "exposed communication"),
    ("update_seconds", "update", "update"),
    ("outer_seconds", "outer", "outer step"),
    ("other_seconds", "other", "other"),
)
PUBLISHED_PARTS = {  # {a paper's word (SAFusion, Fig. 15): kind of work}
    "Forward": "forward",
    "Backward": "backward",
    "Sparsification": "sparsify",
    "NOCT": "exposed_communication",
}
PALE = {"alpha": 0.45, "linewidth": 0.4}  # the look of published parts


def _rows_of_panels(panels, widest, room, names):
    made, rows = style.rows_of_workloads(panels, widest, 0.62 + room * len(names), sharey=True)
    return made, [pair for row, axes_row in rows for pair in zip(row, axes_row)]


def _write_beside(axes, x, y, text, colour=style.QUIET):
    look = {"va": "center", "fontsize": 6.5, "color": colour, "annotation_clip": False}
    style.note(axes, text, (x, y), (4, 0), **look)


def _write_why(axes, x, place, cell):
    quiet = cell.failure() == "not run"
    _write_beside(axes, x, place, cell.failure(), style.QUIET if quiet else style.ALARM)


def _published_parts(panel, printed):
    """The published numbers of a panel as {method: {component: Row}}."""
    parts = {}
    for row in (printed.rows[position] for position in panel.given["rows"]):
        component = row.metric.removeprefix("time/iter:")
        if component in PUBLISHED_PARTS and row.value is not None:
            parts.setdefault(row.name, {})[component] = row
    return parts


def breakdown(experiment, part, figure, styles):
    """Draws the parts of a step's time, stacked in one bar for each method; a paper's parts under ours."""
    chosen, panels = selection.shown_with(part, figure, "step_seconds"), selection.panels(part, figure)
    printed = papers.Published(figure)
    for panel in panels:
        panel.published = _published_parts(panel, printed)
    names = styles.sort(cell.label for cell in chosen)
    names += dict.fromkeys(name for panel in panels for name in panel.published if name not in names)
    made, places = _rows_of_panels(panels, *((2, 0.3) if printed else (3, 0.2)), names)
    seen = set()
    for panel, axes in places:
        inside, parts = panel.cells, panel.published
        times = [cell.mean("step_seconds") or 0 for cell in inside]
        times += [sum(map(_seconds, theirs.values())) for theirs in parts.values()]
        scale, unit = wording.seconds_scale(max(times, default=0))
        longest = 0.0
        for name in names:
            place = names.index(name)
            theirs = parts.get(name, {})
            cell = next((cell for cell in inside if cell.label == name), None)
            at = place - 0.2 if theirs and cell else place
            if cell and cell.n:
                high = 0.36 if theirs else 0.7
                longest = max(longest, _our_parts(axes, at, high, cell, scale, seen))
            elif cell:
                _write_why(axes, 0, at, cell)
            if theirs:
                fitted = [row.calibrated for row in theirs.values()]
                at = place + 0.22 if cell else place
                longest = max(longest, _their_parts(axes, at, theirs, scale, seen, any(fitted)))
        style.rows_down(axes, names)
        axes.set_xlim(0, longest * (1.25 if parts else 1.04) or 1)
        style.thousands(axes.xaxis)
        axes.set_xlabel(wording.axis("step", unit))
        style.panel_title(axes, panel.head, panel.rest)
    handles = [style.work_patch(kind, words) for _, kind, words in BREAKDOWN if kind in seen]
    handles.append(style.entry("step time", color=style.INK, linewidth=1.6))
    if printed:
        look = {"facecolor": "#c0c5ca", "edgecolor": style.QUIET, **PALE}
        handles.append(Patch(label="pale, below: published", **look))
    title = figure.get("title") or "Where the time of a step goes, by method"
    text = caption(
        chosen,
        "Bars: for each component the median over steps of the slowest rank, mean over "
        "blocks; medians need not add up to the step time (tick).",
        f"{printed.source} Its parts are forward, backward, sparsification and NOCT, which is "
        "exposed communication; the number beside a bar is their sum, not the step time."
        if printed
        else "",
        printed.elsewhere,
    )
    return Drawn(made, title, text, handles)


def _our_parts(axes, place, height, cell, scale, seen):
    """Draws one of our bars; returns its end."""
    parts = [(kind, (cell.mean(metric) or 0.0) * scale) for metric, kind, _ in BREAKDOWN]
    left = _stack(axes, place, height, [part for part in parts if part[1] > 0], seen)
    step = (cell.mean("step_seconds") or 0.0) * scale
    ends = [place - height * 0.6, place + height * 0.6]
    look = {"color": style.INK, "linewidth": 1.6, "solid_capstyle": "butt", "zorder": 5}
    axes.plot([step, step], ends, **look)
    return max(left, step)


def _seconds(row):
    return row.value * {"ms": 1e-3, "s": 1.0}[row.unit]


def _stack(axes, place, height, parts, seen, **more):
    """Draws parts, [(kind of work, length)], one behind the other; returns the end."""
    left = 0.0
    for kind, value in parts:
        axes.barh(place, value, height, left=left, **{**style.work(kind), **more})
        left += value
        seen.add(kind)
    return left


def _their_parts(axes, place, theirs, scale, seen, calibrated):
    parts = [(kind, _seconds(theirs[each]) * scale) for each, kind in PUBLISHED_PARTS.items() if each in theirs]
    left = _stack(axes, place, 0.32, parts, seen, edgecolor=style.QUIET, alpha=PALE["alpha"])
    words = f"{wording.number(left)}, calibration input" if calibrated else wording.number(left)
    _write_beside(axes, left, place, words)
    return left


def bytes_per_step(experiment, part, figure, styles):
    """Draws payload and sent bytes per step and rank, on a declared logarithmic axis."""
    chosen, panels = selection.shown_with(part, figure, "payload_bytes"), selection.panels(part, figure)
    names = styles.sort(cell.label for cell in chosen)
    made, places = _rows_of_panels(panels, 3, 0.24, names)
    looks = (
        ("payload_bytes", "payload: bytes that the rank contributes", {
            "facecolor": "#7fa3c7", "hatch": "", "linewidth": 0.5, "edgecolor": style.INK}),
        ("sent_bytes", "sent: bytes that it handed to the network, forwards included", {
            "facecolor": "#33475b", "hatch": "///", "linewidth": 0.5, "edgecolor": "white"}),
    )
    values = [cell.mean(metric) for cell in chosen for metric, *_ in looks]
    values = [value for value in values if value is not None and value > 0]
    scale, unit = wording.bytes_scale(max(values))
    low = 10 ** math.floor(math.log10(min(values) * scale * 0.5))
    high = max(values) * scale
    high *= (high / low) ** 0.3  # room for the numbers
    for panel, axes in places:
        axes.set_xscale("log")
        for cell in panel.cells:
            place = names.index(cell.label)
            if not cell.n:
                _write_why(axes, low, place, cell)
                continue
            for position, (metric, _, look) in enumerate(looks):
                value, at = cell.mean(metric), place + 0.36 * (position - 0.5)
                if value is not None and value > 0:
                    axes.barh(at, value * scale - low, 0.34, left=low, **look)
                    style.note(axes, wording.quantity(value, "B"), (value * scale, at), (2, 0),
                               fontsize=5.6, va="center_baseline")
        style.rows_down(axes, names)
        axes.set_xlim(low, high)
        axes.xaxis.set_major_locator(LogLocator(10))
        axes.xaxis.set_minor_formatter(NullFormatter())
        style.thousands(axes.xaxis)
        axes.set_xlabel(wording.axis("bytes_per_step", unit, log=True))
        style.panel_title(axes, panel.head, panel.rest)
    handles = [Patch(label=words, **look) for _, words, look in looks]
    title = figure.get("title") or "Bytes per step and rank, by method"
    text = caption(
        chosen,
        "Bars: mean over measured steps, ranks and blocks; the axis is logarithmic and "
        "does not start at zero. Bytes are counted, not timed: they have no interval.",
    )
    return Drawn(made, title, text, handles)
