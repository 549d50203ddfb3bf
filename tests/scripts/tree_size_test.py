"""Tests the numbers that the measure of the tree prints, on a small tree with one case of each kind."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import tree_size

CONFIG = """\
// Describes a cell.
struct Link {
  double gbps = 0;
};

struct CellConfig {
  Kind kind = Kind::kThroughput;
  Options workload_options, recipe;
  int workers = 1, accumulation = 1;  // of "all" ranks
  std::optional<std::vector<int>> sizes;
  std::map<std::string, double> inputs{};
  bool is_profile() const { return kind == Kind::kProfile; }
  bool operator==(const CellConfig&) const = default;
};
"""
TREE = {
    "core/base/error.hpp": "int a;\n" * 40,
    "core/base/error.cpp": '#include "core/base/error.hpp"\n',
    "core/sparsify/topk/topk.cu": '#include "core/base/error.hpp"\n\nint a;',
    "harness/catalog/cell_config.hpp": CONFIG,
    "harness/catalog/cell_config.cpp":
        '#include "harness/catalog/cell_config.hpp"\nRead("accumulation"); // not "accumulation"\n',
    "harness/run/plan.hpp": "Plan Of(const nlohmann::json& cell);\n",
    "harness/run/run.hpp": "// Of nlohmann::json.\n#include <nlohmann/json_fwd.hpp>\n",
    "harness/files/json.hpp": "using nlohmann::json;\n",
    "harness/run/plan.cpp": '#include "harness/run/plan.hpp"\n#include "harness/run/run.hpp"\n'
        'constexpr auto kTemplate = R"(\n#include "harness/files/json.hpp"\n"accumulation": 1)";\n'
        '/* "workers" */ auto a = "http://workers"; auto b = "workers";\n',
    "harness/figures/page.py": "import re\n",
    "harness/figures/page.html.j2": "<p>\n",
    "scripts/lint": "#!/usr/bin/env bash\ntrue\n",
    "scripts/check": "#!/usr/bin/env python3\npass\n",
    "scripts/floors.txt": "core\n",
    "tests/core/base/error_test.cpp": '#include "harness/run/plan.hpp"\n"accumulation"\n',
    "CMakeLists.txt": "project(a)\n",
}


class Measured(unittest.TestCase):
    def setUp(self):
        self.sizes = tree_size.measure(TREE)

    def test_lines_are_counted_by_room_and_kind(self):
        rooms = {room: dict(lines) for room, lines in self.sizes.rooms.items()}
        self.assertEqual(rooms["core/base"], {tree_size.CPP: 41})
        self.assertEqual(rooms["core/sparsify"], {tree_size.CPP: 3})
        self.assertEqual(rooms["harness/figures"], {tree_size.PYTHON: 1, tree_size.WEB: 1})
        self.assertEqual(rooms["scripts"], {tree_size.SHELL: 2, tree_size.PYTHON: 2})
        self.assertEqual({room: dict(lines) for room, lines in self.sizes.tests.items()},
                         {"tests/core": {tree_size.CPP: 2}})

    def test_a_file_of_forty_lines_is_not_small(self):
        self.assertEqual((self.sizes.files, self.sizes.small), (13, 12))

    def test_a_header_serves_one_file_beside_its_own_source(self):
        # cell_config.hpp and plan.hpp serve only their own sources, json.hpp only a template of a file.
        self.assertEqual(self.sizes.headers, 5)
        self.assertEqual(self.sizes.serving_one, ["core/base/error.hpp", "harness/run/run.hpp"])

    def test_raw_json_is_what_a_header_says_outside_comments_and_rooms_of_json(self):
        self.assertEqual(self.sizes.harness_headers, 4)
        self.assertEqual(self.sizes.raw_json, ["harness/run/plan.hpp"])

    def test_keys_are_the_members_of_the_cells_struct_and_places_their_literals(self):
        self.assertEqual(self.sizes.places,
                         {"kind": 0, "workload_options": 0, "recipe": 0, "workers": 1,
                          "accumulation": 2, "sizes": 0, "inputs": 0})

    def test_a_tree_without_the_struct_or_with_two_is_refused(self):
        without = {name: text for name, text in TREE.items() if text != CONFIG}
        for tree, said in ((without, "no header"),
                           (TREE | {"harness/records/cell.hpp": CONFIG},
                            "harness/catalog/cell_config.hpp, harness/records/cell.hpp")):
            with self.assertRaisesRegex(ValueError, f"CellConfig is in {said}: expected one"):
                tree_size.measure(tree)


class Printed(unittest.TestCase):
    def test_a_revision_stands_beside_the_present_tree(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in TREE.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)

            def git(*words):
                subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
                               cwd=root, check=True, capture_output=True)
            git("init", "--quiet")
            git("add", ".")
            git("commit", "--quiet", "-m", "a")
            (root / "harness/run/run.hpp").unlink()
            (root / "workloads").mkdir()
            (root / "workloads/data.cpp").write_text("\n" * 1500)  # git does not know it yet
            before = tree_size.measure(tree_size.tree_of(root, "HEAD"))
            now = tree_size.measure(tree_size.present_tree(root))
        self.assertEqual(before, tree_size.measure(TREE))
        printed = list(tree_size.report(now, before, "HEAD"))
        rows = {" ".join(line[:40].split()): line[40:].split() for line in printed}
        self.assertEqual(rows["workloads"], ["1,500", "0", "+1,500", "C++/CUDA", "1,500"])
        self.assertEqual(rows["harness/run"], ["7", "9", "-2", "C++/CUDA", "7"])
        self.assertEqual(rows["that serve one other file"], ["1", "2", "-1"])
        self.assertEqual(rows["places that spell a key, median"], ["0", "0", "+0"])
        self.assertEqual(rows["places that spell a key, most"], ["2", "2", "+0"])
        self.assertEqual(rows["accumulation"], ["2", "2", "+0"])
        brief = list(tree_size.report(now, brief=True))
        self.assertEqual(brief, [line[:49] for line in printed[-len(brief):]])
        self.assertTrue(brief[0].startswith("lines of product"))


if __name__ == "__main__":
    unittest.main()
