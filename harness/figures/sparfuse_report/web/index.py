"""Makes the content of a site's first page: new results, and lists of pages."""

from operator import itemgetter

from sparfuse_report import wording
from sparfuse_report.cells import value_of
from sparfuse_report.web.forest import Scale
from sparfuse_report.web.table import Column, Table, dates, look_of, number, pages, ran

NEWEST = 10
name_of = itemgetter(0)  # of a row: its subject's name is first
WORDS = {
    "agree": ("agree",),
    "differ": ("first", "second"),
    "undecided": ("undecided",),
    "not comparable": ("not comparable",),
}


def shown(store):
    runs = sorted(store.runs, key=lambda run: run["last_utc"], reverse=True)[:NEWEST]
    newest = ran(store, runs, "last trial (UTC)", "experiment", "system", "trials")
    newest.name = "newest"
    trials = sum(system["trials"] for system in store.systems.values())
    return {
        "title": "Results",
        "facts": [
            wording.count(len(store.systems), "system"),
            wording.count(len(store.methods), "method"),
            wording.count(len(store.workloads), "workload"),
            wording.count(len(store.experiments), "experiment"),
            wording.count(trials, "trial"),
        ],
        "newest": newest,
        "tables": [
            (table.name.removeprefix("all-"), table)
            for make in (_systems, _methods, _workloads, _experiments, _pairs)
            if (table := make(store))
        ],
    }


def _modes(store, of):
    def modes(row):
        there = {cell.mode for cell in of(row)}
        return [mode for mode in store.modes if mode in there]

    return Column("numbers", modes, look="modes")


def _several(what, of):
    """A column with the number of different `what`, such as "methods", among a row's cells."""
    return number(what, lambda row: len({getattr(cell, what.removesuffix("s")) for cell in of(row)}))


def _systems(store):
    rows = [
        (key, system, store.cells_of(system=key), store.runs_of(system=key))
        for key, system in store.systems.items()
    ]
    columns = [
        pages(store, "system", name_of),
        Column("hardware", lambda row: row[1]["hardware"], kind="setting"),
        _modes(store, lambda row: row[2]),
        number("experiments", lambda row: len(row[3])),
        number("trials", lambda row: row[1]["trials"]),
        Column("dates", lambda row: dates(row[3])),
    ]
    return Table("all-systems", columns, rows)


def _spans(store, cells_of, metric):
    """A column for each mode, with the ratios of a metric in each row. Modes stay apart: none is in the
    order or drawing of another."""
    columns = []
    for mode in store.modes:
        have = {
            name: [cell for cell in cells if cell.mode == mode and cell.metric == metric and cell.ratio]
            for name, cells in cells_of.items()
        }
        if any(have.values()):
            columns.append(_span(store, mode, have))
    return columns


def _words(cells):
    """The span and number of the cells' ratios, as "0.61x to 1.42x (8)"."""
    ratios = sorted((cell.ratio for cell in cells), key=value_of)
    low, high = (ratios[place].text.partition(" ")[0] for place in (0, -1))
    return f"{low if low == high else f'{low} to {high}'} ({len(ratios)})"


def _span(store, mode, have):
    scale = Scale([cell.ratio for cells in have.values() for cell in cells])

    def lines(row):
        cells = have[row[0]]
        return [(scale.strip([cell.ratio for cell in cells]), ""), (_words(cells), "")] if cells else []

    def most(row):
        return max((cell.ratio.value for cell in have[row[0]]), default=None)

    kind = f"drawing {look_of(mode)}"
    return Column(f"{mode}, vs {store.reference}", lines, most, "lines", kind, scale)


def _methods(store):
    cells_of = {name: store.cells_of(method=name) for name in store.methods}
    rows = [(name, store.methods[name], cells_of[name]) for name in store.methods]
    columns = [
        pages(store, "method", name_of),
        Column("description", lambda row: row[1].get("title", "not known here"), kind="setting"),
        Column("source", lambda row: row[1].get("source", ""), kind="setting"),
        _several("systems", lambda row: row[2]),
        _several("workloads", lambda row: row[2]),
        *_spans(store, cells_of, "throughput"),
    ]
    return Table("all-methods", columns, rows)


def _workloads(store):
    rows = [(name, fields, store.cells_of(workload=name)) for name, fields in store.workloads.items()]
    columns = [
        pages(store, "workload", name_of),
        Column("description", lambda row: row[1].get("summary", "not known here"), kind="setting"),
        Column(
            "parameters",
            lambda row: wording.number(row[1]["parameters"]) if "parameters" in row[1] else "",
            lambda row: row[1].get("parameters"),
        ),
        _several("systems", lambda row: row[2]),
        _several("methods", lambda row: row[2]),
        _modes(store, lambda row: row[2]),
    ]
    return Table("all-workloads", columns, rows)


def _experiments(store):
    rows = [
        (name, store.cells_of(experiment=name), store.runs_of(experiment=name))
        for name in store.experiments
    ]
    columns = [
        pages(store, "experiment", name_of),
        _modes(store, lambda row: row[1]),
        number("systems", lambda row: len(row[2])),
        _several("methods", lambda row: row[1]),
        number("trials", lambda row: sum(run["trials"] for run in row[2])),
        Column("dates", lambda row: dates(row[2])),
    ]
    return Table("all-experiments", columns, rows)


def _pairs(store):
    """A table of how often two systems agree; None if no two systems have a cell in common."""

    def verdicts(word):
        return number(word, lambda pair: sum(cell["verdict"] in WORDS[word] for cell in pair["cells"]))

    columns = [
        Column("systems", lambda pair: (store.pair(pair), ""), look="link"),
        number("ratios", lambda pair: len(pair["cells"])),
        *map(verdicts, WORDS),
    ]
    return Table("all-pairs", columns, store.pairs) if store.pairs else None
