"""Writes the page of a paper: what its experiments found, their figures, verdicts, and what did not
run."""

import itertools
import os
from pathlib import Path

import page
import report
from page import anchor_of, escape

COLUMNS = ("", "claim", "metric", "expected", "ours", "n", "mode", "verdict")


def _counts(claims):
    """[(what verdicts begin with, how many)] in the order of the marks."""
    counts = {}
    for claim in claims:
        word = report.mark_of(claim["verdict"])
        counts[word] = counts.get(word, 0) + 1
    return [(word, counts[word]) for word in report.MARKS if word in counts]


def _summary(claims):
    return ", ".join(f"{report.MARKS[word][0]} {n} {word}" for word, n in _counts(claims))


def _range(values):
    ends = [f"{end:.3g}" for end in (min(values), max(values))] if values else ["–"]
    return " to ".join(dict.fromkeys(ends))


def _row(claims):
    """One row for what a sentence says of one cell, or of several."""
    first, counts = claims[0], _counts(claims)
    words = [first[key] for key in ("quote", "metric", "expected", "ours", "n", "mode", "verdict")]
    if len(claims) > 1:
        values = [claim["interval"]["value"] for claim in claims if claim["interval"]]
        n = [claim["n"] for claim in claims]
        words[0] = f"{first['sentence']} ({len(claims)} settings)"
        words[3] = _range(values)
        words[4] = _range(n)
        words[6] = ", ".join(f"{word} {count}" for word, count in counts)
    mark, look, _ = report.MARKS[counts[0][0]]
    if len(counts) > 1:
        mark, look = "≈", "part"  # verdicts differ from setting to setting
    cells = "".join(f"<td>{escape(word)}</td>" for word in words)
    return f"<tr><td class='mark {look}'>{mark}</td>{cells}</tr>"


def _verdicts(experiments, own):
    """One table, a group for each file that claims something. A sentence that a file says of many
    settings is one row: each of them is in the file's own report."""
    everything, groups = [], []
    for experiment in experiments:
        claims = [claim for part in experiment.parts for claim in part.claims]
        if not claims:
            continue
        everything += claims
        link = f"<a href='{escape(own[experiment.id])}'>{escape(experiment.id)}</a>"
        groups.append(
            f"<tr class='group'><td colspan='{len(COLUMNS)}'>{link}: {escape(experiment.title)}: "
            f"{escape(_summary(claims))}</td></tr>"
        )
        for part in experiment.parts:
            for _, said in itertools.groupby(part.claims, key=lambda claim: claim["sentence"]):
                groups.append(_row(list(said)))
    if not everything:
        return "<p>No experiment of this paper claims anything.</p>"
    head = "<th scope='col' class='mark'></th>"
    head += "".join(f"<th scope='col'>{escape(column)}</th>" for column in COLUMNS[1:])
    meanings = " ".join(
        f"{report.MARKS[word][0]} {word}: {escape(report.MARKS[word][2])}."
        for word, _ in _counts(everything)
    )
    return (
        f"<p><b>{len(everything)} claims:</b> {escape(_summary(everything))}.</p>"
        f"<div class='wide'><table class='text'><thead><tr>{head}</tr></thead><tbody>"
        f"{''.join(groups)}</tbody></table></div><p class='notes'>{meanings}</p>"
    )


def _not_run(entries):
    if not entries:
        return "<p>Everything ran.</p>"
    return page.plain_table(
        ("experiment", "what", "why"),
        [(entry["experiment"], entry["what"], entry["reason"]) for entry in entries],
    )


def _figures(experiment, styles, own):
    link = f"<a href='{escape(own)}'>Its own report</a>"
    return (
        f"<p class='quiet'>{link} has its tables, failed cells and provenance.</p>"
        + report.figures(experiment, styles, f"{experiment.id}-")
    )


def render(index, loaded, out):
    """index: as the harness writes it; loaded: [(experiment, styles)] in its order; out: the path
    of the page, to which the links to the experiments' own reports are relative."""
    folder = Path(out).resolve().parent
    own = {
        entry["id"]: os.path.relpath(Path(entry["report"]).resolve(), folder)
        for entry in index["experiments"]
    }
    experiments = [experiment for experiment, _ in loaded]
    sections = [("found", "What was found", [], report.found(experiments))]
    sections += [
        (
            anchor_of(experiment.id),
            experiment.title,
            [],
            _figures(experiment, styles, own[experiment.id]),
        )
        for experiment, styles in loaded
    ]
    sections += [
        ("verdicts", "Verdicts", [], _verdicts(experiments, own)),
        ("not-run", "Not run, and why", [], _not_run(index["not_run"])),
        ("reading", "How to read this", [], report.READING),
    ]
    cells = [cell for experiment in experiments for cell in experiment.all_cells()]
    counting = {trial.trial_id for cell in cells for trial in cell.trials.values()}
    facts = [f"{len(experiments)} experiments", f"{len(cells)} cells"]
    facts.append(f"{len(counting)} trials count")
    return page.html_page(f"{index['id']}: what its experiments show here", facts, sections)
