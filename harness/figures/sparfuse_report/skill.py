"""Judges predictions of published numbers beside formulas and predictors that need no model: a model
has skill where it is nearer than they are."""

from dataclasses import dataclass, field

from sparfuse_report import tables, wording

APART = 0.03  # published numbers that differ by less have no order
MODEL = "the model"
LONGEST = "the longer of computation and wire"
SUM = "computation and wire added up"
NO_GAIN = "no gain"
FIRST = "the published one of the figure's first number"
_COLUMNS = ["predictor", "n", "median |error|", "90th percentile", "too high", "pairs in order", "nearest"]


@dataclass
class Prediction:
    """One published number, and what each predictor says of it."""

    setting: object  # what other methods' predictions share with it
    theirs: float
    by: dict = field(default_factory=dict)  # predictor -> value
    calibrated: bool = False  # the cluster was fitted to it
    strata: dict = field(default_factory=dict)  # of the cell: "cluster", "method", "workload", "workers"


def quantile(values, part):
    """By straight lines between the sorted values."""
    ordered = sorted(values)
    at = part * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def percent(value, sign=""):
    return f"{100 * value:{sign}.1f}{wording.THIN}%"


def formula_seconds(cell):
    """{formula: seconds of the cell's step}; empty where its trial does not say."""
    local, wire = cell.mean("local_seconds"), cell.mean("wire_seconds")
    if local is None or wire is None:
        return {}
    return {LONGEST: max(local, wire), SUM: local + wire}


def throughputs(cell, throughput):
    """What formulas say of the cell's throughput, of which the model says `throughput`."""
    step = cell.mean("step_seconds")
    return {name: throughput * step / seconds for name, seconds in formula_seconds(cell).items()}


def gains(cell, base):
    """What formulas say of the cell's throughput over the base's, at equal batches."""
    over = formula_seconds(base)
    return {name: over[name] / seconds for name, seconds in formula_seconds(cell).items() if name in over}


def in_order(predictions, name):
    """(pairs of methods of one setting in the published order, all that have an order)."""
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
    """A row a predictor, as table() has it. The nearest is one that says something of every number: a
    median over a part of them is over other numbers."""
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
    """Those that the figure's first number predicts, too; none if those are all."""
    found = [each for each in predictions if FIRST in each.by]
    return found if len(found) < len(predictions) else []


STRATA = ("cluster", "workload", "workers", "method")


def strata_of(cell):
    return {key: cell.get(key) for key in STRATA}


def _by_stratum(predictions, key):
    """The least and the largest median error of the model over the values of `key`."""
    errors = {}
    for each in predictions:
        size = abs(each.by[MODEL] / each.theirs - 1)
        errors.setdefault(each.strata.get(key), []).append(size)
    if len(errors) < 2:
        return wording.NONE
    medians = sorted(quantile(some, 0.5) for some in errors.values())
    return f"{100 * medians[0]:.1f} to {percent(medians[-1])}"


def testbeds(found):
    """One table of all: found is [(testbed, what is predicted, predictions)]; what a cluster was
    calibrated with has rows of its own, and so has what the figure's first number predicts, too."""
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
    """Groups as headings of their rows."""

    def line(cells):
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    lines = []
    for heading, found in table.groups:
        lines += ["", f"**{heading}**", "", line(table.columns)]
        lines.append("|" + "---|" * len(table.columns))
        lines += [line(row) for row in found]
    return "\n".join([*lines, "", *table.notes]).strip()


def table(groups):
    """groups: (heading, predictions)."""
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
