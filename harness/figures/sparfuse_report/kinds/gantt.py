"""Draws one step of one trial for each method, lane under lane, on one time axis."""

from sparfuse_report import cells as selection
from sparfuse_report import style, timeline, wording
from sparfuse_report.drawn import Drawn, caption


def _choose(part, figure):
    """(cells, [(cell, trial)] with spans) of the panel in which most methods kept spans; of equal
    panels, the first."""
    found = []
    for panel in selection.panels(part, figure):
        kept = [(cell, trial) for cell in panel.cells if (trial := timeline.typical_trial(cell))]
        found.append((panel.cells, kept))
    best = max(found, key=lambda each: len(each[1]), default=([], []))
    if not best[1]:
        raise selection.NoData(f"no trial of part '{part.id}' counts that kept spans")
    return best


def gantt(experiment, part, figure, styles):
    inside, kept = _choose(part, figure)
    rank = figure.get("rank", 0)
    steps = []  # (cell, trial, step, spans)
    for cell, trial in sorted(kept, key=lambda pair: styles.order.index(pair[0].label)):
        spans = trial.series("spans.npy")
        spans = spans[spans["rank"] == rank]
        if len(spans):
            step = timeline.typical_step(spans)
            steps.append((cell, trial, step, spans[spans["step"] == step]))
    if not steps:
        raise selection.NoData(f"no span of rank {rank} in the trials of part '{part.id}'")
    heights = [len(timeline.lanes(spans)) for *_, spans in steps]
    made, grid = style.figure(
        len(steps), 1, 1.0, sharex=True, gridspec_kw={"height_ratios": heights}
    )
    made.set_size_inches(style.WIDTH, 0.21 * sum(heights) + 0.22 * len(steps) + 0.35)
    end = max(float(spans["end_seconds"].max()) for *_, spans in steps)
    scale, unit = wording.seconds_scale(end)
    seen = set()
    for (cell, _, _, spans), axes in zip(steps, grid[:, 0]):
        drawn, _, last = timeline.draw(axes, spans, scale)
        seen |= drawn
        side = "left" if last < 0.9 * end * scale else "right"
        axes.annotate(f" {wording.number(last)} {unit}", (last, -0.55), fontsize=6.5, va="bottom",
                      ha=side, annotation_clip=False)
        axes.set_title(cell.label, fontweight="bold", fontsize=8, pad=2.5)
        axes.set_xlim(0, end * scale * 1.01)
    style.thousands(grid[-1, 0].xaxis)
    grid[-1, 0].set_xlabel(wording.axis("since_begin", unit, where=f"rank {rank}"))
    first = steps[0][0]
    same = f"{first.workload}, {first.workers} workers, {first.link}"
    title = figure.get("title") or f"One step of each method, lane by lane: {same}"
    chosen = [cell for cell, *_ in steps]
    shown = ", ".join(
        f"{cell.label} step {step} of block {trial.block}" for cell, trial, step, _ in steps
    )
    missing = [
        f"{cell.label} ({cell.failure() or 'no spans kept'})"
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
    return Drawn(made, title, text, timeline.handles(seen))
