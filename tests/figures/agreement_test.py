"""Tests the comparison of predictions with published numbers of the modelled machines, on a made-up
spec.json whose errors are known.

PYTHONPATH=harness/figures python tests/figures/agreement_test.py
"""

import sys
import tempfile
import unittest
from pathlib import Path

from figures_fixture import Synthetic, config
from sparfuse_report import cells, kinds, style, wording
from sparfuse_report.kinds import agreement

PAPER = "Bench (X 20)"
NETWORKS = {"ours-slow": "slow", "ours-fast": "fast"}
THEIRS = {"one": "ONE", "two": "TWO"}


def row(method, workers, network, value, confidence="verbatim table"):
    return {
        "paper": PAPER,
        "artifact": "t1",
        "workload": "w",
        "model": "M",
        "dataset": "d",
        "workers": str(workers),
        "network": network,
        "method": THEIRS.get(method, method),
        "sparsifier": "none",
        "density": "1.0",
        "metric": "throughput",
        "value": value,
        "unit": "samples/s",
        "source": "s",
        "confidence": confidence,
        "of": "m",
        "cluster": next(ours for ours, theirs in NETWORKS.items() if theirs == network),
    }


def cell(method, workers, cluster):
    return config(
        method, "m", workers, None, "modelled", cluster=cluster, ranks_per_node=4, sparsifier="none"
    )


class Agreement(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.made, self.found, self.rows = Synthetic(Path(self.folder.name)), [], []

    def pair(self, method, workers, network, theirs, error, confidence="verbatim table"):
        """A cell whose throughput is `error` beyond the published one."""
        cluster = next(ours for ours, name in NETWORKS.items() if name == network)
        one = cell(method, workers, cluster)
        self.found.append(one)
        self.made.trial("main", one, 0, {"throughput": (theirs * (1 + error), "samples/s")})
        stated = f"{theirs} +- 1.5"
        self.rows.append(row(method, workers, network, stated, confidence))

    def tables(self, calibration=()):
        figure = {
            "kind": "agreement",
            "published": {
                "paper": PAPER,
                "methods": {ours: [theirs] for ours, theirs in THEIRS.items()},
                "rows": self.rows,
            },
        }
        part = {
            "id": "main",
            "title": "main",
            "kind": "throughput",
            "reference": None,
            "cells": self.found,
            "figures": [figure],
        }
        spec = self.made.spec(
            {"id": "e", "title": "e", "parts": [part], "calibration": list(calibration)}
        )
        experiment = cells.Experiment(spec, self.folder.name)
        styles = style.Styles(experiment.methods)
        drawn = kinds.KINDS["agreement"](experiment, experiment.parts[0], figure, styles)
        self.addCleanup(style.close, drawn.figure)
        return drawn

    def test_errors_are_of_the_row_with_the_cell_s_cluster_method_and_workers(self):
        self.pair("one", 8, "slow", 100, 0.09)
        self.pair("one", 8, "fast", 400, -0.20)
        self.pair("two", 8, "fast", 200, 0.02)
        summary, _, _, misses, _ = self.tables().tables
        errors = [f"{percent}{wording.THIN}%" for percent in ("9.0", "17.8", "-20.0")]
        self.assertEqual(summary.groups[0][1], [["all", "3", *errors, wording.NONE]])
        by_cluster = dict(summary.groups)["By cluster"]
        self.assertEqual([row[1] for row in by_cluster], ["1", "2"])
        self.assertEqual(len(misses.groups[0][1]), 1)
        self.assertIn("ours-fast", misses.groups[0][1][0][0])

    def test_inputs_and_rows_that_contradict_themselves_are_not_counted(self):
        self.pair("one", 8, "slow", 100, 0.01)
        self.pair("two", 8, "slow", 100, 0.50)
        self.pair("one", 16, "slow", 100, 0.60, "verbatim table; contradicts its network")
        summary = self.tables([f"{PAPER}/t1/TWO/M/8/slow"]).tables[0]
        self.assertEqual(summary.groups[0][1][0][1:3], ["1", f"1.0{wording.THIN}%"])
        summary = self.tables([f"{PAPER}/t1/TWO/M/16/slow"]).tables[0]  # another row
        self.assertEqual(summary.groups[0][1][0][1], "2")

    def test_an_order_counts_where_published_numbers_differ(self):
        self.pair("one", 8, "slow", 100, 0.0)
        self.pair("two", 8, "slow", 102, -0.1)  # within 3 %: no order
        self.pair("one", 16, "slow", 100, 0.0)
        self.pair("two", 16, "slow", 110, -0.1)  # 100 against 99
        order = self.tables().tables[1]
        self.assertEqual(order.groups[0][0], "Order of methods right in 1 of 2 settings")
        wrong = ["ours-slow, m, 16 workers", "one / two", "1.010", "0.909"]
        self.assertEqual(order.groups[0][1], [wrong])

    def test_scaling_starts_where_there_are_several_nodes(self):
        for workers, theirs, error in ((4, 90, 0.3), (8, 100, 0.0), (16, 190, 0.0), (32, 300, 0.1)):
            self.pair("one", workers, "fast", theirs, error)
        scaling = self.tables().tables[2]
        self.assertEqual(
            scaling.groups[0][1],
            [["ours-fast, m", "one", "8 to 32", "3.30x", "3.00x", f"+10.0{wording.THIN}%"]],
        )

    def test_nothing_published_is_no_figure(self):
        self.pair("one", 8, "slow", 100, 0.0)
        self.rows.clear()
        with self.assertRaises(cells.NoData):
            self.tables()

    def test_quantiles_lie_on_straight_lines(self):
        self.assertEqual(agreement.quantile([3, 1, 2], 0.5), 2)
        self.assertAlmostEqual(agreement.quantile([0, 10], 0.9), 9)
        self.assertEqual(agreement.quantile([7], 0.9), 7)


if __name__ == "__main__":
    sys.exit(unittest.main())
