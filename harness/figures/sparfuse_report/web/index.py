"""Makes the site's first page: what is new, and what there are pages of."""

from sparfuse_report import wording
from sparfuse_report.page import escape
from sparfuse_report.web import frame, results
from sparfuse_report.web.forest import Scale
from sparfuse_report.web.frame import look_of, mode_badge
from sparfuse_report.web.table import Column, table

NEWEST = 10
HEADINGS = {
    "systems": "Systems",
    "methods": "Methods",
    "workloads": "Workloads",
    "experiments": "Experiments",
    "pairs": "Systems compared",
}


def page_of(store):
    bodies = {
        "systems": _systems(store),
        "methods": _methods(store),
        "workloads": _workloads(store),
        "experiments": _experiments(store),
        "pairs": _pairs(store),
    }
    sections = [("new", "What is new", [], _newest(store))]
    sections += [(name, heading, [], bodies[name]) for name, heading in HEADINGS.items() if bodies[name]]
    trials = sum(system["trials"] for system in store.systems.values())
    facts = [
        results.count(len(store.systems), "system"),
        results.count(len(store.methods), "method"),
        results.count(len(store.workloads), "workload"),
        results.count(len(store.experiments), "experiment"),
        results.count(trials, "trial"),
    ]
    return frame.site_page(store, "Results", facts, sections, up="")


def _newest(store):
    runs = sorted(store.runs, key=lambda run: run["last_utc"], reverse=True)[:NEWEST]
    columns = [
        Column("last trial (UTC)", lambda run: escape(run["last_utc"][:16].replace("T", " "))),
        Column("experiment", lambda run: store.experiment(run["experiment"]).html("")),
        Column("system", lambda run: store.system(run["system"]).html("")),
        Column("trials", lambda run: str(run["trials"]), lambda run: run["trials"]),
    ]
    return table("newest", columns, runs)


def _modes_of(store, cells):
    modes = {cell.mode for cell in cells}
    return "".join(mode_badge(mode) for mode in store.modes if mode in modes)


def _size(what, number):
    return Column(what, lambda row: str(number(row)), number)


def _systems(store):
    rows = []
    for key, system in store.systems.items():
        rows.append((key, system, store.cells_of(system=key), store.runs_of(system=key)))
    columns = [
        Column("system", lambda row: store.system(row[0]).html("")),
        Column("hardware", lambda row: escape(row[1]["hardware"]), kind="setting"),
        Column("numbers", lambda row: _modes_of(store, row[2])),
        _size("experiments", lambda row: len(row[3])),
        _size("trials", lambda row: row[1]["trials"]),
        Column("dates", lambda row: results.dates(row[3])),
    ]
    return table("all-systems", columns, rows)


def _spans(store, cells_of, metric):
    """A column a mode of what ratios of a metric rows have. Modes are apart: none is in another's
    order or drawing."""
    columns = []
    for mode in store.modes:
        have = {
            name: [cell for cell in cells if cell.mode == mode and cell.metric == metric and cell.ratio]
            for name, cells in cells_of.items()
        }
        scale = Scale([cell.ratio for cells in have.values() for cell in cells])
        if any(have.values()):
            columns.append(_span_column(store, mode, have, scale))
    return columns


def _span_column(store, mode, have, scale):
    def words(row):
        cells = have[row[0]]
        drawn = scale.strip([cell.ratio for cell in cells])
        return f"{drawn}<br>{results.span(cells)}" if cells else ""

    def most(row):
        return max((cell.ratio.value for cell in have[row[0]]), default=None)

    kind = f"drawing {look_of(mode)}"
    return Column(f"{mode}, vs {store.reference}", words, most, head=scale.axis(), kind=kind)


def _methods(store):
    cells_of = {name: store.cells_of(method=name) for name in store.methods}
    rows = [(name, store.methods[name], cells_of[name]) for name in store.methods]
    columns = [
        Column("method", lambda row: store.method(row[0]).html("")),
        Column("what it is", lambda row: escape(row[1].get("title", "not known here")), kind="setting"),
        Column("source", lambda row: escape(row[1].get("source", "")), kind="setting"),
        _size("systems", lambda row: len({cell.system for cell in row[2]})),
        _size("workloads", lambda row: len({cell.workload for cell in row[2]})),
    ]
    columns += _spans(store, cells_of, "throughput")
    note = (
        "<p class='notes'>Throughput over all settings, systems and workloads: the lowest and the "
        "highest ratio, and of how many. Settings differ; a method's page has each with its interval."
        "</p>"
    )
    return table("all-methods", columns, rows) + note


def _workloads(store):
    rows = [(name, fields, store.cells_of(workload=name)) for name, fields in store.workloads.items()]
    columns = [
        Column("workload", lambda row: store.workload(row[0]).html("")),
        Column("what it is", lambda row: escape(row[1].get("summary", "not known here")), kind="setting"),
        Column(
            "parameters",
            lambda row: wording.number(row[1]["parameters"]) if "parameters" in row[1] else "",
            lambda row: row[1].get("parameters"),
        ),
        _size("systems", lambda row: len({cell.system for cell in row[2]})),
        _size("methods", lambda row: len({cell.method for cell in row[2]})),
        Column("numbers", lambda row: _modes_of(store, row[2])),
    ]
    return table("all-workloads", columns, rows)


def _experiments(store):
    rows = [
        (name, store.cells_of(experiment=name), store.runs_of(experiment=name))
        for name in store.experiments
    ]
    columns = [
        Column("experiment", lambda row: store.experiment(row[0]).html("")),
        Column("numbers", lambda row: _modes_of(store, row[1])),
        _size("systems", lambda row: len(row[2])),
        _size("methods", lambda row: len({cell.method for cell in row[1]})),
        _size("trials", lambda row: sum(run["trials"] for run in row[2])),
        Column("dates", lambda row: results.dates(row[2])),
    ]
    return table("all-experiments", columns, rows)


def _pairs(store):
    """How often two systems agree; "" where no two have anything in common."""
    if not store.pairs:
        return ""

    def verdicts(word):
        return _size(word, lambda pair: sum(cell["verdict"] in WORDS[word] for cell in pair["cells"]))

    columns = [
        Column("systems", lambda pair: store.pair(pair).html("")),
        _size("ratios", lambda pair: len(pair["cells"])),
        *(verdicts(word) for word in WORDS),
    ]
    return table("all-pairs", columns, store.pairs)


WORDS = {
    "agree": ("agree",),
    "differ": ("first", "second"),
    "undecided": ("undecided",),
    "not comparable": ("not comparable",),
}
