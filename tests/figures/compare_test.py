"""Tests the figures of `sparfuse compare` on a comparison made by hand.

python tests/figures/compare_test.py
"""

import unittest

import figures_fixture  # noqa: F401  (puts harness/figures on the path)

import compare
import style


def ratio(value):
    return {"value": value, "low": value * 0.9, "high": value * 1.1, "n": 5}


def cell(method, second, first_ratio, second_ratio, verdict, workers=2):
    return {
        "experiment": "e/x", "part": "main", "setting": f"{workers} workers",
        "config": {"method": method, "sparsifier": "topk", "density": 0.01},
        "first": "a", "second": second, "first_ratio": first_ratio, "second_ratio": second_ratio,
        "verdict": verdict,
    }


def found(*names, cells):
    return {"reference": "dense", "within": 0.05, "cells": list(cells),
            "sides": [{"name": name, "hardware": f"machine {name}"} for name in names]}


class Compare(unittest.TestCase):
    def draw(self, comparison):
        [(experiment, part, cells)] = compare.parts_of(comparison)
        drawn = compare.draw(comparison, experiment, part, cells)
        self.addCleanup(style.close, drawn.figure)
        return drawn

    def test_two_systems_stand_side_by_side_with_the_verdict(self):
        drawn = self.draw(found("a", "b", cells=[
            cell("wfbp", "b", ratio(1.5), ratio(2.0), "second"),
            cell("zen", "b", ratio(1.2), None, "not comparable"),
            cell("wfbp", "b", ratio(1.1), ratio(1.1), "agree", workers=4),
        ]))
        self.assertEqual([axes.get_title(loc="left") for axes in drawn.figure.axes],
                         ["2 workers", "4 workers"])
        upper = drawn.figure.axes[0]
        self.assertEqual([tick.get_text() for tick in upper.get_yticklabels()], ["zen", "wfbp"])
        points = sorted(float(line.get_xdata()[0]) for line in upper.lines
                        if line.get_marker() in ("o", "D"))
        self.assertEqual(points, [1.2, 1.5, 2.0])
        self.assertEqual([text.get_text() for text in upper.texts],
                         ["not comparable", "larger on b"])
        self.assertIn("Absolute values are not", drawn.caption)
        self.assertEqual(compare.file_name("e/x", "main"), "compare-e-x-main")

    def test_several_systems_are_a_slope_a_method(self):
        drawn = self.draw(found("a", "b", "c", cells=[
            cell("wfbp", "b", ratio(1.5), ratio(2.0), "second"),
            cell("wfbp", "c", ratio(1.5), ratio(1.0), "first"),
        ]))
        [axes] = drawn.figure.axes
        slopes = [list(map(float, line.get_ydata())) for line in axes.lines
                  if line.get_marker() not in ("None", "", None)]
        self.assertEqual(slopes, [[1.5, 2.0, 1.0]])
        self.assertEqual([tick.get_text() for tick in axes.get_xticklabels()], ["a", "b", "c"])


if __name__ == "__main__":
    unittest.main()
