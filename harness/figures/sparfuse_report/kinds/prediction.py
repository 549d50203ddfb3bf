"""Draws predicted against observed step time, for every cell that both engines ran."""

from matplotlib.patches import Patch

from sparfuse_report import cells as selection
from sparfuse_report import style, wording
from sparfuse_report.drawn import Drawn, caption


def prediction(experiment, part, figure, styles):
    predicted = experiment.predicted(part)
    if predicted is None:
        raise selection.NoData(
            f"part '{part.id}' has no part '{part.id}.predicted' to compare with"
        )
    fields = figure.get("prediction") or part.prediction
    pairs = fields["cells"]  # each with its "cell", the modelled "twin", and seconds
    if not pairs:
        raise selection.NoData(f"no cell of part '{part.id}' was run by both engines")
    made, grid = style.figure(1, 1, 4.3, width=5.4)
    axes = grid[0, 0]
    live = [part.cells[pair["cell"]] for pair in pairs]
    seconds = [pair["predicted"] for pair in pairs] + [pair["observed"]["value"] for pair in pairs]
    scale, unit = wording.seconds_scale(max(seconds))
    low, high = min(seconds) * scale / 1.35, max(seconds) * scale * 1.35
    line = [low, high]
    least, most = ([value * (1 + sign * fields["may_be_off"]) for value in line] for sign in (-1, 1))
    axes.fill_between(line, least, most, color=style.GRID, alpha=0.7, linewidth=0)
    axes.plot(line, line, color=style.QUIET, linewidth=0.9)
    for cell, pair in zip(live, pairs):
        look, guess = styles[cell.label], pair["predicted"] * scale
        if pair["observed"]["low"] is not None:
            ends = [pair["observed"][end] * scale for end in ("low", "high")]
            look_of = {"color": look.colour, "linewidth": 0.6, "alpha": 0.5, "zorder": 3}
            axes.plot(ends, [guess, guess], **look_of)
        face, edge, width = look.colour, style.INK, 0.5
        if pair["oversubscribed"]:
            face, edge, width = "white", look.colour, 1.1
        axes.plot(pair["observed"]["value"] * scale, guess, marker=look.marker, linestyle="", markersize=6.2, zorder=4,
                  markerfacecolor=face, markeredgecolor=edge, markeredgewidth=width)
    for axis in ("x", "y"):
        getattr(axes, f"set_{axis}scale")("log")
        getattr(axes, f"set_{axis}lim")(low, high)
    style.few_ticks(axes.xaxis)
    style.few_ticks(axes.yaxis)
    axes.set_aspect("equal")
    axes.grid(axis="x", visible=True)
    axes.set_xlabel(wording.axis("observed", unit, log=True))
    axes.set_ylabel(wording.axis("predicted", unit, log=True))
    look = {"markeredgecolor": style.INK, "markeredgewidth": 0.5, "markersize": 6}
    handles = styles.points((cell.label for cell in live), **look)
    if any(pair["oversubscribed"] for pair in pairs):
        look = {"linestyle": "", "marker": "o", "markersize": 6, "markerfacecolor": "white"}
        handles.append(style.entry("open: oversubscribed", markeredgecolor=style.QUIET, **look))
    handles.append(Patch(facecolor=style.GRID, label=f"within {100 * fields['may_be_off']:.0f} %"))
    handles.append(style.entry("predicted = observed", color=style.QUIET, linewidth=0.9))
    title = figure.get("title") or "Predicted against observed step time"
    title += f": {error_words(fields, pairs)}"
    text = caption(
        live + [predicted.cells[pair["twin"]] for pair in pairs],
        f"{len(pairs)} cells that both engines ran. Observed: geometric mean over blocks; lines: its "
        "95 % t interval on logarithms. Open: more threads than the machine has cores. Inputs "
        "of the prediction are single-operation measurements and a backward profile, never the "
        "step time of a compared cell.",
    )
    return Drawn(made, title, text, handles)


def error_words(fields, pairs):
    """The words for median errors, as "median error 8.1 % (n = 12 cells), oversubscribed 41.0 % (n = 6 cells)"."""
    words = []
    for crowded, key, name in (
        (False, "median_error", "median error"),
        (True, "oversubscribed_median_error", "oversubscribed"),
    ):
        error = fields[key]
        if error is not None:
            n = sum(pair["oversubscribed"] == crowded for pair in pairs)
            words.append(f"{name} {100 * error:.1f} % (n = {n} cells)")
    return ", ".join(words)
