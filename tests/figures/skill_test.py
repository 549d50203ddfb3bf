"""Tests predictors beside the model: formulas, no gain, the first published number.

PYTHONPATH=harness/figures python tests/figures/skill_test.py
"""

import sys
import unittest

from sparfuse_report import skill, wording


def prediction(theirs, setting="s", calibrated=False, **by):
    names = {"model": skill.MODEL, "longest": skill.LONGEST, "none": skill.NO_GAIN, "first": skill.FIRST}
    strata = {"method": setting, "workers": 8}
    values = {names[name]: value for name, value in by.items()}
    return skill.Prediction(setting, theirs, values, calibrated, strata)


class Cell:
    def __init__(self, **means):
        self.means = means

    def mean(self, metric):
        return self.means.get(metric)


class Skill(unittest.TestCase):
    def test_formulas_are_the_longer_of_two_parts_and_their_sum(self):
        cell = Cell(step_seconds=4.0, local_seconds=3.0, wire_seconds=2.0)
        self.assertEqual(skill.throughputs(cell, 100), {skill.LONGEST: 100 * 4 / 3, skill.SUM: 80})
        base = Cell(step_seconds=9.0, local_seconds=3.0, wire_seconds=6.0)
        self.assertEqual(skill.gains(cell, base), {skill.LONGEST: 2.0, skill.SUM: 9 / 5})
        self.assertEqual(skill.formula_seconds(Cell(step_seconds=4.0)), {})

    def test_a_row_says_how_far_how_often_too_high_and_which_pairs_are_in_order(self):
        found = [
            prediction(2.0, model=2.2, none=1.0),
            prediction(1.0, model=0.9, none=1.0),
            prediction(1.02, model=0.5, none=1.0),  # within 3 % of the second, and so without an order to it
            prediction(4.0, "t", model=5.2, none=1.0),
        ]
        model, none = skill.rows(found)
        percents = [f"{value}{wording.THIN}%" for value in ("20.0", "44.7")]
        self.assertEqual(model, [skill.MODEL, "4", *percents, "2 of 4", "2 of 2", "yes"])
        self.assertEqual(none[5:], ["0 of 2", ""])
        self.assertEqual(none[4], "0 of 4")

    def test_the_nearest_says_something_of_every_number(self):
        found = [prediction(1, model=1.3), prediction(1, "t", model=1.1, first=1.05)]
        self.assertEqual([(row[0], row[1], row[-1]) for row in skill.rows(found)],
                         [(skill.MODEL, "2", "yes"), (skill.FIRST, "1", "")])
        beyond = skill.beyond_first(found)
        self.assertEqual(beyond, found[1:])
        self.assertEqual([row[-1] for row in skill.rows(beyond)], ["", "yes"])
        self.assertEqual(skill.beyond_first(beyond), [])
        shown = skill.testbeds([("e", "figure", found)]).groups[0][1]
        self.assertEqual([row[0] for row in shown],
                         [f"predicted: {skill.MODEL}", f"predicted: {skill.FIRST}",
                          f"predicted but for the first: {skill.MODEL}",
                          f"predicted but for the first: {skill.FIRST}"])

    def test_a_bar_in_a_cell_does_not_end_it(self):
        text = skill.markdown(skill.testbeds([("e", "figure", [prediction(1, model=1.1)])]))
        lines = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
        self.assertEqual(len({line.count("|") for line in lines}), 1)
        self.assertIn("| nearest |", lines[0])

    def test_what_calibrates_stands_apart(self):
        found = [prediction(1, model=1.5), prediction(1, model=1, calibrated=True)]
        table = skill.testbeds([("e", "figure", found)])
        self.assertEqual([row[0] for row in table.groups[0][1]],
                         [f"predicted: {skill.MODEL}", f"calibrated with: {skill.MODEL}"])
        self.assertEqual(skill.table([("all", found)]).groups[0][1][0][1], "1")

    def test_strata_have_the_range_of_their_medians(self):
        found = [prediction(1, "a", model=1.1), prediction(1, "b", model=1.3)]
        row = skill.testbeds([("e", "figure", found)]).groups[0][1][0]
        self.assertIn(f"10.0 to 30.0{wording.THIN}%", row)
        self.assertEqual(row[-2], wording.NONE)  # all have one number of workers
        text = skill.markdown(skill.testbeds([("e", "figure", found)]))
        self.assertTrue(text.startswith("**e, figure**"))


if __name__ == "__main__":
    sys.exit(unittest.main())
