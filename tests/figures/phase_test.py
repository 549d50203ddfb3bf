"""Tests the phase diagram of `sparfuse advise` on points made by hand.

PYTHONPATH=harness/figures python tests/figures/phase_test.py
"""

import unittest

from matplotlib.patches import Rectangle

from sparfuse_report import phase, style

FOUND = {
    "workload": "table:mine@0123456789ab",
    "cluster": "c",
    "batch_per_worker": 4,
    "density": 0.01,
    "inter_node_gbps": 100,
    "draws": 32,
    "points": [
        {"inter_node_gbps": gbps, "workers": workers, "winner": winner, "undecided": undecided,
         "over_dense": over}
        for gbps, workers, winner, undecided, over in (
            (50, 8, "powersgd", [], 1.5),
            (50, 16, "safusion", ["wfbp"], 2.0),
            (100, 8, "dense", [], 1.0),
            (100, 16, "powersgd", ["dense"], None),
        )
    ],
}


class Phase(unittest.TestCase):
    def setUp(self):
        [(self.name, self.drawn)] = phase.drawings(FOUND)
        self.addCleanup(style.close, self.drawn.figure)
        self.axes = self.drawn.figure.axes[0]

    def test_each_point_has_its_winner_s_colour_and_a_hatch_where_it_is_undecided(self):
        looks = style.Styles(["powersgd", "safusion", "dense"])
        boxes = {
            (round(box.get_x() + 0.5), round(box.get_y() + 0.5)): box
            for box in self.axes.patches if isinstance(box, Rectangle)
        }
        self.assertEqual(len(boxes), 4)
        for point in FOUND["points"]:
            box = boxes[[8, 16].index(point["workers"]), [50, 100].index(point["inter_node_gbps"])]
            colour = style.matplotlib.colors.to_rgba(looks[point["winner"]].colour)
            self.assertEqual(box.get_facecolor(), colour)
            self.assertEqual(bool(box.get_hatch()), bool(point["undecided"]))

    def test_words_name_winners_and_only_ratios_there_are(self):
        words = sorted(text.get_text().replace("\u202f", " ") for text in self.axes.texts)
        self.assertEqual(words, ["dense", "powersgd", "powersgd\n1.50 x dense",
                                 "safusion\n2.00 x dense"])
        self.assertEqual([tick.get_text() for tick in self.axes.get_yticklabels()], ["50", "100"])
        self.assertIn("mine", self.drawn.title)
        self.assertEqual(self.name, "phase-mine-on-c")


if __name__ == "__main__":
    unittest.main()
