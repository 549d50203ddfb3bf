"""Draws two steps, one above the other, on one time axis: where one is longer than the other."""

import re

import numpy as np
from matplotlib import patheffects

from sparfuse_report import cells as selection
from sparfuse_report import explain, style, timeline, wording
from sparfuse_report.drawn import Drawn, caption

LABEL_SIZE = 5.6
CHARACTER = 0.0072  # width of a character at that size, as a fraction of the axis


def file_name(of, over):
    """explain-METHOD-over-METHOD-HASHES, one name for each pair of cells."""
    methods = [re.sub(r"[^\w.-]+", "-", str(cell.method)) for cell in (of, over)]
    return f"explain-{methods[0]}-over-{methods[1]}-{of.hash[:8]}-{over.hash[:8]}"


def _shown_step(cell):
    """(trial, step, rank, spans) of the step to show: in the trial of median step time, the sampled
    step of (lower) median length, on the slowest of its traced ranks."""
    trial = timeline.typical_trial(cell)
    steps = explain.traced_steps(trial) if trial else []
    if not steps:
        raise selection.NoData(f"no trial of {cell.describe()} kept spans")
    own = [(step, rank, spans[spans["rank"] == rank]) for step, rank, spans in steps]
    own.sort(key=lambda each: (float(each[2]["end_seconds"].max()), each[0]))
    return (trial, *own[(len(own) - 1) // 2])


def _look(kind, lane):
    """The look of a span's kind; exposed communication looks as in breakdowns."""
    return style.work("exposed_communication" if (kind, lane) == ("wait", "compute") else kind)


def _seconds_of(spans, kind):
    """(begin of the first, end of the last, sum) of the compute lane's spans of `kind`, in seconds."""
    mask = (spans["lane"] == "compute") & (spans["kind"] == kind)
    begins, ends = spans["begin_seconds"][mask], spans["end_seconds"][mask]
    if not len(begins):
        return 0.0, 0.0, 0.0
    return float(begins.min()), float(ends.max()), float((ends - begins).sum())


def _write_phases(axes, spans, scale, end):
    """Writes the phases of the compute lane above it, with their times, if there is room."""
    for kind, name in (("forward", "forward"), ("backward", "backward"), ("wait", "exposed")):
        first, last, whole = _seconds_of(spans, kind)
        text = f"{name} {wording.number(whole * scale)}"
        if (last - first) * scale / end > CHARACTER * len(text):
            axes.annotate(text, (0.5 * (first + last) * scale, -0.5), fontsize=LABEL_SIZE + 0.4,
                          ha="center", va="bottom", color=style.QUIET, annotation_clip=False)


def _write_units(axes, spans, names, scale, end):
    """Names exchanges in their bars, in full or by number, if the bars are wide enough."""
    behind = patheffects.withStroke(linewidth=1.6, foreground=style.work("exchange")["facecolor"])
    for at in np.flatnonzero(spans["kind"] == "exchange"):
        label = str(spans["label"][at])
        begin, stop = spans["begin_seconds"][at] * scale, spans["end_seconds"][at] * scale
        number = re.search(r"\d+", label)
        for text in (label, number[0] if number else ""):
            if text and (stop - begin) / end > CHARACTER * (len(text) + 1):
                axes.text(0.5 * (begin + stop), names.index(spans["lane"][at]), text, color="white",
                          fontsize=LABEL_SIZE, ha="center", va="center_baseline", zorder=6,
                          path_effects=[behind])
                break


def timelines(of, over, found):
    shown = [_shown_step(cell) for cell in (of, over)]
    called = [found["of"]["name"], found["over"]["name"]]
    heights = [len(timeline.lanes(spans)) for *_, spans in shown]
    made, grid = style.figure(2, 1, 1.0, sharex=True, gridspec_kw={"height_ratios": heights})
    made.set_size_inches(style.WIDTH, 0.3 * sum(heights) + 1.25)
    ends = [float(spans["end_seconds"].max()) for *_, spans in shown]
    scale, unit = wording.seconds_scale(max(ends))
    end = max(ends) * scale * 1.01
    kinds = set()
    for (_, _, _, spans), name, axes in zip(shown, called, grid[:, 0]):
        drawn, lanes, last = timeline.draw(axes, spans, scale, _look)
        kinds |= drawn
        _write_phases(axes, spans, scale, end)
        _write_units(axes, spans, lanes, scale, end)
        axes.set_xlim(0, end)
        exposed = wording.number(_seconds_of(spans, "wait")[2] * scale)
        words = f"{name}: {wording.number(last)} {unit}, {exposed} of it exposed"
        axes.set_title(words, fontweight="bold", fontsize=8, pad=10)
    _mark_difference(grid[:, 0], [each * scale for each in ends], heights, unit)
    style.thousands(grid[-1, 0].xaxis)
    grid[-1, 0].set_xlabel(wording.axis("since_begin", unit, where="the rank shown"))
    change = found["step"]["difference"]["value"]
    factor, of_unit = wording.seconds_scale(abs(change))
    setting = f"{of.describe()}; {over.describe()}"
    if not found["unlike_in"]:
        setting = f"{of.workload}, {wording.count(of.workers, 'worker')}, {of.link_in_full}"
    text = caption(
        [of, over],
        f"Setting: {setting}. One step of each shows its course and has no "
        "interval: the sampled step of median length in the trial of median step time, on the "
        "slowest of its traced ranks ("
        + ", ".join(
            f"{name} step {step} of block {trial.block}, rank {rank}"
            for (trial, step, rank, _), name in zip(shown, called)
        )
        + "). Over all measured steps and blocks the median steps differ by "
        f"{wording.number(abs(change) * factor)} {of_unit}. Numbers in exchanges name units.",
    )
    exposed = ("exposed_communication", "exposed: compute waits")
    handles = timeline.handles(
        kinds, lambda kind: style.work_patch(*exposed if kind == "wait" else (kind,))
    )
    return Drawn(made, f"Why {called[0]} and {called[1]} take unequal time", text, handles)


def _mark_difference(panels, ends, heights, unit):
    """Draws an arrow in the shorter step's panel, from its end to the end of the longer step."""
    short = int(np.argmin(ends))
    low, high = min(ends), max(ends)
    if high - low < 0.002 * high:
        return
    axes, row = panels[short], 0.5 * (heights[short] - 1)
    axes.axvline(high, color=style.QUIET, linewidth=0.8, linestyle=(0, (1, 1.5)), zorder=1)
    arrow = {"arrowstyle": "<->", "color": style.ALARM, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (high, row), (low, row), arrowprops=arrow, zorder=7)
    text = f"{wording.number(high - low)} {unit}"
    inside = (high - low) / high > CHARACTER * 1.2 * len(text)
    at, offset, side = (0.5 * (low + high), row), (0, 2), "center"
    if not inside:
        at, offset, side = (low, row), (-3, 2), "right"
    style.note(axes, text, at, offset, fontsize=6.8, color=style.ALARM, fontweight="bold", ha=side,
               va="bottom", zorder=8,
               path_effects=[patheffects.withStroke(linewidth=2.5, foreground="white")])
