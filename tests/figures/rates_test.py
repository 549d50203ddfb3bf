"""Tests the drawing of `sparfuse advise --utilisation` on rates made by hand.

PYTHONPATH=harness/figures python tests/figures/rates_test.py
"""

import unittest

from sparfuse_report import rates, style

FOUND = {
    "workload": "table:mine@0123456789ab",
    "cluster": "c",
    "batch_per_worker": 4,
    "density": 0.01,
    "workers": 16,
    "utilisations": [0.5, 0.75, 0.9, 0.95, 0.99],
    "methods": [
        {"method": "dense", "window_steps": 1, "gbps": [1, 3, 9, 20, 100], "naive_gbps": [1] * 5},
        {
            "method": "diloco",
            "window_steps": 32,
            "gbps": [0.1, 0.3, 1, None, None],
            "naive_gbps": [1] * 5,
        },
        {"method": "powersgd", "window_steps": 1, "gbps": [None] * 5, "naive_gbps": [1] * 5},
    ],
}


class Rates(unittest.TestCase):
    def setUp(self):
        [(self.name, self.drawn)] = rates.drawings(FOUND)
        self.addCleanup(style.close, self.drawn.figure)
        self.axes = self.drawn.figure.axes[0]

    def test_a_line_goes_through_the_rates_of_each_method_that_has_some(self):
        lines = {line.get_label(): line for line in self.axes.lines}
        self.assertEqual(set(lines), {"dense", "diloco"})
        self.assertEqual(list(lines["dense"].get_xdata()), [1, 3, 9, 20, 100])
        self.assertEqual(list(lines["dense"].get_ydata()), [50, 75, 90, 95, 99])
        self.assertEqual(list(lines["diloco"].get_xdata()), [0.1, 0.3, 1])
        self.assertEqual(self.axes.get_xscale(), "log")

    def test_words_name_what_no_rate_is_enough_for_and_the_setting(self):
        self.assertIn("No rate is enough for half of a step: powersgd.", self.drawn.caption)
        self.assertIn("16 workers", self.drawn.caption)
        self.assertIn("mine", self.drawn.title)
        self.assertEqual(self.name, "utilisation-mine-on-c")


if __name__ == "__main__":
    unittest.main()
