"""One self-contained HTML file: verdicts, figures, tables, failures, model check, provenance."""

import base64
import datetime
import html
import io
import re

import matplotlib

import cells as selection
import intervals
import kinds
import prediction
import style
import tables
import wording

LONG_TABLE = 40  # rows; longer ones can be folded

CSS = """
:root { --ink: #1f2328; --quiet: #57606a; --line: #d8dee4; --wash: #f6f8fa; --alarm: #9b1c1c; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
  color: var(--ink);
  margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 76rem; background: #fff; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.3rem; margin: 3rem 0 .6rem; padding-bottom: .3rem;
  border-bottom: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 1.8rem 0 .5rem; }
p { margin: .5rem 0; max-width: 60rem; }
a { color: #1f4fa3; text-decoration: none; } a:hover { text-decoration: underline; }
.quiet, figcaption, .notes { color: var(--quiet); font-size: .86rem; }
.alarm { color: var(--alarm); } .good { color: #1a6b3c; } .part { color: #8a5a00; }
td.mark { font-weight: 700; text-align: center; }
nav { background: var(--wash); border: 1px solid var(--line); border-radius: 6px;
  padding: .8rem 1.2rem;
  margin: 1.5rem 0; }
nav ol { margin: .2rem 0; padding-left: 1.4rem; columns: 2; }
.badge { display: inline-block; border: 1px solid var(--line); border-radius: 999px;
  padding: 0 .6em;
  font-size: .8rem; color: var(--quiet); margin-right: .3em; font-weight: normal;
  vertical-align: middle; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums;
  margin: .6rem 0; }
th, td { padding: .28rem .75rem; text-align: right; vertical-align: top; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: .2rem; }
thead th { border-bottom: 1.5px solid var(--ink); font-weight: 600; vertical-align: bottom; }
tbody td { border-bottom: 1px solid var(--line); }
tr.group td { background: var(--wash); font-weight: 600; text-align: left; padding-left: .2rem; }
tr.failed td { color: var(--alarm); } tr.absent td { color: var(--quiet); }
table.text td, table.text th { text-align: left; white-space: normal; overflow-wrap: anywhere; }
table.text td:first-child { white-space: nowrap; }
figure { margin: 1.4rem 0 2rem; } figure img { max-width: 100%; height: auto; display: block; }
figcaption { max-width: 60rem; margin-top: .4rem; }
pre { background: var(--wash); border: 1px solid var(--line); border-radius: 6px;
  padding: .6rem .8rem;
  font-size: .78rem; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: .4rem 0; } summary { cursor: pointer; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; font-size: .9rem; }
dt { color: var(--quiet); } dd { margin: 0; overflow-wrap: anywhere; }
@media print {
  body { font-size: 9.5pt; padding: 0; max-width: none; }
  table { font-size: 7pt; } th, td { padding: .15rem .35rem; } .wide { overflow: visible; }
  figure, tr, pre { break-inside: avoid; } h2, h3 { break-after: avoid; } a { color: inherit; }
}
"""


def escape(value):
    return html.escape(str(value))


def anchor_of(*words):
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")


def _table(table):
    out = ["<div class='wide'><table><thead><tr>"]
    out += [f"<th scope='col'>{escape(column)}</th>" for column in table.columns]
    out.append("</tr></thead><tbody>")
    width = len(table.columns)
    for heading, rows in table.groups:
        out.append(f"<tr class='group'><td colspan='{width}'>{escape(heading)}</td></tr>")
        for row in rows:
            if isinstance(row, tables.Failed):
                quiet = row.why == "not run" or row.why.startswith(wording.NONE)
                out.append(
                    f"<tr class='{'absent' if quiet else 'failed'}'><td>{escape(row.method)}</td>"
                    f"<td colspan='{width - 1}' style='text-align:left'>{escape(row.why)}</td></tr>"
                )
            else:
                out.append("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>")
    out.append("</tbody></table></div>")
    if table.notes:
        out.append("<p class='notes'>" + "<br>".join(escape(note) for note in table.notes) + "</p>")
    return "".join(out)


def plain_table(columns, rows):
    out = ["<div class='wide'><table class='text'><thead><tr>"]
    out += [f"<th scope='col'>{escape(column)}</th>" for column in columns]
    out.append("</tr></thead><tbody>")
    out += ["<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows]
    out.append("</tbody></table></div>")
    return "".join(out)


def _markdown(text):
    """A pipe table as the harness writes it; anything else stays as it is, in a <pre>."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if len(lines) < 2 or not all(line.startswith("|") for line in lines):
        return f"<pre>{escape(text)}</pre>"
    rows = [[word.strip() for word in line.strip("|").split("|")] for line in lines]
    return plain_table(
        rows[0], [row for row in rows[1:] if not all(set(word) <= set("-: ") for word in row)]
    )


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
    style.finish(drawn.figure, drawn.title, drawn.handles)
    picture = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        drawn.figure.savefig(picture, format="svg", metadata={"Date": None})
    width = drawn.figure.get_size_inches()[0] * 130
    style.close(drawn.figure)
    data = base64.b64encode(picture.getvalue()).decode()
    return (
        f"<figure><img style='width:{width:.0f}px' alt='{html.escape(drawn.title, quote=True)}' "
        f"src='data:image/svg+xml;base64,{data}'><figcaption>{escape(drawn.caption)}"
        "</figcaption></figure>" + "".join(_folded(table) for table in drawn.tables)
    )


def _folded(table):
    rows = sum(len(rows) for _, rows in table.groups)
    return f"<details><summary class='quiet'>The numbers ({rows} rows)</summary>{_table(table)}</details>"


MARKS = {  # what a verdict begins with -> mark, class, meaning
    "reproduced": ("✓", "good", "the interval is within 8 % of the stated number"),
    "consistent": ("✓", "good", "the same of a modelled or emulated number"),
    "holds": ("✓", "good", "the whole interval is on the expected side"),
    "direction only": ("≈", "part", "the stated direction, another size"),
    "inconclusive": ("?", "part", "the interval has both answers in it"),
    "not reproduced": ("✗", "alarm", "the other direction"),
    "does not hold": ("✗", "alarm", "the whole interval is on the other side"),
    "calibration": ("c", "quiet", "the model was fitted to this number: not judged"),
    "invalid": ("!", "alarm", "a correctness check failed"),
    "not run": ("–", "quiet", "a cell has no trial that counts"),
}


def mark_of(verdict):
    return next((word for word in MARKS if verdict.startswith(word)), "not run")


def _verdicts(experiment):
    """Every claim of the experiment, marked; None where it makes none."""
    claims = [(part, claim) for part in experiment.parts for claim in part.claims]
    if not claims:
        return None
    counts, out, shown = {}, [], None
    for _, claim in claims:
        counts[mark_of(claim["verdict"])] = counts.get(mark_of(claim["verdict"]), 0) + 1
    summary = ", ".join(
        f"{MARKS[word][0]} {counts[word]} {word}" for word in MARKS if word in counts
    )
    columns = ["", "claim", "metric", "expected", "ours (95 % interval)", "n", "mode", "verdict"]
    out.append(
        f"<p><b>{len(claims)} claim{'s' if len(claims) != 1 else ''}:</b> {escape(summary)}.</p>"
    )
    out.append("<div class='wide'><table class='text'><thead><tr>")
    out += [f"<th scope='col'>{escape(column)}</th>" for column in columns]
    out.append("</tr></thead><tbody>")
    for part, claim in claims:
        if part is not shown:
            shown = part
            link = f"<a href='#{anchor_of('part', part.id)}'>{escape(part.title)}</a>"
            out.append(f"<tr class='group'><td colspan='{len(columns)}'>{link}</td></tr>")
        mark, style_class, _ = MARKS[mark_of(claim["verdict"])]
        words = [claim[key] for key in ("quote", "metric", "expected", "ours")]
        words += [str(claim["n"]), claim["mode"], claim["verdict"]]
        out.append(f"<tr><td class='mark {style_class}'>{mark}</td>")
        out += [f"<td>{escape(text)}</td>" for text in words]
        out.append("</tr>")
    out.append("</tbody></table></div><p class='notes'>")
    out.append(
        " ".join(
            f"{MARKS[word][0]} {word}: {escape(MARKS[word][2])}."
            for word in MARKS
            if word in counts
        )
    )
    out.append(
        "<br>Ratios are geometric means of paired blocks, differences and values are means, each "
        "with its t interval. Below five blocks a verdict is preliminary.</p>"
    )
    return "".join(out)


def _trial_words(trial):
    return f"block {trial.block}, {trial.started_utc or 'date unknown'}"


def _failures(experiment):
    """Every cell with a failed trial, also where a later trial counts; and left-out trials."""
    out, left_out = [], []
    for part in experiment.parts:
        for cell in part.cells:
            for trial in cell.all_trials:
                if trial.annotations:
                    left_out.append(
                        (
                            part.id,
                            cell.describe(),
                            _trial_words(trial),
                            "; ".join(trial.annotations),
                        )
                    )
                elif not trial.counts():
                    state = (
                        "another trial of this block counts"
                        if trial.block in cell.trials
                        else f"{cell.n} other blocks count" if cell.n else "the cell has no number"
                    )
                    message = trial.failure_message or "no message"
                    out.append(
                        f"<h3>{escape(part.id)}: {escape(cell.describe())} "
                        f"<span class='badge alarm'>{escape(trial.failure())}</span></h3>"
                        f"<p>{escape(_trial_words(trial))}; {escape(state)}. {escape(message)}</p>"
                    )
                    if trial.log_tail:
                        out.append(f"<pre>{escape(trial.log_tail)}</pre>")
                    out.append(f"<p class='quiet'>{escape(trial.trial_id)}</p>")
    not_run = [
        (part.id, cell.describe())
        for part in experiment.parts
        for cell in part.cells
        if not cell.all_trials
    ]
    if left_out:
        out.append(
            "<h3>Left out by an annotation</h3>"
            + plain_table(["part", "cell", "trial", "reason"], left_out)
        )
    if not_run:
        out.append(
            f"<h3>Not run ({len(not_run)} cells)</h3>" + plain_table(["part", "cell"], not_run)
        )
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
        if twin is None:
            continue
        result = prediction.check(part, twin)
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
                f"(n = {sum(bool(pair.oversubscribed) for pair in result.pairs)} cells).</p>"
            )
        out.append(
            f"<p>Order of methods: of {result.comparisons} pairs that the timed trials tell apart "
            "(not oversubscribed, intervals do not overlap), the model orders "
            f"{result.same_order} alike.</p>"
        )
        if any(pair.oversubscribed is None for pair in result.pairs):
            out.append(
                "<p class='alarm'>The store does not say how many cores the machine has; cells of "
                "unknown load count as not oversubscribed.</p>"
            )
        drawn = any(entry.get("kind") == "prediction" for entry in part.figures + twin.figures)
        if not drawn:  # else it stands in its part
            out.append(
                drawn_figure(
                    experiment, part, {"kind": "prediction"}, styles, "prediction-" + part.id
                )
            )
        out.append(_table(tables.prediction_table(result)))
    return "".join(out)


def _provenance(experiment):
    trials = {trial.trial_id: trial for cell in experiment.all_cells() for trial in cell.all_trials}
    trials = list(trials.values())
    if not trials:
        return "<p>No trial has run.</p>"
    dates = sorted(trial.started_utc for trial in trials if trial.started_utc)
    commits = {}
    for trial in trials:
        dirty = wording.find(trial.provenance, "dirty")
        commit = f"{trial.source_commit or 'unknown'}{' with uncommitted changes' if dirty else ''}"
        commits[commit] = commits.get(commit, 0) + 1
    counting = sum(trial.counts() for trial in trials)
    links = sorted(
        {
            wording.link_in_full(cell.config) + f" ({cell.mode})"
            for cell in experiment.all_cells()
            if cell.all_trials
        }
    )
    facts = [
        ("Trials", f"{len(trials)} in the store for these cells, {counting} count"),
        ("Source", "; ".join(f"{commit} ({n} trials)" for commit, n in commits.items())),
        ("Hardware", "; ".join(sorted({wording.hardware(trial.system) for trial in trials}))),
        (
            "Compiler",
            "; ".join(
                sorted(
                    {
                        str(
                            wording.find(
                                trial.provenance, "compiler", "cxx_compiler", "compiler_version"
                            )
                            or "not recorded"
                        )
                        for trial in trials
                    }
                )
            ),
        ),
        ("Links", "; ".join(links)),
        ("Dates (UTC)", f"{dates[0]} to {dates[-1]}" if dates else "not recorded"),
    ]
    out = [
        "<dl>"
        + "".join(f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in facts)
        + "</dl>"
    ]
    systems = {}
    for trial in trials:
        systems.setdefault(trial.system_hash, []).append(trial)
    for position, (identity, of) in enumerate(systems.items(), 1):
        rows = [(key, value) for key, value in wording.flatten(of[0].system).items()]
        out.append(
            f"<h3>System {position} of {len(systems)}: {escape((identity or 'unknown')[:12])} "
            f"<span class='badge'>{len(of)} trials</span></h3>" + plain_table(["", ""], rows)
        )
    values = {}
    for trial in trials:
        for key, value in wording.flatten(trial.provenance).items():
            values.setdefault(key, set()).add(str(value))
    rows = [
        (
            key,
            (
                "; ".join(sorted(found))
                if len(found) <= 3
                else f"{len(found)} values, e.g. " f"{min(found)}"
            ),
        )
        for key, found in sorted(values.items())
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
<dt>step time</dt><dd>median over the measured steps of the slowest rank's duration.</dd>
<dt>exposed comm.</dt><dd>communication that computation does not hide.</dd>
<dt>payload, sent</dt><dd>what a rank contributes; what it handed to the network, forwards included.
1 MB = 10<sup>6</sup> bytes.</dd>
<dt>intervals</dt><dd>95 % t intervals; of ratios, on log-ratios paired over blocks. Fewer than
five blocks: preliminary.</dd>
<dt>what counts</dt><dd>for each cell and block the latest trial that is ok, passed every
correctness check and carries no annotation.</dd>
</dl>
"""


def render(experiment, styles):
    sections = []  # (anchor, heading, badges, body)
    verdicts = _verdicts(experiment)
    if verdicts:
        sections.append(("verdicts", "Verdicts", [], verdicts))
    for part in experiment.parts:
        if part.id.endswith(".predicted"):
            continue  # twins of live cells stand in the prediction check
        body = []
        n = [cell.n for cell in part.cells]
        failed = sum(cell.failure() not in (None, "not run") for cell in part.cells)
        body.append(
            f"<p class='quiet'>{len(n)} cells, {sum(1 for value in n if value)} with trials that "
            f"count, {failed} failed, {len(part.excluded)} excluded.</p>"
        )
        for position, entry in enumerate(part.figures):
            body.append(drawn_figure(experiment, part, entry, styles, f"{part.id}-{position}"))
        table = tables.part_table(part, styles)
        if table:
            rows = sum(len(rows) for _, rows in table.groups)
            text = _table(table)
            body.append(
                text
                if rows <= LONG_TABLE
                else f"<details><summary class='quiet'>Table of {rows} "
                f"cells</summary>{text}</details>"
            )
        for extra in part.tables:
            text = "\n".join(extra) if isinstance(extra, list) else str(extra)
            body.append(text if text.lstrip().startswith("<table") else _markdown(text))
        sections.append(
            (
                anchor_of("part", part.id),
                part.title,
                list(dict.fromkeys([part.id, part.kind, *part.modes()])),
                "".join(body),
            )
        )
    checked = _prediction(experiment, styles)
    if checked:
        sections.append(("prediction", "The model, checked", [], checked))
    sections += [
        ("failures", "Failed cells", [], _failures(experiment)),
        ("excluded", "Excluded cells", [], _excluded(experiment)),
        ("provenance", "Provenance", [], _provenance(experiment)),
        ("reading", "How to read this", [], READING),
    ]
    all_cells = experiment.all_cells()
    counting = {trial.trial_id for cell in all_cells for trial in cell.trials.values()}
    stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    timed = [cell.n for cell in all_cells if cell.n and cell.mode != "modelled"]
    facts = [f"{len(all_cells)} cells", f"{len(counting)} trials count"]
    if timed:
        facts.append(f"{wording.blocks(timed)} where timed")
        if min(timed) < intervals.PRELIMINARY_BELOW:
            facts.append("preliminary")
    if experiment.paper:
        facts.append(f"paper: {experiment.paper}")
    facts.append(f"written {stamp}")
    out = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{escape(experiment.title)}</title><style>{CSS}</style></head><body>",
        f"<h1>{escape(experiment.title)}</h1>",
        f"<p class='quiet'>{escape(experiment.id)} · {escape(' · '.join(facts))}</p>",
        "<nav><b>Contents</b><ol>",
    ]
    out += [
        f"<li><a href='#{anchor}'>{escape(heading)}</a></li>" for anchor, heading, _, _ in sections
    ]
    out.append("</ol></nav>")
    for anchor, heading, badges, body in sections:
        marks = "".join(f" <span class='badge'>{escape(badge)}</span>" for badge in badges)
        out.append(f"<section id='{anchor}'><h2>{escape(heading)}{marks}</h2>{body}</section>")
    out.append("</body></html>\n")
    return "".join(out)
