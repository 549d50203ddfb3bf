"""Tests that a load in the middle of a run is seen by its control, with real ranks.

  load_test.py PATH/TO/sparfuse [unittest arguments]
"""

import json
import os
import subprocess
import sys
from contextlib import contextmanager

from program import ProgramTest, main

LOADED = 2  # the loaded one of four blocks
EXPERIMENT = """
id = "loaded"
[defaults]
mode = "measured"
workload = "digits-resnet"
batch_per_worker = 8
workers = 2
warmup_steps = 1
steps = 6
[[axis]]
method = ["dense", "wfbp"]
[repeat]
blocks = 4
"""


@contextmanager
def load():
    """Runs four computing programs on each core."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
                for _ in range(4 * len(os.sched_getaffinity(0)))]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


class LoadTest(ProgramTest):
    def test_a_block_that_was_measured_beside_a_load_is_marked_by_its_control(self):
        file = self.folder / "loaded.toml"
        file.write_text(EXPERIMENT)
        for block in range(4):
            run = ("run", file, "--block", block, "--keep-disturbed")
            if block == LOADED:
                with load():
                    self.call(*run)
            else:
                self.call(*run)
        bundle = self.folder / "loaded.sparfuse"
        self.call("export", file, "--out", bundle)
        cell, = json.loads(self.call("compare", bundle, bundle, "--keep-disturbed", "--json"))["cells"]
        moved = cell["first_moved"]
        self.assertIn(str(LOADED), moved)
        self.assertEqual(max(moved, key=moved.get), str(LOADED), moved)
        self.assertIn(cell["verdict"], ("agree", "undecided"))  # a comparison with itself
        self.assertIn("dense moved by more than 10 %", self.call("compare", bundle, bundle, "--keep-disturbed"))
        # The host's facts show the load, too: the block's times do not count unless asked for.
        trials = [json.loads(path.read_text()) for path in (self.folder / "results").rglob("trial.json")]
        self.assertEqual({trial["quiet"]["disturbed"] for trial in trials if trial["block"] == LOADED}, {True})


if __name__ == "__main__":
    main()
