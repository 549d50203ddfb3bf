"""Draws the distance of predictions from a paper's measurements on the modelled machines, both
absolute, and sums it up."""

from sparfuse_report import cells as selection
from sparfuse_report import published as papers
from sparfuse_report import style, wording
from sparfuse_report.drawn import Drawn, caption


def agreement(experiment, part, figure, styles):
    y = selection.metric_of(figure)
    printed, chosen = papers.Published(figure), part.shown(figure)
    given = figure.get("agreement") or {"counted": 0}  # harness/report/skill.hpp
    if not given["counted"]:
        raise selection.NoData(f"no cell of part '{part.id}' stands beside a published number")
    found = [(part.cells[pair["cell"]], pair) for pair in given["pairs"]]
    clusters = list(dict.fromkeys(cell.get("cluster") for cell, _ in found))
    made, grid = style.figure(1, len(clusters), 2.3, sharey="row")
    for cluster, axes in zip(clusters, grid[0]):
        axes.axhline(0, color=style.QUIET, linewidth=0.9, zorder=0.9)
        for cell, pair in found:
            if cell.get("cluster") != cluster:
                continue
            look = styles[cell.label]
            marker = "x" if pair["calibrated"] else look.marker
            axes.plot(pair["theirs"], 100 * pair["error"], linestyle="", marker=marker, markersize=5.4,
                      color=look.colour, zorder=4)
        axes.set_xscale("log")
        style.few_ticks(axes.xaxis, of_decade=(1, 3))
        axes.set_xlabel(wording.axis("published", found[0][1]["unit"]))
        style.panel_title(axes, str(cluster or ""), "")
    grid[0][0].set_ylabel(wording.axis("off_published", "%"))
    handles = styles.points({cell.label for cell, _ in found})
    cross = {"linestyle": "", "marker": "x", "color": style.QUIET}
    handles.append(style.entry("input: not counted", **cross))
    title = figure.get("title") or "Predicted against published " + wording.metric_name(y).lower()
    title += f": median error {given['median_error']} (n = {given['counted']})"
    text = caption(
        chosen,
        "Both numbers are absolute. Calibration inputs of the clusters are drawn as crosses and "
        "counted only in the order of methods.",
        printed.source,
    )
    return Drawn(made, title, text, handles)
