"""Writes numbers, units, modes and links, the same in every figure and table."""

import math
import pathlib

THIN = "\u202f"  # narrow no-break space: between thousands, and between a number and its unit
NONE = "\u2013"  # the text of a table's cell without a number

MODE_MEANS = {
    "measured": "real ranks and data on the machine's own links",
    "emulated": "real ranks and data over a link slowed down on purpose",
    "modelled": "computed by discrete-event simulation, nothing was timed",
    "imported": "results of others, compared with nothing",
}

METRICS = {  # {name: its name on an axis}; others are called as they are
    "step_seconds": "Step time",
    "forward_seconds": "Forward",
    "backward_seconds": "Backward",
    "sparsify_seconds": "Sparsification",
    "exposed_communication_seconds": "Exposed communication",
    "decompress_seconds": "Decompression",
    "update_seconds": "Update",
    "outer_seconds": "Outer step",
    "window_seconds": "Window",
    "window_bytes": "Bytes of a window",
    "replica_divergence": "Divergence of replicas",
    "other_seconds": "Other",
    "align_wait_seconds": "Waiting for the slowest rank",
    "payload_bytes": "Payload per step and rank",
    "sent_bytes": "Sent per step and rank",
    "sent_over_payload": "Bytes sent over payload",
    "received_bytes": "Received per step and rank",
    "messages_sent": "Messages per step and rank",
    "densification": "Densification γ(P)",
    "imbalance": "Busiest server over the average",
    "tensors_missing": "Tensors with nothing selected, per step",
    "fibres_missing": "Fibres left out",
    "seconds_to_target": "Training time to target",
}
# {beginning or end of a metric's name: its unit if the store gives none}
UNITS = {"seconds": "s", "bytes": "B", "messages": "messages", "tensors": "tensors", "steps": "steps"}

AXES = {  # {quantity that is no metric: its name on an axis}; {unit} marks the place of the unit
    "label": "Method",
    "method_options.planner_options.degree": "Fusion degree",
    "card_bandwidth": "Bandwidth of a card between nodes",
    "training_steps": "Steps",
    "training_epochs": "Epochs",
    "since_begin": "Time since the step began on {where}",
    "step": "Time of a step",
    "step_and_rank": "Time of a step and rank",
    "trace": "Cumulative over a trace",
    "bytes_per_step": "{unit} per step and rank",
    "missing_rate": "Missing tensors",
    "observed": "Observed step time",
    "predicted": "Predicted step time",
    "off_published": "Predicted / published − 1",
    "largest_gain": "Largest gain over\nthe variant before",
    "ratio": "Ratio to {reference}",
    "ratio_in_blocks": "Ratio to {reference} within each block",
}
EVALUATED = {  # {part of a unit's name: name of the evaluated metric}
    "accuracy": "Test accuracy",
    "perplexity": "Validation perplexity",
    "f1": "F1 of the words found",
}


def workload(name):
    """The workload's name; "mine" for a model table "table:path/mine.json" or "table:mine@HASH"."""
    if not name.startswith("table:"):
        return name
    rest = name.removeprefix("table:")
    return pathlib.PurePath(rest).stem if rest.endswith(".json") else rest.rpartition("@")[0]


def metric_name(name):
    return METRICS.get(name, name.replace("_", " ").capitalize())


def metric_unit(name):
    """The unit of a metric by its name, for cells without a value; "" if the name has none."""
    words = name.split("_")
    return UNITS.get(words[-1]) or UNITS.get(words[0], "")


def axis(name, unit="", log=False, **more):
    """The label of an axis for a metric, a key of cells, or an entry of AXES, which `more` fills in."""
    words = AXES.get(name)
    if words is None:
        words = metric_name(name.split(".")[-1])
    elif "{unit}" in words:
        words, unit = words.format(unit=unit), ""
    elif more:
        words = words.format(**more)
    said = ", ".join(filter(None, (unit, "log scale" if log else "")))
    return f"{words} ({said})" if said else words


def over(metric, reference):
    return f"{metric_name(metric)} over {reference}'s"


def evaluated(unit):
    """The name of the metric that is evaluated in this unit."""
    for word, name in EVALUATED.items():
        if word in unit.lower():
            return name
    return f"Evaluated metric ({unit})" if unit and unit != "1" else "Evaluated metric"


def tick(key, cell):
    """A tick of the axis `key`."""
    value = cell.get(key)
    if key == "link":
        return cell.link
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def count(number, word):
    return f"{number} {word}{'' if number == 1 else 's'}"


def number(value, digits=3):
    """A number with `digits` significant digits or, from 1 000, as a whole number with thin spaces."""
    if value is None or not math.isfinite(value):
        return NONE
    if value == 0:
        return "0"
    if abs(value) >= 999.5:
        return f"{value:,.0f}".replace(",", THIN)
    if abs(value) < 1e-4:
        return f"{value:.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def quantity(value, unit, digits=3):
    """A number with its unit, seconds and bytes scaled to a readable one."""
    if value is None or not math.isfinite(value):
        return NONE
    scale, unit = unit_scale(unit, value)
    return f"{number(value * scale, digits)}{THIN}{unit}".rstrip(THIN)


def seconds_scale(value):
    """(factor, unit) in which `value` seconds is readable."""
    if value >= 1.0 or value == 0:
        return 1.0, "s"
    return (1e3, "ms") if value >= 1e-3 else (1e6, "µs")


def bytes_scale(value):
    for factor, unit in ((1e-9, "GB"), (1e-6, "MB"), (1e-3, "kB")):
        if value * factor >= 1.0:
            return factor, unit
    return 1.0, "B"


def unit_scale(unit, largest):
    """(factor, unit) in which `largest` is readable; only seconds and bytes are scaled."""
    if unit in ("s", "seconds"):
        return seconds_scale(largest)
    if unit in ("B", "bytes"):
        return bytes_scale(largest)
    return 1.0, unit


def blocks(counts):
    """The words for each cell's n, as "n = 3 blocks" or "n = 2 to 3 blocks"."""
    counts = [n for n in counts if n]
    if not counts:
        return "n = 0 blocks"
    low, high = min(counts), max(counts)
    span = f"{low}" if low == high else f"{low} to {high}"
    return f"n = {span} block{'s' if high != 1 else ''}"


def flatten(tree, prefix=""):
    """{"a": {"b": 1}} -> {"a.b": 1}; lists are joined."""
    flat = {}
    for key, value in (tree or {}).items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            flat.update(flatten(value, name + "."))
        elif isinstance(value, list):
            if value and all(isinstance(item, dict) for item in value):
                for position, item in enumerate(value):
                    flat.update(flatten(item, f"{name}.{item.get('name', position)}."))
            else:
                flat[name] = " ".join(str(item) for item in value)
        else:
            flat[name] = value
    return flat
