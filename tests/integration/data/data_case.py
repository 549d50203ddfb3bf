"""Gives each test that prepares data folders of its own, and runs the program on them."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest


class DataCase(unittest.TestCase):
    """home: a temporary folder; home/data: SPARFUSE_DATA; home/source: the data that a test prepares."""

    program = ""  # the path of sparfuse

    def setUp(self):
        self.home = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.home)
        self.data, self.source = self.home / "data", self.home / "source"
        self.data.mkdir()
        self.source.mkdir()

    def run_program(self, *words, check=None, **more):
        done = subprocess.run([self.program, *map(str, words)], capture_output=True, text=True, timeout=300,
                              env=os.environ | {"SPARFUSE_DATA": str(self.data)}, **more)
        if check is not None:
            self.assertEqual(done.returncode, check, done.stdout + done.stderr)
        return done
