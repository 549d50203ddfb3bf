"""Finds where the difference in step time of two cells comes from, in numbers.

The parts of a trial's step are those of the slowest rank of each step, as its metrics'; means over
the third of the measured steps whose durations lie around the median, so that they add up. What
they miss of the median itself is in `other`. Waits by unit are means over the steps that kept
spans.
"""

import json

import numpy as np

from sparfuse_report import cells as selection
from sparfuse_report import exposure, plain, series

PARTS = ("forward", "backward", "sparsify", "exposed_communication", "decompress", "update")
FACTS = ("exchanges", "messages_sent", "payload_bytes", "sent_bytes", "achieved_density")


class Side:
    """One of the two cells, with the blocks of it that are compared."""

    def __init__(self, cell, blocks):
        self.cell = cell
        self.trials = {block: cell.trials[block] for block in blocks}
        self.steps = {block: parts_of(trial) for block, trial in self.trials.items()}

    def fact(self, metric):
        values = [
            value for block, value in self.cell.values(metric).items() if block in self.trials
        ]
        return sum(values) / len(values) if values else None


def _slowest(steps, step):
    at = np.flatnonzero(steps["step"] == step)
    return int(at[np.argmax(steps["step_seconds"][at])])


def _steps_of(trial):
    steps = trial.series("steps.npy")
    if steps is None or not steps["measured"].any():
        raise series.SeriesError(
            f"{trial.directory / 'steps.npy'}: expected at least one measured step"
        )
    return steps


def parts_of(trial):
    """Seconds of the median step's parts, `other` included, which add up to `step`; the quartiles
    of the steps' durations, and what of `other` is only the median's distance (`remainder`)."""
    steps = _steps_of(trial)
    rows = np.array(
        [_slowest(steps, step) for step in np.unique(steps["step"][steps["measured"]])]
    )
    seconds = steps["step_seconds"][rows]
    drop = len(rows) // 3
    middle = rows[np.argsort(seconds, kind="stable")][drop : len(rows) - drop]
    parts = {part: float(steps[f"{part}_seconds"][middle].mean()) for part in PARTS}
    step = float(np.median(seconds))
    return {
        **parts,
        "other": step - sum(parts.values()),
        "step": step,
        "align_wait": float(steps["align_wait_seconds"][middle].mean()),
        "remainder": step - float(steps["step_seconds"][middle].mean()),
        "quartiles": [float(value) for value in np.percentile(seconds, (25, 75))],
        "steps": len(rows),
        "middle": len(middle),
    }


def parts_by_block(cell):
    """{block: parts_of}: what the harness makes differences and their intervals of."""
    return {block: parts_of(trial) for block, trial in cell.trials.items()}


def _outcome(trial):
    path = trial.directory / "outcome.json"
    try:
        return plain.visible(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}  # tensors of units stay unnamed


def traced_steps(trial):
    """[(step, rank, spans)]: of each step that kept spans, the slowest of the ranks that did."""
    spans = trial.series("spans.npy")
    if spans is None or not len(spans):
        return []
    found = []
    for step in np.unique(spans["step"]):
        inside = spans[spans["step"] == step]
        ends = {
            int(rank): float(inside["end_seconds"][inside["rank"] == rank].max())
            for rank in np.unique(inside["rank"])
        }
        rank = max(ends, key=lambda each: (ends[each], -each))
        found.append((int(step), rank, inside))
    return found


def _traces(side):
    """Waits by unit and what ran beside backward, means over traced steps and then over blocks."""
    blocks, steps, ranks, sampling, plans = [], set(), set(), "", set()
    described = {}
    for trial in side.trials.values():
        outcome = _outcome(trial)
        plans.add(outcome.get("plan"))
        total, beside, count = {}, {"exchanges": 0.0, "lanes": 0.0, "other_lanes_sparsify": 0.0}, 0
        for step, rank, inside in traced_steps(trial):
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
            steps.add(step)
            ranks |= {int(each) for each in np.unique(inside["rank"])}
            count += 1
        if count:
            sampling = series.describe(trial.directory / "spans.npy")["sampling"]
            blocks.append(
                (
                    {key: [each / count for each in value] for key, value in total.items()},
                    {key: value / count for key, value in beside.items()},
                )
            )
    n = len(blocks)
    keys = {key for waits, _ in blocks for key in waits}
    waits = [
        {
            "for": what,
            "unit": label,
            "seconds": sum(block.get((what, label), (0, 0))[0] for block, _ in blocks) / n,
            "until_last_rank_seconds": sum(
                block.get((what, label), (0, 0))[1] for block, _ in blocks
            )
            / n,
            "tensors": described.get(label),
        }
        for what, label in keys
    ]
    return {
        "blocks": n,
        "steps": sorted(steps),
        "ranks": sorted(ranks),
        "sampling": sampling,
        "plans": len(plans),
        "waits": sorted(waits, key=lambda wait: (-wait["seconds"], wait["for"], wait["unit"])),
        "exposed_seconds": sum(wait["seconds"] for wait in waits),
        "until_last_rank_seconds": sum(wait["until_last_rank_seconds"] for wait in waits),
        "beside_backward": (
            {key: sum(beside[key] for _, beside in blocks) / n for key in blocks[0][1]}
            if n
            else None
        ),
    }


def _differing(of, over):
    """The keys of the configuration, in the order of panels, in which the cells differ."""
    return [
        key
        for key in ("method", *of.part.experiment.keys["panel"])
        if selection.canonical(of.get(key)) != selection.canonical(over.get(key))
    ]


def names(of, over):
    """What each cell is called: by its method, and by its mode or whatever else is needed to tell
    the two apart."""
    keys = _differing(of, over)
    said = ["mode"] if "mode" in keys else []
    if "method" not in keys and not said:
        said = keys[:2]

    def name(cell):
        words = [selection.field_words(key, cell.get(key)) for key in said]
        return f"{cell.method} ({', '.join(words)})" if words else str(cell.method)

    return name(of), name(over)


def compare(of_cell, over_cell, differences):
    """The whole of the numbers, as `--json` prints them; seconds and bytes a step. `differences` is
    what the harness made of both cells' `parts_by_block`."""
    of = Side(of_cell, differences["blocks"]["of"])
    over = Side(over_cell, differences["blocks"]["over"])
    called = names(of_cell, over_cell)
    method_keys = of_cell.part.experiment.keys["method"]

    def part(name):
        return {"name": name, **differences["parts"][name]}

    def side(one, name):
        cell = one.cell
        return {
            "name": name,
            "part": cell.part.id,
            "cell": cell.describe(),
            "mode": cell.mode,
            "workers": cell.workers,
            "config_hash": cell.hash,
            "hardware": "; ".join(cell.hardware),
            "trials": {block: trial.trial_id for block, trial in one.trials.items()},
            "blocks_left_out": sorted(set(cell.trials) - set(one.trials)),
            "steps": sorted({steps["steps"] for steps in one.steps.values()}),
            "middle_steps": sorted({steps["middle"] for steps in one.steps.values()}),
            "quartiles": [
                sum(steps["quartiles"][i] for steps in one.steps.values()) / len(one.steps)
                for i in (0, 1)
            ],
            "facts": {metric: one.fact(metric) for metric in FACTS},
            "traces": _traces(one),
        }

    differing = _differing(of_cell, over_cell)
    return {
        "of": side(of, called[0]),
        "over": side(over, called[1]),
        "paired": differences["paired"],
        "preliminary_below": of_cell.part.experiment.preliminary_below,
        "differ_in": [key for key in differing if key in method_keys],
        "unlike_in": {
            key: [of_cell.get(key), over_cell.get(key)]
            for key in differing
            if key not in method_keys
        },
        "step": part("step"),
        "parts": [part(name) for name in (*PARTS, "other")],
        "align_wait": part("align_wait"),
        "remainder": part("remainder"),
        "deciding": differences.get("deciding"),  # of two cells of one declared cluster
        "exchanged": differences.get("exchanged"),  # of one cell on two of them
    }
