"""Tests that a question about the options of scripts/reproduce builds and installs nothing."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Help(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="sparfuse-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "scripts").mkdir()
        for name in ("reproduce", "build_steps.sh"):
            shutil.copy(ROOT / "scripts" / name, self.folder / "scripts" / name)

    def ask(self, *arguments):
        return subprocess.run([self.folder / "scripts/reproduce", *arguments], capture_output=True, text=True,
                              check=False)

    def test_of_a_fresh_tree_is_that_of_the_script(self):
        for question in (["--help"], ["-h"], ["safusion", "--modelled", "--help"]):
            done = self.ask(*question)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("scripts/reproduce [PAPER|EXPERIMENT] [OPTION...]", done.stdout)
            self.assertIn("is not built", done.stdout)
        made = {path.name for path in self.folder.iterdir()} - {"scripts"}
        self.assertLessEqual(made, {".setup"})  # where the scripts keep their state

    def test_of_a_built_tree_is_that_of_the_program(self):
        program = self.folder / "build/release/harness/sparfuse"
        program.parent.mkdir(parents=True)
        program.write_text('#!/bin/sh\necho "asked: $*"\n')
        program.chmod(0o755)
        self.assertEqual(self.ask("quick", "--help").stdout, "asked: reproduce --help\n")


if __name__ == "__main__":
    unittest.main()
