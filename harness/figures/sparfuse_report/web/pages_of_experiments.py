"""Makes a page an experiment: its cells on every system that ran it, and these side by side."""

from sparfuse_report import compare, report
from sparfuse_report.page import escape
from sparfuse_report.web import frame, index, results
from sparfuse_report.web.table import Column, table

MOST_SETTINGS = 12  # of a figure, which has a panel for each


def pages_of(store):
    for name in store.experiments:
        yield store.experiment(name).path(), _page(store, name)


def _page(store, name):
    cells, runs = store.cells_of(experiment=name), store.runs_of(experiment=name)
    sections = [
        ("runs", "Where it ran", [], _runs(store, runs)),
        (
            "results",
            "Results",
            [],
            results.tables(store, cells, "../", without=("experiment",), anchors=True),
        ),
    ]
    several = _several(store, name)
    if several:
        sections.append(("several", "Side by side", [], several))
    pairs = _pairs(store, name)
    if pairs:
        sections.append(("pairs", "Two systems at a time", [], pairs))
    failed = results.failures(store, cells, "../", without=("experiment",))
    if failed:
        sections.append(("failures", "Trials that do not count", [], failed))
    facts = [
        results.count(len(runs), "system"),
        results.count(sum(run["trials"] for run in runs), "trial"),
        results.dates(runs),
    ]
    return frame.site_page(
        store, name, facts, sections, within=("experiments", index.HEADINGS["experiments"])
    )


def _several(store, name):
    """A slope graph a part, of three systems or more."""
    found = [each for each in store.several if each["cells"][0]["experiment"] == name]
    if not found:
        return ""
    out = []
    for experiment, part, cells in compare.parts_of(found[0]):
        settings = {cell["setting"] for cell in cells}
        if len(settings) > MOST_SETTINGS:
            out.append(
                f"<p class='quiet'>{escape(part)}: not drawn, for it has {len(settings)} settings; "
                "the table above has all of them.</p>"
            )
            continue
        drawn = compare.draw(found[0], experiment, part, cells)
        out.append(report.embedded(drawn, compare.file_name(experiment, part)))
    return "".join(out)


def _pairs(store, name):
    links = [
        f"<li>{store.pair(pair).html('../')}</li>"
        for pair in store.pairs
        if any(cell["experiment"] == name for cell in pair["cells"])
    ]
    return f"<ul>{''.join(links)}</ul>" if links else ""


def _runs(store, runs):
    columns = [
        Column("system", lambda run: store.system(run["system"]).html("../")),
        Column(
            "hardware",
            lambda run: escape(store.systems[run["system"]]["hardware"]),
            kind="setting",
        ),
        Column("trials", lambda run: str(run["trials"]), lambda run: run["trials"]),
        Column("dates", lambda run: results.dates([run])),
    ]
    return table("ran", columns, runs)
