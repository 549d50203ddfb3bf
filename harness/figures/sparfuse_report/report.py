"""Writes one self-contained HTML file of an experiment: what was found, figures, tables, verdicts,
failures, model check, provenance."""

import base64
import datetime
import io

import matplotlib

from sparfuse_report import cells as selection, kinds, page, style, tables, verdicts, wording
from sparfuse_report.kinds import prediction
from sparfuse_report.page import anchor_of, escape, plain_table, table_html

LONG_TABLE = 40  # rows; longer ones can be folded


def drawn_figure(experiment, part, entry, styles, name):
    kind = entry.get("kind")
    if kind not in kinds.KINDS:
        return (
            f"<p class='alarm'>Unknown figure kind '{escape(kind)}'; known: "
            f"{escape(', '.join(kinds.KINDS))}.</p>"
        )
    try:
        drawn = kinds.KINDS[kind](experiment, part, entry, styles)
    except selection.NoData as reason:
        return f"<p class='quiet'>Figure '{escape(kind)}' is not shown: {escape(reason)}.</p>"
    return embedded(drawn, name) + "".join(page.folded(table) for table in drawn.tables)


def embedded(drawn, name):
    """The figure as a picture within the page, with its caption; equal figures give equal text."""
    style.finish(drawn.figure, drawn.title, drawn.handles)
    picture = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        drawn.figure.savefig(picture, format="svg", metadata={"Date": None})
    width = drawn.figure.get_size_inches()[0] * 130
    style.close(drawn.figure)
    data = base64.b64encode(picture.getvalue()).decode()
    return (
        f"<figure><div class='wide'><img style='--width:{width:.0f}px' "
        f"alt='{escape(drawn.title)}' src='data:image/svg+xml;base64,{data}'></div>"
        f"<figcaption>{escape(drawn.caption)}</figcaption></figure>"
    )


def found(experiments):
    """What the experiments show, a sentence a comparison; of several, under the title of each."""
    out = []
    for experiment in experiments:
        if len(experiments) > 1 and experiment.headlines:
            out.append(f"<h3>{escape(experiment.title)}</h3>")
        said = "".join(
            f"<li>{escape(headline['sentence'])}</li>" for headline in experiment.headlines
        )
        out.append(f"<ul class='found'>{said}</ul>" if said else "")
    return "".join(out) or "<p>No trial that counts compares two methods yet.</p>"


def _verdicts(experiment):
    """Every claim of the experiment, part by part; None where it makes none."""
    groups = [
        (f"<a href='#{anchor_of('table', part.id)}'>{escape(part.title)}</a>", [part.claims])
        for part in experiment.parts
        if part.claims
    ]
    return verdicts.table(groups) if groups else None


def _trial_words(trial):
    return f"block {trial['block']}, {trial['started_utc'] or 'date unknown'}"


def _failures(experiment):
    """Every cell with a failed trial, also where a later trial counts; and trials called bad."""
    out, called_bad = [], []
    for part in experiment.parts:
        for cell in part.cells:
            for trial in cell.set_aside:
                if trial["annotations"]:
                    reasons = "; ".join(trial["annotations"])
                    called_bad.append((part.id, cell.describe(), _trial_words(trial), reasons))
                    continue
                state = (
                    "another trial of this block counts"
                    if trial["block"] in cell.trials
                    else f"{cell.n} other blocks count" if cell.n else "the cell has no number"
                )
                out.append(
                    f"<h3>{escape(part.id)}: {escape(cell.describe())} "
                    f"<span class='badge alarm'>{escape(trial['failure'])}</span></h3>"
                    f"<p>{escape(_trial_words(trial))}; {escape(state)}. "
                    f"{escape(trial['message'] or 'no message')}</p>"
                )
                if trial["log_tail"]:
                    out.append(f"<pre>{escape(trial['log_tail'])}</pre>")
                out.append(f"<p class='quiet'>{escape(trial['trial_id'])}</p>")
    without = [
        (part.id, cell.describe(), cell.failure())
        for part in experiment.parts
        for cell in part.cells
        if cell.failure() in ("not run", "stale")
    ]
    if called_bad:
        out.append("<h3>Left out by an annotation</h3>")
        out.append(plain_table(["part", "cell", "trial", "reason"], called_bad))
    disturbed = [
        (
            part.id,
            cell.describe(),
            f"block {trial['block']}",
            wording.quantity(trial["step_seconds"], "s") if trial["step_seconds"] else wording.NONE,
            trial["why"],
        )
        for part in experiment.parts
        for cell in part.cells
        for trial in cell.disturbed
    ]
    if disturbed:
        out.append(f"<h3>Disturbed ({len(disturbed)} trials)</h3>")
        out.append(plain_table(["part", "cell", "trial", "step", "by what"], disturbed))
    if without:
        out.append(f"<h3>Not run ({len(without)} cells)</h3>")
        out.append(plain_table(["part", "cell", "why"], without))
    return "".join(out) or "<p>Every cell has its trials, and none failed.</p>"


def _excluded(experiment):
    rows = []
    for part in experiment.parts:
        for entry in part.excluded:
            cell = entry.get("cell")
            if isinstance(cell, dict):
                cell = ", ".join(f"{key} {value}" for key, value in wording.flatten(cell).items())
            rows.append((part.id, cell or "", entry.get("reason") or "no reason given"))
    return plain_table(["part", "cell", "reason"], rows) if rows else "<p>No cell is excluded.</p>"


def _prediction(experiment, styles):
    out = []
    for part in experiment.parts:
        twin = experiment.predicted(part)
        if twin is None or part.prediction is None:
            continue
        result = prediction.Check(part, twin, part.prediction)
        out.append(f"<h3>{escape(part.title)}</h3>")
        if not result.pairs:
            out.append("<p class='quiet'>No cell of this part was run by both engines yet.</p>")
            continue
        error = result.median_error(False)
        if error is not None:
            n = sum(not pair.oversubscribed for pair in result.pairs)
            verdict = "within" if error <= prediction.BAND else "above"
            out.append(
                "<p>Median error where the machine is not oversubscribed: "
                f"<b>{100 * error:.1f} %</b> "
                f"(n = {n} cells), {verdict} the {100 * prediction.BAND:.0f} % that the model may "
                "have.</p>"
            )
        else:
            out.append("<p>Every cell that both engines ran was oversubscribed.</p>")
        crowded = result.median_error(True)
        if crowded is not None:
            out.append(
                f"<p>Oversubscribed cells, shown apart: median error {100 * crowded:.1f} % "
                f"(n = {sum(pair.oversubscribed for pair in result.pairs)} cells).</p>"
            )
        out.append(
            f"<p>Order of methods: of {result.comparisons} pairs that the timed trials tell apart "
            "(not oversubscribed, intervals do not overlap), the model orders "
            f"{result.same_order} alike.</p>"
        )
        drawn = any(entry.get("kind") == "prediction" for entry in part.figures + twin.figures)
        if not drawn:  # else it stands in its part
            out.append(
                drawn_figure(
                    experiment, part, {"kind": "prediction"}, styles, "prediction-" + part.id
                )
            )
        out.append(page.folded(tables.prediction_table(result)))
    return "".join(out)


def _provenance(experiment):
    said = experiment.provenance
    if not said["trials"]:
        return "<p>No trial counts.</p>"
    links = sorted(
        {
            f"{wording.link_in_full(cell.config)} ({cell.mode})"
            for cell in experiment.all_cells()
            if cell.n
        }
    )
    left_out = {
        words: sum(part.left_out.get(name, 0) for part in experiment.parts)
        for name, words in (
            ("other_systems", "of other machines"),
            ("older_revisions", "of older revisions"),
            ("older_profiles", "of older profiles"),
        )
    }
    sources = [
        f"{each['source'] or 'unknown'} ({each['trials']} trials)" for each in said["sources"]
    ]
    facts = [
        ("Trials", f"{said['trials']} count"),
        ("Left out", ", ".join(f"{n} {words}" for words, n in left_out.items() if n) or "none"),
        ("Source", "; ".join(sources)),
        ("Hardware", "; ".join(sorted({each["hardware"] for each in said["systems"]}))),
        ("Links", "; ".join(links)),
        ("Dates (UTC)", f"{said['first_utc']} to {said['last_utc']}"),
    ]
    out = ["<dl>"]
    out += [f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in facts]
    out.append("</dl>")
    for position, each in enumerate(said["systems"], 1):
        out.append(
            f"<details><summary>System {position} of {len(said['systems'])}: "
            f"{escape(each['hash'][:12])} <span class='badge'>{each['trials']} trials</span>"
            f"</summary>{plain_table(['', ''], each['facts'].items())}</details>"
        )
    rows = [
        (name, "; ".join(values) if len(values) <= 3 else f"{len(values)} values, e.g. {values[0]}")
        for name, values in said["facts"].items()
    ]
    if rows:
        out.append("<h3>Software, launch and environment</h3>" + plain_table(["", ""], rows))
    return "".join(out)


READING = """
<dl>
<dt>measured</dt><dd>real ranks and data on the machine's own links.</dd>
<dt>emulated</dt><dd>real ranks and data over a link slowed down on purpose.</dd>
<dt>modelled</dt><dd>computed by a discrete-event simulation from single-operation
measurements and a backward profile.</dd>
<dt>imported</dt><dd>results of others, from a table or a log, with their source; they stand beside
ours, and nothing is compared with them, averaged with them or divided by them.</dd>
<dt>step time</dt><dd>median over the measured steps of the slowest rank's duration.</dd>
<dt>exposed comm.</dt><dd>communication that computation does not hide.</dd>
<dt>payload, sent</dt><dd>what a rank contributes; what it handed to the network, forwards included.
1 MB = 10<sup>6</sup> bytes.</dd>
<dt>intervals</dt><dd>95 % t intervals; of ratios, on log-ratios paired over blocks. Fewer than
five blocks: preliminary. Within a block, trials that took turns in one launch are compared round by
round; rounds are never taken for blocks.</dd>
<dt>what counts</dt><dd>for each cell and block the latest trial that is ok, passed every
correctness check, carries no annotation, and was made by the present revisions of its parts, on one
machine, from the newest profile. Of a disturbed trial, one beside which other work took the
machine's cores, only what it counted counts, unless the page's head says otherwise; no time.</dd>
</dl>
"""


def _shown_parts(experiment):
    """Twins of live cells stand in the prediction check."""
    return [part for part in experiment.parts if not part.id.endswith(".predicted")]


def _part_heading(part, kind):
    badges = dict.fromkeys([part.id, part.kind, *part.modes()])
    marks = "".join(f" <span class='badge'>{escape(badge)}</span>" for badge in badges)
    return f"<h3 id='{anchor_of(kind, part.id)}'>{escape(part.title)}{marks}</h3>"


def figures(experiment, styles, prefix=""):
    """Every figure of the experiment, part by part."""
    out = []
    for part in _shown_parts(experiment):
        if part.figures:
            out.append(_part_heading(part, f"{prefix}figures"))
        for position, entry in enumerate(part.figures):
            name = f"{prefix}{part.id}-{position}"
            out.append(drawn_figure(experiment, part, entry, styles, name))
    return "".join(out)


def _tables(experiment, styles):
    out = []
    for part in _shown_parts(experiment):
        counts = sum(1 for cell in part.cells if cell.n)
        quiet = (None, "not run", "stale", "disturbed")
        failed = sum(cell.failure() not in quiet for cell in part.cells)
        out.append(_part_heading(part, "table"))
        out.append(
            f"<p class='quiet'>{len(part.cells)} cells, {counts} with trials that count, "
            f"{failed} failed, {len(part.excluded)} excluded.</p>"
        )
        table = tables.part_table(part, styles)
        if table is None:
            continue
        rows, text = sum(len(rows) for _, rows in table.groups), table_html(table)
        if rows > LONG_TABLE:
            summary = f"<summary class='quiet'>Table of {rows} cells</summary>"
            text = f"<details>{summary}{text}</details>"
        out.append(text)
        out.append(_imported(part))
    return "".join(out)


def _imported(part):
    """The results of others beside a part's; "" without any."""
    table = part.imported.get("table") or {}
    if not table.get("rows"):
        return ""
    notes = "".join(
        f"<p class='quiet'>[{position}] in doubt: {escape(note)}</p>"
        for position, note in enumerate(table["notes"], 1)
    )
    heading = f"<h4 class='imported'>Beside it, {escape(table['caption'])}</h4>"
    return heading + plain_table(table["columns"], table["rows"]) + notes


def _facts(experiment):
    """The line under the title."""
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
    drawn = figures(experiment, styles)
    judged = _verdicts(experiment)
    checked = _prediction(experiment, styles)
    sections = [
        ("found", "What was found", [], found([experiment])),
        ("figures", "Figures", [], drawn or "<p>The file asks for no figure.</p>"),
        ("tables", "Tables", [], _tables(experiment, styles)),
    ]
    if judged:
        sections.append(("verdicts", "Verdicts", [], judged))
    if checked:
        sections.append(("prediction", "The model, checked", [], checked))
    sections += [
        ("failures", "Failed cells", [], _failures(experiment)),
        ("excluded", "Excluded cells", [], _excluded(experiment)),
        ("provenance", "Provenance", [], _provenance(experiment)),
        ("reading", "How to read this", [], READING),
    ]
    return page.html_page(experiment.title, _facts(experiment), sections, [experiment.disturbed])
