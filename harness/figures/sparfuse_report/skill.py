"""Judges predictions of published numbers beside formulas and predictors that need no model: a model
has skill where it is nearer than they are."""

from dataclasses import dataclass, field

from sparfuse_report import tables, wording

APART = 0.03  # relative; published numbers that differ by less have no order
MODEL = "the model"
LONGEST = "the longer of computation and wire"
SUM = "computation and wire added up"
NO_GAIN = "no gain"
FIRST = "the published one of the figure's first number"
_COLUMNS = ["predictor", "n", "median |error|", "90th percentile", "too high", "pairs in order", "nearest"]


@dataclass
class Prediction:
    """One published number, and each predictor's value for it."""

    setting: object  # equal for all methods of one setting
    theirs: float  # the published number
    by: dict = field(default_factory=dict)  # {predictor: value}
    calibrated: bool = False  # whether the cluster was fitted to the number
    strata: dict = field(default_factory=dict)  # the cell's "cluster", "method", "workload", "workers"


def quantile(values, part):
    """The quantile `part`, in [0, 1], with linear interpolation between the sorted values."""
    ordered = sorted(values)
    at = part * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def percent(value, sign=""):
    return f"{100 * value:{sign}.1f}{wording.THIN}%"


def formula_seconds(cell):
    """{formula: seconds of the cell's step}; empty if its trials have no such seconds."""
    local, wire = cell.mean("local_seconds"), cell.mean("wire_seconds")
    if local is None or wire is None:
        return {}
    return {LONGEST: max(local, wire), SUM: local + wire}


def throughputs(cell, throughput):
    """{formula: the cell's throughput}; `throughput` is the model's."""
    step = cell.mean("step_seconds")
    return {name: throughput * step / seconds for name, seconds in formula_seconds(cell).items()}


def gains(cell, base):
    """{formula: the cell's throughput over the base's}, at equal batches."""
    over = formula_seconds(base)
    return {name: over[name] / seconds for name, seconds in formula_seconds(cell).items() if name in over}


def in_order(predictions, name):
    """(number of pairs in the published order, number of pairs that have an order). A pair is two
    methods of one setting."""
    right = pairs = 0
    for position, one in enumerate(predictions):
        for other in predictions[position + 1 :]:
            if one.setting != other.setting or name not in one.by or name not in other.by:
                continue
            theirs = one.theirs / other.theirs
            if max(theirs, 1 / theirs) <= 1 + APART:
                continue
            pairs += 1
            right += (theirs > 1) == (one.by[name] > other.by[name])
    return right, pairs


def rows(predictions):
    """A row for each predictor, as in table(). Only a predictor with a value for every number can be
    the nearest: a median over a part of them is over other numbers."""
    found = []
    for name in dict.fromkeys(name for each in predictions for name in each.by):
        errors = [each.by[name] / each.theirs - 1 for each in predictions if name in each.by]
        sizes = [abs(error) for error in errors]
        right, pairs = in_order(predictions, name)
        found.append(
            (
                quantile(sizes, 0.5) if len(sizes) == len(predictions) else None,
                [
                    name,
                    str(len(errors)),
                    percent(quantile(sizes, 0.5)),
                    percent(quantile(sizes, 0.9)),
                    f"{sum(error > 0 for error in errors)} of {len(errors)}",
                    f"{right} of {pairs}" if pairs else wording.NONE,
                ],
            )
        )
    nearest = min((median for median, _ in found if median is not None), default=None)
    return [[*row, "" if median is None or median > nearest else "yes"] for median, row in found]


def beyond_first(predictions):
    """The predictions that have the figure's first number as a predictor; [] if all have it."""
    found = [each for each in predictions if FIRST in each.by]
    return found if len(found) < len(predictions) else []


STRATA = ("cluster", "workload", "workers", "method")


def strata_of(cell):
    return {key: cell.get(key) for key in STRATA}


def _by_stratum(predictions, key):
    """The words for the model's least and largest median error over the values of `key`."""
    errors = {}
    for each in predictions:
        size = abs(each.by[MODEL] / each.theirs - 1)
        errors.setdefault(each.strata.get(key), []).append(size)
    if len(errors) < 2:
        return wording.NONE
    medians = sorted(quantile(some, 0.5) for some in errors.values())
    return f"{100 * medians[0]:.1f} to {percent(medians[-1])}"


def testbeds(found):
    """One table of all predictions. found: [(testbed, the figure's name, predictions)]. Calibration
    inputs have rows of their own; so have numbers that the figure's first number predicts, too."""
    made = tables.Table(["rows", *_COLUMNS[1:], *(f"by {key}" for key in STRATA)])
    for testbed, of, predictions in found:
        lines = []
        predicted = [each for each in predictions if not each.calibrated]
        for kind, some in (
            ("predicted", predicted),
            ("predicted but for the first", beyond_first(predicted)),
            ("calibrated with", [each for each in predictions if each.calibrated]),
        ):
            if not some:
                continue
            strata = [_by_stratum(some, key) for key in STRATA]
            for position, row in enumerate(rows(some)):
                blank = [""] * len(STRATA)
                lines.append([f"{kind}: {row[0]}", *row[1:], *(blank if position else strata)])
        made.groups.append((f"{testbed}, {of}", lines))
    return made


def markdown(table):
    """A table as Markdown, in which groups are headings of their rows."""

    def line(cells):
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    lines = []
    for heading, found in table.groups:
        lines += ["", f"**{heading}**", "", line(table.columns)]
        lines.append("|" + "---|" * len(table.columns))
        lines += [line(row) for row in found]
    return "\n".join([*lines, "", *table.notes]).strip()


def table(groups):
    """The table of predictors. groups: [(heading, predictions)]; calibration inputs are left out."""
    made = tables.Table(list(_COLUMNS))
    for heading, predictions in groups:
        found = rows([each for each in predictions if not each.calibrated])
        if found:
            made.groups.append((heading, found))
    made.notes.append(
        "Formulas take the model's computation, coders and bytes on links: one assumes that a step hides all of the "
        "shorter, the other that it hides nothing. Calibration inputs of the clusters are not counted."
    )
    return made
