"""Draws the spans of one step, lane under lane, and chooses the step that shows a cell."""

from sparfuse_report import series, style

FIRST_LANES = ("compute", "side", "host")
KINDS = ("forward", "backward", "pack", "sparsify", "exchange", "negotiate", "decompress", "update",
         "outer", "wait")
NARROW = 0.004  # as a fraction of the step
BACKWARD_END = {"color": style.INK, "linewidth": 0.9, "linestyle": (0, (4, 2))}
STEP_END = {"color": style.INK, "linewidth": 1.3}


def typical_trial(cell):
    """The trial of (lower) median step time among the cell's trials that kept spans; None if none
    did."""
    steps = cell.values("step_seconds")
    trials = sorted(
        (trial for trial in cell.trials.values() if series.kept(trial.directory / "spans.npy")),
        key=lambda trial: (steps.get(trial.block, 0.0), trial.block),
    )
    return trials[(len(trials) - 1) // 2] if trials else None


def typical_step(spans):
    """The number of the step of (lower) median length among one rank's sampled steps."""
    steps = sorted(
        {int(step) for step in spans["step"]},
        key=lambda step: (spans["end_seconds"][spans["step"] == step].max(), step),
    )
    return steps[(len(steps) - 1) // 2]


def lanes(spans):
    names = set(spans["lane"])
    return [lane for lane in FIRST_LANES if lane in names] + sorted(names - set(FIRST_LANES))


def draw(axes, spans, scale, look_of=lambda kind, lane: style.work(kind)):
    """Draws the spans of one rank and step, a row for each lane, times multiplied by `scale`, and
    marks the ends of backward and of the step. `look_of(kind, lane)` gives the look of bars.
    Returns (kinds drawn, lanes, scaled end of the step)."""
    names, seen = lanes(spans), []
    whole = float(spans["end_seconds"].max()) * scale
    for row, lane in enumerate(names):
        for kind in KINDS:
            mask = (spans["lane"] == lane) & (spans["kind"] == kind)
            if not mask.any():
                continue
            seen.append(kind)
            begins, ends = (spans[f"{end}_seconds"][mask] * scale for end in ("begin", "end"))
            look = look_of(kind, lane)
            # A bar of a few pixels has no edges: nothing else of it would be seen.
            wide = ends - begins > NARROW * whole
            look["linewidth"] = [0.25 if each else 0.0 for each in wide]
            half = 0.2 if kind == "wait" else 0.4
            axes.broken_barh(list(zip(begins, ends - begins)), (row - half, 2 * half), **look)
    backward = spans["end_seconds"][spans["kind"] == "backward"]
    if len(backward):
        axes.axvline(float(backward.max()) * scale, zorder=5, **BACKWARD_END)
    axes.axvline(whole, zorder=5, **STEP_END)
    style.rows_down(axes, names)
    return set(seen), names, whole


def handles(kinds, look_of=style.work_patch):
    """The legend's entries: the kinds that were drawn, and the two marks."""
    return [look_of(kind) for kind in KINDS if kind in kinds] + [
        style.entry("end of backward", **BACKWARD_END),
        style.entry("end of step", **STEP_END),
    ]
