"""Runs the program as its user does, on a folder and results of a test's own, and reads its trials."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EVERYTHING = "SPARFUSE_TEST_EVERYTHING" in os.environ
with_all = unittest.skipUnless(EVERYTHING, "runs with scripts/test --all")


class ProgramTest(unittest.TestCase):
    program = None  # the program's path, set by main

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="sparfuse-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.results = self.folder / "results"

    def command(self, *arguments, results=None):
        return list(map(str, [self.program, "--root", ROOT, "--results", results or self.results, *arguments]))

    def start(self, *arguments, environment=None, **more):
        """Runs the program to its end. environment: variables beside those of the test."""
        return subprocess.run(self.command(*arguments, **more), text=True, capture_output=True, timeout=400,
                              check=False, cwd=self.folder, env=os.environ | (environment or {}))

    def ended(self, command, code=0, **options):
        """Runs a command that ends with `code`; returns its output and its errors."""
        done = subprocess.run(list(map(str, command)), text=True, capture_output=True, timeout=120, check=False, **options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def wait_for(self, what, condition, seconds=30):
        until = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), until, what)
            time.sleep(0.02)

    def call(self, *arguments, code=0, **more):
        """Calls the program; returns its output, and the errors, too, if `code` is a failure."""
        done = self.start(*arguments, **more)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + (done.stderr if code else "")

    def said(self, *arguments, code=0, **more):
        """Calls the program; returns its output and its errors."""
        done = self.start(*arguments, **more)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr


def read_trial(path):
    """The trial.json at `path`, with private.json's command, environment and failure message."""
    trial = json.loads(path.read_text())
    file = path.with_name("private.json")
    apart = json.loads(file.read_text()) if file.exists() else {}
    trial["argv"] = apart.get("argv", [])
    trial["environment"] = trial.get("environment", {}) | apart.get("environment", {})
    if trial["failure"]:
        trial["failure"] |= {"message": apart.get("failure", ""), "log_tail": apart.get("log_tail", "")}
    return trial


def main():
    """Runs the tests of the main module; its first argument is the program."""
    ProgramTest.program = Path(sys.argv.pop(1)).resolve()
    unittest.main(module="__main__")
