"""Tests the reading of series, among them what the controller's own writer makes.

PYTHONPATH=harness/figures python tests/figures/series_test.py
"""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

import numpy as np

from figures_fixture import folder_of, write_series
from sparfuse_report import series

ROOT = Path(__file__).resolve().parents[2]


class WrittenByTheController(unittest.TestCase):
    """Tests every_type.npy, whose bytes tests/harness/files/npy_test.cpp checks."""

    def test_numpy_opens_it(self):
        path = ROOT / "tests" / "harness" / "files" / "every_type.npy"
        table = np.load(path, allow_pickle=False)
        self.assertEqual(
            table.dtype.descr,
            [("step", "<i8"), ("seconds", "<f8"), ("measured", "|b1"), ("kind", "<U8")],
        )
        self.assertEqual(
            table.tolist(),
            [(1, 0.5, False, "wait"), (-2, -1e300, True, ""), (1 << 40, 3.0, True, "sparsify")],
        )


class Series(unittest.TestCase):
    def setUp(self):
        self.folder = folder_of(self)
        self.path = self.folder / "spans.npy"

    def write(self):
        columns = {"step": [1, 2], "kind": ["wait", "pack"], "end_seconds": [0.5, 3.0]}
        write_series(self.path, columns, "the last steps")

    def error(self):
        with self.assertRaises(series.SeriesError) as caught:
            series.read(self.path)
        return str(caught.exception)

    def test_reads_what_was_written(self):
        self.write()
        table = series.read(self.path)
        self.assertEqual(table[table["kind"] == "pack"]["end_seconds"].tolist(), [3.0])
        self.assertEqual(series.describe(self.path)["sampling"], "the last steps")

    def test_damaged_files_are_series_errors(self):
        fuzz = ROOT / "tests" / "fuzz"
        command = [sys.executable, fuzz / "series_fuzz.py", fuzz / "corpus" / "series"]
        run = subprocess.run(
            [*command, "--iterations", "1500"], cwd=self.folder, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "harness" / "figures")},
        )
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_there_may_be_none(self):
        self.assertIsNone(series.read(self.path))

    def test_damage_is_named_with_what_was_expected(self):
        self.write()
        whole = self.path.read_bytes()
        other = self.folder / "other.npy"
        np.save(other, np.zeros(2))
        for data in (
            b"",
            whole[:5],
            whole[:100],
            whole[:-1],
            b"PK" + whole[2:],
            whole.replace(b"'<f8'", b"'<q8'"),
            whole.replace(b"'kind'", b"'name'"),
            whole.replace(b"(2,)", b"(1,)"),
            whole.replace(b"(2,)", b"(3,)"),
            other.read_bytes(),
        ):
            self.path.write_bytes(data)
            message = self.error()
            self.assertIn(str(self.path), message)
            self.assertIn("expected a NumPy file of 2 records of end_seconds, kind, step", message)

    def test_a_trial_that_does_not_describe_it_is_named(self):
        self.write()
        for text in ("{", "{}", json.dumps({"series": {}})):
            (self.folder / "trial.json").write_text(text)
            self.assertIn('trial.json: expected series["spans.npy"]', self.error())

    def test_a_trial_of_an_earlier_version_is_to_be_run_again(self):
        self.path.with_suffix(".cols").write_bytes(b"{}\n")
        message = self.error()
        self.assertIn(str(self.folder), message)
        self.assertIn("--fresh", message)


if __name__ == "__main__":
    unittest.main()
