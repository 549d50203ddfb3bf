"""Tests what .ci/release checks and writes before it makes anything."""

import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def release(*arguments):
    return subprocess.run([ROOT / ".ci/release", *arguments], capture_output=True, text=True, check=False)


class Release(unittest.TestCase):
    def setUp(self):
        self.version = re.search(r"^project\(sparfuse VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(),
                                 re.MULTILINE)[1]

    def test_notes_are_the_section_of_the_version(self):
        done = release(self.version, "--notes")
        self.assertEqual(done.returncode, 0, done.stderr)
        changelog = (ROOT / "CHANGELOG.md").read_text()
        section = re.search(rf"^## \[{re.escape(self.version)}\] - [0-9-]+\n(.*?)(?=^## \[)", changelog,
                            re.DOTALL | re.MULTILINE)[1]
        self.assertEqual(done.stdout.strip(), section.strip())
        self.assertIn("### Added", done.stdout)
        self.assertNotIn("## [", done.stdout.replace("### [", ""))

    def test_another_version_is_refused(self):
        done = release("99.0.0", "--notes")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"CMakeLists.txt has version {self.version}: expected 99.0.0", done.stderr)

    def test_usage(self):
        for arguments in ([], ["0.2"], ["--unknown"]):
            with self.subTest(arguments=arguments):
                self.assertEqual(release(*arguments).returncode, 2)


if __name__ == "__main__":
    unittest.main()
