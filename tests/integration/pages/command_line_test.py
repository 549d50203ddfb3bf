"""Tests the help of every verb, and lists and names as people type them.

  command_line_test.py PATH/TO/sparfuse [unittest arguments]
"""

import json
import re
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from program import ProgramTest, main  # noqa: E402

TABLE = {
    "name": "mymodel", "unit": "images", "units_per_sample": 1, "batch_per_worker": 32,
    "family": "resnet", "source": "the test",
    "tensors": [{"name": "fc.weight", "shape": [1000, 2048], "macs": 2048000}],
}
EXPERIMENT = """
id = "paper/mine"
[defaults]
mode = "modelled"
cluster = "mine"
workload = "table:mymodel.json"
[[axis]]
workers = [8, 16]
[[axis]]
method = ["dense", "wfbp"]
"""


class Help(ProgramTest):
    def verbs(self):
        verbs = re.findall(r"^  ([a-z]+) {2,}\S", self.call("--help"), re.MULTILINE)
        self.assertGreater(len(verbs), 25)
        return verbs

    def examples(self, verb):
        text = self.call(verb, "--help")
        self.assertIn("\nExamples:\n", text, verb)
        return [line.strip() for line in text.split("\nExamples:\n")[1].splitlines() if line.strip()]

    def test_every_verb_has_two_examples_that_parse(self):
        for verb in self.verbs():
            with self.subTest(verb=verb):
                examples = self.examples(verb)
                self.assertEqual(len(set(examples)), 2, examples)
                for example in examples:
                    words = shlex.split(example)
                    self.assertEqual(words[:2], ["sparfuse", verb], example)
                    # The parser refuses the last word alone, so that it takes all others.
                    refused = self.call(*words[1:], "--no-such-option", code=2)
                    self.assertIn("not expected: --no-such-option", refused, example)

    def test_every_argument_of_a_verb_is_explained(self):
        for verb in self.verbs():
            lines = self.call(verb, "--help").splitlines()
            for line, below in zip(lines, lines[1:] + [""], strict=True):
                bare = re.fullmatch(r"  \S+ (TEXT|INT|FLOAT)\S*( \.\.\.)?( REQUIRED)? *", line)
                self.assertTrue(not bare or below.startswith(" " * 20), f"{verb}: {line}")


class Names(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "mymodel.json").write_text(json.dumps(TABLE))
        (self.folder / "mine.toml").write_text(EXPERIMENT)
        self.call("cluster", "new", "mine", "--preset", "v100-10gbe", "--nodes", "4")
        self.call("run", "mine.toml")

    def test_a_stored_experiment_keeps_its_unit_without_its_files(self):
        (self.folder / "mymodel.json").unlink()
        (self.folder / "mine.toml").unlink()
        table = self.call("table", "paper/mine", "--format", "text")
        self.assertIn(" images/s", table)
        self.assertNotIn("units/s", table)
        # Modelled trials ran on no system.
        self.assertRegex(self.call("status"), r"paper/mine +4 trial\(s\) of 4 cell\(s\); the newest of ")

    def test_a_near_miss_of_a_stored_name_is_known(self):
        self.assertIn('did you mean "paper/mine"?', self.call("table", "paper/mime", code=2))
        self.assertIn("known: paper/mine, ", self.call("table", "nothing-like-it-at-all", code=2))

    def test_lists_of_a_pivot_may_have_blanks(self):
        table = self.call("table", "mine.toml", "--pivot", " method", "workers , density", "--columns",
                          "throughput, n", "--format", "text")
        self.assertRegex(table, r"method +workers 8, density 1 +workers 8, density 0\.01 ")
        self.assertIn("throughput; n", table)

    def test_a_pivot_as_json_has_numbers(self):
        rows = json.loads(self.call("table", "mine.toml", "--pivot", "method", "workers", "--json"))
        self.assertEqual([row["method"] for row in rows], ["dense", "wfbp"])
        for row in rows:
            self.assertGreater(row["8 throughput"], 0)
            self.assertGreater(row["16 throughput"], row["8 throughput"])


if __name__ == "__main__":
    main()
