"""Writes the page of a paper: what its experiments found, their figures, verdicts, and what did not
run."""

import os
from pathlib import Path

from sparfuse_report import page, report, verdicts
from sparfuse_report.page import anchor_of, escape


def _verdicts(experiments, own):
    """One table, a group for each file that claims something."""
    groups = []
    for experiment in experiments:
        parts = [part.claims for part in experiment.parts]
        claims = [claim for each in parts for claim in each]
        if claims:
            link = f"<a href='{escape(own[experiment.id])}'>{escape(experiment.id)}</a>"
            said = f"{experiment.title}: {verdicts.summary(claims)}"
            groups.append((f"{link}: {escape(said)}", parts))
    if not groups:
        return "<p>No experiment of this paper claims anything.</p>"
    return verdicts.table(groups)


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
    warnings = [
        f"{experiment.title}: {experiment.disturbed}"
        for experiment in experiments
        if experiment.disturbed
    ]
    title = f"{index['id']}: what its experiments show here"
    return page.html_page(title, facts, sections, warnings)
