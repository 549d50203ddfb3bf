"""Predicted against observed step time, for every cell that both engines ran."""

from dataclasses import dataclass

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

import cells as selection
import intervals
import style
import wording
from caption import caption
from drawn import Drawn

BAND = 0.15  # the median error that the model may have on cells that are not oversubscribed


@dataclass
class Pair:
    live: object
    twin: object
    observed: intervals.Interval  # seconds
    predicted: float  # seconds
    oversubscribed: bool | None  # None: the store does not know the machine's cores

    @property
    def error(self):
        return self.predicted / self.observed.value - 1.0


@dataclass
class Check:
    pairs: list
    comparisons: int  # pairs of methods, not oversubscribed, whose intervals do not overlap
    same_order: int  # of these, those that the model orders alike

    def median_error(self, oversubscribed):
        errors = [
            abs(pair.error) for pair in self.pairs if bool(pair.oversubscribed) == oversubscribed
        ]
        return intervals.median(errors) if errors else None


def check(part, predicted):
    """Joins the live cells of `part` with their modelled twins; compares the order of methods."""
    twins = {cell.key(selection.TWIN_IGNORES): cell for cell in predicted.cells}
    pairs = []
    for live in part.cells:
        twin = twins.get(live.key(selection.TWIN_IGNORES))
        observed = live.interval("step_seconds")
        guess = twin.interval("step_seconds") if twin else None
        if observed and guess:
            pairs.append(Pair(live, twin, observed, guess.value, live.oversubscribed()))
    comparisons = same = 0
    for position, one in enumerate(pairs):
        for other in pairs[position + 1 :]:
            if (
                one.oversubscribed
                or other.oversubscribed
                or one.live.key(selection.METHOD_KEYS) != other.live.key(selection.METHOD_KEYS)
            ):
                continue
            a, b = one.observed, other.observed
            if a.low is None or b.low is None or (a.low <= b.high and b.low <= a.high):
                continue
            comparisons += 1
            same += (one.predicted > other.predicted) == (a.value > b.value)
    return Check(pairs, comparisons, same)


def live_and_predicted(experiment, part):
    """`part` may be either of the two."""
    if part.id.endswith(".predicted"):
        return experiment.part(part.id.removesuffix(".predicted")), part
    return part, experiment.predicted(part)


def prediction(experiment, part, figure, styles):
    live, predicted = live_and_predicted(experiment, part)
    if predicted is None:
        raise selection.NoData(
            f"part '{live.id}' has no part '{live.id}.predicted' to compare with"
        )
    result = check(live, predicted)
    chosen = selection.select([pair.live for pair in result.pairs], figure)
    pairs = [pair for pair in result.pairs if pair.live in chosen]
    if not pairs:
        raise selection.NoData(f"no cell of part '{live.id}' was run by both engines")
    result = Check(pairs, result.comparisons, result.same_order)
    made, grid = style.figure(1, 1, 4.3, width=5.4)
    axes = grid[0, 0]
    seconds = [pair.predicted for pair in pairs] + [pair.observed.value for pair in pairs]
    scale, unit = wording.seconds_scale(max(seconds))
    low, high = min(seconds) * scale / 1.35, max(seconds) * scale * 1.35
    line = [low, high]
    axes.fill_between(
        line,
        [value * (1 - BAND) for value in line],
        [value * (1 + BAND) for value in line],
        color="#d8dee4",
        alpha=0.7,
        linewidth=0,
    )
    axes.plot(line, line, color=style.QUIET, linewidth=0.9)
    for pair in pairs:
        look = styles[pair.live.method]
        observed, guess = pair.observed.value * scale, pair.predicted * scale
        if pair.observed.low is not None:
            axes.plot(
                [pair.observed.low * scale, pair.observed.high * scale],
                [guess, guess],
                color=look.colour,
                linewidth=0.6,
                alpha=0.5,
                zorder=3,
            )
        axes.plot(
            observed,
            guess,
            marker=look.marker,
            linestyle="",
            markersize=6.2,
            markerfacecolor="white" if pair.oversubscribed else look.colour,
            markeredgecolor=look.colour if pair.oversubscribed else style.INK,
            markeredgewidth=1.1 if pair.oversubscribed else 0.5,
            zorder=4,
        )
    for axis in ("x", "y"):
        getattr(axes, f"set_{axis}scale")("log")
        getattr(axes, f"set_{axis}lim")(low, high)
    style.few_ticks(axes.xaxis)
    style.few_ticks(axes.yaxis)
    axes.set_aspect("equal")
    axes.grid(axis="x", visible=True)
    axes.set_xlabel(f"Observed step time ({unit}, log scale)")
    axes.set_ylabel(f"Predicted step time ({unit}, log scale)")
    names = styles.sort(pair.live.method for pair in pairs)
    handles = [
        Line2D(
            [],
            [],
            linestyle="",
            marker=styles[name].marker,
            color=styles[name].colour,
            markeredgecolor=style.INK,
            markeredgewidth=0.5,
            markersize=6,
            label=name,
        )
        for name in names
    ]
    if any(pair.oversubscribed for pair in pairs):
        handles.append(
            Line2D(
                [],
                [],
                linestyle="",
                marker="o",
                markerfacecolor="white",
                markersize=6,
                markeredgecolor=style.QUIET,
                label="open: oversubscribed",
            )
        )
    handles.append(Patch(facecolor="#d8dee4", label=f"within {BAND * 100:.0f} %"))
    handles.append(Line2D([], [], color=style.QUIET, linewidth=0.9, label="predicted = observed"))
    title = figure.get("title") or "Predicted against observed step time"
    title += f": {error_words(result)}"
    text = caption(
        [pair.live for pair in pairs] + [pair.twin for pair in pairs],
        f"{len(pairs)} cells that both engines ran. Observed: geometric mean over blocks; lines: "
        "its "
        "95 % t interval on logarithms. Open: more threads than the machine has cores. Inputs "
        "of the prediction are single-operation measurements and a backward profile, never the "
        "step time of a compared cell.",
    )
    return Drawn(made, title, text, handles)


def error_words(result):
    """ "median error 8.1 % (n = 12 cells), 41 % oversubscribed (n = 6 cells)"."""
    words = []
    for crowded, name in ((False, "median error"), (True, "oversubscribed")):
        error = result.median_error(crowded)
        if error is not None:
            n = sum(bool(pair.oversubscribed) == crowded for pair in result.pairs)
            words.append(f"{name} {100 * error:.1f} % (n = {n} cells)")
    return ", ".join(words)
