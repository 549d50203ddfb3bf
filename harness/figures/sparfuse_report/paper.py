"""Makes the page of a paper: findings of its experiments, figures, verdicts, and results that did not
run."""

import collections
import os
from pathlib import Path

from sparfuse_report import page, report, wording

RUN = ("experiment", "cells with results", "on", "calibrated with")


def _was_run(experiment):
    """A row of RUN: the number of cells with results by mode, the hardware on which trials ran or
    were modelled, and the published numbers with which its clusters were calibrated."""
    counts = collections.Counter(cell.mode for cell in experiment.all_cells() if cell.n)
    modes = ", ".join(f"{n} {mode}" for mode, n in sorted(counts.items()))
    places = sorted({each["hardware"] for each in experiment.provenance["systems"]})
    return (
        experiment.title,
        f"{modes or 'none'} of {len(experiment.all_cells())}",
        "; ".join(places) or wording.NONE,
        ", ".join(experiment.calibration) or "nothing",
    )


def render(index, loaded, out):
    """The HTML of a paper's page.

    index: the harness's index.json; loaded: [(experiment, styles)] in its order; out: the path of the
    page, to which links to the experiments' own reports are relative.
    """
    folder = Path(out).resolve().parent
    own = {
        entry["id"]: os.path.relpath(Path(entry["report"]).resolve(), folder)
        for entry in index["experiments"]
    }
    experiments = [experiment for experiment, _ in loaded]
    cells = [cell for experiment in experiments for cell in experiment.all_cells()]
    counting = {trial.trial_id for cell in cells for trial in cell.trials.values()}
    return page.fill(
        "paper.html",
        title=f"{index['id']}: results of its experiments here",
        facts=[
            f"{len(experiments)} experiments",
            f"{len(cells)} cells",
            f"{len(counting)} trials count",
        ],
        warnings=[
            f"{experiment.title}: {experiment.disturbed}"
            for experiment in experiments
            if experiment.disturbed
        ],
        run_columns=RUN,
        run=[_was_run(experiment) for experiment in experiments],
        experiments=experiments,
        own=own,
        shown=[
            (experiment, report.figures(experiment, styles, f"{experiment.id}-"))
            for experiment, styles in loaded
        ],
        judged=index["judged"],
        not_run=[(entry["experiment"], entry["what"], entry["reason"]) for entry in index["not_run"]],
    )
