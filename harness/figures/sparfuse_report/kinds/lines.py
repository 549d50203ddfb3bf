"""Draws lines: convergence of training, and modelled scaling with the timed points on it."""

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from sparfuse_report import cells as selection, imported, style, wording
from sparfuse_report.caption import caption
from sparfuse_report.drawn import Drawn

BAND_FROM = 5  # seeds: below, every seed is a line of its own
LONGEST_LABEL = 26  # characters of a vertical axis in one line
DODGE = 0.5  # octaves of workers over which the timed points of one x are set apart


def _metric_words(unit):
    known = {
        "accuracy": "Test accuracy",
        "perplexity": "Validation perplexity",
        "f1": "F1 of the words found",
    }
    for word, name in known.items():
        if word in unit.lower():
            return name
    return f"Evaluated metric ({unit})" if unit and unit != "1" else "Evaluated metric"


def _target(cell):
    return cell.config.get("target")


def convergence(experiment, part, figure, styles):
    """The evaluated metric against training time (left) and against steps (right)."""
    chosen = part.shown(figure)
    panels = selection.panels(chosen, ["label"])
    curves = {}  # config hash -> [(step, seconds, metric)]
    units = {}  # workload -> unit of its metric
    for cell in chosen:
        for _, trial in sorted(cell.trials.items()):
            series = trial.series("evaluations.npy")
            if series is not None and len(series):
                units[cell.workload] = cell.unit("final_metric")
                curves.setdefault(cell.hash, []).append(
                    (series["step"].astype(float), series["seconds"], series["metric"])
                )
    if not curves:
        raise selection.NoData(f"no trial of part '{part.id}' counts that has evaluations")
    panels = [panel for panel in panels if any(cell.hash in curves for cell in panel[1])]
    made, grid = style.figure(len(panels), 2, 2.5, sharey="row")
    names = styles.sort(cell.label for cell in chosen)
    beside = imported.Beside(part)
    banded = targeted = reached = False
    for (fields, inside), axes_row in zip(panels, grid):
        for column, (axes, words) in enumerate(zip(axes_row, ("Training time (s)", "Steps"))):
            for cell in sorted(inside, key=lambda cell: names.index(cell.label)):
                look, runs = styles[cell.label], curves.get(cell.hash, [])
                lines = [(run[1] if column == 0 else run[0], run[2]) for run in runs]
                if len(lines) >= BAND_FROM:
                    banded = True
                    # No seed is extended past its end: the band stops where the first one stopped.
                    stop, start = min(x[-1] for x, _ in lines), max(x[0] for x, _ in lines)
                    at = np.linspace(start, stop, 200)
                    stacked = np.array([np.interp(at, x, y) for x, y in lines])
                    axes.fill_between(
                        at,
                        stacked.min(0),
                        stacked.max(0),
                        color=look.colour,
                        alpha=0.16,
                        linewidth=0,
                    )
                    axes.plot(at, np.median(stacked, 0), **look.line(), linewidth=1.6)
                else:
                    for x, y in lines:
                        axes.plot(x, y, **look.line(), linewidth=1.15, alpha=0.9)
                for x, y in lines:
                    target = _target(cell)
                    rising = y[-1] >= y[0]
                    if target is not None and (y[-1] >= target if rising else y[-1] <= target):
                        reached = True
                        axes.plot(
                            x[-1],
                            y[-1],
                            marker=look.marker,
                            color=look.colour,
                            markersize=6,
                            markeredgecolor=style.INK,
                            markeredgewidth=0.5,
                            zorder=5,
                            clip_on=False,
                        )
            for cell in inside:
                for result, _ in beside.of(cell, "final_metric") if column else ():
                    _imported_curves(axes_row, result, styles[cell.label])
            targets = {_target(cell) for cell in inside if _target(cell) is not None}
            for target in sorted(targets):
                targeted = True
                axes.axhline(target, color=style.QUIET, linewidth=0.9, linestyle=(0, (1, 1.5)))
                if column == 1:
                    axes.annotate(
                        f"target {target:g}",
                        (1, target),
                        xycoords=("axes fraction", "data"),
                        xytext=(0, -2.5),
                        textcoords="offset points",
                        fontsize=6.8,
                        color=style.QUIET,
                        ha="right",
                        va="top",
                    )
            axes.set_xlim(left=0)
            axes.set_xlabel(words)
            style.thousands(axes.xaxis)
        shown = dict.fromkeys(
            _metric_words(units[cell.workload]) for cell in inside if cell.workload in units
        )
        axes_row[0].set_ylabel(" or ".join(shown))
        style.panel_title(axes_row[0], *selection.panel_words(fields, inside))
    handles = [
        Line2D(
            [],
            [],
            **styles[name].line(),
            marker=styles[name].marker if reached else None,
            markeredgecolor=style.INK,
            markeredgewidth=0.5,
            label=name,
        )
        for name in names
        if any(cell.hash in curves and cell.label == name for cell in chosen)
    ] + beside.handles()
    title = figure.get("title") or "Convergence against training time and against steps"
    failed = [f"{cell.label}: {cell.failure()}" for cell in chosen if cell.hash not in curves]
    text = caption(
        [cell for cell in chosen if cell.hash in curves],
        "Time is training alone, without evaluation.",
        (
            "Lines: median over seeds; bands: lowest to highest seed, as far as all seeds ran."
            if banded
            else "Each line is one seed (block)."
        ),
        "Markers: the target was reached and the trial stopped." if targeted and reached else "",
        f"Not shown: {', '.join(failed)}." if failed else "",
        beside.words(),
    )
    return Drawn(made, title, text, handles)


def _imported_curves(axes_row, result, look):
    """What others evaluated, over time where they say it, and over steps."""
    for trial in result.trials:
        series = trial.series("evaluations.npy")
        if series is None:
            continue
        for axes, x in zip(axes_row, (series["seconds"], series["step"])):
            line = {**look.line(), "color": style.IMPORTED}
            axes.plot(x, series["metric"], **line, linewidth=1.3, marker="|", markersize=4)


def _modelled_dashes(look):
    return look.dashes if look.dashes[0] else (6, 1.2)  # no modelled line is solid


def scaling(experiment, part, figure, styles):
    """A modelled metric over workers, with emulated and measured cells of equal configuration;
    under it, where the part has a reference, the same as ratio to the reference."""
    y = figure.get("y") or figure.get("metric") or "throughput"
    chosen = [cell for cell in part.shown(figure) if cell.mode == "modelled"]
    if not any(cell.values(y) for cell in chosen):
        raise selection.NoData(f"no modelled trial of part '{part.id}' counts that has '{y}'")
    panels = selection.panels(chosen, ["workers", "label"])
    names = styles.sort(cell.label for cell in chosen)
    with_ratio = any(part.ratio(cell, y) for cell in chosen)
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    made, grid = style.figure(rows * (2 if with_ratio else 1), columns, 2.15, sharex="col")
    drawn, crowded, whiskers = [], False, False
    beside = imported.Beside(part)
    for position in range(len(panels), rows * columns):
        for row in (
            (2 * (position // columns), 2 * (position // columns) + 1)
            if with_ratio
            else (position // columns,)
        ):
            grid[row, position % columns].set_visible(False)
    for position, (fields, inside) in enumerate(panels):
        row, column = position // columns, position % columns
        upper = grid[row * (2 if with_ratio else 1), column]
        lower = grid[2 * row + 1, column] if with_ratio else None
        largest = max((value for cell in inside for value in cell.values(y).values()), default=1.0)
        unit = next((cell.unit(y) for cell in inside if cell.unit(y)), "")
        scale, unit = wording.unit_scale(unit, largest)
        for name in names:
            look = styles[name]
            line = sorted(
                (cell for cell in inside if cell.label == name and cell.interval(y)),
                key=lambda cell: cell.workers,
            )
            heights = [(cell, cell.interval(y).value * scale) for cell in line]
            ratios = [
                (cell, 1.0 if name == part.reference else ratio.value)
                for cell in line
                if (ratio := part.ratio(cell, y)) or name == part.reference
            ]
            for axes, points in ((upper, heights), (lower, ratios)):
                if axes is not None and points:
                    axes.plot(
                        [cell.workers for cell, _ in points],
                        [value for _, value in points],
                        color=look.colour,
                        dashes=_modelled_dashes(look),
                        linewidth=1.2,
                        marker=look.marker,
                        markersize=4.2,
                        markerfacecolor="white",
                        markeredgecolor=look.colour,
                        markeredgewidth=0.9,
                    )
            for cell in line:
                for _, value in beside.of(cell, y):
                    upper.plot(
                        cell.workers,
                        value * scale,
                        marker=look.marker,
                        linestyle="",
                        color=style.IMPORTED,
                        markersize=5,
                        zorder=5,
                    )
                for point in cell.points():
                    if not point.interval(y):
                        continue
                    mode = point.mode
                    drawn.append(point)
                    crowd = point.oversubscribed
                    crowded = crowded or crowd
                    ratio = point.part.ratio(point, y)
                    # Set apart sideways: methods of equal speed would hide one another.
                    at = point.workers * 2 ** (
                        DODGE * (names.index(name) / max(len(names) - 1, 1) - 0.5)
                    )
                    places = [(upper, point.interval(y).value * scale)]
                    if lower is not None and ratio and point.part.reference == part.reference:
                        places.append((lower, ratio.value))
                        if ratio.low is not None:
                            whiskers = True
                            lower.plot(
                                [at] * 2,
                                [ratio.low, ratio.high],
                                color=look.colour,
                                linewidth=1.0,
                                zorder=4,
                            )
                    for axes, value in places:
                        axes.plot(
                            at,
                            value,
                            marker="s" if mode == "measured" else look.marker,
                            linestyle="",
                            color=look.colour,
                            markersize=4.4 if mode == "measured" else 5,
                            markeredgecolor=style.INK,
                            markeredgewidth=0.6,
                            zorder=5,
                        )
                        if crowd:
                            axes.plot(
                                at,
                                value,
                                marker="o",
                                markersize=8,
                                linestyle="",
                                markerfacecolor="none",
                                markeredgecolor=style.QUIET,
                                markeredgewidth=0.6,
                                zorder=4,
                            )
        ticks = sorted({cell.workers for cell in inside})
        for axes in (upper, lower):
            if axes is not None:
                axes.set_xscale("log", base=2)
                axes.xaxis.set_major_locator(FixedLocator(ticks))
                axes.xaxis.set_minor_locator(NullLocator())
                style.thousands(axes.xaxis)
                axes.tick_params(labelbottom=True)
        (lower if lower is not None else upper).set_xlabel("Workers (log scale)")
        log = figure.get("log_y", True)  # throughput grows with the workers: so does a linear axis
        if log:
            upper.set_yscale("log")
            style.few_ticks(upper.yaxis)
        else:
            upper.set_ylim(bottom=0)
            style.thousands(upper.yaxis)
        words = ", ".join(word for word in (unit, "log scale" if log else "") if word)
        named = wording.metric_name(y)
        wraps = len(named) + len(words) > LONGEST_LABEL
        upper.set_ylabel(named + (f"{chr(10) if wraps else ' '}({words})" if words else ""))
        if lower is not None:
            lower.axhline(1.0, color=style.QUIET, linewidth=0.7, zorder=1)
            lower.set_ylim(bottom=0)
            lower.set_ylabel(f"Ratio to {part.reference}")
        style.panel_title(upper, *selection.panel_words(fields, inside, ("workers",)))
    handles = [
        Line2D(
            [],
            [],
            color=styles[name].colour,
            label=name,
            marker=styles[name].marker,
            dashes=_modelled_dashes(styles[name]),
            linewidth=1.2,
            markerfacecolor="white",
            markersize=4.2,
        )
        for name in names
    ]
    point_looks = {
        "linestyle": "",
        "color": style.QUIET,
        "markeredgecolor": style.INK,
        "markeredgewidth": 0.6,
    }
    seen = {cell.mode for cell in drawn}
    if "emulated" in seen:
        handles.append(
            Line2D([], [], marker="o", markersize=5, label="emulated (filled)", **point_looks)
        )
    if "measured" in seen:
        handles.append(
            Line2D([], [], marker="s", markersize=4.4, label="measured (square)", **point_looks)
        )
    if crowded:
        handles.append(
            Line2D(
                [],
                [],
                marker="o",
                markersize=8,
                linestyle="",
                markerfacecolor="none",
                markeredgecolor=style.QUIET,
                markeredgewidth=0.6,
                label="oversubscribed",
            )
        )
    handles += beside.handles(points=True)
    title = (
        figure.get("title")
        or f"{wording.metric_name(y)} over workers: modelled, and timed where it could be"
    )
    text = caption(
        chosen + drawn,
        "Open markers on broken lines: modelled.",
        (
            f"Filled: {' and '.join(sorted(seen))} cells of the same configuration, geometric mean "
            "over blocks, "
            "set apart sideways."
            if drawn
            else "No emulated or measured cell has one of these configurations."
        ),
        (
            f"Vertical lines: 95 % t interval of the paired log-ratio to {part.reference} over "
            "blocks."
            if whiskers
            else ""
        ),
        "Ringed: more threads than the machine has cores." if crowded else "",
        beside.words(),
    )
    return Drawn(made, title, text, handles)
