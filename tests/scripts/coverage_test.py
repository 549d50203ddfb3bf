"""Tests scripts/testing/coverage.py on two small programs."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/testing"))
import coverage  # noqa: E402  (found by the path above)

HEADER = """inline int twice(int x) {
  return 2 * x;
}
inline int never(int x) {
  return x;
}
"""
CALLS = '#include "core/part/twice.hpp"\nint main() {\n  return twice(0);\n}\n'
CALLS_NOT = '#include "core/part/twice.hpp"\nint main(int n, char**) {\n  if (n > 1)\n    return never(twice(n));\n  return 0;\n}\n'


class CoverageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sparfuse-coverage-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        (self.root / "core/part").mkdir(parents=True)
        (self.root / "core/part/twice.hpp").write_text(HEADER)

    def counts(self, name, text):
        source = self.root / f"core/{name}.cpp"
        source.write_text(text)
        subprocess.run(["g++", "-O0", "--coverage", f"-I{self.root}", "-c", source, "-o", f"{name}.o"], cwd=self.root, check=True)
        subprocess.run(["g++", "--coverage", f"{name}.o", "-o", name], cwd=self.root, check=True)
        subprocess.run([self.root / name], cwd=self.root, check=True)
        return coverage.lines_of(self.root / f"{name}.gcda", self.root)

    def test_a_line_ran_if_it_did_in_any_program(self):
        one, other = self.counts("calls", CALLS), self.counts("calls_not", CALLS_NOT)
        self.assertEqual(coverage.united([one])["core/part/twice.hpp"], {1: True, 2: True})  # uncalled inline functions have no code
        self.assertEqual(coverage.united([one])["core/calls.cpp"], {2: True, 3: True})
        self.assertEqual(coverage.united([other])["core/calls_not.cpp"], {2: True, 3: True, 4: False, 5: True})
        every = coverage.united([one, other])
        self.assertEqual(every["core/part/twice.hpp"], {1: True, 2: True, 4: False, 5: False})
        self.assertEqual(coverage.shares(every), [("core", 5, 6), ("core/part", 2, 4)])

    def test_a_build_without_counts_is_named(self):
        done = subprocess.run([sys.executable, coverage.__file__, self.root], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"no counts in {self.root}: expected a build with SPARFUSE_COVERAGE", done.stderr)


if __name__ == "__main__":
    unittest.main()
