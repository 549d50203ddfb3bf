"""Tests `sparfuse explain`'s parts of steps and its picture, on spans and steps made by hand.

PYTHONPATH=harness/figures python tests/figures/explain_test.py
"""

import json
import unittest

import numpy as np

import figures_fixture as example
from sparfuse_report import cells, explain, exposure

SPAN_COLUMNS = ("step", "rank", "kind", "lane", "label", "begin_seconds", "end_seconds", "bytes")


def spans(*rows):
    """The spans of one rank and step, from rows (kind, lane, label, begin, end) in seconds."""
    names = [(name, "U16") for name in ("kind", "lane", "label")]
    return np.array(list(rows), dtype=names + [("begin_seconds", "f8"), ("end_seconds", "f8")])


class Exposure(unittest.TestCase):
    def assert_waited(self, *rows, of):
        """of: {(cause, label): seconds}, none of them until the last rank had come."""
        found = exposure.exposure(spans(*rows), {})
        self.assertEqual(found, {cause: (seconds, 0.0) for cause, seconds in of.items()})

    def test_a_wait_is_cut_where_exchanges_end_and_the_rest_goes_to_the_next(self):
        self.assert_waited(
            ("backward", "compute", "w", 0, 10),
            ("exchange", "data", "unit 0", 8, 13),
            ("wait", "compute", "", 10, 20),
            ("negotiate", "control", "", 13, 14),
            ("exchange", "data", "unit 1", 16, 19),
            of={("exchange", "unit 0"): 3.0, ("negotiate", ""): 1.0, ("before", "unit 1"): 2.0,
                ("exchange", "unit 1"): 3.0, ("after", ""): 1.0},
        )

    def test_exchanges_side_by_side_share_and_come_before_all_else(self):
        self.assert_waited(
            ("wait", "compute", "", 0, 4),
            ("exchange", "intra-node", "a", 0, 4),
            ("exchange", "inter-node", "b", 2, 4),
            ("sparsify", "host", "w", 0, 4),
            of={("exchange", "a"): 3.0, ("exchange", "b"): 1.0},
        )

    def test_without_an_exchange_other_lanes_and_then_other_ranks_are_waited_for(self):
        self.assert_waited(
            ("wait", "compute", "", 0, 4),
            ("sparsify", "host", "w", 0, 1),
            ("wait", "align", "buffer 0", 0, 3),
            ("exchange", "data", "buffer 0", 3, 4),
            of={("local work", "w"): 1.0, ("other ranks", "buffer 0"): 2.0, ("exchange", "buffer 0"): 1.0},
        )

    def test_what_an_exchange_lasts_longer_than_elsewhere_was_spent_until_the_last_rank_came(self):
        here = spans(("exchange", "data", "unit 0", 2, 10), ("wait", "compute", "", 4, 10))
        there = spans(("exchange", "data", "unit 0", 50, 53))
        shortest = {
            key: min(seconds, exposure.lasting(there)[key])
            for key, seconds in exposure.lasting(here).items()
        }
        # On the last rank the exchange takes 3: that rank came at 7 of our clock, 3 into our wait.
        self.assertEqual(exposure.exposure(here, shortest), {("exchange", "unit 0"): (6.0, 3.0)})

    def test_overlap_counts_time_once(self):
        made = spans(
            ("backward", "compute", "a", 0, 4),
            ("backward", "compute", "b", 6, 8),
            ("exchange", "data", "0", 1, 3),
            ("exchange", "control", "1", 2, 7),
        )
        self.assertEqual(exposure.overlap(made, "backward", made["kind"] == "exchange"), 4.0)

    def test_tensors_are_those_of_the_plan_that_held(self):
        outcome = {
            "layout": [{"name": name, "numel": size} for name, size in zip("abcd", (1, 2, 4, 8))],
            "plans": [{"step": 0, "unit_sizes": "1,3"}, {"step": 9, "unit_sizes": "2,2"}],
        }
        self.assertEqual(
            exposure.tensors_of(outcome, "unit 1", 8), {"names": ["b", "c", "d"], "elements": 14}
        )
        self.assertEqual(
            exposure.tensors_of(outcome, "unit 1, dense", 9), {"names": ["c", "d"], "elements": 12}
        )
        outcome["plans"][1] |= {"dense_units": [0], "partitions": [1, 3]}
        said = [exposure.tensors_of(outcome, f"unit {u}", 9) for u in (0, 1)]
        self.assertEqual([each["partitions"] for each in said], [0, 3])
        self.assertIsNone(exposure.tensors_of(outcome, "buffer 1", 9))
        self.assertIsNone(exposure.tensors_of(outcome, "unit 2", 9))
        outcome["plans"][0]["paths"] = [0, 9]
        self.assertEqual(exposure.tensors_of(outcome, "unit 1", 8)["path"], 9)


def write_steps(directory, rows):
    """Writes steps.npy. rows: (step, rank, measured, and the seconds of step, forward, backward,
    sparsify, exposed, decompress, update, align_wait)."""
    names = ("step", "forward", "backward", "sparsify", "exposed_communication")
    names += ("decompress", "update", "align_wait")
    step, rank, measured, *seconds = zip(*rows)
    example.write_series(
        directory / "steps.npy",
        {"step": step, "rank": rank, "measured": np.array(measured, dtype=bool)}
        | {f"{name}_seconds": values for name, values in zip(names, seconds)},
    )


def write_spans(directory, rows):
    columns = dict(zip(SPAN_COLUMNS, zip(*rows)))
    example.write_series(directory / "spans.npy", columns, "the last measured steps")


# A step has forward 10 ms, backward 20 ms, exposed as given, update 1 ms and other 1 ms.
def step_rows(exposed):
    """Rows of three measured steps of two ranks after a warm-up step; rank 1 is slower."""
    rows = [(0, rank, 0, 9.0, 9.0, 0, 0, 0, 0, 0, 0) for rank in (0, 1)]
    for step, more in ((1, 0.000), (2, 0.004), (3, 0.001)):
        rows.append((step, 0, 1, 0.030, 0.010, 0.019, 0, 0, 0, 0.001, 0))
        whole = 0.032 + exposed + more
        rows.append((step, 1, 1, whole, 0.010, 0.020 + more, 0, exposed, 0, 0.001, 0))
    return rows


def span_rows(exposed, unit_end):
    return [
        (3, 1, "forward", "compute", "", 0.0, 0.010, 0),
        (3, 1, "backward", "compute", "w", 0.010, 0.030, 0),
        (3, 1, "exchange", "data", "unit 0", 0.025, unit_end, 64),
        (3, 1, "wait", "compute", "", 0.030, 0.030 + exposed, 0),
        (3, 1, "update", "compute", "", 0.030 + exposed, 0.031 + exposed, 0),
    ]


class Explained(unittest.TestCase):
    """Tests two methods: wfbp waits 12.5 ms for its exchange, safusion 2 ms; blocks shift both alike."""

    def setUp(self):
        self.folder = example.folder_of(self)

    def make(self, blocks=2, shift=0.001, mode_of_over="emulated"):
        made = example.Synthetic(self.folder / "results")
        listed = [
            example.config("safusion", "digits-resnet", 2, 1.0, "emulated"),
            example.config("wfbp", "digits-resnet", 2, 1.0, mode_of_over),
        ]
        self.hashes = {cell["method"]: cell["config_hash"] for cell in listed}
        for cell, exposed, exchanges in zip(listed, (0.002, 0.0125), (3, 43)):
            for block in range(blocks):
                waits = exposed + block * shift
                metrics = {"step_seconds": (0.033 + waits, "s"), "exchanges": (exchanges, ""),
                           "sent_bytes": (1000, "B")}
                _, directory = made.trial("p", cell, block, metrics)
                write_steps(directory, step_rows(waits))
                write_spans(directory, span_rows(waits, 0.030 + waits))
                outcome = {
                    "plan": "2",
                    "plans": [{"step": 0, "unit_sizes": "2"}],
                    "layout": [{"name": "a", "numel": 3}, {"name": "b", "numel": 4}],
                }
                (directory / "outcome.json").write_text(json.dumps(outcome))
        spec = made.spec({"id": "quick", "parts": [{"id": "p", "cells": listed}]})
        (self.folder / "spec.json").write_text(json.dumps(spec))
        self.of, self.over = cells.Experiment(spec, self.folder / "results").parts[0].cells
        names = {"of": {"name": "safusion"}, "over": {"name": "wfbp"}}
        found = {**names, "unlike_in": {}, "step": {"difference": {"value": -0.0105}}}
        (self.folder / "found.json").write_text(json.dumps({**found, "text": "it is faster\n"}))

    def test_parts_add_up_to_the_median_step(self):
        self.make()
        of, over = explain.steps_by_block(self.of), explain.steps_by_block(self.over)
        # The median step is the third one: 33 ms and the exposed time.
        self.assertAlmostEqual(of[0]["parts"]["step"], 0.0350)
        self.assertAlmostEqual(of[1]["parts"]["step"], 0.0360)
        self.assertAlmostEqual(over[0]["parts"]["step"], 0.0455)
        for block in (*of.values(), *over.values()):
            parts = block["parts"]
            parts_of_it = sum(parts[name] for name in (*explain.PARTS, "other"))
            self.assertAlmostEqual(parts_of_it, parts["step"], places=15)
        change = {name: of[0]["parts"][name] - over[0]["parts"][name] for name in explain.PARTS}
        self.assertAlmostEqual(change["exposed_communication"], -0.0105)
        self.assertAlmostEqual(change["backward"], 0.0)
        self.assertEqual((of[0]["steps"], of[0]["middle"]), (3, 1))

    def test_waits_have_units_and_tensors(self):
        self.make()
        traces = explain.steps_by_block(self.over)[1]["traces"]
        wait = traces["waits"][0]
        self.assertEqual((wait["for"], wait["unit"]), ("exchange", "unit 0"))
        self.assertAlmostEqual(wait["seconds"], 0.0135)
        self.assertEqual(wait["tensors"], {"names": ["a", "b"], "elements": 7})
        self.assertEqual((traces["steps"], traces["ranks"]), ([3], [1]))

    def test_the_parts_of_every_block_are_written_for_the_harness(self):
        self.make()
        out = self.folder / "parts.json"
        self.assertEqual(self.explain(verb="parts", out=out)[0], 0)
        found = json.loads(out.read_text())
        self.assertEqual(sorted(found["of"]), ["0", "1"])
        self.assertAlmostEqual(found["of"]["1"]["parts"]["exposed_communication"], 0.003)

    def test_a_trial_without_steps_is_named(self):
        self.make()
        path = next((self.folder / "results").rglob("steps.npy"))
        path.unlink()
        code, _, error = self.explain(verb="parts")
        self.assertEqual(code, 2)
        self.assertIn(f"{path}: expected at least one measured step", error)

    def explain(self, *more, verb="explain", out=None):
        command = ["--out", str(out or self.folder / "out")]
        command += ["--of", self.hashes["safusion"], "--over", self.hashes["wfbp"]]
        if verb == "explain":
            command += ["--found", str(self.folder / "found.json")]
        return example.rendered(verb, self.folder, self.folder / "spec.json", *command, *more)

    def test_text_and_json_come_with_the_picture(self):
        self.make()
        code, out, error = self.explain()
        self.assertEqual((code, error), (0, ""))
        self.assertTrue(out.startswith("it is faster\n"))
        written = sorted(path.suffix for path in (self.folder / "out").iterdir())
        self.assertEqual(written, [".pdf", ".png", ".svg"])
        code, out, _ = self.explain("--json")
        found = json.loads(out)
        self.assertEqual((code, len(found["figures"])), (0, 3))
        self.assertEqual((found["of"]["name"], "text" in found), ("safusion", False))

    def test_without_spans_the_text_is_still_told(self):
        self.make()
        for path in (self.folder / "results").rglob("spans.npy"):
            path.unlink()
        code, out, _ = self.explain()
        self.assertEqual(code, 0)
        self.assertIn("it is faster", out)
        self.assertIsNone(explain.steps_by_block(self.of)[0]["traces"])
        self.assertIn("not drawn: no trial of safusion", out)

    def test_a_cell_that_is_not_there_is_refused(self):
        self.make()
        self.hashes["wfbp"] = "nothing"
        code, _, error = self.explain()
        self.assertEqual(code, 2)
        self.assertIn("config_hash nothing", error)


if __name__ == "__main__":
    unittest.main()
