"""Finds the causes of the compute lane's waits, from the spans of one rank and step.

A wait is cut wherever something else begins or ends, and each piece goes to what was under way on
this rank: exchanges before all else (in equal shares where there are several), then negotiations,
then work of the side and host lanes, then waiting for other ranks. Where nothing was, it goes to
the exchange that begins next. The pieces of a step add up to its exposed communication.
"""

import re
from collections import Counter, defaultdict

import numpy as np

COMPUTE = "compute"
LOCAL_LANES = ("side", "host")


def _covering(spans, mask, begin, end):
    """Positions of the spans in `mask` that last from `begin` to `end` or longer."""
    return np.flatnonzero(mask & (spans["begin_seconds"] <= begin) & (spans["end_seconds"] >= end))


def _exchanges(spans):
    """(position, (lane, label, occurrence)) of the exchanges of one rank in one step."""
    seen = Counter()
    for at in np.flatnonzero(spans["kind"] == "exchange"):
        name = (spans["lane"][at], spans["label"][at])
        yield at, (*name, seen[name])
        seen[name] += 1


def lasting(spans):
    """{(lane, label, occurrence): seconds} of the exchanges of one rank in one step."""
    seconds = spans["end_seconds"] - spans["begin_seconds"]
    return {name: float(seconds[at]) for at, name in _exchanges(spans)}


def _ready_by(spans, shortest):
    """{position of an exchange: second at which the last rank came to it}. An exchange is shortest on
    that rank, and ends at the same time on all. The clocks of ranks are not compared."""
    return {
        at: float(spans["end_seconds"][at]) - shortest[name]
        for at, name in _exchanges(spans)
        if name in shortest
    }


def _holders(spans, begin, end):
    """[(cause, label, position or None)] of a piece of a wait. The cause is "exchange", "negotiate",
    "local work", "other ranks", "before" or "after"."""
    away = spans["lane"] != COMPUTE
    for what, mask in (
        ("exchange", spans["kind"] == "exchange"),
        ("negotiate", spans["kind"] == "negotiate"),
        ("local work", np.isin(spans["lane"], LOCAL_LANES)),
        ("other ranks", spans["kind"] == "wait"),
    ):
        found = _covering(spans, mask & away, begin, end)
        if len(found):
            return [(what, spans["label"][at], at) for at in found]
    coming = np.flatnonzero((spans["kind"] == "exchange") & (spans["begin_seconds"] >= end))
    if not len(coming):
        return [("after", "", None)]
    first = coming[np.argmin(spans["begin_seconds"][coming])]
    return [("before", spans["label"][first], None)]


def exposure(spans, shortest):
    """{(cause, label): (seconds waited, seconds of these until the last rank had come)} for the spans
    of one rank in one step. `shortest` has the least of the ranks' `lasting`."""
    ready = _ready_by(spans, shortest)
    waited = spans[(spans["lane"] == COMPUTE) & (spans["kind"] == "wait")]
    edges = np.unique(np.concatenate([spans["begin_seconds"], spans["end_seconds"]]))
    held = defaultdict(lambda: [0.0, 0.0])
    for begin, end in zip(waited["begin_seconds"], waited["end_seconds"]):
        cuts = [begin, *edges[(edges > begin) & (edges < end)], end]
        for left, right in zip(cuts, cuts[1:]):
            holders = _holders(spans, left, right)
            for what, label, at in holders:
                late = max(0.0, min(right, ready.get(at, left)) - left)
                held[(what, label)][0] += (right - left) / len(holders)
                held[(what, label)][1] += late / len(holders)
    return {key: (float(whole), float(late)) for key, (whole, late) in held.items()}


def overlap(spans, kind, beside):
    """Seconds of the compute lane's spans of `kind` during which a span of the mask `beside` also
    lasted."""
    during = sorted(zip(spans["begin_seconds"][beside], spans["end_seconds"][beside]))
    merged = []
    for begin, end in during:
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    mask = (spans["lane"] == COMPUTE) & (spans["kind"] == kind)
    return float(
        sum(
            max(0.0, min(end, right) - max(begin, left))
            for begin, end in zip(spans["begin_seconds"][mask], spans["end_seconds"][mask])
            for left, right in merged
        )
    )


def tensors_of(outcome, label, step):
    """The names and elements of the tensors of "unit N" in the plan of `step`, and the unit's path if
    units have paths. None if the label names no unit (but a buffer that is filled at run time), or if
    no plan was stored."""
    unit = re.match(r"unit (\d+)", label)
    plans = [plan for plan in outcome.get("plans") or [] if plan.get("step", 0) <= step]
    if not unit or not plans:
        return None
    plan = plans[-1]
    sizes = [int(size) for size in plan["unit_sizes"].split(",")]
    number = int(unit[1])
    if number >= len(sizes):
        return None
    first = sum(sizes[:number])
    tensors = (outcome.get("layout") or [])[first : first + sizes[number]]
    found = {
        "names": [tensor["name"] for tensor in tensors],
        "elements": sum(tensor["numel"] for tensor in tensors),
    }
    # The number of this unit's parts, if parts of units have owners; 0: the unit is not sparsified.
    if "partitions" in plan:
        whole = number in plan.get("dense_units", [])
        found["partitions"] = 0 if whole else plan["partitions"][number]
    if "paths" in plan:
        found["path"] = plan["paths"][number]
    return found
