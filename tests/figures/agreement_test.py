"""Tests the figure of predictions beside published numbers of the modelled machines, on a made-up
spec.json.

PYTHONPATH=harness/figures python tests/figures/agreement_test.py
"""

import sys
import unittest

from figures_fixture import Synthetic, config, drawn, folder_of
from sparfuse_report import cells
from sparfuse_report.drawn import numbers


def pair(cell, theirs, error, calibrated=False):
    return {"cell": cell, "theirs": theirs, "error": error, "unit": "samples/s", "calibrated": calibrated}


class Agreement(unittest.TestCase):
    def draw(self, given):
        made = Synthetic(folder_of(self))
        found = [
            config(method, "m", 8, None, "modelled", cluster=cluster, ranks_per_node=4, sparsifier="none")
            for method, cluster in (("one", "slow"), ("two", "slow"), ("one", "fast"))
        ]
        for cell in found:
            made.trial("main", cell, 0, {"throughput": (100, "samples/s")})
        published = {"paper": "Bench", "methods": {}, "rows": []}
        figure = {"kind": "agreement", "published": published, "agreement": given}
        part = {"id": "main", "title": "main", "cells": found, "figures": [figure]}
        experiment = cells.Experiment(made.spec({"id": "e", "title": "e", "parts": [part]}), made.folder)
        return drawn(self, experiment, experiment.parts[0], figure)

    def test_pairs_stand_in_the_panel_of_their_cluster_and_inputs_are_crosses(self):
        pairs = [pair(0, 100, 0.09), pair(1, 200, -0.2, True), pair(2, 400, 0.01)]
        drawn = self.draw({"pairs": pairs, "counted": 2, "median_error": "5.0 %"})
        panels = numbers(drawn)["panels"]
        self.assertEqual([panel["words"] for panel in panels], [["slow"], ["fast"]])
        points = [line for line in panels[0]["lines"] if len(line[0]) == 1]
        self.assertEqual([line[0][0] for line in points], [100, 200])
        self.assertAlmostEqual(points[0][1][0], 9)
        markers = [line.get_marker() for line in drawn.figure.axes[0].lines]
        self.assertEqual(markers.count("x"), 1)
        self.assertTrue(drawn.title.endswith("median error 5.0 % (n = 2)"))
        # Figures do not parse formulas: a power of ten as a formula would show its "$".
        drawn.figure.canvas.draw()
        ticks = [tick.get_text() for axes in drawn.figure.axes for tick in axes.get_xticklabels()]
        self.assertNotIn("$", "".join(ticks))
        self.assertTrue(any(ticks))

    def test_nothing_published_is_no_figure(self):
        with self.assertRaises(cells.NoData):
            self.draw({"pairs": [], "counted": 0, "median_error": None})


if __name__ == "__main__":
    sys.exit(unittest.main())
