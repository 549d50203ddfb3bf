"""Tests the checks themselves: each sees the harm that it is there for, and nothing else."""

import itertools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import unittest
from pathlib import Path

import attacks
import chaos
import invariants
from sandbox import MARK, Done, Sandbox


class Invariants(unittest.TestCase):
    def setUp(self):
        folder = Path(tempfile.mkdtemp(prefix="sf-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.sandbox = Sandbox(folder / "1", "/bin/true")
        self.addCleanup(self.sandbox.close)
        self.trial = self.sandbox.results / "trials" / "chaos" / "store" / "main" / "wfbp-1"
        self.trial.mkdir(parents=True)
        said = {"trial_id": "chaos/store/main/wfbp-1", "status": "ok"}
        (self.trial / "trial.json").write_text(json.dumps(said))
        self.canaries = invariants.Canaries(self.sandbox)
        self.finished = invariants.Finished(self.sandbox)

    def test_nothing_is_wrong_where_nothing_was_done(self):
        sandbox = self.sandbox
        self.assertEqual(self.canaries.check() + self.finished.check(), [])
        self.assertEqual(invariants.half_written(sandbox) + invariants.leftovers(sandbox), [])
        self.assertEqual(invariants.orphans(sandbox) + invariants.index_differs(sandbox), [])

    def test_what_was_the_users(self):
        trials = self.sandbox.results / "trials"
        harms = (
            (self.sandbox.folder / "outside" / "thesis" / "chapter1" / "text.tex", Path.unlink),
            (trials / "chaos" / "thesis", Path.unlink),
            (trials / "notes", shutil.rmtree),
            (self.sandbox.results / "mine.txt", lambda path: path.write_text("other")),
            (trials / "chaos" / "store" / "drafts", lambda path: (path / "new").mkdir()),
        )
        for done, (path, harm) in enumerate(harms, 1):
            harm(path)
            said = self.canaries.check()
            self.assertEqual(len(said), 1)
            self.assertGreaterEqual(said[0].count("is gone") + said[0].count("is changed")
                                    + said[0].count("is new"), done)

    def test_finished_trials(self):
        (self.trial / "steps.npy").write_text("new")
        self.assertIn("steps.npy is new", self.finished.check()[0])
        (self.trial / "trial.json").write_text("{")
        self.assertIn("trial.json is changed", self.finished.check()[0])
        self.assertIn("half-written", invariants.half_written(self.sandbox)[0])
        shutil.rmtree(self.trial)
        self.assertIn("is gone", self.finished.check()[0])
        self.finished.look(but={"chaos/store/main/wfbp-1"})
        self.assertEqual(self.finished.check(), [])

    def test_readers(self):
        def read(errors="", **printed):
            done = Done("status --json", 0, json.dumps(printed), errors)
            return invariants.half_read(self.sandbox, done)

        self.assertEqual(read(trials=[{"trial_id": "chaos/store/main/wfbp-1"}]), [])
        self.assertIn("lists b-1", read(trials=[{"trial_id": "b-1"}])[0])
        self.assertIn("half-read", read("warning: a/trial.json: byte 7; left out")[0])
        cut = Done("status --json", 0, "{", "")
        self.assertIn("printed no JSON", invariants.half_read(self.sandbox, cut)[0])

    def test_processes_and_files_that_stay(self):
        environment = {**os.environ, MARK: self.sandbox.folder.as_posix()}
        process = subprocess.Popen(["sleep", "1000"], env=environment)
        self.addCleanup(process.wait)
        grace, invariants.GRACE_SECONDS = invariants.GRACE_SECONDS, 0.3
        said = invariants.orphans(self.sandbox)
        invariants.GRACE_SECONDS = grace
        self.assertEqual(said, [f"an orphan: process {process.pid}: sleep 1000"])
        self.assertEqual(process.wait(), -signal.SIGKILL)
        (self.sandbox.temporary / "session" / "0").mkdir(parents=True)
        self.assertEqual(invariants.leftovers(self.sandbox), [])
        (self.sandbox.temporary / "session" / "0" / "pipe").touch()
        self.assertIn("TMPDIR/session/0/{pipe}", invariants.leftovers(self.sandbox)[0])

    def test_the_index(self):
        with sqlite3.connect(self.sandbox.results / "index.sqlite") as database:
            database.execute("CREATE TABLE trial(trial_id)")
        self.assertEqual(invariants.index_differs(self.sandbox), [])
        rows = iter(({"trial": ["a"]}, {"trial": []}))
        self.sandbox.index_rows = lambda: next(rows)
        self.assertIn("trial: 1 rows, and 0", invariants.index_differs(self.sandbox)[0])

    def test_crashes(self):
        for code, words, crash in (
            (0, "", ""), (2, "error: t.toml:3: unknown key", ""), (-signal.SIGKILL, "", ""),
            (-signal.SIGSEGV, "", "SIGSEGV"), (-signal.SIGABRT, "", "SIGABRT"), (127, "", "exit 127"),
            (None, "", "does not end"), (1, "error: filesystem error: no", "filesystem error: no"),
            (1, "Traceback (most recent call last):", "Traceback"),
        ):
            said = Done("run", code, "", words).crash()
            self.assertIn(crash, said)
            self.assertEqual(bool(crash), bool(said), (code, words))

    def test_a_seed_gives_the_same_attacks(self):
        def first(seed):
            return list(itertools.islice(chaos.names_of_attacks(seed), 30))

        self.assertEqual(first(5), first(5))
        self.assertNotEqual(first(5), first(6))
        self.assertEqual(set(first(5)), set(attacks.ATTACKS))


if __name__ == "__main__":
    unittest.main()
