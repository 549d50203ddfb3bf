"""Writes cells as tables, apart by how their numbers were obtained and by metric: nothing modelled or
imported stands in the order of what was measured."""

from sparfuse_report import wording
from sparfuse_report.page import anchor_of, escape
from sparfuse_report.web.forest import Scale
from sparfuse_report.web.frame import look_of, mode_badge
from sparfuse_report.web.store import common_setting
from sparfuse_report.web.table import Column, table


def _subject(store, what, up):
    """The column of a part of a cell that has pages of its own."""
    return Column(what, lambda cell: getattr(store, what)(getattr(cell, what)).html(up))


def _ratio_words(cell):
    if cell.is_reference:
        return "<span class='quiet'>reference</span>"
    if cell.ratio is None:
        return f"<span class='quiet'>{escape(cell.lacks)}</span>"
    return escape(wording.ratio(cell.ratio))


def ratio_value(cell):
    return cell.ratio.value if cell.ratio else None


def _absolute_words(cell):
    if cell.absolute is None:
        return ""
    return f"<span class='quiet'>{escape(wording.with_interval(cell.absolute, cell.unit))}</span>"


def _blocks(cell):
    known = cell.ratio or cell.absolute
    return known.n if known else None


def _blocks_words(store, cell, up):
    """The number of blocks, which unfolds to the trials."""
    n = _blocks(cell) or 0
    star = "*" if n and n < store.preliminary_below and cell.mode != "modelled" else ""
    apart = f" + {cell.apart} disturbed" if cell.apart else ""
    if cell.disturbed > cell.apart and cell.kind == "throughput":
        apart += f" ({cell.disturbed - cell.apart} disturbed)"
    if not cell.trials:
        return f"{n}{apart}"
    ids = "<br>".join(escape(trial) for trial in cell.trials)
    over = ""
    if cell.reference:
        there = store.experiment(cell.experiment)
        over = f"<br>over <a href='{up}{there.path()}#{cell.reference_anchor}'>{escape(store.reference)}'s</a>"
    return f"<details class='trials'><summary>{n}{star}{apart}</summary>{ids}{over}</details>"


def columns_of(store, cells, up, without, scale, kind, common):
    """Those columns in which a page's cells can differ."""
    subjects = [what for what in ("method", "system", "workload") if what not in without]
    columns = [_subject(store, what, up) for what in subjects]
    columns.append(Column("workers", lambda cell: str(cell.workers), lambda cell: cell.workers))
    if any(cell.words(common) for cell in cells):
        columns.append(Column("setting", lambda cell: escape(cell.words(common)), kind="setting"))
    columns += [
        Column(f"vs {store.reference}", _ratio_words, ratio_value),
        Column(
            "drawn",
            lambda cell: scale.drawn(cell.ratio, kind=kind) or " ",
            ratio_value,
            head=scale.axis(),
            kind="drawing",
        ),
        Column("n", lambda cell: _blocks_words(store, cell, up), _blocks),
        Column(
            "absolute",
            _absolute_words,
            lambda cell: cell.absolute.value if cell.absolute else None,
        ),
    ]
    if "experiment" not in without:
        columns.append(
            Column(
                "experiment",
                lambda cell: store.experiment(cell.experiment).html(up, cell.anchor),
            )
        )
    elif len({cell.part for cell in cells}) > 1:
        columns.append(Column("part", lambda cell: escape(cell.part)))
    return columns


def tables(store, cells, up, without=(), anchors=False):
    """A table a mode and metric, each under a heading that says both; anchors: rows have their own,
    so that other pages lead to them."""
    out = []
    for mode in store.modes:
        of_mode = [cell for cell in cells if cell.mode == mode]
        for metric in sorted({cell.metric for cell in of_mode}, reverse=True):
            group = [cell for cell in of_mode if cell.metric == metric]
            out.append(_group(store, group, mode, metric, up, without, anchors))
    return "".join(out) or "<p>No trial that counts.</p>"


def _group(store, cells, mode, metric, up, without, anchors):
    scale = Scale([cell.ratio for cell in cells])
    kind = look_of(mode)
    common = common_setting(cells)
    columns = columns_of(store, cells, up, without, scale, kind, common)
    # By what they are: neither the order nor a colour says that one method is better.
    cells = sorted(
        cells,
        key=lambda cell: (cell.workload, cell.workers, cell.words(), cell.method, cell.system),
    )
    said = ", ".join(f"{key} {text}" for key, text in common)
    return (
        f"<h3>{escape(wording.metric_name(metric))} {mode_badge(mode)}</h3>"
        + (f"<p class='quiet'>All of them: {escape(said)}.</p>" if said else "")
        + table(
            anchor_of(mode, metric),
            columns,
            cells,
            anchor=(lambda cell: cell.anchor) if anchors else None,
            kind=lambda cell: kind,
        )
    )


def failures(store, cells, up, without=()):
    """Trials that did not count; "" where there are none."""
    rows = [(cell, failed) for cell in cells for failed in cell.failed]
    if not rows:
        return ""
    columns = [
        Column("method", lambda row: store.method(row[0].method).html(up)),
        Column("system", lambda row: store.system(row[0].system).html(up)),
        Column("workload", lambda row: store.workload(row[0].workload).html(up)),
        Column("workers", lambda row: str(row[0].workers), lambda row: row[0].workers),
        Column("setting", lambda row: escape(row[0].words()), kind="setting"),
        Column("what", lambda row: f"<span class='alarm'>{escape(row[1]['why'])}</span>"),
        Column("message", lambda row: escape(row[1]["message"]), kind="setting"),
        Column("trial", lambda row: escape(row[1]["trial"])),
        Column("experiment", lambda row: store.experiment(row[0].experiment).html(up)),
    ]
    return table("failed", [each for each in columns if each.title not in without], rows)


def span(cells):
    """ "0.61x to 1.42x (8)" of the ratios of cells; "" of none."""
    ratios = [cell.ratio.value for cell in cells if cell.ratio]
    if not ratios:
        return ""
    low, high = f"{min(ratios):.2f}x", f"{max(ratios):.2f}x"
    return f"{low if low == high else f'{low} to {high}'} ({len(ratios)})"


def dates(runs):
    """ "2026-01-31" or "2026-01-31 to 2026-02-03" """
    first = min(run["first_utc"] for run in runs)[:10]
    last = max(run["last_utc"] for run in runs)[:10]
    return first if first == last else f"{first} to {last}"


def count(number, word):
    return f"{number} {word}{'' if number == 1 else 's'}"
