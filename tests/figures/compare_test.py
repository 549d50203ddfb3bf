"""Tests the figures of `sparfuse compare` on a comparison made by hand.

PYTHONPATH=harness/figures python tests/figures/compare_test.py
"""

import math
import unittest

from figures_fixture import folder_of
from sparfuse_report import compare, style


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


def slopes(drawn):
    return [line for line in drawn.figure.axes[0].lines
            if line.get_marker() not in ("None", "", None)]


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
        self.assertEqual(compare.file_name("e", "main"), "compare-e-main")

    def test_names_of_files_are_their_own(self):
        names = [("e/x", "main"), ("e-x", "main"), ("e", "x-main"), ("e", "x/main"), ("e x", "main"), ("e", "main")]
        files = [compare.file_name(*name) for name in names]
        self.assertEqual(len(set(files)), len(names))
        for file in files:
            self.assertRegex(file, r"^compare-[A-Za-z0-9._-]+$")

    def test_what_trials_say_is_no_formula(self):
        hostile = r"a $\foo$ b"
        for names in (("a", hostile), ("a", hostile, "$x_")):
            cells = [cell(r"$\bad", second, ratio(1.5), ratio(2.0), "second") for second in names[1:]]
            for each in cells:
                each["setting"] = hostile
            drawn = self.draw(found(*names, cells=cells))
            style.write(drawn.figure, folder_of(self), "figure")

    def test_what_is_modelled_is_hollow(self):
        one = cell("wfbp", "b", ratio(1.5), ratio(2.0), "second")
        one["transported"] = {"ratio": ratio(1.8)}
        one["second_forced"] = {"plan_of": "a", "modelled": ratio(1.7), "measured": None}
        other = cell("zen", "b", ratio(1.2), None, "not comparable")
        other["transported"] = {"ratio": ratio(1.3)}
        other["second_forced"] = {"plan_of": "a", "modelled": ratio(1.7), "measured": ratio(1.6)}
        drawn = self.draw(found("a", "b", cells=[one, other]))
        [axes] = drawn.figure.axes
        marks = {float(line.get_xdata()[0]): line.get_markerfacecolor() for line in axes.lines
                 if line.get_marker() in ("o", "D", "s")}
        self.assertEqual(sorted(marks), [1.2, 1.3, 1.5, 1.6, 1.7, 1.8, 2.0])
        self.assertEqual({x for x, colour in marks.items() if colour == "white"}, {1.3, 1.7, 1.8})
        labels = [handle.get_label() for handle in drawn.handles]
        self.assertEqual(labels[2:], ["a carried over to b: modelled", "b with the plan of a: measured",
                                      "b with the plan of a: modelled"])
        self.assertIn("Hollow marks are modelled", drawn.caption)

    def test_of_several_systems_too(self):
        one = cell("wfbp", "b", ratio(1.5), ratio(2.0), "second")
        one["transported"] = {"ratio": ratio(1.8)}
        drawn = self.draw(found("a", "b", "c", cells=[
            one, cell("wfbp", "c", ratio(1.5), ratio(1.0), "first")]))
        [axes] = drawn.figure.axes
        hollow = [float(line.get_ydata()[0]) for line in axes.lines
                  if line.get_markerfacecolor() == "white" and len(line.get_xdata()) == 1]
        self.assertEqual(hollow, [1.8])

    def test_several_systems_are_a_slope_a_method(self):
        drawn = self.draw(found("a", "b", "c", cells=[
            cell("wfbp", "b", ratio(1.5), ratio(2.0), "second"),
            cell("wfbp", "c", ratio(1.5), ratio(1.0), "first"),
        ]))
        [axes] = drawn.figure.axes
        self.assertEqual([list(line.get_ydata()) for line in slopes(drawn)], [[1.5, 2.0, 1.0]])
        self.assertEqual([tick.get_text() for tick in axes.get_xticklabels()], ["a", "b", "c"])
        self.assertEqual(axes.get_yscale(), "log")  # 2x and 0.5x are equally far from 1

    def test_a_slope_is_broken_where_a_system_has_no_ratio(self):
        drawn = self.draw(found("a", "b", "c", cells=[
            cell("wfbp", "b", ratio(1.5), None, "not comparable"),
            cell("wfbp", "c", ratio(1.5), ratio(1.0), "first"),
        ]))
        [line] = slopes(drawn)
        first, second, third = map(float, line.get_ydata())
        self.assertEqual([first, third], [1.5, 1.0])
        self.assertTrue(math.isnan(second))

    def test_lines_of_methods_stand_apart(self):
        drawn = self.draw(found("a", "b", "c", cells=[
            cell(method, second, ratio(1.5), ratio(1.5), "agree")
            for method in ("wfbp", "zen") for second in ("b", "c")]))
        self.assertEqual(len({float(line.get_xdata()[0]) for line in slopes(drawn)}), 2)

    def test_modelled_ratios_say_so_and_are_hollow(self):
        modelled = [cell("wfbp", second, ratio(2), ratio(2), "not comparable") for second in ("b", "c")]
        for each in modelled:
            each["config"]["mode"] = "modelled"
        drawn = self.draw(found("a", "b", "c", cells=modelled))
        [axes] = drawn.figure.axes
        self.assertEqual(axes.get_title(loc="left"), "modelled: 2 workers")
        [line] = slopes(drawn)
        self.assertEqual(line.get_markerfacecolor(), "white")
        self.assertIn("No verdict counts modelled ratios", drawn.caption)

    def test_an_interval_that_is_far_longer_does_not_squeeze_the_rest(self):
        wild = {"value": 1.0, "low": 1e-4, "high": 1e4, "n": 2}
        drawn = self.draw(found("a", "b", cells=[
            cell("wfbp", "b", ratio(1.5), wild, "undecided"), cell("zen", "b", ratio(0.5), ratio(2), "second")]))
        low, high = drawn.figure.axes[0].get_xlim()
        self.assertGreater(low, 0.1)
        self.assertLess(high, 10)


if __name__ == "__main__":
    unittest.main()
