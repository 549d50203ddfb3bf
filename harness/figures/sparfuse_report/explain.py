"""Divides the time of steps among its causes, from the series of trials.

The parts of a trial's step are those of the slowest rank of each step, as its metrics'; means over
the third of the measured steps whose durations lie around the median, so that they add up. What
they miss of the median itself is in `other`. Waits by unit are means over the steps that kept
spans.
"""

import json

import numpy as np

from sparfuse_report import exposure, plain, series

PARTS = ("forward", "backward", "sparsify", "exposed_communication", "decompress", "update")
OUTER = "outer"  # the outer step of methods with local steps


def _slowest(steps, step):
    at = np.flatnonzero(steps["step"] == step)
    return int(at[np.argmax(steps["step_seconds"][at])])


def _steps_of(trial):
    steps = trial.series("steps.npy")
    if steps is None or not steps["measured"].any():
        raise series.SeriesError(f"{trial.directory / 'steps.npy'}: expected at least one measured step")
    return steps


def _mean_steps(steps, every):
    """A mean step for each whole measured window of `every` steps, with the window's number."""
    rows = []
    for rank in np.unique(steps["rank"]):
        own = steps[steps["measured"] & (steps["rank"] == rank)]
        for window in np.unique(own["step"] // every):
            inside = own[own["step"] // every == window]
            if len(inside) < every:
                continue
            row = inside[0].copy()
            row["step"] = window
            for name in steps.dtype.names:
                if name.endswith("_seconds"):
                    row[name] = inside[name].mean()
            rows.append(row)
    return np.array(rows, dtype=steps.dtype) if rows else steps


def parts_of(trial, every=1):
    """The seconds of the median step's parts, which with `other` add up to `step`, and the quartiles
    of the steps' durations. `remainder` is the share of `other` that comes from the distance between
    median and mean alone. With local steps, a step is the mean step of a window of `every`."""
    steps = _steps_of(trial)
    if every > 1:
        steps = _mean_steps(steps, every)
    rows = np.array([_slowest(steps, step) for step in np.unique(steps["step"][steps["measured"]])])
    seconds = steps["step_seconds"][rows]
    drop = len(rows) // 3
    middle = rows[np.argsort(seconds, kind="stable")][drop : len(rows) - drop]
    named = PARTS + ((OUTER,) if f"{OUTER}_seconds" in steps.dtype.names else ())
    parts = {part: float(steps[f"{part}_seconds"][middle].mean()) for part in named}
    step = float(np.median(seconds))
    return {
        "parts": {
            **parts,
            "other": step - sum(parts.values()),
            "step": step,
            "align_wait": float(steps["align_wait_seconds"][middle].mean()),
            "remainder": step - float(steps["step_seconds"][middle].mean()),
        },
        "quartiles": [float(value) for value in np.percentile(seconds, (25, 75))],
        "steps": len(rows),
        "middle": len(middle),
    }


def _outcome(trial):
    path = trial.directory / "outcome.json"
    try:
        return plain.visible(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}  # tensors of units stay unnamed


def traced_steps(trial):
    """[(step, rank, spans)] for each step that kept spans; `rank` is its slowest rank with spans."""
    spans = trial.series("spans.npy")
    if spans is None or not len(spans):
        return []
    found = []
    for step in np.unique(spans["step"]):
        inside = spans[spans["step"] == step]
        last = inside[inside["end_seconds"] == inside["end_seconds"].max()]
        found.append((int(step), int(last["rank"].min()), inside))
    return found


def _traces_of(trial, outcome):
    """Waits by unit, and seconds of work during backward, as means over the traced steps; None for a
    trial that kept no spans."""
    traced = traced_steps(trial)
    if not traced:
        return None
    beside = {"exchanges": 0.0, "lanes": 0.0, "other_lanes_sparsify": 0.0}
    total, described, ranks = {}, {}, set()
    for step, rank, inside in traced:
        shortest = {}
        for other in np.unique(inside["rank"]):
            for key, seconds in exposure.lasting(inside[inside["rank"] == other]).items():
                shortest[key] = min(seconds, shortest.get(key, seconds))
        spans = inside[inside["rank"] == rank]
        for key, (seconds, late) in exposure.exposure(spans, shortest).items():
            whole = total.setdefault(key, [0.0, 0.0])
            whole[0] += seconds
            whole[1] += late
            described.setdefault(key[1], exposure.tensors_of(outcome, key[1], step))
        channels = np.isin(spans["kind"], ("exchange", "negotiate"))
        local = np.isin(spans["lane"], exposure.LOCAL_LANES)
        beside["exchanges"] += exposure.overlap(spans, "backward", channels)
        beside["lanes"] += exposure.overlap(spans, "backward", local)
        work = local & (spans["kind"] == "sparsify")
        beside["other_lanes_sparsify"] += float(
            (spans["end_seconds"][work] - spans["begin_seconds"][work]).sum()
        )
        ranks |= {int(each) for each in np.unique(inside["rank"])}
    count = len(traced)
    return {
        "steps": [step for step, *_ in traced],
        "ranks": sorted(ranks),
        "sampling": series.describe(trial.directory / "spans.npy")["sampling"],
        "waits": [
            {
                "for": str(what),
                "unit": str(label),
                "seconds": seconds / count,
                "until_last_rank_seconds": late / count,
                "tensors": described[label],
            }
            for (what, label), (seconds, late) in total.items()
        ],
        "beside_backward": {key: value / count for key, value in beside.items()},
    }


def steps_by_block(cell):
    """{block: facts of its steps}; harness/report/explanation.hpp makes means, differences and words
    from them."""
    every = cell.get("method_options.strategy_options.every") or 1  # steps of a window
    found = {}
    for block, trial in cell.trials.items():
        outcome = _outcome(trial)
        more = {"plan": outcome.get("plan"), "traces": _traces_of(trial, outcome)}
        found[block] = {**parts_of(trial, every), **more}
    return found
