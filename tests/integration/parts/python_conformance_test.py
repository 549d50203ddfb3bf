"""Tests the laws of sparsifiers on classes that break them, and on names that make no sense.

  python_conformance_test.py PATH/TO/sparsifier-conformance [unittest arguments]
"""

import os
import subprocess
import sys
import unittest
from pathlib import Path

PROGRAM = None
CLASSES = Path(__file__).resolve().parents[2] / "core" / "sparsify" / "laws" / "python_sparsifiers.py"


def run(*arguments):
    # Removes googletest's settings, which belong to the tests around this one; failures are expected here.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GTEST_")}
    return subprocess.run([PROGRAM, *arguments], text=True, capture_output=True, timeout=200, check=False,
                          env=environment, cwd=CLASSES.parent)


class ConformanceTest(unittest.TestCase):
    def assert_breaks(self, class_name, law, expected):
        done = run(f"python:{CLASSES.name}:{class_name}", f"--gtest_filter=*.{law}*")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, rf"FAILED.*{law}.*where GetParam.. = .python:{CLASSES.name}:{class_name}\b")
        self.assertRegex(done.stdout, expected)

    def test_a_wrong_count(self):
        self.assert_breaks("OneTooMany", "CountsItsSelections", r"OneTooMany.select.* returned 11 indices; expected 10")

    def test_an_index_twice(self):
        self.assert_breaks("Twice", "Selects", r"Twice.select.* returned index 0 more than once")

    def test_more_than_fits(self):
        self.assert_breaks("AllTies", "Selects",
                           r"n=9000 zeros: .*AllTies.select.* returned 9000 indices; expected 1 to 1025")

    def test_nothing_at_all(self):
        name = "NothingWhereNothingLiesBeyond"
        self.assert_breaks(name, "Selects", rf"n=2 .*{name}.select.* returned 0 indices; expected 1 to ")

    def test_another_selection_each_time(self):
        self.assert_breaks("RandomWithoutSeed", "IsDeterministic", "Expected equality(.|\n)*gaussian .*threads=2")

    def test_one_that_breaks_a_law_fails_beside_one_that_does_not(self):
        done = run(*(f"python:{CLASSES.name}:{name}" for name in ("TopK", "OneTooMany")),
                   "--gtest_filter=*CountsItsSelections*")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, "OK .*CountsItsSelections/.*_TopK ")
        self.assertRegex(done.stdout, "FAILED .*CountsItsSelections/.*_OneTooMany,")

    def test_what_cannot_be_tested_is_said_at_once(self):
        for arguments, expected in (((), "usage: sparsifier-conformance"),
                                    (("topj",), 'did you mean "topk"?'),
                                    (("topk", "--device", "gpu"), '"gpu"; expected host, emulated or cuda'),
                                    (("python:absent.py:TopK",), str(CLASSES.parent / "absent.py")),
                                    ((f"python:{CLASSES.name}:TopJ",), 'did you mean "TopK"?'),
                                    ((f"python:{CLASSES.name}:Needy",), "missing 1 required positional argument"),
                                    ((f"python:{CLASSES.name}:TopK", "--gtest_filer=x"), "--gtest_filer=x")):
            with self.subTest(arguments):
                done = run(*arguments)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(expected, done.stderr)
                self.assertNotIn("[ RUN", done.stdout)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
