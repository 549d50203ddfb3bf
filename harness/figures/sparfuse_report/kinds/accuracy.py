"""Draws the final metric of methods over a reference's, by workload."""

from matplotlib.patches import Patch

from sparfuse_report import cells as selection
from sparfuse_report import marks, style, tables, wording
from sparfuse_report import published as papers
from sparfuse_report.drawn import Drawn, caption

TALLEST = 1.6  # the highest end of an axis of ratios
NARROW = 6  # bars in a panel that fits beside another panel


def _reference(part, figure):
    name = figure.get("reference") or part.reference
    if not name:
        raise selection.SpecError(
            f"part '{part.id}': normalised_bars needs reference = a method of its cells"
        )
    return name


def _group_words(workload, inside, metric):
    unit = next((cell.unit(metric) for cell in inside if cell.unit(metric)), "")
    return f"{workload}\n(perplexity: lower is better)" if "perplex" in unit else str(workload)


def normalised_bars(experiment, part, figure, styles):
    """Draws `y` (the final metric) of each method divided by the reference's, seed by seed."""
    metric, reference = selection.metric_of(figure, "final_metric"), _reference(part, figure)
    chosen = selection.shown_with(part, figure, metric, but=reference)
    printed, found = papers.Published(figure), marks.Marks()
    inputs = papers.calibration(chosen)
    panels = selection.panels(chosen, ["workload", "method"])
    names = [name for name in styles.sort(cell.method for cell in chosen) if name != reference]
    many = max(len({cell.workload for cell in inside}) for _, inside in panels)
    columns = 2 if len(panels) > 1 and many * len(names) <= NARROW else 1
    made, places = style.panels(len(panels), columns, 2.3)
    width = min(0.7 / max(len(names), 1), 0.2)
    whiskers = dots = cut = False
    table = tables.Table(
        ["method", "workload", f"ours / {reference}", "published", "ours / published − 1", "n"]
    )
    for (fields, inside), axes in zip(panels, places):
        workloads = list(dict.fromkeys(cell.workload for cell in inside))
        top, rows_of_table = 1.0, []
        for cell in inside:
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
            row = _row(printed, cell)
            if row:
                calibrated = papers.is_calibration(row, printed.paper, inputs)
                found.value(axes, at, width, row.value, row, calibrated)
                top = max(top, row.value)
                rows_of_table.append(_table_row(cell, ratio, row, calibrated))
        marks.level(axes, 1.0, reference)
        axes.set_ylim(0, top * 1.08)
        of_workload = [[cell for cell in inside if cell.workload == name] for name in workloads]
        words = [_group_words(*each, metric) for each in zip(workloads, of_workload)]
        style.groups_of_bars(axes, words)
        axes.set_ylabel(wording.over(metric, reference))
        words = selection.panel_words(fields, inside, ("workload",))
        style.panel_title(axes, *words)
        if rows_of_table:
            table.groups.append((words[1], rows_of_table))
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
        f"{printed.source()} The paper's models and data differ: compare only the order." if printed else "",
    )
    table.notes += [printed.source()] if printed else []
    return Drawn(made, title, text, handles, [table] if table.groups else [])


def _row(printed, cell):
    """The row of the published ratio of the cell's method on its workload; None without one."""
    rows = (row for row in printed.of(cell.workload) if printed.ours(row.method) == cell.method)
    return next((row for row in rows if row.value is not None), None)


def _table_row(cell, ratio, row, calibrated):
    theirs = f"{row.value:.3g}x ({row.model}, {row.artifact})"
    apart = papers.apart(ratio and ratio.value, row.value, calibrated)
    return [cell.method, str(cell.workload), selection.text_of(ratio), theirs, apart, str(cell.n)]
