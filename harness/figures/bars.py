"""Bars: a metric grouped by x, the breakdown of a step, bytes on the wire."""

import math

from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter

import cells as selection
import style
import wording
from caption import caption
from drawn import Drawn

TALLEST = 1.6  # times the highest bar: where the axis of grouped bars ends at the latest

BREAKDOWN = (  # metric, the kind of work whose look it has, words
    ("forward_seconds", "forward", "forward"),
    ("backward_seconds", "backward", "backward"),
    ("sparsify_seconds", "sparsify", "sparsification"),
    ("decompress_seconds", "decompress", "decompression"),
    ("exposed_communication_seconds", "exposed_communication", "exposed communication"),
    ("update_seconds", "update", "update"),
    ("other_seconds", "other", "other"),
)


def _grid(panels, widest):
    """Rows are workloads; the rest goes into columns, at most `widest`."""
    workloads = []
    for fields, _ in panels:
        if fields.get("workload") not in workloads:
            workloads.append(fields.get("workload"))
    rows = []
    for workload in workloads:
        row = [panel for panel in panels if panel[0].get("workload") == workload]
        rows += [row[start : start + widest] for start in range(0, len(row), widest)]
    return rows


def _write_failure(axes, x, text, colour):
    axes.annotate(
        f"{text} ",
        (x, 0),
        xytext=(0, 3),
        textcoords="offset points",
        rotation=90,
        ha="center",
        va="bottom",
        fontsize=6,
        color=colour,
    )


def _series_looks(styles, cells, series):
    names = {str(cell.get(series)) for cell in cells}
    if series == "method":
        return styles, styles.sort(names)
    other = style.Styles([str(cell.get(series)) for cell in cells])
    ordered = []
    for cell in sorted(cells, key=lambda cell: selection.sort_key(cell.get(series))):
        if str(cell.get(series)) not in ordered:
            ordered.append(str(cell.get(series)))
    return other, ordered


def grouped_bars(experiment, part, figure, styles):
    """`y` grouped by `x`, one bar for each value of `series`."""
    x, y, series = (
        figure.get("x", "workers"),
        figure.get("y") or figure.get("metric") or "throughput",
        figure.get("series", "method"),
    )
    x = "link" if x == "link_gbps" else x
    chosen = selection.select(part.cells, figure)
    if not any(cell.values(y) for cell in chosen):
        raise selection.NoData(f"no trial of part '{part.id}' counts that has '{y}'")
    looks, order = _series_looks(styles, chosen, series)
    rows = _grid(selection.panels(chosen, [x, series]), 3)
    columns = max(len(row) for row in rows)
    ratios = [
        max(
            len({selection.canonical(cell.get(x)) for cell in row[column][1]})  # groups of bars
            for row in rows
            if column < len(row)
        )
        for column in range(columns)
    ]
    made, grid = style.figure(
        len(rows), columns, 2.05, sharey="row", gridspec_kw={"width_ratios": ratios}
    )
    width = 0.84 / max(len(order), 1)
    paired = cut = False
    for row, axes_row in zip(rows, grid):
        for axes in axes_row[len(row) :]:
            axes.set_visible(False)
        of_row = [cell for _, inside in row for cell in inside]
        unit = " or ".join(dict.fromkeys(cell.unit(y) for cell in of_row if cell.unit(y)))
        largest = max((value for cell in of_row for value in cell.values(y).values()), default=1.0)
        scale, unit = wording.unit_scale(unit, largest)
        top = largest * scale * 1.15
        for (fields, inside), axes in zip(row, axes_row):
            places = []
            for cell in sorted(inside, key=lambda cell: selection.sort_key(cell.get(x))):
                if cell.get(x) not in places:
                    places.append(cell.get(x))
            for cell in inside:
                name = str(cell.get(series))
                place = places.index(cell.get(x)) + width * (
                    order.index(name) - (len(order) - 1) / 2
                )
                values = [value * scale for value in cell.values(y).values()]
                interval = cell.interval(y)
                if interval is None:
                    why = cell.failure() or ("exactly 0" if values else "no value")
                    quiet = why in ("not run", "exactly 0")  # which has no bar
                    _write_failure(axes, place, why, style.QUIET if quiet else style.ALARM)
                    continue
                height = interval.value * scale
                axes.bar(place, height, width * 0.92, **looks[name].bar())
                ratio = part.ratio(cell, y)
                if ratio is not None and ratio.low is not None:
                    paired = True
                    top = max(top, height * ratio.high / ratio.value * 1.04)
                    axes.errorbar(
                        place,
                        height,
                        [
                            [height * (1 - ratio.low / ratio.value)],
                            [height * (ratio.high / ratio.value - 1)],
                        ],
                        color=style.INK,
                        elinewidth=0.9,
                        capsize=1.8,
                        capthick=0.9,
                        zorder=4,
                    )
                if len(values) > 1:
                    spread = width * 0.3
                    axes.plot(
                        [
                            place + spread * ((i + 0.5) / len(values) - 0.5) * 2
                            for i in range(len(values))
                        ],
                        values,
                        "o",
                        markersize=1.9,
                        markerfacecolor="white",
                        markeredgecolor=style.INK,
                        markeredgewidth=0.45,
                        zorder=5,
                    )
            axes.set_xlim(-0.5, len(places) - 0.5)
            axes.set_xticks(range(len(places)), [_tick(x, value) for value in places])
            axes.tick_params(axis="x", length=0)
            style.thousands(axes.yaxis)
            style.panel_title(axes, *selection.panel_words(fields, inside, (x,)))
            axes.set_xlabel(_axis_words(x))
        # Two blocks can leave whiskers of several bars' height: they are cut, the caption says so.
        highest = largest * scale * TALLEST
        cut = cut or top > highest
        axes_row[0].set_ylim(0, min(top, highest))
        axes_row[0].set_ylabel(
            f"{wording.metric_name(y)} ({unit})" if unit else wording.metric_name(y)
        )
    labels = {name: name for name in order}
    if series != "method":
        labels = {
            str(cell.get(series)): selection.field_words(series, cell.get(series))
            for cell in chosen
        }
    handles = [Patch(label=labels[name], **looks[name].bar()) for name in order]
    dots = any(cell.n > 1 for cell in chosen)
    if dots:
        handles.append(
            Line2D(
                [],
                [],
                linestyle="",
                marker="o",
                markersize=2.6,
                markerfacecolor="white",
                markeredgecolor=style.INK,
                markeredgewidth=0.6,
                label="one block",
            )
        )
    title = figure.get("title") or (
        f"{wording.metric_name(y)} by {_axis_words(x).lower()} and {series.replace('_', ' ')}"
    )
    text = caption(
        chosen,
        "Bars: geometric mean over blocks" + ("; dots: single blocks." if dots else "."),
        (
            f"Whiskers: 95 % t interval of the paired log-ratio to {part.reference} over blocks, "
            f"drawn around the bar{'; the longest are cut by the axis' if cut else ''}."
            if paired
            else ""
        ),
    )
    return Drawn(made, title, text, handles)


def _tick(key, value):
    if key == "link":
        return wording.link({"link": value})
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def _axis_words(key):
    return {
        "workers": "Workers",
        "link": "Link",
        "density": "Density",
        "workload": "Workload",
        "method": "Method",
    }.get(key, key.replace("_", " ").capitalize())


def _methods_down(axes, names):
    """Methods as rows, the first on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)


def _by_method(part, figure, styles, metric, room):
    chosen = selection.select(part.cells, figure)
    if not any(cell.values(metric) for cell in chosen):
        raise selection.NoData(f"no trial of part '{part.id}' counts that has '{metric}'")
    rows = _grid(selection.panels(chosen, ["method"]), 3)
    names = styles.sort(cell.method for cell in chosen)
    made, grid = style.figure(
        len(rows), max(len(row) for row in rows), 0.62 + room * len(names), sharey=True
    )
    for row, axes_row in zip(rows, grid):
        for axes in axes_row[len(row) :]:
            axes.set_visible(False)
    return chosen, rows, names, made, grid


def breakdown(experiment, part, figure, styles):
    """Where the time of a step goes, stacked, one bar a method."""
    chosen, rows, names, made, grid = _by_method(part, figure, styles, "step_seconds", 0.2)
    seen = set()
    for row, axes_row in zip(rows, grid):
        for (fields, inside), axes in zip(row, axes_row):
            largest = max((cell.mean("step_seconds") or 0 for cell in inside), default=0)
            scale, unit = wording.seconds_scale(largest)
            longest = 0.0
            for cell in inside:
                place = names.index(cell.method)
                if not cell.n:
                    axes.annotate(
                        f" {cell.failure()}",
                        (0, place),
                        va="center",
                        fontsize=6.5,
                        color=style.QUIET if cell.failure() == "not run" else style.ALARM,
                    )
                    continue
                left = 0.0
                for metric, kind, _ in BREAKDOWN:
                    value = (cell.mean(metric) or 0.0) * scale
                    if value > 0:
                        axes.barh(place, value, 0.72, left=left, **style.work(kind))
                        left += value
                        seen.add(kind)
                step = (cell.mean("step_seconds") or 0.0) * scale
                axes.plot(
                    [step, step],
                    [place - 0.45, place + 0.45],
                    color=style.INK,
                    linewidth=1.6,
                    solid_capstyle="butt",
                    zorder=5,
                )
                longest = max(longest, left, step)
            _methods_down(axes, names)
            axes.set_xlim(0, longest * 1.04 or 1)
            style.thousands(axes.xaxis)
            axes.set_xlabel(f"Time of a step ({unit})")
            style.panel_title(axes, *selection.panel_words(fields, inside))
    handles = [style.work_patch(kind, words) for _, kind, words in BREAKDOWN if kind in seen]
    handles.append(Line2D([], [], color=style.INK, linewidth=1.6, label="step time"))
    title = figure.get("title") or "Where the time of a step goes, by method"
    text = caption(
        chosen,
        "Bars: for each component the median over steps of the slowest rank, mean over "
        "blocks; medians need not add up to the step time (tick).",
    )
    return Drawn(made, title, text, handles)


def bytes_per_step(experiment, part, figure, styles):
    """Payload and sent bytes per step and rank, on a declared logarithmic axis."""
    chosen, rows, names, made, grid = _by_method(part, figure, styles, "payload_bytes", 0.24)
    looks = (
        ("payload_bytes", "payload: what the rank contributes", "#7fa3c7", ""),
        ("sent_bytes", "sent: what it handed to the network, forwards included", "#33475b", "///"),
    )
    values = [
        value
        for cell in chosen
        for metric, *_ in looks
        if (value := cell.mean(metric)) is not None and value > 0
    ]
    scale, unit = wording.bytes_scale(max(values))
    low = 10 ** math.floor(math.log10(min(values) * scale * 0.5))
    high = max(values) * scale
    high *= (high / low) ** 0.3  # room for the numbers
    for row, axes_row in zip(rows, grid):
        for (fields, inside), axes in zip(row, axes_row):
            axes.set_xscale("log")
            for cell in inside:
                place = names.index(cell.method)
                if not cell.n:
                    axes.annotate(
                        f" {cell.failure()}",
                        (low, place),
                        va="center",
                        fontsize=6.5,
                        color=style.QUIET if cell.failure() == "not run" else style.ALARM,
                    )
                    continue
                for position, (metric, _, colour, hatch) in enumerate(looks):
                    value = cell.mean(metric)
                    if value is not None and value > 0:
                        axes.barh(
                            place + 0.36 * (position - 0.5),
                            value * scale - low,
                            0.34,
                            left=low,
                            facecolor=colour,
                            hatch=hatch,
                            linewidth=0.5,
                            edgecolor="white" if hatch else style.INK,
                        )
                        axes.annotate(
                            wording.quantity(value, "B"),
                            (value * scale, place + 0.36 * (position - 0.5)),
                            xytext=(2, 0),
                            textcoords="offset points",
                            fontsize=5.6,
                            va="center_baseline",
                        )
            _methods_down(axes, names)
            axes.set_xlim(low, high)
            axes.xaxis.set_major_locator(LogLocator(10))
            axes.xaxis.set_minor_formatter(NullFormatter())
            style.thousands(axes.xaxis)
            axes.set_xlabel(f"{unit} per step and rank (log scale)")
            style.panel_title(axes, *selection.panel_words(fields, inside))
    handles = [
        Patch(
            label=words,
            facecolor=colour,
            hatch=hatch,
            linewidth=0.5,
            edgecolor="white" if hatch else style.INK,
        )
        for _, words, colour, hatch in looks
    ]
    title = figure.get("title") or "Bytes per step and rank, by method"
    text = caption(
        chosen,
        "Bars: mean over measured steps, ranks and blocks; the axis is logarithmic and "
        "does not start at zero. Bytes are counted, not timed: they have no interval.",
    )
    return Drawn(made, title, text, handles)
