"""Draws the final metric of methods over a reference's, by workload."""

from matplotlib.patches import Patch

from sparfuse_report import cells as selection
from sparfuse_report import marks, style, wording
from sparfuse_report import published as papers
from sparfuse_report.drawn import Drawn, caption

TALLEST = 1.6  # the highest end of an axis of ratios
NARROW = 6  # bars in a panel that fits beside another panel


def _group_words(workload, inside, metric):
    unit = next((cell.unit(metric) for cell in inside if cell.unit(metric)), "")
    return f"{workload}\n(perplexity: lower is better)" if "perplex" in unit else str(workload)


def normalised_bars(experiment, part, figure, styles):
    """Draws `y` (the final metric) of each method divided by the reference's, seed by seed."""
    metric, reference = selection.metric_of(figure, "final_metric"), figure["reference"]
    chosen = selection.shown_with(part, figure, metric, but=reference)
    printed, found = papers.Published(figure), marks.Marks()
    panels = selection.panels(part, figure)
    names = [name for name in styles.sort(cell.method for cell in chosen) if name != reference]
    many = max(len({cell.workload for cell in inside}) for inside in (panel.cells for panel in panels))
    columns = 2 if len(panels) > 1 and many * len(names) <= NARROW else 1
    made, places = style.panels(len(panels), columns, 2.3)
    width = min(0.7 / max(len(names), 1), 0.2)
    whiskers = dots = cut = False
    for panel, axes in zip(panels, places):
        inside = panel.cells
        workloads = list(dict.fromkeys(cell.workload for cell in inside))
        top = 1.0
        for cell, position in zip(inside, panel.given["printed"]):
            if cell.method == reference:
                continue
            at = workloads.index(cell.workload) + width * (
                names.index(cell.method) - (len(names) - 1) / 2
            )
            ratio = cell.ratio(metric, reference)
            if ratio is None:
                style.write_failure(axes, at, cell.failure() or f"no {reference}")
            else:
                found.mode(cell.mode)
                axes.bar(at, ratio.value, width * 0.9, **marks.bar(styles[cell.method], cell.mode))
                top = max(top, ratio.value)
                if ratio.low is not None:
                    whiskers = True
                    top = max(top, min(ratio.high, TALLEST))
                    cut = cut or ratio.high > TALLEST
                    marks.whisker(axes, at, ratio.value, ratio.low, ratio.high)
                if len(ratio.values) > 1:
                    dots = True
                    marks.dots(axes, at, width, list(ratio.values.values()))
            if position is not None:
                row = printed.rows[position]
                found.value(axes, at, width, row.value, row)
                top = max(top, row.value)
        marks.level(axes, 1.0, reference)
        axes.set_ylim(0, top * 1.08)
        of_workload = [[cell for cell in inside if cell.workload == name] for name in workloads]
        words = [_group_words(*each, metric) for each in zip(workloads, of_workload)]
        style.groups_of_bars(axes, words)
        axes.set_ylabel(wording.over(metric, reference))
        style.panel_title(axes, panel.head, panel.rest)
    handles = [Patch(label=name, **styles[name].bar()) for name in names] + found.handles()
    if dots:
        handles.append(marks.dot_handle("one seed"))
    title = figure.get("title") or f"{wording.metric_name(metric)} of methods over {reference}'s"
    text = caption(
        chosen,
        f"Bars: geometric mean over seeds (blocks) of the ratio to {reference} with the same seed"
        + ("; dots: single seeds." if dots else "."),
        "Whiskers: 95 % t interval of the paired log-ratio"
        + ("; the longest are cut by the axis." if cut else ".")
        if whiskers
        else "",
        f"{printed.source} The paper's models and data differ: compare only the order." if printed else "",
    )
    return Drawn(made, title, text, handles)
