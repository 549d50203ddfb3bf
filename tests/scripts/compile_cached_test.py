"""Checks which files scripts/compile_cached removes before it runs a compiler."""

import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts/compile_cached"


class CompileCached(unittest.TestCase):
    def run_with(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", SCRIPT, *arguments], capture_output=True, text=True)

    def test_only_the_precompiled_header_that_is_made_again_goes(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            made, used, compiled = (Path(folder) / name for name in ("made.hxx.gch", "used.hxx.gch", "a b.o"))
            for file in (made, used, compiled):
                file.write_text("old")
            self.run_with("true", "-include", str(used), "-o", str(made))
            self.run_with("true", "-include", str(used), "-o", str(compiled))
            self.assertFalse(made.exists())
            self.assertTrue(used.exists())
            self.assertTrue(compiled.exists())

    def test_the_compiler_gets_its_arguments_and_gives_its_status(self) -> None:
        ran = self.run_with("sh", "-c", 'echo "$2"; exit 3', "name", "-DTEXT=one two", "a  b")
        self.assertEqual((ran.returncode, ran.stdout), (3, "a  b\n"))


if __name__ == "__main__":
    unittest.main()
