"""One step of one trial for each method, lane under lane, on one time axis."""

from matplotlib.lines import Line2D

import cells as selection
import style
import wording
from caption import caption
from drawn import Drawn

FIRST_LANES = ("compute", "side", "host")
KINDS = (
    "forward",
    "backward",
    "pack",
    "sparsify",
    "exchange",
    "negotiate",
    "decompress",
    "update",
    "wait",
)


def _typical_trial(cell):
    """The trial whose step time is the (lower) median of its cell and that kept spans."""
    trials = sorted(
        (trial for trial in cell.trials.values() if (trial.directory / "spans.cols").exists()),
        key=lambda trial: (trial.metrics.get("step_seconds", 0.0), trial.block),
    )
    return trials[(len(trials) - 1) // 2] if trials else None


def _typical_step(spans):
    """Of the sampled steps of one rank, the one of (lower) median length."""
    steps = sorted(
        {int(step) for step in spans["step"]},
        key=lambda step: (spans["end_seconds"][spans["step"] == step].max(), step),
    )
    return steps[(len(steps) - 1) // 2]


def _choose(part, figure):
    """Of the panels a figure leaves, the one where most methods kept spans; the first of equals."""
    best = None
    for fields, inside in selection.panels(selection.select(part.cells, figure), ["method"]):
        kept = [(cell, trial) for cell in inside if (trial := _typical_trial(cell))]
        if kept and (best is None or len(kept) > len(best[1])):
            best = (inside, kept)
    if best is None:
        raise selection.NoData(f"no trial of part '{part.id}' counts that kept spans")
    return best


def _lanes(spans):
    names = set(spans["lane"])
    return [lane for lane in FIRST_LANES if lane in names] + sorted(names - set(FIRST_LANES))


def gantt(experiment, part, figure, styles):
    inside, kept = _choose(part, figure)
    rank = figure.get("rank", 0)
    steps = []  # (cell, trial, step, spans)
    for cell, trial in sorted(kept, key=lambda pair: styles.order.index(pair[0].method)):
        spans = trial.series("spans.cols")
        spans = spans.where(spans["rank"] == rank)
        if len(spans):
            step = _typical_step(spans)
            steps.append((cell, trial, step, spans.where(spans["step"] == step)))
    if not steps:
        raise selection.NoData(f"no span of rank {rank} in the trials of part '{part.id}'")
    lanes = [_lanes(spans) for *_, spans in steps]
    heights = [len(names) for names in lanes]
    made, grid = style.figure(
        len(steps), 1, 1.0, sharex=True, gridspec_kw={"height_ratios": heights}
    )
    made.set_size_inches(style.WIDTH, 0.21 * sum(heights) + 0.22 * len(steps) + 0.35)
    end = max(float(spans["end_seconds"].max()) for *_, spans in steps)
    scale, unit = wording.seconds_scale(end)
    seen = set()
    for (cell, trial, step, spans), names, axes in zip(steps, lanes, grid[:, 0]):
        for row, lane in enumerate(names):
            for kind in KINDS:
                mask = (spans["lane"] == lane) & (spans["kind"] == kind)
                if not mask.any():
                    continue
                seen.add(kind)
                begins, ends = (
                    spans["begin_seconds"][mask] * scale,
                    spans["end_seconds"][mask] * scale,
                )
                look = style.work(kind)
                look["linewidth"] = 0.25
                wait = kind == "wait"
                axes.broken_barh(
                    list(zip(begins, ends - begins)),
                    (row - (0.2 if wait else 0.4), 0.4 if wait else 0.8),
                    **look,
                )
        backward = spans["end_seconds"][spans["kind"] == "backward"]
        if len(backward):
            axes.axvline(
                float(backward.max()) * scale,
                color=style.INK,
                linewidth=0.9,
                linestyle=(0, (4, 2)),
                zorder=5,
            )
        last = float(spans["end_seconds"].max()) * scale
        axes.axvline(last, color=style.INK, linewidth=1.3, zorder=5)
        axes.annotate(
            f" {wording.number(last)} {unit}",
            (last, -0.55),
            fontsize=6.5,
            va="bottom",
            ha="left" if last < 0.9 * end * scale else "right",
            annotation_clip=False,
        )
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.45, -0.55)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", visible=True)
        axes.set_title(cell.method, fontweight="bold", fontsize=8, pad=2.5)
        axes.set_xlim(0, end * scale * 1.01)
    style.thousands(grid[-1, 0].xaxis)
    grid[-1, 0].set_xlabel(f"Time since the step began on rank {rank} ({unit})")
    handles = [style.work_patch(kind) for kind in KINDS if kind in seen]
    handles += [
        Line2D(
            [], [], color=style.INK, linewidth=0.9, linestyle=(0, (4, 2)), label="end of backward"
        ),
        Line2D([], [], color=style.INK, linewidth=1.3, label="end of step"),
    ]
    first = steps[0][0]
    same = f"{first.workload}, {first.workers} workers, {wording.link(first.config)}"
    title = figure.get("title") or f"One step of each method, lane by lane: {same}"
    chosen = [cell for cell, *_ in steps]
    shown = ", ".join(
        f"{cell.method} step {step} of block {trial.block}" for cell, trial, step, _ in steps
    )
    missing = [
        f"{cell.method} ({cell.failure() or 'no spans kept'})"
        for cell in inside
        if cell not in chosen
    ]
    text = caption(
        chosen,
        f"Setting: {same}; rank {rank}. One step of each method shows its course and has no "
        "interval; it is the sampled step of median length in the trial of median step time "
        f"({shown}). Each picked from its cell's",
        f"Not shown: {', '.join(missing)}." if missing else "",
    )
    return Drawn(made, title, text, handles)
