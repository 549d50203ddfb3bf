"""Tests what reports and figures say of disturbed trials.

PYTHONPATH=harness/figures python tests/figures/disturbed_test.py
"""

import unittest

from figures_fixture import (
    Page,
    Synthetic,
    config,
    folder_of,
    judged,
    judged_sentence,
    judged_setting,
)
from sparfuse_report import cells, paper, report, style

WARNING = "3 of 6 live trials were disturbed: other work took 22 % of the cores (median of 3)"


def disturbed_experiment(folder):
    """An experiment of two methods in three blocks; all trials of the second method are disturbed."""
    made = Synthetic(folder)
    dense, sparse = (config(name, "digits-resnet", 2, 1.0, "emulated") for name in ("dense", "wfbp"))
    for block in range(3):
        metrics = {"throughput": (100 + block, "images/s"), "step_seconds": (0.3, "s")}
        made.trial("p", dense, block, {**metrics, "sent_bytes": (10, "B")})
        made.trial("p", sparse, block, {"sent_bytes": (1, "B")})
    said = judged_sentence("wfbp is faster", judged_setting("not decided: disturbed"))
    figures = [{"kind": kind, "x": "workers"} for kind in ("grouped_bars", "breakdown", "gantt")]
    part = {"id": "p", "cells": [dense, sparse], "figures": figures, "reference": "dense"}
    spec = made.spec({"id": "quick", "disturbed": WARNING, "parts": [{**part, "judged": [said]}]})
    cell = spec["parts"][0]["cells"][1]
    cell.update(
        trials=[],
        failure="disturbed",
        disturbed=[
            {
                "trial_id": f"t/{block}",
                "block": block,
                "step_seconds": 0.75,
                "step": "750 ms",
                "why": "other work took 22 % of the cores",
            }
            for block in range(3)
        ],
    )
    return cells.Experiment(spec, folder)


class Disturbed(unittest.TestCase):
    def setUp(self):
        self.folder = folder_of(self)
        self.experiment = disturbed_experiment(self.folder)
        self.styles = style.Styles(self.experiment.methods)

    def words(self, text):
        page = Page(text)
        self.assertEqual(page.open, [])
        return " ".join("".join(page.text).split())

    def test_a_report_warns_at_its_head_and_lists_them(self):
        text = report.render(self.experiment, self.styles)
        words = self.words(text)
        self.assertIn(f"Warning: {WARNING}.", words)
        self.assertLess(text.index(WARNING), text.index("<section"))
        self.assertIn("Disturbed (3 trials)", words)
        self.assertIn("other work took 22 % of the cores", words)
        self.assertIn("750 ms", words)
        self.assertIn("not decided: disturbed", words)
        self.assertIn("2 cells, 1 with trials that count, 0 failed", words)

    def test_without_disturbed_trials_there_is_no_warning(self):
        self.experiment.disturbed = ""
        self.assertNotIn("Warning", report.render(self.experiment, self.styles))

    def page_of_a_paper(self):
        entry = {"id": "quick", "report": str(self.folder / "report.html")}
        index = {"id": "safusion", "experiments": [entry], "not_run": [], "judged": judged({})}
        return paper.render(index, [(self.experiment, self.styles)], self.folder / "paper.html")

    def test_the_page_of_a_paper_names_the_experiment(self):
        words = self.words(self.page_of_a_paper())
        self.assertIn(f"Warning: {self.experiment.title}: {WARNING}.", words)

    def test_the_page_of_a_paper_begins_with_what_was_run(self):
        self.experiment.calibration = ["safusion/Fig. 14/dense"]
        places = [{"hardware": "profile safusion-local (declared)"}, {"hardware": "an EPYC"}]
        self.experiment.provenance = {**self.experiment.provenance, "systems": places}
        text = self.page_of_a_paper()
        self.assertLess(text.index("Runs"), text.index("Findings"))
        words = self.words(text)
        self.assertIn("1 emulated of 2", words)
        self.assertIn("an EPYC; profile safusion-local (declared)", words)
        self.assertIn("safusion/Fig. 14/dense", words)


if __name__ == "__main__":
    unittest.main()
