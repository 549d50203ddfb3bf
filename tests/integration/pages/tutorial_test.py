"""Goes through docs/tutorial/README.md as its reader does: writes its files, types its commands, compares what they print.

  tutorial_test.py PATH/TO/sparfuse [unittest arguments]

`...` in a page stands for any lines. In the second part, which trains, numbers of tables are any numbers. Exit
status 77: the laws of parts or the plugin for parts in Python are not built.
"""

import re
import shlex
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from program import ROOT, ProgramTest

FIRST, SECOND = ROOT / "docs/tutorial/README.md", ROOT / "docs/tutorial/live.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"# ([\w.]+\.(?:py|toml))\n")
NUMBER = re.compile(r"\s*\d[\d .]*")
# Spaces within numbers.
SPACES = str.maketrans(dict.fromkeys("\N{NO-BREAK SPACE}\N{THIN SPACE}\N{NARROW NO-BREAK SPACE}", " "))
# `check` builds the programs of laws before it runs them; the test takes built ones.
LAWS = {"planner": ("part-conformance", "planner"), "sparsifier": ("sparsifier-conformance",)}


def as_pattern(lines, numbers):
    """A pattern of the whole output: "..." stands for any lines; with `numbers`, numbers may be others."""
    pieces = []
    for line in lines:
        if line == "...":
            pieces.append(r"(?:.*\n)*?")
        else:
            text = NUMBER.split(line) if numbers else [line]
            pieces.append(NUMBER.pattern.join(re.escape(piece) for piece in text) + r"\s*\n")
    return "".join(pieces)


def calls(block):
    """Yields (command, lines that it prints) for a block whose first line is a command."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *printed = part.splitlines()
        yield command, [line.rstrip() for line in printed]


class Tutorial(ProgramTest):
    def setUp(self):
        super().setUp()
        self.built = self.program.parent
        needed = ["part-conformance", "sparsifier-conformance", "worker/sparfuse_python_plugin.so"]
        missing = [name for name in needed if not (self.built / name).exists()]
        if missing:
            self.skipTest(f"{', '.join(missing)} not built")
        # Makes the reader's ./sparfuse.
        words = map(shlex.quote, map(str, [self.program, "--root", ROOT, "--results", self.results]))
        script = self.folder / "sparfuse"
        script.write_text(f"#!/bin/sh\nexec {' '.join(words)} \"$@\"\n")
        script.chmod(0o755)

    def type(self, command):
        check = re.match(r"\./sparfuse check (\w+) (\S+)$", command)
        if check:
            program, *kind = LAWS[check[1]]
            command = shlex.join([str(self.built / program), *kind, check[2]])
        done = subprocess.run(command, shell=True, cwd=self.folder, text=True, capture_output=True, timeout=900,
                              check=False)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout.replace(f"{self.folder}/", "").translate(SPACES)

    def read(self, page, numbers=False):
        """Follows a page; returns the number of typed commands. numbers: printed numbers may be others."""
        typed = 0
        for language, block in BLOCK.findall(page.read_text()):
            named = NAMED.match(block)
            if named:
                (self.folder / named[1]).write_text(block)
            elif block.startswith("$ "):
                for command, expected in calls(block):
                    typed += 1
                    with self.subTest(page=page.name, command=command):
                        printed = self.type(command)
                        self.assertIsNotNone(re.fullmatch(as_pattern(expected, numbers), printed),
                                             f"{command} printed\n{printed}")
            else:
                # The commands that fetch and build the program cannot run here.
                self.assertIn("git clone", block, f"{page.name}: a block of {language or 'text'} that nothing tests")
        return typed

    def test_the_first_part(self):
        self.assertGreater(self.read(FIRST), 10)

    def test_both_parts(self):
        self.read(FIRST)
        self.assertGreater(self.read(SECOND, numbers=True), 3)


class Patterns(unittest.TestCase):
    def test_lines_that_are_left_out(self):
        pattern = as_pattern(["a 1", "...", "b"], False)
        self.assertTrue(re.fullmatch(pattern, "a 1\nb\n"))
        self.assertTrue(re.fullmatch(pattern, "a 1\nx\ny\nb\n"))
        self.assertFalse(re.fullmatch(pattern, "a 2\nb\n"))
        self.assertFalse(re.fullmatch(pattern, "a 1\nb\nc\n"))

    def test_numbers_that_may_differ(self):
        pattern = as_pattern(["dense  324 images/s; –; 1.00"], True)
        self.assertTrue(re.fullmatch(pattern, "dense   1 324 images/s; –; 0.9\n"))
        self.assertFalse(re.fullmatch(pattern, "wfbp  324 images/s; –; 1.00\n"))


if __name__ == "__main__":
    ProgramTest.program = Path(sys.argv.pop(1)).resolve()
    result = unittest.main(exit=False).result
    sys.exit(77 if result.skipped else not result.wasSuccessful())
