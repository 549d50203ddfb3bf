"""Tests the check that headers stand alone: whose options it takes, and what it says of a header."""

import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import lint_headers


class Options(unittest.TestCase):
    def test_a_source_leaves_its_compilers_options_without_result_and_precompiled_header(self):
        self.assertEqual(
            lint_headers.options_of("env A=1 ccache /usr/bin/c++ -I/a -std=c++20 -Winvalid-pch "
                                    "-include b.hxx -o a.o -c a.cpp"),
            ["/usr/bin/c++", "-I/a", "-std=c++20"])

    def test_sources_that_are_compiled_together_have_the_options_of_the_whole(self):
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch.object(lint_headers, "ROOT", Path(folder)):
            build = Path(folder) / "build"
            (build / "Unity").mkdir(parents=True)
            unity = build / "Unity/unity_0_cxx.cxx"
            unity.write_text(f'#include "{folder}/harness/run/a.cpp"\n')
            (build / "compile_commands.json").write_text(json.dumps([
                {"file": str(unity), "command": f"c++ -DA -o a.o -c {unity}"},
                {"file": f"{folder}/core/b.cpp", "command": "c++ -DB -o b.o -c b.cpp"}]))
            self.assertEqual(lint_headers.options_by_source(build),
                             {"harness/run/a.cpp": ["c++", "-DA"], "core/b.cpp": ["c++", "-DB"]})

    def test_the_nearest_source_is_the_headers_own_else_one_of_its_folder(self):
        sources = ["core/z.cpp", "harness/a.cpp", "harness/run/a.cpp", "harness/run/b.cpp"]
        for header, source in (("harness/run/b.hpp", "harness/run/b.cpp"),
                               ("harness/run/c.hpp", "harness/run/a.cpp"),
                               ("harness/site/c.hpp", "harness/a.cpp"),
                               ("core/base/z.hpp", "core/z.cpp")):
            self.assertEqual(lint_headers.nearest(header, sources), source)

    def test_a_source_that_includes_the_header_comes_before_a_nearer_one(self):
        sources = {"harness/run/a.cpp": [], "tests/z.cpp": []}
        self.assertEqual(lint_headers.nearest("harness/run/b.hpp", sources, ["tests/z.cpp"]),
                         "tests/z.cpp")
        self.assertEqual(lint_headers.nearest("harness/run/b.hpp", sources, ["other.cpp"]),
                         "harness/run/a.cpp")


class Headers(unittest.TestCase):
    def test_a_header_that_uses_what_it_does_not_include_is_named_with_the_error(self):
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch.object(lint_headers, "ROOT", Path(folder)):
            (Path(folder) / "good.hpp").write_text("#pragma once\n#include <vector>\n"
                                                   "std::vector<int> A();\n")
            (Path(folder) / "bad.hpp").write_text("#pragma once\nstd::vector<int> A();\n")
            compiler = ["c++", "-std=c++20"]
            self.assertEqual(lint_headers.what_is_missing("good.hpp", compiler), "")
            self.assertIn("bad.hpp:2:6: error:", lint_headers.what_is_missing("bad.hpp", compiler))


if __name__ == "__main__":
    unittest.main()
