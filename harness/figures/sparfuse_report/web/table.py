"""Says what the tables of a site show: cells apart by how their numbers were obtained and by metric, so
that nothing modelled or imported stands in the order of what was measured."""

from dataclasses import dataclass
from typing import Callable

from sparfuse_report import wording
from sparfuse_report.cells import value_of
from sparfuse_report.page import anchor_of
from sparfuse_report.web.forest import Scale
from sparfuse_report.web.store import common_setting, modes_and_metrics


@dataclass
class Column:
    title: str
    shown: Callable  # gives the content of a row's cell, in the form that `look` takes
    value: Callable | None = None  # gives a row's number, or None; without it, the text sorts
    look: str = "text"  # the form that sortable.html writes: text, link, lines, modes or trials
    kind: str = ""  # CSS class of the cells
    scale: Scale | None = None  # the scale drawn under the title
    lacking: str = wording.NONE  # the text of an empty cell

    @property
    def key(self):
        return anchor_of(self.title)

    @property
    def looks(self):
        return " ".join(filter(None, ("text" if not self.value else "", self.kind)))


@dataclass
class Table:
    name: str  # its anchor on the page
    columns: list
    rows: list
    kind: str = ""  # CSS class of its rows
    anchored: bool = False  # whether rows have anchors, to which other pages lead


@dataclass
class Group:
    """A table of one mode and metric."""

    metric: str
    mode: str
    common: list  # (key, text) that all its cells share
    table: Table


def pages(store, kind, name_of, anchor=lambda row: ""):
    """The column of links to the pages of a kind of subjects, such as "method"."""
    return Column(kind, lambda row: (store.page(kind, name_of(row)), anchor(row)), look="link")


def number(title, of):
    return Column(title, lambda row: str(of(row)), of)


def drawing(scale, ratios_of, kind="", **more):
    """The column of a row's ratios, drawn on a scale; sorted by the first."""
    return Column(
        "drawn",
        lambda row: scale.drawn(*ratios_of(row), kind=kind),
        lambda row: value_of(ratios_of(row)[0]),
        kind="drawing",
        scale=scale,
        **more,
    )


def look_of(mode):
    """The CSS class of a mode; an unknown mode looks like "imported"."""
    return mode if mode in wording.MODE_MEANS else "imported"


def quiet(words):
    return [(words, "quiet")] if words else []


def _subjects(store, without, of=lambda row: row):
    """The columns of a cell's method, system and workload, which have pages of their own."""
    return [
        pages(store, what, lambda row, what=what: getattr(of(row), what))
        for what in ("method", "system", "workload")
        if what not in without
    ]


def _ratio(cell):
    if cell.is_reference:
        return quiet("reference")
    return quiet(cell.lacks) if cell.ratio is None else [(cell.ratio.text, "")]


class Blocks:
    """The number of blocks behind a cell's number, and their trials."""

    def __init__(self, store, cell):
        n = _blocks(cell) or 0
        star = n and n < store.preliminary_below and cell.mode != "modelled" and cell.trials
        self.words = f"{n}*" if star else str(n)
        if cell.apart:
            self.words += f" + {cell.apart} disturbed"
        if cell.disturbed > cell.apart and cell.kind == "throughput":
            self.words += f" ({cell.disturbed - cell.apart} disturbed)"
        self.trials, self.anchor = cell.trials, cell.reference_anchor
        self.there, self.reference = store.page("experiment", cell.experiment), store.reference


def _blocks(cell):
    known = cell.ratio or cell.absolute
    return known.n if known else None


def _columns(store, cells, without, kind, common):
    """The columns in which a page's cells can differ."""
    scale = Scale([cell.ratio for cell in cells])
    columns = [*_subjects(store, without), number("workers", lambda cell: cell.workers)]
    if any(cell.words(common) for cell in cells):
        columns.append(Column("setting", lambda cell: cell.words(common), kind="setting"))
    columns += [
        Column(f"vs {store.reference}", _ratio, lambda cell: value_of(cell.ratio), "lines"),
        drawing(scale, lambda cell: (cell.ratio,), kind, lacking=""),
        Column("n", lambda cell: Blocks(store, cell), _blocks, "trials"),
        Column("absolute", _absolute, lambda cell: value_of(cell.absolute), "lines"),
    ]
    if "experiment" not in without:
        columns.append(pages(store, "experiment", lambda cell: cell.experiment, lambda cell: cell.anchor))
    elif len({cell.part for cell in cells}) > 1:
        columns.append(Column("part", lambda cell: cell.part))
    return columns


def _absolute(cell):
    return quiet(cell.absolute and cell.absolute.text)


def groups(store, cells, without=(), anchored=False):
    """A Group for each mode and metric."""
    return [
        _group(store, [cell for cell in cells if (cell.mode, cell.metric) == of], without, anchored)
        for of in modes_and_metrics(store, cells)
    ]


def _group(store, cells, without, anchored):
    mode, metric, common = cells[0].mode, cells[0].metric, common_setting(cells)
    columns = _columns(store, cells, without, look_of(mode), common)
    # Sorted by setting and name: neither the order nor a colour says that one method is better.
    cells = sorted(
        cells,
        key=lambda cell: (cell.workload, cell.workers, cell.words(), cell.method, cell.system),
    )
    table = Table(anchor_of(mode, metric), columns, cells, look_of(mode), anchored)
    return Group(metric, mode, common, table)


def failures(store, cells, without):
    """A table of the trials that did not count; None if there are none."""
    rows = [(cell, failed) for cell in cells for failed in cell.failed]
    columns = [
        *_subjects(store, without, lambda row: row[0]),
        number("workers", lambda row: row[0].workers),
        Column("setting", lambda row: row[0].words(), kind="setting"),
        Column("what", lambda row: [(row[1]["why"], "alarm")], look="lines"),
        Column("message", lambda row: row[1]["message"], kind="setting"),
        Column("trial", lambda row: row[1]["trial"]),
        pages(store, "experiment", lambda row: row[0].experiment),
    ]
    columns = [each for each in columns if each.title not in without]
    return Table("failed", columns, rows) if rows else None


def ran(store, runs, *what):
    """A table of the runs, with the columns of the given titles."""
    known = {
        "last trial (UTC)": Column("last trial (UTC)", lambda run: run["last_utc"][:16].replace("T", " ")),
        "experiment": pages(store, "experiment", lambda run: run["experiment"]),
        "system": pages(store, "system", lambda run: run["system"]),
        "hardware": Column("hardware", lambda run: store.systems[run["system"]]["hardware"], kind="setting"),
        "trials": number("trials", lambda run: run["trials"]),
        "dates": Column("dates", lambda run: dates([run])),
    }
    return Table("ran", [known[title] for title in what], runs)


def dates(runs):
    """The dates of runs, as "2026-01-31" or "2026-01-31 to 2026-02-03"."""
    first = min(run["first_utc"] for run in runs)[:10]
    last = max(run["last_utc"] for run in runs)[:10]
    return first if first == last else f"{first} to {last}"
