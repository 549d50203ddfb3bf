"""The page of a paper: what its experiments say of its claims, what did not run, their figures."""

import os
from pathlib import Path

import report
from report import escape

COLUMNS = ("claim", "metric", "expected", "ours (95 % interval)", "n", "mode", "verdict")


def _claims(experiment):
    return [claim for part in experiment.parts for claim in part.claims]


def _verdicts(experiments, own):
    """One table, a group for each file that claims something, and what it adds up to."""
    counts, groups = {}, []
    for experiment in experiments:
        claims = _claims(experiment)
        if not claims:
            continue
        for claim in claims:
            verdict = claim["verdict"].removesuffix(", preliminary")
            counts[verdict] = counts.get(verdict, 0) + 1
        rows = "".join(
            "<tr>"
            + "".join(
                f"<td>{escape(claim[key])}</td>"
                for key in ("quote", "metric", "expected", "ours", "n", "mode", "verdict")
            )
            + "</tr>"
            for claim in claims
        )
        groups.append(
            f"<tr class='group'><td colspan='{len(COLUMNS)}'><a href='{escape(own[experiment.id])}'>"
            f"{escape(experiment.id)}</a>: {escape(experiment.title)}</td></tr>{rows}"
        )
    if not groups:
        return "<p>No experiment of this paper claims anything.</p>"
    total = "; ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items()))
    head = "".join(f"<th scope='col'>{escape(column)}</th>" for column in COLUMNS)
    return (
        f"<p>{sum(counts.values())} claims: {escape(total)}.</p>"
        f"<div class='wide'><table class='text'><thead><tr>{head}</tr></thead><tbody>"
        f"{''.join(groups)}</tbody></table></div>"
        "<p class='notes'>What is emulated or modelled is at most consistent with the paper.</p>"
    )


def _not_run(entries):
    if not entries:
        return "<p>Everything ran.</p>"
    return report._plain_table(
        ("experiment", "what", "why"),
        [(entry["experiment"], entry["what"], entry["reason"]) for entry in entries],
    )


def _figures(experiment, styles, own):
    out = [
        f"<p class='quiet'><a href='{escape(own)}'>Its own report</a> has its tables, failed cells "
        "and provenance.</p>"
    ]
    for part in experiment.parts:
        if part.figures and len(experiment.parts) > 1:
            out.append(f"<h3>{escape(part.title)}</h3>")
        for position, entry in enumerate(part.figures):
            name = f"{experiment.id}-{part.id}-{position}"
            out.append(report._figure(experiment, part, entry, styles, name))
    return "".join(out)


def render(index, loaded, out):
    """index: as the harness writes it; loaded: [(experiment, styles)] in its order; out: the path
    of the page, to which the links to the experiments' own reports are relative."""
    folder = Path(out).resolve().parent
    own = {
        entry["id"]: os.path.relpath(Path(entry["report"]).resolve(), folder)
        for entry in index["experiments"]
    }
    experiments = [experiment for experiment, _ in loaded]
    sections = [
        ("verdicts", "Verdicts", _verdicts(experiments, own)),
        ("not-run", "Not run, and why", _not_run(index["not_run"])),
    ]
    for experiment, styles in loaded:
        sections.append(
            (
                report._anchor(experiment.id),
                experiment.title,
                _figures(experiment, styles, own[experiment.id]),
            )
        )
    sections.append(("reading", "How to read this", report.READING))
    cells = [cell for experiment in experiments for cell in experiment.all_cells()]
    counting = {trial.trial_id for cell in cells for trial in cell.trials.values()}
    title = f"{index['id']}: what its experiments show here"
    facts = f"{len(experiments)} experiments · {len(cells)} cells · {len(counting)} trials count"
    out = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{escape(title)}</title><style>{report.CSS}</style></head><body>",
        f"<h1>{escape(title)}</h1><p class='quiet'>{escape(facts)}</p>",
        "<nav><b>Contents</b><ol>",
    ]
    out += [f"<li><a href='#{anchor}'>{escape(head)}</a></li>" for anchor, head, _ in sections]
    out.append("</ol></nav>")
    out += [
        f"<section id='{anchor}'><h2>{escape(head)}</h2>{body}</section>"
        for anchor, head, body in sections
    ]
    out.append("</body></html>\n")
    return "".join(out)
