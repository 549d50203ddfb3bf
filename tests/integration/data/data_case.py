"""Gives each test that prepares data folders of its own, and runs the program on them."""

import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest


def add_member(tar, name, data):
    """Adds a file of these bytes to an archive."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


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

    def prepare(self, name, source=None, *more, check=0):
        return self.run_program("data", "prepare", name, "--from", source or self.source, *more, check=check)

    def meta(self, name):
        return json.loads((self.data / name / "meta.json").read_text())
