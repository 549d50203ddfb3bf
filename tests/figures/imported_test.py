"""Tests how figures and reports show results of others: in their own colour, beside ours.

PYTHONPATH=harness/figures python tests/figures/imported_test.py
"""

import copy
import unittest

import numpy as np

from figures_fixture import Synthetic, config, drawn, folder_of, write_series
from sparfuse_report import cells, imported, report, style


def result(**changed):
    """An imported result in the harness's form (harness/report/tables/table.hpp)."""
    value = changed.pop("value", 150.0)
    name, unit = changed.pop("of", ("throughput", "images/s"))
    return {
        "method": "dense", "workload": "digits-resnet", "workers": 2, "density": 1, "sparsifier": "none",
        "batch_per_worker": None, "network_gbps": None, "target": None, "system": "lab", "source": "A paper",
        "stated": "", "doubt": "", "n": 1, "trials": [],
        "metrics": {name: {"unit": unit, "value": value, "low": None, "high": None, "n": 1}}, **changed}


class ImportedTest(unittest.TestCase):
    def setUp(self):
        self.made = Synthetic(folder_of(self) / "results")

    def experiment(self, results, kind="grouped_bars", cell_kind="throughput", curve=None, **entry):
        found = [config(name, "digits-resnet", 2, 1.0, "emulated", kind=cell_kind) for name in ("dense", "wfbp")]
        for cell in found:
            _, folder = self.made.trial("p", cell, 0, {"throughput": (100, "images/s"),
                                                       "final_metric": (0.9, "accuracy")})
            if curve:
                write_series(folder / "evaluations.npy", curve)
        table = {"columns": ["system", "value"], "rows": [["lab", "150 images/s"]], "notes": ["cannot be"],
                 "caption": "imported: results of others, compared with nothing"}
        part = {"id": "p", "title": "P", "kind": cell_kind, "cells": found, "reference": "dense",
                "figures": [{"kind": kind, **entry}], "imported": {"results": results, "table": table}}
        spec = self.made.spec({"id": "e", "parts": [part]})
        for cell in spec["parts"][0]["cells"]:
            cell["imported"] = [
                i for i, each in enumerate(results) if each["method"] == cell["config"]["method"]]
        return cells.Experiment(spec, self.made.folder)

    def drawn(self, experiment):
        return drawn(self, experiment, experiment.parts[0])

    def lines(self, made):
        return [line for axes in made.figure.axes for line in axes.lines
                if line.get_color() == style.IMPORTED]

    def test_a_result_stands_over_the_bar_of_its_setting(self):
        made = self.drawn(self.experiment([result()], x="workers"))
        [line] = self.lines(made)
        self.assertEqual(list(line.get_ydata()), [150, 150])
        self.assertIn("Imported, compared with nothing: lab (A paper).", made.caption)
        self.assertIn("imported", [handle.get_label() for handle in made.handles])
        bars = [round(float(box.get_height()), 9) for box in made.figure.axes[0].patches]
        self.assertEqual(bars, [100, 100])

    def test_a_result_beside_no_cell_is_not_drawn(self):
        made = self.drawn(self.experiment([result(method="syncea")], x="workers"))
        self.assertEqual(self.lines(made), [])
        self.assertNotIn("mported", made.caption)

    def test_what_is_in_doubt_or_far_above_stays_in_the_table(self):
        made = self.drawn(self.experiment([result(doubt="cannot be"), result(value=301.0)], x="workers"))
        self.assertEqual(self.lines(made), [])
        self.assertIn("2 imported numbers are in the table alone", made.caption)

    def test_no_ratio_has_one_below_it(self):
        made = self.drawn(self.experiment([result()], x="workers", normalise="dense"))
        self.assertEqual(self.lines(made), [])

    def test_curves_stand_beside_ours(self):
        curve = {"step": np.array([1, 2]), "seconds": np.array([1.0, 2.0]), "metric": np.array([0.5, 0.9]),
                 "loss": np.array([1.0, 0.5])}
        theirs = self.made.folder / "trials/imported/lab/x"
        theirs.mkdir(parents=True)
        write_series(theirs / "evaluations.npy", {**curve, "seconds": np.array([np.nan, np.nan]),
                                                  "metric": np.array([0.4, 0.8])})
        one = result(of=("final_metric", "accuracy"), value=0.8,
                     trials=[{"id": "imported/lab/x", "block": 0, "directory": "trials/imported/lab/x"}])
        made = self.drawn(self.experiment([one], "convergence", "convergence", curve))
        by_time, by_steps = self.lines(made)
        self.assertTrue(np.isnan(by_time.get_xdata()).all())
        self.assertEqual(list(by_steps.get_ydata()), [0.4, 0.8])

    def test_the_report_has_their_table(self):
        experiment = self.experiment([result()], x="workers")
        text = report.render(experiment, style.Styles(experiment.methods))
        self.assertTrue("class='imported'" in text)
        self.assertTrue("[1] in doubt: cannot be" in text)

    def test_specs_of_before_have_none(self):
        experiment = self.experiment([], x="workers")
        part = copy.copy(experiment.parts[0])
        part.imported = {}
        self.assertEqual(imported.Beside(part).handles(), [])
        self.assertEqual(imported.Beside(part).words(), "")


if __name__ == "__main__":
    unittest.main()
