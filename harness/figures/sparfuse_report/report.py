"""Makes one self-contained HTML file of an experiment: findings, figures, tables, verdicts,
failures, model check, provenance."""

import base64
import datetime
import io

import matplotlib

from sparfuse_report import cells as selection
from sparfuse_report import kinds, page, style, tables, wording

LONG_TABLE = 40  # rows; a longer table can be folded


class Shown:
    """A figure of a page as an SVG in base64; if there is none, `caption` has the reason."""

    def __init__(self, caption, wrong=False, title="", width=0, picture="", tables=()):
        self.caption, self.wrong, self.title = caption, wrong, title
        self.width, self.picture, self.tables = width, picture, tables


def drawn_figure(experiment, part, entry, styles, name):
    kind = entry.get("kind")
    if kind not in kinds.KINDS:
        known = ", ".join(kinds.KINDS)
        return Shown(f"Unknown figure kind '{kind}'; known: {known}.", wrong=True)
    try:
        return embedded(kinds.KINDS[kind](experiment, part, entry, styles), name, tables.of(entry))
    except selection.NoData as reason:
        return Shown(f"Figure '{kind}' is not shown: {reason}.")


def embedded(drawn, name, numbers=()):
    """The figure as a picture within the page, with its tables; equal figures give equal text."""
    style.finish(drawn.figure, drawn.title, drawn.handles)
    picture = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        drawn.figure.savefig(picture, format="svg", metadata={"Date": None})
    width = f"{drawn.figure.get_size_inches()[0] * 130:.0f}"
    style.close(drawn.figure)
    data = base64.b64encode(picture.getvalue()).decode()
    return Shown(drawn.caption, title=drawn.title, width=width, picture=data, tables=numbers)


def _failures(experiment):
    """Failed trials (even if a later trial counts), trials called bad, disturbed trials, and cells
    without any trial, as lists of rows."""
    failed, called_bad, disturbed, without = [], [], [], []
    for cell in experiment.all_cells():
        named = (cell.part.id, cell.describe())
        for trial in cell.set_aside:
            when = f"block {trial['block']}, {trial['started_utc'] or 'date unknown'}"
            if trial["annotations"]:
                called_bad.append((*named, when, "; ".join(trial["annotations"])))
                continue
            state = (
                "another trial of this block counts"
                if trial["block"] in cell.trials
                else f"{cell.n} other blocks count" if cell.n else "the cell has no number"
            )
            failed.append((*named, when, state, trial))
        for trial in cell.disturbed:
            disturbed.append((*named, f"block {trial['block']}", trial["step"], trial["why"]))
        if cell.failure() in ("not run", "stale"):
            without.append((*named, cell.failure()))
    return {"failed": failed, "called_bad": called_bad, "disturbed": disturbed, "without": without}


def _excluded(experiment):
    rows = []
    for part in experiment.parts:
        for entry in part.excluded:
            cell = entry.get("cell")
            if isinstance(cell, dict):
                cell = ", ".join(f"{key} {value}" for key, value in wording.flatten(cell).items())
            rows.append((part.id, cell or "", entry.get("reason") or "no reason given"))
    return rows


def _checked(experiment, styles):
    """[(title, table, figure or None)] of the parts whose cells have modelled twins."""
    found = []
    for part in experiment.parts:
        twin = experiment.predicted(part)
        if twin is None or part.prediction is None:
            continue
        table, figure = part.prediction["table"], None
        drawn = any(entry.get("kind") == "prediction" for entry in part.figures + twin.figures)
        if table["rows"] and not drawn:  # else its part shows the figure
            entry = {"kind": "prediction"}
            figure = drawn_figure(experiment, part, entry, styles, f"prediction-{part.id}")
        found.append((part.title, table, figure))
    return found


def _origin(experiment):
    """[(name, words)] of the origin of the numbers."""
    said = experiment.provenance
    links = sorted({f"{cell.link_in_full} ({cell.mode})" for cell in experiment.all_cells() if cell.n})
    left_out = {
        words: sum(part.left_out.get(name, 0) for part in experiment.parts)
        for name, words in (
            ("other_systems", "of other machines"),
            ("older_revisions", "of older revisions"),
            ("older_profiles", "of older profiles"),
        )
    }
    sources = [f"{each['source'] or 'unknown'} ({each['trials']} trials)" for each in said["sources"]]
    return [
        ("Trials", f"{said['trials']} count"),
        ("Left out", ", ".join(f"{n} {words}" for words, n in left_out.items() if n) or "none"),
        ("Source", "; ".join(sources)),
        ("Hardware", "; ".join(sorted({each["hardware"] for each in said["systems"]}))),
        ("Links", "; ".join(links)),
        ("Dates (UTC)", f"{said['first_utc']} to {said['last_utc']}"),
    ]


def _software(experiment):
    return [
        (name, "; ".join(values) if len(values) <= 3 else f"{len(values)} values, e.g. {values[0]}")
        for name, values in experiment.provenance["facts"].items()
    ]


def _shown_parts(experiment):
    """The parts without modelled twins of live cells; the prediction check shows these."""
    return [part for part in experiment.parts if not part.id.endswith(".predicted")]


def figures(experiment, styles, prefix=""):
    """[(part, its figures)] of the parts that have figures."""
    return [
        (
            part,
            [
                drawn_figure(experiment, part, entry, styles, f"{prefix}{part.id}-{position}")
                for position, entry in enumerate(part.figures)
            ],
        )
        for part in _shown_parts(experiment)
        if part.figures
    ]


def _tables(experiment):
    """[(part, words on the number of its cells)]."""
    found = []
    for part in _shown_parts(experiment):
        counts = sum(cell.n > 0 for cell in part.cells)
        failed = sum(cell.failure() not in (None, "not run", "stale", "disturbed") for cell in part.cells)
        counted = f"{counts} with trials that count, {failed} failed, {len(part.excluded)} excluded."
        found.append((part, f"{len(part.cells)} cells, {counted}"))
    return found


def _facts(experiment):
    """The facts in the line under the title."""
    everything = experiment.all_cells()
    timed = [cell.n for cell in everything if cell.n and cell.mode != "modelled"]
    facts = [experiment.id, f"{len(everything)} cells"]
    facts.append(f"{experiment.provenance['trials']} trials count")
    if timed:
        facts.append(f"{wording.blocks(timed)} where timed")
        if min(timed) < experiment.preliminary_below:
            facts.append("preliminary")
    if experiment.paper:
        facts.append(f"paper: {experiment.paper}")
    stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return [*facts, f"written {stamp}"]


def render(experiment, styles):
    return page.fill(
        "report.html",
        title=experiment.title,
        facts=_facts(experiment),
        warnings=[experiment.disturbed],
        experiment=experiment,
        drawn=figures(experiment, styles),
        tables=_tables(experiment),
        long_table=LONG_TABLE,
        addresses={part.id: f"#{page.anchor_of('table', part.id)}" for part in experiment.parts},
        checked=_checked(experiment, styles),
        **_failures(experiment),
        excluded=_excluded(experiment),
        provenance=experiment.provenance,
        origin=_origin(experiment) if experiment.provenance["trials"] else [],
        software=_software(experiment),
    )
